//! What a report is made of: totals with names, counters, what is missing, and the price.

use crate::actors::{Acted, acted};
use crate::attribution::{Attribution, attribution};
use crate::counters::{Machine, Usage};
use crate::fold::{
    Asked, Cause, Confidence, Folded, Needless, Pair, PairCount, Reason, Task, Toggled, Totals,
    Victims,
};
use crate::functions::{Functions, Named};
use crate::guarded::{Guarded, guarded};
use crate::interrupts::{self, Count, Held, Recorded};
use crate::missing::Missing;
use crate::remedies;
use crate::sites::kernel_name;
use needless_model::foreign;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The version of the JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// One run or one time of watching.
#[derive(Clone, Debug, Serialize)]
pub struct Observation {
    /// The exit status of the command, as a shell would give it; none without a command.
    pub status: Option<u8>,
    /// How long it took, nanoseconds.
    pub elapsed_ns: u64,
    /// What the kernel counted for the watched tasks; none when all tasks were watched.
    pub usage: Option<Usage>,
    /// What it counted for the machine meanwhile, whoever caused it.
    pub machine: Machine,
    /// What the events tell; none if there were none, which `missing` explains.
    pub events: Option<Events>,
    /// What this kernel or this user does not show.
    pub missing: Vec<Missing>,
}

/// What the events tell.
#[derive(Clone, Debug, Serialize)]
pub struct Events {
    /// Faults by the rule that gave them their class.
    pub faults: Vec<Faults>,
    /// Faults that the kernel counted for the tasks without an exception: it touched pages itself
    /// (populate, mlock, `get_user_pages`). None where the task's counters do not cover the same.
    pub faults_without_exception: Option<u64>,
    /// Flushes by cause; none where the kernel does not show them.
    pub flushes: Option<Vec<Flushes>>,
    /// Whether there may be more: some are sent by means that no event tells.
    pub flushes_at_least: bool,
    /// Which memory faults and calls were about, since when, and by whom; none where CPUs were
    /// guarded.
    pub memory: Option<Attribution>,
    /// The time of faults and calls, and how much of the kernel's it explains; none where
    /// exceptions are not seen, or CPUs were guarded.
    pub explained: Option<Explained>,
    /// Address-space switches that flushed.
    pub switches_flushed: Option<u64>,
    /// Address-space switches that flushed nothing.
    pub switches_kept: Option<u64>,
    /// Who interrupted whom; none where the kernel does not show it.
    pub interrupts: Option<Vec<Interrupts>>,
    /// How the senders of these were found.
    pub joined: Option<Joined>,
    /// How long one interrupt's function took, nanoseconds: the median of those timed that flushed.
    pub interrupt_ns: Option<u64>,
    /// How many of these were timed.
    pub interrupts_timed: u64,
    /// What the kernel did of its own accord, by who did it; none where CPUs were guarded.
    pub actors: Option<Vec<Acted>>,
    /// The kernel's own count of interrupts per CPU, and what was seen of them; none where it
    /// cannot be read.
    pub counted_interrupts: Option<Vec<Held>>,
    /// What reached the CPUs that were guarded; none if none were.
    pub guard: Option<Guarded>,
    /// What was needless; none if it cannot be told, since events were lost or are not shown.
    pub needless: Option<Vec<Finding>>,
    /// Protections that were changed on one page alone, to and fro; none where flushes are not
    /// shown.
    pub toggled: Option<Vec<Toggles>>,
    /// Whether everything that the kernel counted was seen.
    pub counted: Counted,
    /// The price.
    pub watching: Watching,
}

/// How much of the kernel's time is known by what it was spent on.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// Time in the kernel as it counted it for the tasks, nanoseconds; none if that could not be
    /// read.
    pub kernel_ns: Option<u64>,
    /// Faults, but for major ones, which wait for a disk: from exception to end, nanoseconds.
    pub faults_ns: u64,
    /// Calls that change mappings or page tables, but for those that may wait, without faults in
    /// them.
    pub calls_ns: u64,
}

/// What the kernel counted without the rings, and what came through them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Faults that the kernel counted for the watched tasks, minor and major; none if that could
    /// not be read.
    pub faults: Option<u64>,
    /// Faults of these that have a class here.
    pub faults_seen: u64,
    /// Events of `tlb:tlb_flush`: flushes that are issued, whoever's, and switches of watched
    /// tasks.
    pub flush_events: Option<u64>,
    /// Of these, how many were read.
    pub flush_events_seen: Option<u64>,
}

