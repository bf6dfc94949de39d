//! The kernel's own count of interrupts, per CPU, and when it was read.

use crate::fold::{Asked, Reading, Tally, Times};
use needless_runner::look::{Unseen, look};
use serde::Serialize;
use std::collections::BTreeMap;

/// A line of `/proc/interrupts` (arch/x86/kernel/irq.c: arch_show_interrupts, 5.10 to 7.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Line {
    /// Interrupts for function calls.
    Cal,
    /// Functions of those that flush an address space's translations.
    Tlb,
    /// Rescheduling interrupts.
    Res,
    /// Interrupts for work that was put off.
    Iwi,
    /// Interrupts of the CPU's own timer.
    Loc,
}

impl Line {
    /// All of them.
    pub const ALL: [Line; 5] = [Line::Cal, Line::Tlb, Line::Res, Line::Iwi, Line::Loc];

    /// As the file names it.
    pub fn name(self) -> &'static str {
        match self {
            Line::Cal => "CAL",
            Line::Tlb => "TLB",
            Line::Res => "RES",
            Line::Iwi => "IWI",
            Line::Loc => "LOC",
        }
    }
}

/// What the file said, by line and CPU.
#[derive(Clone, Debug, Default)]
pub struct Count {
    /// When it was being read.
    pub reading: Reading,
    lines: BTreeMap<Line, BTreeMap<u16, u64>>,
}

impl Count {
    /// Reads it; `now` is the clock of the records.
    pub fn read(now: impl Fn() -> u64) -> Result<Count, Unseen> {
        let before = now();
        let text = look("/proc/interrupts")?.unwrap_or_default();
        Ok(Count { reading: (before, now()), lines: lines(&text) })
    }

    /// What was added since an earlier one to a CPU's line; none where either lacks it.
    fn since(&self, earlier: &Count, line: Line, cpu: u16) -> Option<u64> {
        let of = |count: &Count| count.lines.get(&line)?.get(&cpu).copied();
        // The kernel's counts are of 32 bits.
        Some(u64::from((of(self)? as u32).wrapping_sub(of(earlier)? as u32)))
    }

    /// The CPUs that the file has columns for.
    fn cpus(&self) -> impl Iterator<Item = u16> {
        let first = self.lines.values().next();
        first.into_iter().flat_map(|line| line.keys().copied())
    }
}

/// The head names the CPUs that are online, and each line has a number for each.
fn lines(text: &str) -> BTreeMap<Line, BTreeMap<u16, u64>> {
    let mut rows = text.lines();
    let head = rows.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<u16> = head.filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    let of_line = |row: &str| {
        let (name, rest) = row.trim_start().split_once(':')?;
        let line = Line::ALL.into_iter().find(|line| line.name() == name)?;
        let counts: Option<Vec<u64>> =
            rest.split_whitespace().take(cpus.len()).map(|word| word.parse().ok()).collect();
        let counts = counts.filter(|counts| counts.len() == cpus.len())?;
        Some((line, cpus.iter().copied().zip(counts).collect()))
    };
    rows.filter_map(of_line).collect()
}

/// A line of one CPU as the kernel counted it, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The CPU.
    pub cpu: u16,
    /// The line.
    pub line: Line,
    /// What the kernel counted.
    pub counted: u64,
    /// What was recorded of the same; none where that is not recorded.
    pub seen: Option<u64>,
    /// Of what was recorded, how much came while the file was being read: it may be in the kernel's
    /// count or not.
    pub at_the_edge: u64,
    /// Whether both agree; none where it is not recorded.
    pub agrees: Option<bool>,
    /// Functions that were called in this CPU's interrupts, by their cause; of the line of function
    /// calls only.
    pub functions: BTreeMap<&'static str, u64>,
    /// Why there is a difference, or may be one.
    pub why: Option<&'static str>,
}

/// What of interrupts is recorded.
#[derive(Copy, Clone, Debug)]
pub struct Recorded {
    /// Functions by name.
    pub functions: bool,
    /// Interrupts for function calls.
    pub calls: bool,
    /// Rescheduling interrupts and those for work that was put off.
    pub others: bool,
    /// Interrupts of timers.
    pub timers: bool,
}

const WAKE_UPS: &str = "wake-ups are not recorded (--every-interrupt does), and one interrupt may call several functions";
const ANSWERS: &str = "this kernel tells of a flush only where a program's translations are loaded";
const UNRECORDED: &str = "not recorded (--every-interrupt does)";
const UNSHOWN: &str = "functions that interrupts call are not shown by this kernel";
const DIFFERS: &str = "some came upon an idle CPU, where the kernel does not write every event, or one was under way when the file was read";
const LOST: &str = "records were lost";

