//! What a fault waits for, by the kernel's stack where its task leaves the CPU.
//!
//! A stack that the table does not know keeps its function: [`For::Other`].

use crate::sites::kernel_name;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What was waited for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum For {
    /// The answer of who reads a userfaultfd.
    Userfaultfd,
    /// A page that is on its way to another frame.
    Migration,
    /// A page that this fault has read, from swap space or a file.
    Read,
    /// A page's lock, which somebody else holds: who reads it, moves it, or writes it.
    PageLock,
    /// A page that is being written to its disk and must not change meanwhile.
    Writeback,
    /// Its turn: whoever makes more pages dirty than disks can take is slowed down.
    Throttle,
    /// Free memory.
    Memory,
    /// The lock of the address space, which a change of its mappings holds.
    MmapLock,
    /// Another lock.
    Lock,
    /// Something else: the function says what.
    Other,
    /// The stack was not seen, or its functions have no names here.
    Unseen,
}

/// Functions that wait for one thing.
struct Row {
    waits: For,
    functions: &'static [&'static str],
}

/// The first row that has a function anywhere on the stack decides: reclaim and throttling may wait
/// for a page's lock on their way. Above each row is where its functions stand, under the names
/// that they have in 5.10, 6.1, 6.12 or newer (looked up in the sources of 5.10 and 6.12 and in a
/// 6.18's /proc/kallsyms).
const TABLE: &[Row] = &[
    // mm/page_alloc.c, mm/vmscan.c, mm/memcontrol.c
    Row {
        waits: For::Memory,
        functions: &[
            "__alloc_pages_slowpath",
            "__alloc_pages_direct_reclaim",
            "try_to_free_pages",
            "try_to_free_mem_cgroup_pages",
            "try_charge_memcg",
            "mem_cgroup_out_of_memory",
            "out_of_memory",
        ],
    },
    // mm/page-writeback.c
    Row {
        waits: For::Throttle,
        functions: &[
            "balance_dirty_pages",
            "balance_dirty_pages_ratelimited",
            "balance_dirty_pages_ratelimited_flags",
        ],
    },
    // fs/userfaultfd.c
    Row { waits: For::Userfaultfd, functions: &["handle_userfault"] },
    // mm/migrate.c, mm/filemap.c. Only who waits for a page that moves calls the last one (5.10:
    // mm/migrate.c, mm/huge_memory.c).
    Row {
        waits: For::Migration,
        functions: &[
            "migration_entry_wait",
            "__migration_entry_wait",
            "migration_entry_wait_huge",
            "__migration_entry_wait_huge",
            "pmd_migration_entry_wait",
            "migration_entry_wait_on_locked",
            "softleaf_entry_wait_on_locked",
            "put_and_wait_on_page_locked",
        ],
    },
    // mm/page-writeback.c
    Row {
        waits: For::Writeback,
        functions: &[
            "wait_on_page_writeback",
            "wait_for_stable_page",
            "folio_wait_writeback",
            "folio_wait_writeback_killable",
            "folio_wait_stable",
        ],
    },
    // mm/page_io.c, block/bio.c, mm/filemap.c, mm/swap_state.c, mm/readahead.c
    Row {
        waits: For::Read,
        functions: &[
            "submit_bio_wait",
            "swap_readpage",
            "swap_read_folio",
            "filemap_read_folio",
            "filemap_read_page",
            "read_swap_cache_async",
            "swap_cluster_readahead",
            "page_cache_ra_unbounded",
            "page_cache_ra_order",
        ],
    },
    // mm/filemap.c
    Row {
        waits: For::PageLock,
        functions: &[
            "__lock_page_or_retry",
            "__folio_lock_or_retry",
            "__lock_page",
            "__folio_lock",
            "__lock_page_killable",
            "__folio_lock_killable",
            "folio_put_wait_locked",
            "wait_on_page_bit",
            "wait_on_page_bit_killable",
            "wait_on_page_bit_common",
            "folio_wait_bit",
            "folio_wait_bit_killable",
            "folio_wait_bit_common",
        ],
    },
];

/// In 5.10 neither migration_entry_wait nor what it calls is on the stack, since each ends in a
/// call of the next (mm/migrate.c: __migration_entry_wait, mm/filemap.c:
/// put_and_wait_on_page_locked). Whoever waits for a lock there has a frame between these two.
const MIGRATION_IN_5_10: [&str; 2] = ["wait_on_page_bit_common", "do_swap_page"];

/// Functions of locks (kernel/locking/). In a fault that has its mapping (mm/memory.c:
/// handle_mm_fault) it is any lock but the address space's.
const LOCKS: &[&str] = &[
    "rwsem_down_read_slowpath",
    "rwsem_down_write_slowpath",
    "__mutex_lock",
    "percpu_rwsem_wait",
    "__percpu_down_read",
    "rt_mutex_slowlock",
];

/// Functions that only wait, whatever for (kernel/sched/, kernel/locking/, kernel/time/).
const WAITERS: &[&str] = &[
    "__schedule",
    "schedule",
    "schedule_preempt_disabled",
    "schedule_timeout",
    "io_schedule",
    "io_schedule_timeout",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_irq",
    "__cond_resched",
    "down_read",
    "down_read_killable",
    "down_write",
    "down_write_killable",
    "mutex_lock",
    "__mutex_lock_slowpath",
    "wait_for_completion",
    "wait_for_completion_io",
    "__wait_for_common",
];