/// Faults of one rule.
#[derive(Clone, Debug, Serialize)]
pub struct Faults {
    /// The class.
    pub class: &'static str,
    /// The class with what tells this rule from others of it.
    pub label: &'static str,
    /// By what it is known.
    pub rule: &'static str,
    /// How sure that is.
    pub confidence: Confidence,
    /// How many.
    pub faults: u64,
    /// From exception to end, nanoseconds, all together, watching included; none where exceptions
    /// are not seen.
    pub time_ns: Option<u64>,
    /// How often they left their CPU to wait for something; none where switches or exceptions were
    /// not recorded.
    pub waits: Option<u64>,
    /// How long they were away for that, nanoseconds, until they ran again.
    pub waited_ns: Option<u64>,
    /// Waits by what was waited for, the longest first.
    pub waited_for: Option<Vec<WaitedFor>>,
}

/// Waits for one thing, in one function.
#[derive(Clone, Debug, Serialize)]
pub struct WaitedFor {
    /// What was waited for.
    pub what: &'static str,
    /// The kernel's function that tells so; none if the stack was not seen, or functions have no
    /// names here.
    pub function: Option<String>,
    /// How often.
    pub waits: u64,
    /// How long, nanoseconds, until the task ran again.
    pub waited_ns: u64,
}

/// Flushes of one cause.
#[derive(Clone, Debug, Serialize)]
pub struct Flushes {
    /// What made the kernel flush.
    pub cause: String,
    /// Whether it is the start of a program or the end of a process, which every command has.
    pub of_start_or_end: bool,
    /// Flushes that asked other CPUs (shootdowns).
    pub sent: u64,
    /// Flushes of the CPU itself alone.
    pub local: u64,
    /// Of both, those of everything.
    pub full: u64,
    /// Pages that the others covered, all together.
    pub pages: u64,
    /// Interrupts that they caused. A CPU that is idle by then is asked and not interrupted.
    pub interrupts: u64,
}

/// How the sender of what reached a CPU was found.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Joined {
    /// By the pointer of the call, which the kernel shows to both.
    pub by_pointer: u64,
    /// By the only send that was outstanding.
    pub by_rule: u64,
    /// By one of several that were outstanding.
    pub by_guess: u64,
    /// Not at all.
    pub unknown: u64,
}

/// Interrupts from one task to another.
#[derive(Clone, Debug, Serialize)]
pub struct Interrupts {
    /// What was asked for.
    pub asked: &'static str,
    /// The function that was called; none if there was none, or it is not shown.
    pub function: Option<String>,
    /// What keeps it away; none where nothing that is known fits its cause.
    pub remedy: Option<&'static str>,
    /// Where the kernel calls for it, as far as the table of functions knows.
    pub source: Option<&'static str>,
    /// Where it was sent; none if that is not shown.
    pub call_site: Option<String>,
    /// What the sender was doing.
    pub cause: String,
    /// Who asked.
    pub from: Party,
    /// Who was interrupted.
    pub to: Party,
    /// How often.
    pub interrupts: u64,
    /// How often it was done without an interrupt: by an idle CPU that looked for itself, or by a
    /// kernel thread.
    pub uninterrupted: u64,
    /// Of the interrupts, how many found nothing to flush.
    pub empty: u64,
    /// Of both, how many have their sender by the call's pointer.
    pub exact: u64,
    /// Of both, how many might have had another sender.
    pub guessed: u64,
    /// What it cost the interrupted task, nanoseconds: the median of those timed, times the
    /// interrupts.
    pub lost_ns: Option<u64>,
}

/// One side of an interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Party {
    /// The thread, if it is one.
    pub tid: Option<i32>,
    /// Its process, if known.
    pub pid: Option<i32>,
    /// Whether it is one of the kernel's own threads.
    pub kernel_thread: bool,
    /// Its name.
    pub name: String,
}

/// Something needless.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was needless.
    pub what: &'static str,
    /// What caused it.
    pub cause: String,
    /// How often.
    pub times: u64,
    /// Of these, how often nothing else can have been the reason.
    pub certain: u64,
    /// By what it is known.
    pub evidence: &'static str,
    /// What removes it.
    pub remedy: &'static str,
    /// The policy of the model that decides it, if the model has it.
    pub policy: Option<&'static str>,
}

