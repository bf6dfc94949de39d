//! What interrupts ask for: the kernel's functions that CPUs call on each other, each with the
//! cause that it stands for, and the interrupts that call none.
//!
//! A function that the table does not have keeps its name: [`Asked::Other`].

use crate::sites::kernel_name;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What a CPU was asked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Asked {
    /// To flush translations of an address space.
    TlbFlush,
    /// To have left every walk over page tables without locks.
    TableSync,
    /// To flush translations of the kernel's own memory.
    KernelFlush,
    /// To forget instructions that were patched.
    TextPatch,
    /// A memory barrier, or what else membarrier(2) makes threads do.
    Membarrier,
    /// To forget the page tables of a process that has ended.
    LazyTlb,
    /// To load another local descriptor table, or to take up what the process was allowed.
    ThreadState,
    /// To put its batches of pages on the LRU lists: a kernel thread runs there for it.
    LruDrain,
    /// To drop its cached buffers.
    Buffers,
    /// To wake threads up.
    WakeUp,
    /// To look at what there is to run.
    Reschedule,
    /// To balance the load of others, or to charge run time.
    Balance,
    /// To report that it reads nothing that RCU keeps.
    Rcu,
    /// To set its timers again.
    TimerChange,
    /// To read or switch a performance event.
    Perf,
    /// To change what is traced.
    Tracing,
    /// To end a request of a disk.
    BlockDone,
    /// To leave a state of idleness, or nothing at all.
    Kick,
    /// To run work that was put off to an interrupt of its own.
    IrqWork,
    /// Its timer ran out.
    Timer,
    /// A device has something.
    Device,
    /// A function that the table does not have.
    Other,
    /// A function that this kernel does not name.
    Unnamed,
}

/// One row: how a report and `--fail-on` name it, and what removes it.
struct Row {
    asked: Asked,
    slug: &'static str,
    title: &'static str,
    remedy: &'static str,
}

const fn row(asked: Asked, slug: &'static str, title: &'static str, remedy: &'static str) -> Row {
    Row { asked, slug, title, remedy }
}

/// Every cause, in the order of the enumeration.
const ROWS: [Row; 23] = [
    row(
        Asked::TlbFlush,
        "tlb-flush",
        "TLB flush",
        "keep threads of the process that unmaps or protects off these CPUs; `madvise` in place of `munmap` or `mprotect`, or fewer and larger calls",
    ),
    row(
        Asked::TableSync,
        "table-sync",
        "page-table synchronisation",
        "no collapse while it matters: khugepaged off (`echo never > /sys/kernel/mm/transparent_hugepage/enabled`, or `khugepaged/scan_sleep_millisecs` raised), no MADV_COLLAPSE, huge pages from the start; hugetlb mappings not shared",
    ),
    row(
        Asked::KernelFlush,
        "kernel-flush",
        "kernel TLB flush",
        "no loading and unloading of modules and BPF programs, no change of the number of hugetlb pages while it matters",
    ),
    row(
        Asked::TextPatch,
        "text-patch",
        "text patching",
        "no switching of tracepoints, static keys, kprobes and BPF programs while it matters: set them once",
    ),
    row(
        Asked::Membarrier,
        "membarrier",
        "membarrier",
        "keep the process that calls membarrier(2) off these CPUs, with a private expedited command in place of a global one",
    ),
    row(
        Asked::LazyTlb,
        "lazy-tlb",
        "end of an address space",
        "processes that end did not run on these CPUs: keep them off",
    ),
    row(
        Asked::ThreadState,
        "thread-state",
        "processor state of a process",
        "no modify_ldt(2) and arch_prctl(2) while it matters",
    ),
    row(
        Asked::LruDrain,
        "lru-drain",
        "LRU drain",
        "no move_pages(2), mbind(2) with MPOL_MF_MOVE, MADV_COLLAPSE and compaction while it matters",
    ),
    row(
        Asked::Buffers,
        "buffers",
        "buffer heads dropped",
        "no mounts, and no devices that go, while it matters",
    ),
    row(
        Asked::WakeUp,
        "wake-up",
        "remote wake-up",
        "threads that are woken elsewhere: pin them, or `isolcpus=domain` and cpusets",
    ),
    row(
        Asked::Reschedule,
        "reschedule",
        "reschedule",
        "one thread for each of these CPUs, nothing else allowed there (`isolcpus=domain`, cpusets)",
    ),
    row(
        Asked::Balance,
        "balance",
        "load balancing",
        "`isolcpus=domain` or an isolated cpuset partition takes these CPUs out of load balancing",
    ),
    row(
        Asked::Rcu,
        "rcu",
        "RCU",
        "`rcu_nocbs=` for these CPUs, `rcupdate.rcu_normal=1` against expedited grace periods",
    ),
    row(
        Asked::TimerChange,
        "timer-change",
        "timers set again",
        "no step of the clock (`settimeofday`, NTP steps) while it matters",
    ),
    row(
        Asked::Perf,
        "perf",
        "perf events",
        "no perf session on these CPUs or on tasks that run there",
    ),
    row(Asked::Tracing, "tracing", "tracing", "no change of tracers while it matters"),
    row(
        Asked::BlockDone,
        "block",
        "disk request done",
        "no input and output of threads on these CPUs; `rq_affinity` of the device",
    ),
    row(Asked::Kick, "kick", "kick", "power management settings left alone while it matters"),
    row(
        Asked::IrqWork,
        "irq-work",
        "irq_work",
        "what queues it: perf events, printk, BPF, a `nohz_full=` CPU that has to tick again",
    ),
    row(
        Asked::Timer,
        "timer",
        "local timer",
        "`nohz_full=` for these CPUs and one runnable thread on each; timers of the thread itself stay",
    ),
    row(
        Asked::Device,
        "device",
        "device interrupt",
        "`irqaffinity=` on the command line, or /proc/irq/N/smp_affinity",
    ),
    row(Asked::Other, "other", "another function", "the function's name says who calls for it"),
    row(Asked::Unnamed, "unnamed", "a function that is not shown", "a kernel from 6.4 on names it"),
];

