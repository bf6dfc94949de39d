//! One round, event by event, with kernel functions and verdicts.

use crate::SCHEMA_VERSION;
use crate::compare::Ran;
use crate::json::value;
use crate::style::{Style, columns, count};
use needless_model::account::{RoundAccount, RoundAt, thread_name};
use needless_model::event::{Event, EventKind, FlushReason};
use needless_model::program::Program;
use needless_model::pte::Pte;
use needless_model::site::Site;
use needless_model::verdict::Verdict;
use serde_json::{Value, json};

/// One round of a target.
#[derive(Copy, Clone, Debug)]
pub struct Explanation<'a> {
    /// The program that was run.
    pub program: &'a Program,
    /// The target's name.
    pub ran: &'a Ran,
    /// The round's position in the run.
    pub at: usize,
}

impl Explanation<'_> {
    fn round(&self) -> Option<&RoundAt> {
        self.ran.account.rounds.get(self.at)
    }

    /// The events of the round. A run of the model has them only for the round that was asked for.
    pub(crate) fn events(&self) -> &[Event] {
        let index = self.round().map(|round| round.index);
        let round = self.ran.run.rounds.iter().find(|round| Some(round.index) == index);
        round.map_or(&[], |round| &round.events)
    }

    fn account(&self) -> Option<&RoundAccount> {
        self.ran.account.round(self.at)
    }

    /// The verdict on an event: its own, or the one transferred from the model.
    pub(crate) fn verdict(&self, event: &Event) -> Option<Verdict> {
        let transferred = || {
            self.ran.reference.as_ref()?;
            let seen = &self.account()?.seen;
            let seq = event.seq.wrapping_sub(self.round()?.first_seq);
            seen.iter().find(|observation| observation.seq == seq)?.verdict
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

/// The round as text: operations, below each its events, and below each event its verdict.
pub fn text(explanation: &Explanation<'_>, style: Style) -> String {
    let Explanation { program, ran, at } = *explanation;
    let head = format!("{} on {}, round {at}", style.bold(&program.name), ran.run.target);
    let mut text = style.wrap(&head, 6) + "\n\n";
    if explanation.events().is_empty() {
        return text + &style.wrap(&no_events(ran), 6) + "\n";
    }
    text += &listing(explanation, style);
    if let Some(line) = sequence_line(explanation, style) {
        text += &format!("\n{}\n", style.wrap(&line, 10));
    }
    if let Some(line) = borrowed_line(explanation) {
        text += &format!("{}\n", style.wrap(&line, 6));
    }
    text
}

/// Why there is nothing to list.
pub(crate) fn no_events(ran: &Ran) -> String {
    let reason = ran.account.unknown.get(needless_model::account::SEQUENCE);
    reason.map_or("no event in this round".to_owned(), |reason| format!("no events: {reason}"))
}

/// The round's sequence.
pub(crate) fn sequence_line(explanation: &Explanation<'_>, style: Style) -> Option<String> {
    let sequence = explanation.account()?.sequence.as_ref()?;
    Some(format!("sequence: {}", style.charset(&sequence.to_string())))
}

/// Whose verdicts are told, if they are another one's.
pub(crate) fn borrowed_line(explanation: &Explanation<'_>) -> Option<String> {
    let row = explanation.borrowed()?;
    Some(format!("verdicts are those of {row}, whose sequence is the same"))
}

/// One event in words.
struct Line<'a> {
    /// The parts of a line: number, CPU, thread, event, function.
    cells: [String; 5],
    operation: &'a str,
    verdict: Option<Verdict>,
}

/// The header above the columns.
const HEADS: [&str; 5] = ["event", "cpu", "thread", "what", "function"];

fn listing(explanation: &Explanation<'_>, style: Style) -> String {
    let program = explanation.program;
    let line = |event: &Event| Line {
        cells: [
            event.seq.to_string(),
            event.cpu.0.to_string(),
            thread_name(program, event.thread).to_owned(),
            what(program, event, style),
            event.site.map_or("", |site| site.function()).to_owned(),
        ],
        operation: operation(program, event),
        verdict: explanation.verdict(event),
    };
    let lines: Vec<Line<'_>> = explanation.events().iter().map(line).collect();
    let layout = Layout::of(&lines, style);
    let mut text = layout.row(&HEADS.map(str::to_owned));
    let mut current = "";
    for line in &lines {
        if !line.operation.is_empty() && line.operation != current {
            current = line.operation;
            text += &(style.wrap(&style.bold(current), 6) + "\n");
        }
        text += &layout.row(&line.cells);
        text += &line.verdict.map_or_else(String::new, |v| layout.below(&verdict_text(v)));
    }
    text
}

/// Places the parts of an event. The function is beside the event, or below it if both do not fit.
/// The verdict is below.
struct Layout {
    widths: [usize; 4],
    style: Style,
}

impl Layout {
    fn of(lines: &[Line<'_>], style: Style) -> Layout {
        let widest = |at: usize| {
            let cells = lines.iter().map(|line| columns(&line.cells[at]));
            cells.max().unwrap_or(0).max(HEADS[at].len())
        };
        let mut layout = Layout { widths: [widest(0), widest(1), widest(2), 0], style };
        let left = usize::from(style.width).saturating_sub(layout.indent() + widest(4) + 2);
        layout.widths[3] = widest(3).min(left);
        layout
    }

    /// The column at which the event begins.
    fn indent(&self) -> usize {
        self.widths[..3].iter().map(|width| width + 2).sum()
    }

    fn row(&self, [seq, cpu, thread, what, function]: &[String; 5]) -> String {
        let [seqs, cpus, threads, whats] = self.widths;
        let line = format!("{seq:>seqs$}  {cpu:>cpus$}  {thread:threads$}  {what:whats$}");
        let line = line.trim_end();
        if function.is_empty() || columns(what) <= whats {
            let line = format!("{line:beside$}{function}", beside = self.indent() + whats + 2);
            return self.style.wrap(line.trim_end(), self.indent() + 2) + "\n";
        }
        self.style.wrap(line, self.indent() + 2) + "\n" + &self.below(function)
    }

    fn below(&self, text: &str) -> String {
        let indent = self.indent() + 2;
        self.style.wrap(&format!("{:indent$}{text}", ""), indent) + "\n"
    }
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
        "round": explanation.round().map(|round| round.index),
        "sequence": account.and_then(|r| r.sequence.as_ref()).map(ToString::to_string),
        "verdicts_from": explanation.borrowed(),
        "unknown": ran.account.unknown,
        "events": events,
    })
}