/// Pages of one process whose protection was changed alone, to and fro: nothing about these flushes
/// is called needless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Toggles {
    /// The process.
    pub process: Party,
    /// What it looks like.
    pub used_as: &'static str,
    /// How sure that is.
    pub confidence: Confidence,
    /// How many pages.
    pub pages: u64,
    /// Calls that changed a protection to another one.
    pub times: u64,
    /// Flushes in them that asked other CPUs.
    pub sent: u64,
    /// Flushes in them of the own CPU alone.
    pub local: u64,
    /// Interrupts that they caused.
    pub interrupts: u64,
    /// What would have been called needless about them otherwise.
    pub not_called_needless: u64,
    /// By what it is known.
    pub evidence: &'static str,
    /// What does the same for less.
    pub remedy: &'static str,
}

/// What watching cost, and what it missed.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct Watching {
    /// Records read.
    pub records: u64,
    /// Of these, those that watched tasks paid for; the others are strangers'.
    pub own_records: u64,
    /// Records lost in the main rings.
    pub lost: u64,
    /// Records about freed pages that were lost.
    pub lost_frees: u64,
    /// What one record costs the task that it is about, nanoseconds, measured before.
    pub record_ns: Option<u64>,
    /// Time the reader used, nanoseconds.
    pub reader_ns: u64,
}

struct Told {
    what: &'static str,
    evidence: &'static str,
    remedy: &'static str,
    policy: Option<&'static str>,
}

fn told(needless: Needless) -> Told {
    match needless {
        Needless::PendingFlush => Told {
            what: "redundant full flush",
            evidence: "the walk began with a full flush although the batched unmap before it had been flushed and nothing was unmapped since (mm/rmap.c: flush_tlb_batched_pending)",
            remedy: "unmap more pages per call; the model's row option +pending-cleared removes it, no kernel up to 7.3 does",
            policy: Some("batched-pending"),
        },
        Needless::GatherAfterPageout => Told {
            what: "flush of accessed bits of pages already unmapped",
            evidence: "a flush in MADV_PAGEOUT after the one for the pages that it unmapped (mm/madvise.c: madvise_cold_or_pageout_pte_range)",
            remedy: "a kernel from 6.12 on",
            policy: Some("pageout-young"),
        },
        Needless::CopyOfFreed => Told {
            what: "copy of a page that nobody else had",
            evidence: "the old page's frame was freed in the same fault",
            remedy: "before 6.1 a newer kernel, which drains LRU batches first; else fewer short-lived references to pages that are written (pins, other processes)",
            policy: Some("reuse"),
        },
        Needless::CopyAfterSwapIn => Told {
            what: "copy of a page fresh from swap",
            evidence: "a read had brought the page back from swap, and the process has not forked since",
            remedy: "a kernel from 6.1 on, or write to the page first",
            policy: Some("reuse"),
        },
        Needless::EmptyInterrupt => Told {
            what: "interrupt with nothing to flush",
            evidence: "the interrupted CPU's translations were up to date: it had flushed everything meanwhile",
            remedy: "fewer threads that unmap at the same time in one address space; larger ranges per call",
            policy: None,
        },
        Needless::WrongCpu => Told {
            what: "interrupt of a CPU that ran another address space",
            evidence: "the CPU was still in the address space's mask after its thread had left it",
            remedy: "pin the threads of the process, or fewer processes per CPU",
            policy: None,
        },
        Needless::BatchElsewhere => Told {
            what: "interrupt of a CPU that ran another address space, for a batched flush",
            evidence: "a batched flush names no address space (arch/x86/mm/tlbbatch.h: arch_tlbflush_unmap_batch); the CPU ran another process and was up to date",
            remedy: "none of its own: what makes the kernel reclaim or move pages decides",
            policy: None,
        },
        Needless::Grant => Told {
            what: "flush for a protection that only allows more",
            evidence: "the call allowed all that the whole range had allowed before; a processor that has the old translation faults once and walks again",
            remedy: "a kernel from 6.1 on, which leaves such flushes out (mm/mprotect.c: change_pte_range, pte_needs_flush)",
            policy: None,
        },
        Needless::ReuseAfterFork => Told {
            what: "fault upon a page that a fork had made read-only, for a child that was gone",
            evidence: "a fork of the process took the right to store to the page, and nothing was copied when it stored again: nobody else had it any more",
            remedy: "posix_spawn(3) or vfork(2) for a child that only executes another program; madvise(MADV_DONTFORK) for memory that no child needs",
            policy: None,
        },
        Needless::RacedAllocation => Told {
            what: "page that was allocated and freed again",
            evidence: "faults of several threads upon the same page overlapped, and each allocated it",
            remedy: "one thread touches memory first, or madvise(MADV_POPULATE_WRITE) before the threads begin",
            policy: None,
        },
        Needless::TableSync => Told {
            what: "page-table synchronisation of a CPU that walked none of these tables",
            evidence: "the interrupted CPU ran no thread of the process, or none at all, and walks without locks are over the current address space only (mm/gup.c: gup_fast)",
            remedy: Asked::TableSync.remedy(),
            policy: None,
        },
    }
}