impl Asked {
    /// All causes.
    pub fn all() -> impl Iterator<Item = Asked> {
        ROWS.iter().map(|row| row.asked)
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// As `--fail-on` takes it.
    pub fn slug(self) -> &'static str {
        self.row().slug
    }

    /// As a report names it.
    pub fn title(self) -> &'static str {
        self.row().title
    }

    /// What keeps it away from a CPU.
    pub fn remedy(self) -> &'static str {
        self.row().remedy
    }

    /// The cause of a name that `--fail-on` takes.
    pub fn named(slug: &str) -> Option<Asked> {
        ROWS.iter().find(|row| row.slug == slug).map(|row| row.asked)
    }
}

/// A function, what it stands for, and where it is called from.
type Function = (&'static str, Asked, &'static str);

/// The functions. Read in 5.10, 6.12 and 7.3; the callers are those of 6.12 where nothing else is
/// said.
const FUNCTIONS: [Function; 38] = [
    ("flush_tlb_func", Asked::TlbFlush, "arch/x86/mm/tlb.c: native_flush_tlb_multi"),
    ("flush_tlb_func_remote", Asked::TlbFlush, "arch/x86/mm/tlb.c: native_flush_tlb_others, 5.10"),
    ("tlb_remove_table_smp_sync", Asked::TableSync, "mm/mmu_gather.c: tlb_remove_table_sync_one"),
    (
        "do_flush_tlb_all",
        Asked::KernelFlush,
        "arch/x86/mm/tlb.c: flush_tlb_all, flush_tlb_kernel_range",
    ),
    ("do_kernel_range_flush", Asked::KernelFlush, "arch/x86/mm/tlb.c: flush_tlb_kernel_range"),
    ("__cpa_flush_tlb", Asked::KernelFlush, "arch/x86/mm/pat/set_memory.c: cpa_flush"),
    ("__cpa_flush_all", Asked::KernelFlush, "arch/x86/mm/pat/set_memory.c: cpa_flush_all"),
    ("do_sync_core", Asked::TextPatch, "arch/x86/kernel/alternative.c: text_poke_sync"),
    ("ipi_mb", Asked::Membarrier, "kernel/sched/membarrier.c: membarrier_*_expedited"),
    ("ipi_sync_core", Asked::Membarrier, "kernel/sched/membarrier.c: membarrier_private_expedited"),
    ("ipi_rseq", Asked::Membarrier, "kernel/sched/membarrier.c: membarrier_private_expedited"),
    (
        "ipi_sync_rq_state",
        Asked::Membarrier,
        "kernel/sched/membarrier.c: sync_runqueues_membarrier_state",
    ),
    ("do_shoot_lazy_tlb", Asked::LazyTlb, "kernel/fork.c: cleanup_lazy_tlbs"),
    ("do_check_lazy_tlb", Asked::LazyTlb, "kernel/fork.c: cleanup_lazy_tlbs"),
    ("flush_ldt", Asked::ThreadState, "arch/x86/kernel/ldt.c: install_ldt"),
    (
        "enable_lam_func",
        Asked::ThreadState,
        "arch/x86/kernel/process_64.c: prctl_enable_tagged_addr",
    ),
    ("lru_add_drain_per_cpu", Asked::LruDrain, "mm/swap.c: __lru_add_drain_all"),
    ("invalidate_bh_lru", Asked::Buffers, "fs/buffer.c: invalidate_bh_lrus"),
    ("sched_ttwu_pending", Asked::WakeUp, "kernel/sched/core.c: __ttwu_queue_wakelist"),
    ("nohz_csd_func", Asked::Balance, "kernel/sched/fair.c: kick_ilb"),
    ("__hrtick_start", Asked::Balance, "kernel/sched/core.c: hrtick_start"),
    ("__cfsb_csd_unthrottle", Asked::Balance, "kernel/sched/fair.c: __unthrottle_cfs_rq_async"),
    ("rcu_exp_handler", Asked::Rcu, "kernel/rcu/tree_exp.h: __sync_rcu_exp_select_node_cpus"),
    ("rcu_barrier_handler", Asked::Rcu, "kernel/rcu/tree.c: rcu_barrier"),
    ("rcu_strict_gp_boundary", Asked::Rcu, "kernel/rcu/tree.c: rcu_gp_init"),
    ("retrigger_next_event", Asked::TimerChange, "kernel/time/hrtimer.c: clock_was_set"),
    ("__clockevents_unbind", Asked::TimerChange, "kernel/time/clockevents.c: clockevents_unbind"),
    ("remote_function", Asked::Perf, "kernel/events/core.c: task_function_call, cpu_function_call"),
    ("__perf_event_read", Asked::Perf, "kernel/events/core.c: perf_event_read"),
    ("__perf_event_exit_context", Asked::Perf, "kernel/events/core.c: perf_event_exit_cpu_context"),
    ("__perf_event_stop", Asked::Perf, "kernel/events/core.c: perf_event_stop"),
    ("ftrace_sync_ipi", Asked::Tracing, "kernel/trace/ftrace.c: update_ftrace_function"),
    ("rb_ipi", Asked::Tracing, "kernel/trace/ring_buffer.c"),
    ("ignore_task_cpu", Asked::Tracing, "kernel/trace/trace_events.c: ftrace_clear_event_pids"),
    (
        "__blk_mq_complete_request_remote",
        Asked::BlockDone,
        "block/blk-mq.c: blk_mq_complete_send_ipi",
    ),
    ("do_nothing", Asked::Kick, "kernel/smp.c: kick_all_cpus_sync"),
    ("nohz_full_kick_func", Asked::IrqWork, "kernel/time/tick-sched.c: tick_nohz_full_kick_cpu"),
    ("wake_up_klogd_work_func", Asked::IrqWork, "kernel/printk/printk.c: wake_up_klogd"),
];

