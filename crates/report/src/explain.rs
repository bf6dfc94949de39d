//! One round, event by event, with kernel functions and verdicts.

use crate::SCHEMA_VERSION;
use crate::compare::Ran;
use crate::json::value;
use crate::style::Style;
use comfy_table::{CellAlignment, Table, presets};
use needless_model::account::{RoundAccount, thread_name};
use needless_model::event::{Event, EventKind, FlushReason};
use needless_model::program::Program;
use needless_model::pte::Pte;
use needless_model::verdict::Verdict;
use serde_json::{Value, json};

/// One round of a target.
#[derive(Copy, Clone, Debug)]
pub struct Explanation<'a> {
    /// What was run.
    pub program: &'a Program,
    /// The target.
    pub ran: &'a Ran,
    /// The round's position in the run.
    pub at: usize,
}

impl Explanation<'_> {
    fn events(&self) -> &[Event] {
        self.ran.run.rounds.get(self.at).map_or(&[], |round| &round.events)
    }

    fn account(&self) -> Option<&RoundAccount> {
        self.ran.account.rounds.get(self.at)
    }

    /// The verdict on an event: its own, or the one transferred from the model.
    fn verdict(&self, event: &Event) -> Option<Verdict> {
        let transferred = || {
            self.ran.reference.as_ref()?;
            let seen = &self.account()?.seen;
            seen.iter().find(|observation| observation.seq == event.seq)?.verdict
        };
        event.verdict.or_else(transferred)
    }

    /// Whether verdicts come from the model's row.
    fn borrowed(&self) -> Option<&str> {
        let reference = self.ran.reference.as_ref()?;
        (!reference.transferred.is_empty() && !reference.agreement.differing.contains(&self.at))
            .then_some(reference.row.as_str())
    }
}

/// The round as a table.
pub fn text(explanation: &Explanation<'_>, style: Style) -> String {
    let Explanation { program, ran, at } = *explanation;
    let mut text = format!("{} on {}, round {at}\n\n", style.bold(&program.name), ran.run.target);
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    table.set_header(["event", "cpu", "thread", "operation", "what", "function", "verdict"]);
    for event in explanation.events() {
        table.add_row([
            event.seq.to_string(),
            event.cpu.0.to_string(),
            thread_name(program, event.thread).to_owned(),
            operation(program, event).to_owned(),
            what(program, event, style),
            event.site.map_or("", |site| site.function()).to_owned(),
            explanation.verdict(event).map_or_else(String::new, verdict_text),
        ]);
    }
    for at in [0, 1] {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if explanation.events().is_empty() {
        let reason = ran.account.unknown.get(needless_model::account::SEQUENCE);
        text +=
            &reason.map_or("no event in this round\n".to_owned(), |r| format!("no events: {r}\n"));
        return text;
    }
    text += &table.trim_fmt();
    text.push('\n');
    if let Some(sequence) = explanation.account().and_then(|round| round.sequence.as_ref()) {
        text += &format!("\nsequence: {}\n", style.charset(&sequence.to_string()));
    }
    if let Some(row) = explanation.borrowed() {
        text += &format!("verdicts are those of {row}, whose sequence is the same\n");
    }
    text
}

/// The round as a JSON document.
pub fn json(explanation: &Explanation<'_>) -> Value {
    let Explanation { program, ran, .. } = *explanation;
    let events: Vec<Value> = explanation
        .events()
        .iter()
        .map(|event| {
            let verdict = explanation.verdict(event);
            let mut object = value(event);
            object["verdict"] = json!(verdict);
            object["reason_text"] = json!(verdict.map(|verdict| verdict.reason.text()));
            object["function"] = json!(event.site.map(|site| site.function()));
            object["file"] = json!(event.site.map(|site| site.file()));
            object["operation_text"] =
                json!(Some(operation(program, event)).filter(|t| !t.is_empty()));
            object
        })
        .collect();
    let account = explanation.account();
    json!({
        "schema_version": SCHEMA_VERSION,
        "scenario": { "name": program.name },
        "target": ran.run.target,
        "release": ran.run.release,
        "round": account.map(|round| round.index),
        "sequence": account.and_then(|r| r.sequence.as_ref()).map(ToString::to_string),
        "verdicts_from": explanation.borrowed(),
        "unknown": ran.account.unknown,
        "events": events,
    })
}

fn operation<'a>(program: &'a Program, event: &Event) -> &'a str {
    let text = event.op.and_then(|op| program.op_texts.get(op as usize));
    // The head of a block is enough: its body has operations of its own.
    text.and_then(|text| text.lines().next()).map_or("", str::trim)
}

