//! What the kernel does to a program on its own account, by actor. Actors are the kernel's threads
//! that move, merge, take away or write back memory, and NUMA balancing, which a task does to
//! itself.
//!
//! An interrupt shows its sender, so its actor is known. A fault shows what it found, not which
//! actor left the page so. If a class of faults has one possible actor, the number is known; if it
//! has several, the number is a bound.

use crate::counters::{KHUGEPAGED_COLLAPSED, Machine};
use crate::fold::{Cause, Folded, Task, Totals, Victims};
use crate::observation::median;
use needless_model::event::FaultClass;
use serde::Serialize;
use std::collections::BTreeMap;

/// A part of the kernel that acts by itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// Makes huge pages of small ones.
    Khugepaged,
    /// Moves pages to make room for large ones.
    Compaction,
    /// Samples which node uses a page, and moves it there.
    NumaBalancing,
    /// Takes pages away before memory is short.
    Kswapd,
    /// Merges pages of the same content.
    Ksm,
    /// Writes pages of files back.
    Writeback,
}

/// What is known of an actor before anything is watched.
struct Row {
    actor: Actor,
    title: &'static str,
    /// The kernel's count of what it does, by its name in `/proc/vmstat` or beside it.
    counter: &'static str,
    /// What faults may be its doing, and whether they can be nobody else's.
    faults: (&'static [FaultClass], bool),
    evidence: &'static str,
    remedy: &'static str,
}

/// All of them. Read in 5.10, 6.12 and 7.3.
const ROWS: [Row; 6] = [
    Row {
        actor: Actor::Khugepaged,
        title: "khugepaged",
        counter: KHUGEPAGED_COLLAPSED,
        faults: (&[], false),
        evidence: "its name; faults upon tables that it takes away are not told apart (mm/khugepaged.c: collapse_huge_page)",
        remedy: "`madvise` in /sys/kernel/mm/transparent_hugepage/enabled, or `khugepaged/scan_sleep_millisecs` raised; prctl(PR_SET_THP_DISABLE) for one process",
    },
    Row {
        actor: Actor::Compaction,
        title: "compaction",
        counter: "compact_daemon_migrate_scanned",
        faults: (&[], false),
        evidence: "the name of its threads, kcompactd*; faults that waited for a page that moves are not told apart (mm/migrate.c: migration_entry_wait)",
        remedy: "vm.compaction_proactiveness=0; memory locked with vm.compact_unevictable_allowed=0 is left alone",
    },
    Row {
        actor: Actor::NumaBalancing,
        title: "NUMA balancing",
        counter: "numa_pte_updates",
        faults: (&[FaultClass::NumaHint], true),
        evidence: "only it takes a page's rights away for a hint (mm/mprotect.c: change_pte_range); flushes in no system call and no fault, if it sampled pages meanwhile (kernel/sched/fair.c: task_numa_work)",
        remedy: "numactl or mbind(2) for the process's memory, or kernel.numa_balancing=0",
    },
    Row {
        actor: Actor::Kswapd,
        title: "kswapd",
        counter: "pgsteal_kswapd",
        faults: (&[FaultClass::SwapIn], false),
        evidence: "the name of its threads, kswapd*; pages that come back from swap may have been taken by direct reclaim or MADV_PAGEOUT as well",
        remedy: "more memory or less of it used; mlock(2) or memory.min for what must stay",
    },
    Row {
        actor: Actor::Ksm,
        title: "KSM",
        counter: "cow_ksm",
        faults: (&[FaultClass::CowCopy], false),
        evidence: "its name, ksmd; copies may be of pages that a fork shares as well, and are no more than the machine counted of merged ones (mm/memory.c: wp_page_copy)",
        remedy: "/sys/kernel/mm/ksm/run 0, or no MADV_MERGEABLE and PR_SET_MEMORY_MERGE for memory that is written",
    },
    Row {
        actor: Actor::Writeback,
        title: "writeback",
        counter: "nr_written",
        faults: (&[FaultClass::SharedDirty, FaultClass::Reuse], false),
        evidence: "a worker whose name says flush; a page of a file is protected when it is written back, by fsync and msync as well (mm/page-writeback.c: folio_clear_dirty_for_io), and anonymous pages by a fork",
        remedy: "vm.dirty_writeback_centisecs and vm.dirty_expire_centisecs raised, or files that change in memory (tmpfs)",
    },
];

impl Actor {
    /// The actor that a kernel thread's name stands for.
    fn of_thread(name: &str) -> Option<Actor> {
        let numbered = |rest: Option<&str>| {
            rest.is_some_and(|rest| rest.chars().all(|digit| digit.is_ascii_digit()))
        };
        match name {
            "khugepaged" => Some(Actor::Khugepaged),
            "ksmd" => Some(Actor::Ksm),
            _ if numbered(name.strip_prefix("kcompactd")) => Some(Actor::Compaction),
            _ if numbered(name.strip_prefix("kswapd")) => Some(Actor::Kswapd),
            _ if name.starts_with("kworker/") && name.contains("flush-") => Some(Actor::Writeback),
            _ => None,
        }
    }
}

/// What one of them did.
#[derive(Clone, Debug, Serialize)]
pub struct Acted {
    /// Who did it.
    pub actor: &'static str,
    /// How often the kernel counted what it does, for the whole machine; none where this kernel
    /// does not count it.
    pub active: Option<u64>,
    /// The kernel's name of that count.
    pub counter: &'static str,
    /// Flushes that it sent to other CPUs, whosever memory it was about; none where flushes are not
    /// shown.
    pub flushes: Option<u64>,
    /// How often it interrupted the watched program; none where that is not shown.
    pub interrupts: Option<u64>,
    /// What that cost, nanoseconds, as far as it was timed; none if none was.
    pub interrupts_ns: Option<u64>,
    /// Faults of the program that were its doing; none where that cannot be told.
    pub faults: Option<u64>,
    /// Faults that may have been; none where no class of faults has it among its authors.
    pub faults_at_most: Option<u64>,
    /// How long these took, nanoseconds.
    pub faults_ns_at_most: Option<u64>,
    /// By what it is known.
    pub evidence: &'static str,
    /// What keeps it away.
    pub remedy: &'static str,
}

/// What they did; `shown`: whether exceptions, flushes and interrupts are.
pub fn acted(folded: &Folded, machine: &Machine, shown: [bool; 3]) -> Vec<Acted> {
    let Folded { totals, victims, .. } = folded;
    let [faults_shown, flushes_shown, interrupts_shown] = shown;
    let sent = sent(totals, victims);
    let row = |row: &Row| {
        let Row { actor, title, counter, faults: (classes, alone), evidence, remedy } = *row;
        let active = machine.vmstat.as_ref().and_then(|all| all.get(counter).copied());
        let (interrupts, interrupts_ns) = interrupts(victims, actor, active);
        let (mut faults, mut faults_ns) = faults(totals, classes);
        // This counter is one of such faults; no other is.
        if let (Actor::Ksm, Some(copies)) = (actor, active) {
            (faults, faults_ns) = (faults.min(copies), if copies == 0 { 0 } else { faults_ns });
        }
        let may_be = faults_shown && !classes.is_empty();
        let at_most = |figure: u64| may_be.then_some(figure);
        let elsewhere = totals.flushes.get(&Cause::Elsewhere).map_or(0, |count| count.sent);
        let flushes = match actor {
            Actor::NumaBalancing if active == Some(0) => 0,
            Actor::NumaBalancing => elsewhere,
            Actor::Khugepaged
            | Actor::Compaction
            | Actor::Kswapd
            | Actor::Ksm
            | Actor::Writeback => sent.get(&actor).copied().unwrap_or(0),
        };
        Acted {
            actor: title,
            active,
            counter,
            flushes: flushes_shown.then_some(flushes),
            interrupts: interrupts_shown.then_some(interrupts),
            interrupts_ns,
            faults: (may_be && alone).then_some(faults),
            faults_at_most: at_most(faults),
            faults_ns_at_most: at_most(faults_ns),
            evidence,
            remedy,
        }
    };
    ROWS.iter().map(row).collect()
}

/// Flushes that kernel threads sent.
fn sent(totals: &Totals, victims: &Victims) -> BTreeMap<Actor, u64> {
    let mut sent = BTreeMap::new();
    for (tid, times) in &totals.sent_by_kernel_threads {
        if let Some(actor) = Actor::of_thread(&victims.name(*tid)) {
            *sent.entry(actor).or_default() += times;
        }
    }
    sent
}

fn faults(totals: &Totals, classes: &[FaultClass]) -> (u64, u64) {
    let of_class =
        totals.faults.iter().filter(|(reason, _)| classes.contains(&reason.rule().class));
    of_class
        .fold((0, 0), |(faults, time), (_, count)| (faults + count.faults, time + count.time_ns))
}

/// How often it interrupted tasks, and what that cost.
fn interrupts(victims: &Victims, actor: Actor, active: Option<u64>) -> (u64, Option<u64>) {
    let by = |from: &Task, cause: &Cause| match (from, actor) {
        // A task does it to itself: between system calls and faults.
        (Task::Thread(tid), Actor::NumaBalancing) => {
            !victims.is_kernels(*tid) && *cause == Cause::Elsewhere && active != Some(0)
        }
        (Task::Thread(tid), _) => {
            victims.is_kernels(*tid) && Actor::of_thread(&victims.name(*tid)) == Some(actor)
        }
        (
            Task::Idle
            | Task::Interrupt
            | Task::Timer
            | Task::Device(_)
            | Task::Unknown
            | Task::Others,
            _,
        ) => false,
    };
    let (mut interrupts, mut lost) = (0, None);
    for (pair, count) in &victims.pairs {
        if pair.to == Task::Idle || !by(&pair.from, &pair.cause) {
            continue;
        }
        interrupts += count.interrupts;
        let each = victims.times.get(&pair.asked).and_then(|times| median(times));
        if let Some(each) = each {
            *lost.get_or_insert(0) += each * count.interrupts;
        }
    }
    (interrupts, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_have_their_actors_by_name() {
        let of = Actor::of_thread;
        assert_eq!(of("khugepaged"), Some(Actor::Khugepaged));
        assert_eq!(
            (of("kswapd0"), of("kcompactd12")),
            (Some(Actor::Kswapd), Some(Actor::Compaction))
        );
        assert_eq!(of("kworker/u8:1+flush-254:0"), Some(Actor::Writeback));
        assert_eq!(
            (of("kworker/0:1-events"), of("kswapdriver"), of("ksoftirqd/0")),
            (None, None, None)
        );
    }

    #[test]
    fn rows_are_in_order_and_of_distinct_classes() {
        assert!(ROWS.is_sorted_by_key(|row| row.actor));
        let alone = ROWS.iter().filter(|row| row.faults.1);
        for row in alone {
            let others = ROWS.iter().filter(|other| other.actor != row.actor);
            let shared =
                others.flat_map(|other| other.faults.0).any(|class| row.faults.0.contains(class));
            assert!(!shared, "{} is not alone", row.title);
        }
    }
}