impl For {
    /// As reports name it.
    pub const fn title(self) -> &'static str {
        match self {
            For::Userfaultfd => "userfaultfd's answer",
            For::Migration => "page migration",
            For::Read => "page read",
            For::PageLock => "page lock",
            For::Writeback => "writeback",
            For::Throttle => "dirty throttling",
            For::Memory => "free memory",
            For::MmapLock => "mmap_lock",
            For::Lock => "another lock",
            For::Other => "something else",
            For::Unseen => "not seen",
        }
    }
}

/// What a stack waits for, and the function that tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wait {
    /// What for.
    pub what: For,
    /// The function; none if no stack was seen, or it has no names.
    pub function: Option<Arc<str>>,
}

impl Wait {
    /// A stack that nobody saw.
    pub const UNSEEN: Wait = Wait { what: For::Unseen, function: None };
}

/// Stacks' functions by their addresses, named when they come first.
pub struct Stacks {
    namer: fn(u64) -> Option<String>,
    names: FxHashMap<u64, Option<Arc<str>>>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        Stacks::new(kernel_name)
    }
}

impl std::fmt::Debug for Stacks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} functions", self.names.len())
    }
}

impl Stacks {
    /// Stacks of functions whose names somebody knows.
    pub fn new(namer: fn(u64) -> Option<String>) -> Stacks {
        Stacks { namer, names: FxHashMap::default() }
    }

    /// What a stack, innermost first, waits for.
    pub fn wait(&mut self, addresses: &[u64]) -> Wait {
        let namer = self.namer;
        let named = addresses.iter().filter_map(|address| {
            let name = self.names.entry(*address).or_insert_with(|| {
                // The compiler adds to names what tells copies and parts of functions apart:
                // `.isra.0`.
                namer(*address).map(|name| name.split('.').next().unwrap_or(&name).into())
            });
            name.clone()
        });
        tell(&named.collect::<Vec<_>>())
    }
}

/// What functions, innermost first, wait for.
fn tell(stack: &[Arc<str>]) -> Wait {
    let on_stack = |known: &[&str]| stack.iter().find(|name| known.contains(&&***name)).cloned();
    for row in TABLE {
        if let Some(function) = on_stack(row.functions) {
            let pair = |pair: &[Arc<str>]| pair.iter().map(|name| &**name).eq(MIGRATION_IN_5_10);
            let moves = row.waits == For::PageLock && stack.windows(2).any(pair);
            let what = if moves { For::Migration } else { row.waits };
            return Wait { what, function: Some(function) };
        }
    }
    let own = stack.iter().find(|name| !WAITERS.contains(&&***name) && !LOCKS.contains(&&***name));
    let what = match on_stack(LOCKS) {
        Some(_) if on_stack(&["handle_mm_fault"]).is_some() => For::Lock,
        Some(_) => For::MmapLock,
        None if own.is_some() => For::Other,
        None => For::Unseen,
    };
    Wait { what, function: own.cloned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stacks as kernels had them in guests, innermost first.
    fn told(stack: &str) -> (For, Option<String>) {
        let stack: Vec<Arc<str>> = stack.split(" < ").map(Into::into).collect();
        let wait = tell(&stack);
        (wait.what, wait.function.map(|name| name.to_string()))
    }

    #[test]
    fn the_first_row_with_a_function_on_the_stack_decides() {
        let fault = "do_user_addr_fault < exc_page_fault < asm_exc_page_fault";
        let some = |name: &str| Some(name.to_owned());
        let handled = format!("__handle_mm_fault < handle_mm_fault < {fault}");
        for (stack, what, function) in [
            ("__schedule < schedule < handle_userfault", For::Userfaultfd, "handle_userfault"),
            (
                "__schedule < schedule < io_schedule < folio_wait_bit_common < __folio_lock_or_retry < do_swap_page",
                For::PageLock,
                "folio_wait_bit_common",
            ),
            (
                "__schedule < schedule < io_schedule < migration_entry_wait_on_locked < do_swap_page",
                For::Migration,
                "migration_entry_wait_on_locked",
            ),
            (
                "__schedule < schedule < io_schedule < wait_on_page_bit_common < do_swap_page",
                For::Migration,
                "wait_on_page_bit_common",
            ),
            (
                "__schedule < io_schedule < wait_on_page_bit_common < __lock_page_or_retry < do_swap_page",
                For::PageLock,
                "wait_on_page_bit_common",
            ),
            (
                "__schedule < io_schedule < folio_wait_bit_common < folio_wait_writeback < shrink_folio_list < try_to_free_pages < __alloc_pages_slowpath",
                For::Memory,
                "try_to_free_pages",
            ),
            (
                "__schedule < schedule < rwsem_down_write_slowpath < down_write < __anon_vma_prepare",
                For::Lock,
                "__anon_vma_prepare",
            ),
            ("__schedule < schedule < jbd2_log_wait_commit", For::Other, "jbd2_log_wait_commit"),
        ] {
            assert_eq!(told(&format!("{stack} < {handled}")), (what, some(function)), "{stack}");
        }
        let lock = "__schedule < schedule < rwsem_down_read_slowpath < down_read_killable";
        assert_eq!(told(&format!("{lock} < {fault}")), (For::MmapLock, some("do_user_addr_fault")));
        assert_eq!(told("__schedule < schedule"), (For::Unseen, None));
    }

    #[test]
    fn stacks_without_names_are_not_seen() {
        let mut stacks = Stacks::new(|_| None);
        assert_eq!(stacks.wait(&[1, 2, 3]), Wait::UNSEEN);
        let mut stacks =
            Stacks::new(|address| (address > 1).then(|| "handle_userfault.cold".into()));
        assert_eq!(stacks.wait(&[1, 2]).function.as_deref(), Some("handle_userfault"));
    }
}