/// What this kernel shows.
#[derive(Copy, Clone, Debug)]
pub struct Visible {
    /// Exceptions: without them faults have no class.
    pub faults: bool,
    /// Whether flushes are visible.
    pub flushes: bool,
    /// Every CPU.
    pub cpus: bool,
    /// Flushes by whatever means.
    pub all_flushes: bool,
}

/// What the kernel counted by itself.
#[derive(Clone, Debug)]
pub struct Kernels {
    /// Faults of the watched tasks, as their own counters have them.
    pub faults: Option<u64>,
    /// Their time in the kernel, nanoseconds.
    pub system_ns: Option<u64>,
    /// Faults and flush events, as the events' own counts have them.
    pub events: Option<(u64, u64)>,
    /// Interrupts at the beginning and at the end.
    pub interrupts: Option<(Count, Count)>,
    /// What of interrupts is recorded.
    pub recorded: Recorded,
    /// Counters of the machine.
    pub machine: Machine,
}

/// Makes readable what was folded.
pub fn events(
    mut folded: Folded,
    kernels: &Kernels,
    watching: Watching,
    visible: Visible,
) -> Events {
    let interrupts_shown = visible.flushes || kernels.recorded.functions;
    let actors = folded.guard.is_none().then(|| {
        acted(&folded, &kernels.machine, [visible.faults, visible.flushes, interrupts_shown])
    });
    let memory = folded.guard.is_none().then(|| attribution(&mut folded));
    let explained = memory
        .as_ref()
        .filter(|_| visible.faults)
        .map(|memory| explained(&folded.totals, memory, kernels.system_ns));
    let Folded { totals, victims, mut functions, tallies, toggled, waits, guard, .. } = folded;
    let guarded_cpus: Option<Vec<u16>> =
        guard.as_ref().map(|guard| guard.cpus.keys().copied().collect());
    let expected = kernels.faults;
    let kernels_events = kernels.events;
    let of_flushes = |count: u64| visible.flushes.then_some(count);
    let all_seen = watching.lost == 0 && visible.faults && visible.flushes && visible.cpus;
    let counted = |reason: &Reason| !matches!(reason, Reason::NoEnd | Reason::NotOver);
    let exceptions: u64 = totals
        .faults
        .iter()
        .filter(|(reason, _)| counted(reason))
        .map(|(_, count)| count.faults)
        .sum();
    let counted = Counted {
        faults: kernels_events.map(|(faults, _)| faults),
        faults_seen: exceptions,
        flush_events: kernels_events.and_then(|(_, flushes)| of_flushes(flushes)),
        flush_events_seen: of_flushes(totals.flush_events),
    };
    let flush_times = victims.times.get(&Asked::TlbFlush).map(Vec::as_slice).unwrap_or_default();
    Events {
        faults: faults(&totals, visible.faults, waits && visible.faults, &kernels.machine),
        faults_without_exception: expected
            .and_then(|all| all.checked_sub(exceptions))
            .filter(|_| watching.lost == 0),
        flushes: visible.flushes.then(|| flushes(&totals)),
        flushes_at_least: !visible.all_flushes,
        memory,
        explained,
        switches_flushed: of_flushes(totals.switches.0),
        switches_kept: of_flushes(totals.switches.1),
        interrupts: interrupts_shown.then(|| interrupts(&victims, &mut functions)),
        joined: interrupts_shown.then(|| joined(&victims)),
        interrupt_ns: median(flush_times),
        interrupts_timed: flush_times.len() as u64,
        actors,
        counted_interrupts: kernels.interrupts.as_ref().map(|(first, last)| {
            let guarded = guarded_cpus.as_deref();
            let (recorded, lost) = (kernels.recorded, watching.lost > 0);
            interrupts::hold((first, last), |cpu| tallies.of(cpu), recorded, lost, guarded)
        }),
        guard: guard.map(|guard| guarded(&guard, &victims, &mut functions)),
        needless: all_seen.then(|| findings(&totals, watching.lost_frees)),
        toggled: visible
            .flushes
            .then(|| toggled.iter().map(|row| toggles(&victims, row)).collect()),
        counted,
        watching,
    }
}