/// The operation that an event belongs to.
pub(crate) fn operation<'a>(program: &'a Program, event: &Event) -> &'a str {
    let text = event.op.and_then(|op| program.op_texts.get(op as usize));
    // The head of a block is enough: its body has operations of its own.
    text.and_then(|text| text.lines().next()).map_or("", str::trim)
}

/// A verdict in words.
pub(crate) fn verdict_text(verdict: Verdict) -> String {
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
        EventKind::FaultRetry { page, mapped } => {
            let state = if mapped { "mapped" } else { "not mapped yet" };
            format!("retry {} {state}: unlocked{}", name(page), waits(event.site))
        }
        EventKind::FaultAgain { page, tried } => {
            let how = if tried { "FAULT_FLAG_TRIED: it keeps its lock" } else { "with mmap_lock" };
            format!("again {}, {how}", name(page))
        }
        EventKind::FaultCompleted { page } => {
            let over = "unlocked to throttle writers";
            format!("ends  {}, VM_FAULT_COMPLETED: {over}", name(page))
        }
        EventKind::MayFault { page } => {
            format!("may fault {} write, present: a processor's choice", name(page))
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
        EventKind::Split { page, frame, shared } => {
            let others = if shared { ", which others map" } else { "" };
            format!("split {} frame {}{others}: mapped page by page", name(page), frame.0)
        }
        EventKind::Free { frame } => format!("free frame {}", frame.0),
        EventKind::Pte { page, old, new } => {
            format!("pte {} {} {arrow} {}", name(page), pte(old), pte(new))
        }
        EventKind::Flush { reason, pages, asked } => flush(reason, pages, asked),
        EventKind::Told { page, pages } => {
            format!("told: {} from {}", count(pages as usize, "page"), name(page))
        }
        EventKind::PageStatus { page, status } if status.0 >= 0 => {
            format!("move_pages: {} is on node {status}", name(page))
        }
        EventKind::PageStatus { page, status } => {
            format!("move_pages: {} was not moved: {status}", name(page))
        }
        EventKind::TableSync { to } => {
            format!("interrupt {to}: no walk without a lock goes on there")
        }
        EventKind::Tlbi { operation, pages, single, ranged } => {
            let pages =
                pages.map_or("the address space".to_owned(), |pages| count(pages as usize, "page"));
            let forms = [
                (single, operation.instruction()),
                (ranged, format!("tlbi r{}", operation.name())),
            ];
            let forms = forms.iter().filter(|(times, _)| *times > 0);
            let forms: Vec<String> =
                forms.map(|(times, instruction)| format!("{times} x {instruction}")).collect();
            format!("flush {pages}: {}", forms.join(", "))
        }
        EventKind::Dsb { barrier, times: 1 } => format!("dsb {}", barrier.name()),
        EventKind::Dsb { barrier, times } => format!("{times} x dsb {}", barrier.name()),
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

/// Why a fault gives its lock back, by the function that does so.
fn waits(site: Option<Site>) -> &'static str {
    match site {
        Some(Site::FaultDirtySharedPage) => " to throttle writers",
        Some(Site::FilemapFault) => " to read the page",
        Some(Site::FolioLockOrRetry) => " until the folio is unlocked",
        Some(Site::MigrationEntryWait) => " until the page has moved",
        Some(Site::HandleUserfault) => " until userfaultfd answers",
        Some(Site::MmapReadTrylock) => ": mmap_lock is needed",
        _ => "",
    }
}

fn flush(reason: FlushReason, pages: Option<u32>, asked: Option<u16>) -> String {
    let pages = match pages {
        None => "all pages".to_owned(),
        Some(1) => "1 page".to_owned(),
        Some(pages) => format!("{pages} pages"),
    };
    let asked = match asked {
        Some(1) => " to 1 CPU".to_owned(),
        Some(cpus) => format!(" to {cpus} CPUs"),
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
    format!("flush {reason}{asked}: {pages}")
}

/// A page-table entry in words.
pub(crate) fn pte(pte: Pte) -> String {
    match pte {
        Pte::None => "none".to_owned(),
        Pte::Table(table) => format!("table {}", table.0),
        Pte::Swap(swap) => format!("swap {}", swap.slot),
        Pte::Migration(migration) => format!("migrating from frame {}", migration.pfn.0),
        Pte::Marker(marker) => format!("marker {marker:?}"),
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