fn verdict_text(verdict: Verdict) -> String {
    let judgement = if verdict.is_needless() { "NEEDLESS" } else { "needed" };
    let cause =
        verdict.caused_by.map(|seq| format!(" (caused by event {seq})")).unwrap_or_default();
    format!("{judgement}: {}{cause}", verdict.reason.text())
}

/// The event in words.
pub fn what(program: &Program, event: &Event, style: Style) -> String {
    let name = |page| program.page_name(page).unwrap_or_else(|| page.to_string());
    let arrow = style.arrow();
    match event.kind {
        EventKind::Fault { page, code } => {
            let access = if code.write() { "write" } else { "read" };
            let state = if code.present() { "present" } else { "not present" };
            format!("fault {} {access}, {state}", name(page))
        }
        EventKind::FaultDone { page, class, major, exception } => {
            let size = if major { "major" } else { "minor" };
            let how = if exception { "" } else { ", no exception" };
            format!("done  {} {}, {size}{how}", name(page), class.name())
        }
        EventKind::Copy { page, from, to } => {
            format!("copy  {} frame {} {arrow} {}", name(page), from.0, to.0)
        }
        EventKind::Zero { page, frame } => format!("zero  {} frame {}", name(page), frame.0),
        EventKind::PageIn { page, frame, zero_filled } => {
            let how = if zero_filled { " (zeros)" } else { "" };
            format!("swap in {} frame {}{how}", name(page), frame.0)
        }
        EventKind::PageOut { page, frame, zero_filled } => {
            let skipped = if zero_filled { ", only zeros: not written" } else { "" };
            format!("swap out {} frame {}{skipped}", name(page), frame.0)
        }
        EventKind::Free { frame } => format!("free frame {}", frame.0),
        EventKind::Pte { page, old, new } => {
            format!("pte {} {} {arrow} {}", name(page), pte(old), pte(new))
        }
        EventKind::Flush { reason, pages, asked } => flush(reason, pages, asked),
        EventKind::Switch { to } => format!("switch to {}", thread_name(program, to)),
        EventKind::Mark { mark } => {
            let name = program.marks.get(usize::from(mark)).map_or("?", String::as_str);
            format!("mark {name}")
        }
        EventKind::RoundStart { round } => format!("round {round} starts"),
        EventKind::RoundEnd { round } => format!("round {round} ends"),
        EventKind::MeasureStart => "measure starts".to_owned(),
        EventKind::MeasureEnd => "measure ends".to_owned(),
    }
}

fn flush(reason: FlushReason, pages: Option<u32>, asked: Option<u16>) -> String {
    let pages = match pages {
        None => "all pages".to_owned(),
        Some(1) => "1 page".to_owned(),
        Some(pages) => format!("{pages} pages"),
    };
    let asked = match asked {
        Some(1) => ", 1 CPU interrupted".to_owned(),
        Some(cpus) => format!(", {cpus} CPUs interrupted"),
        None => String::new(),
    };
    let reason = match reason {
        FlushReason::TaskSwitch => "at switch",
        FlushReason::RemoteShootdown => "received",
        FlushReason::LocalBatch => "local, batch",
        FlushReason::LocalMm => "local",
        FlushReason::RemoteSend => "sent",
        FlushReason::RemoteWrongCpu => "received, other address space",
    };
    format!("flush {reason}: {pages}{asked}")
}

fn pte(pte: Pte) -> String {
    match pte {
        Pte::None => "none".to_owned(),
        Pte::Swap(swap) => format!("swap {}", swap.slot),
        Pte::Present(p) => {
            let flag = |set, letter| if set { letter } else { '-' };
            let flags: String =
                [flag(p.writable(), 'w'), flag(p.accessed(), 'a'), flag(p.dirty(), 'd')]
                    .iter()
                    .collect();
            format!("frame {} {flags}", p.pfn.0)
        }
    }
}