pub(crate) fn median(times: &[u64]) -> Option<u64> {
    let mut times = times.to_vec();
    let at = times.len() / 2;
    (at < times.len()).then(|| *times.select_nth_unstable(at).1)
}

fn explained(totals: &Totals, memory: &Attribution, kernel_ns: Option<u64>) -> Explained {
    let major = |label: &str| label.contains("major") || label == "swap-in";
    let faults = totals.faults.iter().filter(|(reason, _)| !major(reason.rule().label));
    let faults_ns =
        faults.map(|(_, count)| count.time_ns.saturating_sub(count.waits.waited_ns)).sum();
    let calls = memory.calls.iter().filter(|row| !row.waits);
    let calls_ns = calls.map(|row| row.time_ns.saturating_sub(row.faults_ns)).sum();
    Explained { kernel_ns, faults_ns, calls_ns }
}

/// The rule of the zero page where none can have been on its way to another frame.
const NONE_MOVED: &str = "a read of private memory without a page; nothing was allocated, there is no swap in use, no userfaultfd and no NUMA balancing, and no page was moved (/proc/vmstat: pgmigrate_success)";

fn faults(totals: &Totals, times: bool, waits: bool, machine: &Machine) -> Vec<Faults> {
    let moved = |vmstat: &BTreeMap<_, _>| vmstat.get("pgmigrate_success").is_some_and(|n| *n > 0);
    let none_moved = machine.vmstat.as_ref().is_some_and(|vmstat| !moved(vmstat));
    let in_table = Reason::ALL.iter().filter_map(|reason| {
        let (count, mut rule) = (totals.faults.get(reason)?, reason.rule());
        if *reason == Reason::Zero && none_moved {
            (rule.confidence, rule.text) = (Confidence::Certain, NONE_MOVED);
        }
        Some(Faults {
            class: rule.class.title(),
            label: rule.label,
            rule: rule.text,
            confidence: rule.confidence,
            faults: count.faults,
            time_ns: times.then_some(count.time_ns),
            waits: waits.then_some(count.waits.waits),
            waited_ns: waits.then_some(count.waits.waited_ns),
            waited_for: waits.then(|| waited_for(totals, *reason)),
        })
    });
    in_table.collect()
}

fn waited_for(totals: &Totals, of: Reason) -> Vec<WaitedFor> {
    let mut rows: Vec<_> = totals.waits.iter().filter(|((reason, _), _)| *reason == of).collect();
    rows.sort_by_key(|((_, wait), count)| (Reverse(count.waited_ns), wait.clone()));
    rows.into_iter()
        .map(|((_, wait), count)| WaitedFor {
            what: wait.what.title(),
            function: wait.function.as_deref().map(str::to_owned),
            waits: count.waits,
            waited_ns: count.waited_ns,
        })
        .collect()
}

fn flushes(totals: &Totals) -> Vec<Flushes> {
    let mut rows: Vec<(&Cause, _)> = totals.flushes.iter().collect();
    rows.sort_by_key(|(cause, count)| {
        (Reverse(count.sent + count.local), Reverse(count.sent), (*cause).clone())
    });
    rows.into_iter()
        .map(|(cause, count)| Flushes {
            cause: cause.name(),
            of_start_or_end: cause.starts_or_ends(),
            sent: count.sent,
            local: count.local,
            full: count.full,
            pages: count.pages,
            interrupts: count.interrupts,
        })
        .collect()
}

pub(crate) fn party(victims: &Victims, task: &Task) -> Party {
    let nobody =
        |name: &str| Party { tid: None, pid: None, kernel_thread: false, name: name.to_owned() };
    match task {
        Task::Thread(tid) => {
            let process = victims.process(*tid);
            let ours = [*tid, process].contains(&(std::process::id() as i32));
            let name = victims.name(*tid).to_string();
            Party {
                tid: Some(*tid),
                pid: Some(process).filter(|pid| *pid != 0),
                kernel_thread: victims.is_kernels(*tid),
                name: if ours { format!("{name}, which watches") } else { name },
            }
        }
        Task::Idle => nobody("idle CPU"),
        Task::Interrupt => nobody("an interrupt"),
        Task::Timer => nobody("its timer"),
        Task::Device(number) => nobody(&device(*number)),
        Task::Unknown => nobody("unknown"),
        Task::Others => nobody("others"),
    }
}