/// A function as reports name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name, or its address where the kernel hides names.
    pub name: Arc<str>,
    /// What it stands for.
    pub asked: Asked,
    /// Where the kernel calls for it, as far as the table knows.
    pub source: Option<&'static str>,
}

/// What a name stands for. The kernel's compiler adds to names what tells copies apart:
/// `.constprop.0`.
fn look_up(name: &str) -> Option<&'static Function> {
    let plain = name.split('.').next().unwrap_or(name);
    FUNCTIONS.iter().find(|(known, ..)| *known == plain)
}

/// Functions by their addresses, named when they come first.
pub struct Functions {
    namer: fn(u64) -> Option<String>,
    known: FxHashMap<u64, Named>,
}

impl Default for Functions {
    fn default() -> Functions {
        Functions::new(kernel_name)
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} functions", self.known.len())
    }
}

impl Functions {
    /// Functions whose names somebody knows.
    pub fn new(namer: fn(u64) -> Option<String>) -> Functions {
        Functions { namer, known: FxHashMap::default() }
    }

    /// The function at an address.
    pub fn at(&mut self, address: u64) -> &Named {
        let namer = self.namer;
        self.known.entry(address).or_insert_with(|| {
            let Some(name) = namer(address) else {
                return Named {
                    name: format!("{address:#x}").into(),
                    asked: Asked::Unnamed,
                    source: None,
                };
            };
            let row = look_up(&name);
            Named {
                asked: row.map_or(Asked::Other, |(_, asked, _)| *asked),
                source: row.map(|(.., source)| *source),
                name: name.into(),
            }
        })
    }

    /// One that flushes translations, as was seen, although its name is hidden. Whether that is
    /// new.
    pub fn flushes(&mut self, address: u64) -> bool {
        let named = self.known.entry(address);
        let named = named.or_insert_with(|| Named {
            name: format!("{address:#x}").into(),
            asked: Asked::Unnamed,
            source: None,
        });
        let new = named.asked == Asked::Unnamed;
        if new {
            named.asked = Asked::TlbFlush;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_row_and_its_name() {
        assert!(Asked::all().enumerate().all(|(at, asked)| asked as usize == at));
        let mut slugs: Vec<&str> = Asked::all().map(Asked::slug).collect();
        assert!(Asked::all().all(|asked| Asked::named(asked.slug()) == Some(asked)));
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), ROWS.len());
        assert_eq!(Asked::named("tlb"), None);
    }

    #[test]
    fn what_the_table_does_not_have_keeps_its_name() {
        let namer = |address| match address {
            1 => Some("do_sync_core".to_owned()),
            2 => Some("do_flush_tlb_all.constprop.0".to_owned()),
            3 => Some("mlx5_do_something".to_owned()),
            _ => None,
        };
        let mut functions = Functions::new(namer);
        assert_eq!(functions.at(1).asked, Asked::TextPatch);
        assert_eq!(functions.at(2).asked, Asked::KernelFlush);
        let other = functions.at(3).clone();
        assert_eq!(
            (&*other.name, other.asked, other.source),
            ("mlx5_do_something", Asked::Other, None)
        );
        let hidden = functions.at(4).clone();
        assert_eq!((&*hidden.name, hidden.asked), ("0x4", Asked::Unnamed));
        assert!(functions.flushes(4) && !functions.flushes(4) && !functions.flushes(3));
        assert_eq!(functions.at(4).asked, Asked::TlbFlush);
    }
}
