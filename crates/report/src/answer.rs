//! The answer of a run or a comparison: what each target did needlessly, and what avoids it.
//!
//! It comes before all figures. A verdict that is not known is said to be unknown.

use crate::compare::{Comparison, Ran};
use crate::notes::per_round;
use crate::style::{Style, number};
use crate::table::star;
use needless_model::counters::{Counter, Fold};
use needless_model::verdict::Needless;
use serde::Serialize;

/// A kind of needless thing, and what avoids it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Avoided {
    /// The counter of needless things.
    pub counter: Counter,
    /// The first kernel row from which on no kernel does it. `None`: the newest one still does.
    pub since: Option<String>,
    /// Proposals that lower the newest row's count.
    pub proposals: Vec<Lowered>,
}

/// The count that a proposed policy leaves on a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lowered {
    /// The row with the proposal: `model:7.3+pending-cleared`.
    pub target: String,
    /// The newest row's count per round.
    pub from: u64,
    /// The count that is left.
    pub to: u64,
}

/// A kind of event that has verdicts: its counter, the counter of its needless ones, and its words.
struct Judged {
    all: Counter,
    needless: Counter,
    one: &'static str,
    many: &'static str,
}

/// The kinds that the answer names. Interrupts are left out: each follows from a shootdown.
static JUDGED: [Judged; 5] = [
    judged(Counter::Faults, Counter::NeedlessFaults, "fault", "faults"),
    judged(Counter::Retries, Counter::NeedlessRetries, "retry", "retries"),
    judged(Counter::Copies, Counter::NeedlessCopies, "copy", "copies"),
    judged(Counter::Shootdowns, Counter::NeedlessShootdowns, "shootdown", "shootdowns"),
    judged(Counter::LocalFlushes, Counter::NeedlessLocalFlushes, "local flush", "local flushes"),
];

const fn judged(all: Counter, needless: Counter, one: &'static str, many: &'static str) -> Judged {
    Judged { all, needless, one, many }
}

/// Whether a counter counts needless things.
pub(crate) const fn counts_needless(counter: Counter) -> bool {
    matches!(counter.fold(), Fold::Needless(_))
}

/// The counters of needless things that an answer names.
pub fn needless_counters() -> impl Iterator<Item = Counter> {
    JUDGED.iter().map(|judged| judged.needless)
}

/// What a run did of one kind of thing that gets verdicts, in a round.
pub(crate) struct Share {
    judged: &'static Judged,
    /// How many there were; `None`: it is unknown.
    pub all: Option<u64>,
    /// How many of these were needless; `None`: it is unknown.
    pub needless: Option<u64>,
}

impl Share {
    /// So many of the kind: `1 copy`.
    pub(crate) fn counted(&self, many: u64) -> String {
        counted(many, self.judged)
    }
}

/// The names of the kinds of things that get verdicts, in the order of [`shares`].
pub(crate) fn kinds() -> Vec<&'static str> {
    JUDGED.iter().map(|judged| judged.many).collect()
}

/// What a run did in a round, kind by kind.
pub(crate) fn shares(ran: &Ran) -> Vec<Share> {
    let typical = |counter| ran.account.typical(counter);
    let share = |judged: &'static Judged| Share {
        judged,
        all: typical(judged.all),
        needless: typical(judged.needless),
    };
    JUDGED.iter().map(share).collect()
}

/// The lines of the answer, with targets of one answer on one line.
pub(crate) fn lines(comparison: &Comparison, style: Style) -> Vec<String> {
    let mut answers: Vec<(String, Vec<&str>)> = Vec::new();
    for target in &comparison.targets {
        let Some(ran) = target.ran() else { continue };
        let (name, answer) = (target.name.as_str(), of_run(ran));
        match answers.iter_mut().find(|(known, _)| *known == answer) {
            Some((_, names)) => names.push(name),
            None => answers.push((answer, vec![name])),
        }
    }
    let line = |(answer, names): &(String, Vec<&str>)| format!("  {}: {answer}", names.join(", "));
    let avoided = comparison.avoided.iter().map(|avoided| avoided_line(avoided, style));
    answers.iter().map(line).chain(avoided).collect()
}

/// The needless things of each round of a run: `1 of 2 faults, 2 of 4 shootdowns`.
pub(crate) fn of_run(ran: &Ran) -> String {
    let account = &ran.account;
    let mut needless = Vec::new();
    let mut needed = Vec::new();
    let mut unknown: Vec<(&str, &str)> = Vec::new();
    for judged in &JUDGED {
        let all = account.typical(judged.all);
        match (account.typical(judged.needless), all) {
            (Some(0), Some(0)) | (Some(0), None) => {}
            (None, Some(0)) => {}
            (None, _) => {
                let reason = account.unknown.get(judged.needless.name());
                unknown.push((judged.many, reason.map_or("no verdict", String::as_str)));
            }
            (Some(0), Some(all)) => needed.push(counted(all, judged)),
            (Some(some), all) => {
                let all = all.map_or("?".to_owned(), |all| counted(all, judged));
                let star = star(ran, judged.needless.name());
                needless.push(format!("{}{star} of {all}", number(some)));
            }
        }
    }
    for (finding, total) in account.findings() {
        let often = || per_round(total, account.total);
        match finding.what {
            Needless::FullFlush => needless.push(format!("{} flushes too wide", often())),
            Needless::Split => needless.push(format!("{} splits of a huge page", often())),
            _ => {}
        }
    }
    let known = match (needless.is_empty(), needed.is_empty(), unknown.is_empty()) {
        (false, _, _) => Some(needless.join(", ")),
        (true, false, _) => Some(format!("nothing: all of {} were needed", needed.join(", "))),
        (true, true, true) => Some("nothing: no fault, copy or flush".to_owned()),
        (true, true, false) => None,
    };
    let reason = unknown.first().map(|(_, reason)| *reason);
    let what = unknown.iter().map(|(what, _)| *what).collect::<Vec<_>>().join(", ");
    let unknown = reason.map(|reason| format!("not known of {what} ({reason})"));
    known.into_iter().chain(unknown).collect::<Vec<_>>().join("; ")
}

fn counted(all: u64, judged: &Judged) -> String {
    format!("{} {}", number(all), if all == 1 { judged.one } else { judged.many })
}

/// What avoids a needless thing: `From 6.1 on, kernels have no needless copies.`
fn avoided_line(avoided: &Avoided, style: Style) -> String {
    let judged = JUDGED.iter().find(|judged| judged.needless == avoided.counter);
    let what = judged.map_or(avoided.counter.name(), |judged| judged.many);
    if let Some(since) = &avoided.since {
        return format!("  From {since} on, kernels have no needless {what}.");
    }
    let arrow = style.arrow();
    let proposal = |lowered: &Lowered| {
        let Lowered { target, from, to } = lowered;
        format!("{target} ({} {arrow} {})", number(*from), number(*to))
    };
    let proposals: Vec<String> = avoided.proposals.iter().map(proposal).collect();
    match proposals.as_slice() {
        [] => format!("  The newest kernel still has needless {what}; no proposal lowers them."),
        some => format!(
            "  The newest kernel still has needless {what}; a proposal lowers them: {}.",
            some.join(", ")
        ),
    }
}