/// A device's interrupt by its number, and the name that its driver gave it, if it can be seen:
/// each has a folder there.
fn device(number: u32) -> String {
    let handlers = std::fs::read_dir(format!("/proc/irq/{number}")).into_iter().flatten().flatten();
    let mut handlers = handlers.filter(|entry| entry.path().is_dir());
    match handlers.next() {
        Some(handler) => format!("irq {number}, {}", foreign::path(handler.file_name())),
        None => format!("irq {number}"),
    }
}

fn interrupts(victims: &Victims, functions: &mut Functions) -> Vec<Interrupts> {
    let each: BTreeMap<Asked, Option<u64>> =
        victims.times.iter().map(|(asked, times)| (*asked, median(times))).collect();
    let mut rows: Vec<(&Pair, &PairCount)> = victims.pairs.iter().collect();
    rows.sort_by(|a, b| (b.1.all(), a.0).cmp(&(a.1.all(), b.0)));
    let row = |(pair, count): (&Pair, &PairCount)| {
        let named = (pair.function != 0).then(|| functions.at(pair.function).clone());
        let (function, source) = match named {
            Some(Named { name, source, .. }) => (Some(name.to_string()), source),
            None => (None, None),
        };
        let each = each.get(&pair.asked).copied().flatten();
        Interrupts {
            asked: pair.asked.title(),
            remedy: remedies::of_interrupt(pair.asked, &pair.cause),
            function,
            source,
            call_site: (pair.site != 0).then(|| kernel_name(pair.site)).flatten(),
            cause: pair.cause.name(),
            from: party(victims, &pair.from),
            to: party(victims, &pair.to),
            interrupts: count.interrupts,
            uninterrupted: count.uninterrupted,
            empty: count.empty,
            exact: count.exact,
            guessed: count.guessed,
            lost_ns: each.filter(|_| pair.to != Task::Idle).map(|each| each * count.interrupts),
        }
    };
    rows.into_iter().map(row).collect()
}

fn joined(victims: &Victims) -> Joined {
    let mut joined = Joined::default();
    // What no CPU asked for has no sender to be found.
    let hardware = |from: &Task| matches!(from, Task::Timer | Task::Device(_));
    for (pair, count) in victims.pairs.iter().filter(|(pair, _)| !hardware(&pair.from)) {
        joined.by_pointer += count.exact;
        joined.by_guess += count.guessed;
        let others = count.all() - count.exact - count.guessed;
        *(if pair.from == Task::Unknown { &mut joined.unknown } else { &mut joined.by_rule }) +=
            others;
    }
    joined
}

fn toggles(victims: &Victims, toggled: &Toggled) -> Toggles {
    let (used_as, confidence, evidence, remedy) = match toggled.likely_barrier {
        true => (
            "a barrier",
            Confidence::Likely,
            "the page could never be executed, and no other thread met its protection in a fault: all that others get from it is the flush's interrupt",
            "membarrier(2) with MEMBARRIER_CMD_PRIVATE_EXPEDITED, which changes no mapping and takes no lock of the address space",
        ),
        false => (
            "a barrier, a trap or code that is rewritten",
            Confidence::Unknown,
            "the page could be executed, or another thread met its protection in a fault",
            "code that is written through a second mapping, or in larger pieces; of a barrier membarrier(2)",
        ),
    };
    let count = toggled.count;
    Toggles {
        process: party(victims, &Task::Thread(toggled.pid)),
        used_as,
        confidence,
        pages: toggled.pages,
        times: count.times,
        sent: count.sent,
        local: count.local,
        interrupts: count.interrupts,
        not_called_needless: count.needless,
        evidence,
        remedy,
    }
}

fn findings(totals: &Totals, lost_frees: u64) -> Vec<Finding> {
    let visible = |needless: Needless| needless != Needless::CopyOfFreed || lost_frees == 0;
    let mut rows: Vec<_> =
        totals.needless.iter().filter(|((needless, _), _)| visible(*needless)).collect();
    rows.sort_by(|a, b| (b.1.times, a.0).cmp(&(a.1.times, b.0)));
    rows.into_iter()
        .map(|((needless, cause), count)| {
            let Told { what, evidence, remedy, policy } = told(*needless);
            let (times, certain) = (count.times, count.certain);
            Finding { what, cause: cause.name(), times, certain, evidence, remedy, policy }
        })
        .collect()
}
