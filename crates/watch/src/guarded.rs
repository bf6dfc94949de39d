//! What reached CPUs that were to be left alone, as a report has it.

use crate::fold::{Asked, Cause, Disturbance, Guard, How, Reached, Victims};
use crate::functions::Functions;
use crate::observation::{Party, party};
use crate::sites::kernel_name;
use serde::Serialize;

/// What reached the CPUs that were guarded.
#[derive(Clone, Debug, Serialize)]
pub struct Guarded {
    /// How long they were, nanoseconds.
    pub watched_ns: u64,
    /// Each of them.
    pub cpus: Vec<GuardedCpu>,
    /// By what was asked for, the most frequent first.
    pub causes: Vec<GuardedCause>,
    /// One by one, in order of time.
    pub disturbances: Vec<Disturbed>,
    /// How many more came, of which nothing but their number is known.
    pub not_kept: u64,
}

/// What reached a CPU, or came of a cause.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct Came {
    /// How many interrupts came.
    pub interrupts: u64,
    /// What came in interrupts for something else.
    pub same_interrupt: u64,
    /// Runs of kernel threads.
    pub kernel_threads: u64,
    /// What idle CPUs looked for themselves, without an interrupt.
    pub polled: u64,
    /// How long the interrupts took that were timed, nanoseconds; none if none was.
    pub lost_ns: Option<u64>,
    /// How many were timed.
    pub timed: u64,
}

impl Came {
    fn of(reached: &Reached) -> Came {
        let Reached { interrupts, same_interrupt, kernel_threads, polled, lost_ns, timed } =
            *reached;
        let lost_ns = (timed > 0).then_some(lost_ns);
        Came { interrupts, same_interrupt, kernel_threads, polled, lost_ns, timed }
    }

    /// How often the CPU was taken from what it did.
    pub fn disturbances(&self) -> u64 {
        self.interrupts + self.kernel_threads
    }
}

/// One CPU.
#[derive(Clone, Debug, Serialize)]
pub struct GuardedCpu {
    /// The CPU.
    pub cpu: u16,
    /// What reached it.
    #[serde(flatten)]
    pub came: Came,
    /// Disturbances per second.
    pub per_second: f64,
    /// The longest time that it was left alone, nanoseconds.
    pub longest_ns: u64,
    /// When that began, nanoseconds after the beginning.
    pub longest_at_ns: u64,
}

/// One cause.
#[derive(Clone, Debug, Serialize)]
pub struct GuardedCause {
    /// As `--fail-on interrupt=` names it.
    pub cause: &'static str,
    /// As reports name it.
    pub asked: &'static str,
    /// What came of it.
    #[serde(flatten)]
    pub came: Came,
    /// What keeps it away.
    pub remedy: &'static str,
}

/// One disturbance.
#[derive(Clone, Debug, Serialize)]
pub struct Disturbed {
    /// When, nanoseconds after the beginning.
    pub at_ns: u64,
    /// The CPU that was reached.
    pub cpu: u16,
    /// In which way it came.
    pub how: How,
    /// How long its CPU had been left alone, nanoseconds; of disturbances only.
    pub gap_ns: Option<u64>,
    /// As `--fail-on interrupt=` names it.
    pub cause: &'static str,
    /// As reports name it.
    pub asked: &'static str,
    /// The function that was called; none if there was none, or it is not shown.
    pub function: Option<String>,
    /// Where it was sent; none if that is not shown.
    pub call_site: Option<String>,
    /// What the sender was doing; none if that is not known.
    pub doing: Option<String>,
    /// Who asked.
    pub from: Party,
    /// Whom it came upon.
    pub to: Party,
    /// How long it took, nanoseconds; none where that is not visible.
    pub lost_ns: Option<u64>,
}

/// What a sender was doing; where that is not known its call site tells more.
fn known_cause(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Unknown | Cause::Elsewhere | Cause::Stranger => None,
        Cause::Fault(_) | Cause::Call(..) | Cause::Reclaim(_) | Cause::Exit => Some(cause.name()),
    }
}

/// Makes readable what came.
pub(crate) fn guarded(guard: &Guard, victims: &Victims, functions: &mut Functions) -> Guarded {
    let (begin, end) = guard.window;
    let watched_ns = end.saturating_sub(begin);
    let seconds = watched_ns as f64 / 1e9;
    let cpus = guard.cpus.iter().map(|(cpu, of_cpu)| {
        let came = Came::of(&of_cpu.reached);
        let (from, to) = of_cpu.longest;
        GuardedCpu {
            cpu: *cpu,
            came,
            per_second: if seconds > 0.0 { came.disturbances() as f64 / seconds } else { 0.0 },
            longest_ns: to - from,
            longest_at_ns: from.saturating_sub(begin),
        }
    });
    let cpus = cpus.collect();
    let mut causes: Vec<(&Asked, &Reached)> = guard.causes.iter().collect();
    causes.sort_by_key(|(_, reached)| std::cmp::Reverse(reached.interrupts));
    let cause = |(asked, reached): (&Asked, &Reached)| GuardedCause {
        cause: asked.slug(),
        asked: asked.title(),
        came: Came::of(reached),
        remedy: asked.remedy(),
    };
    let causes = causes.into_iter().map(cause).collect();
    let mut disturbed = |disturbance: &Disturbance| {
        let Disturbance { time, cpu, how, pair, gap_ns, lost_ns } = disturbance;
        let known = (pair.function != 0).then(|| functions.at(pair.function).name.to_string());
        Disturbed {
            at_ns: time.saturating_sub(begin),
            cpu: *cpu,
            how: *how,
            gap_ns: how.disturbs().then_some(*gap_ns),
            cause: pair.asked.slug(),
            asked: pair.asked.title(),
            function: known,
            call_site: (pair.site != 0).then(|| kernel_name(pair.site)).flatten(),
            doing: known_cause(&pair.cause),
            from: party(victims, &pair.from),
            to: party(victims, &pair.to),
            lost_ns: *lost_ns,
        }
    };
    let disturbances = guard.kept.iter().map(&mut disturbed).collect();
    Guarded { watched_ns, cpus, causes, disturbances, not_kept: guard.not_kept }
}