/// Holds what was seen against what the kernel counted; where only some CPUs are watched, of these.
/// `lost`: records were.
pub fn hold(
    (first, last): (&Count, &Count),
    tally: impl Fn(u16) -> Tally,
    recorded: Recorded,
    lost: bool,
    guarded: Option<&[u16]>,
) -> Vec<Held> {
    let mut held = Vec::new();
    // Timers are nobody's doing, and of interest where nothing at all is to come.
    let lines = || Line::ALL.into_iter().filter(|line| *line != Line::Loc || recorded.timers);
    for cpu in last.cpus().filter(|cpu| guarded.is_none_or(|guarded| guarded.contains(cpu))) {
        let tally = tally(cpu);
        for line in lines() {
            let Some(counted) = last.since(first, line, cpu) else { continue };
            let (seen, why) = seen(line, &tally, recorded);
            let agrees = seen.map(|seen| seen.agrees(counted));
            let functions = match line {
                Line::Cal => tally.in_interrupts.iter(),
                Line::Tlb | Line::Res | Line::Iwi | Line::Loc => Default::default(),
            };
            let functions =
                functions.map(|(asked, seen)| (asked.title(), seen.surely + seen.maybe));
            let functions = functions.filter(|(_, seen)| *seen > 0);
            held.push(Held {
                cpu,
                line,
                counted,
                seen: seen.map(|seen| seen.surely + seen.maybe),
                at_the_edge: seen.map_or(0, |seen| seen.maybe),
                agrees,
                functions: functions.collect(),
                why: if agrees == Some(false) {
                    why.or(Some(if lost { LOST } else { DIFFERS }))
                } else {
                    why.filter(|_| agrees.is_none())
                },
            });
        }
    }
    held
}

/// What was seen of a line, and why it may be less or nothing.
fn seen(line: Line, tally: &Tally, recorded: Recorded) -> (Option<Times>, Option<&'static str>) {
    let flushes = || {
        let of = |asked: &Asked| {
            let calls = [&tally.in_interrupts, &tally.looked_for];
            let seen = calls.into_iter().filter_map(|calls| calls.get(asked).copied());
            seen.fold(Times::default(), Times::and)
        };
        of(&Asked::TlbFlush)
    };
    match line {
        Line::Cal if recorded.calls => (Some(tally.calls), None),
        Line::Cal if recorded.functions => (None, Some(WAKE_UPS)),
        Line::Cal => (None, Some(UNSHOWN)),
        Line::Tlb if recorded.functions => (Some(flushes()), None),
        Line::Tlb => (Some(tally.answers), Some(ANSWERS)),
        Line::Res if recorded.others => (Some(tally.reschedules), None),
        Line::Iwi if recorded.others => (Some(tally.irq_works), None),
        Line::Loc if recorded.timers => (Some(tally.timers), None),
        Line::Res | Line::Iwi | Line::Loc => (None, Some(UNRECORDED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "           CPU0       CPU2\n  9:   1  2 edge\nRES:  5  6  Rescheduling\nCAL:  10  20  Function call\n TLB:  1  4294967295   TLB shootdowns\nERR:  0\n";
    const AFTER: &str = "           CPU0       CPU2\nRES:  7  6  Rescheduling\nCAL:  13  20  Function call\nTLB:  1  1   TLB shootdowns\n";

    #[test]
    fn lines_are_those_of_the_cpus_in_the_head() {
        let read = |text: &str| Count { reading: (0, 0), lines: lines(text) };
        let (first, last) = (read(BEFORE), read(AFTER));
        assert_eq!(last.since(&first, Line::Res, 0), Some(2));
        assert_eq!(last.since(&first, Line::Tlb, 2), Some(2), "it is of 32 bits");
        assert_eq!(last.since(&first, Line::Iwi, 0), None);
        assert_eq!(last.since(&first, Line::Cal, 1), None);
        let mut tally = Tally { calls: Times { surely: 2, maybe: 1 }, ..Tally::default() };
        tally.in_interrupts.insert(Asked::Perf, Times::default());
        tally.in_interrupts.insert(Asked::TlbFlush, Times { surely: 1, maybe: 0 });
        let recorded = Recorded { functions: true, calls: true, others: false, timers: false };
        let of_cpu = |cpu| if cpu == 0 { tally.clone() } else { Tally::default() };
        let held = hold((&first, &last), of_cpu, recorded, false, None);
        let of = |cpu, line| held.iter().find(|held| held.cpu == cpu && held.line == line).unwrap();
        let calls = of(0, Line::Cal);
        assert_eq!(
            (calls.counted, calls.seen, calls.at_the_edge, calls.agrees),
            (3, Some(3), 1, Some(true))
        );
        let functions: Vec<_> = of(0, Line::Cal).functions.iter().collect();
        assert_eq!(functions, [(&"TLB flush", &1)], "what came none of is not told");
        assert_eq!(of(2, Line::Tlb).agrees, Some(false));
        assert_eq!((of(2, Line::Tlb).why, of(2, Line::Res).why), (Some(DIFFERS), Some(UNRECORDED)));
        let held = hold((&first, &last), of_cpu, recorded, true, None);
        let differs = held.iter().find(|held| held.agrees == Some(false)).unwrap();
        assert_eq!(differs.why, Some(LOST));
    }
}
