//! What the operations of a program do to more than its pages, by their ids: in their records they are numbers.

use needless_model::addr::ProcessId;
use needless_model::arch::X86_64;
use needless_model::call::CallExpr;
use needless_model::program::{Advice, Op, OpKind, Program};
use std::collections::BTreeSet;

/// Those that may have every CPU empty its LRU batches (mm/fadvise.c:generic_fadvise, mm/khugepaged.c:madvise_collapse; before pages are moved
/// mm/migrate.c:do_pages_move, mm/mempolicy.c:do_mbind, do_migrate_pages: migrate_prep in 5.10, lru_cache_disable from 6.1 on).
pub(super) fn draining(program: &Program) -> BTreeSet<u64> {
    let drains = |op: &&Op| match op.kind {
        OpKind::Call(
            CallExpr::DropFile { .. }
            | CallExpr::MovePages { .. }
            | CallExpr::MigratePages { .. }
            | CallExpr::Mbind { moves: true, .. },
        ) => true,
        OpKind::Call(CallExpr::Advise { advice, .. } | CallExpr::AdviseRanges { advice, .. }) => {
            advice == Advice::Collapse
        }
        _ => false,
    };
    ids(program.ops().filter(drains))
}

/// Those after which a thread that was pushed out amid them may have flushed once more: pages of shared memory that were
/// stored to are flushed before the page table's lock is let go of, and it is let go of for whoever is to run there
/// (mm/memory.c:zap_pte_range, 5.10 to 7.2: `force_flush`, `need_resched`). Any call, as few cannot end a mapping or shrink
/// a file, and the last operation of a process, which ends with it; not `fadvise`, which drops what nobody maps
/// (mm/truncate.c:invalidate_mapping_pages), and has a worker empty the LRU batches of its own CPU, too.
pub(super) fn gathering(program: &Program) -> BTreeSet<u64> {
    if program.areas.iter().all(|area| !area.backing.is_shared()) {
        return BTreeSet::new();
    }
    let calls = program.ops().filter(|op| match &op.kind {
        OpKind::Call(call) => !matches!(call, CallExpr::DropFile { .. }),
        _ => false,
    });
    ids(calls.chain(ends(program)))
}

/// Those that may free page tables, or flush as if they did: a CPU that is lazy has to leave the address space for that
/// (arch/x86/mm/tlb.c:flush_tlb_multi, 5.10 to 7.2: `freed_tables`), and for no other flush. So says every flush of a range that is
/// no gather's (arch/x86/include/asm/tlbflush.h:flush_tlb_range, 5.10 to 7.3): of mprotect and uffdio_writeprotect in 5.10, of
/// mremap, PAGEMAP_SCAN and of a huge page's entry in all. What is left are faults on small pages (`flush_tlb_page`).
pub(super) fn freeing_tables(program: &Program) -> BTreeSet<u64> {
    let huge = program.areas.iter().any(|area| area.range.pages() >= 1 << X86_64.order(2));
    let frees = |op: &&Op| huge || matches!(op.kind, OpKind::Call(_));
    ids(program.ops().filter(frees).chain(ends(program)))
}

/// The last operation of each process that is forked.
fn ends(program: &Program) -> impl Iterator<Item = &Op> {
    let others = program.threads.iter().filter(|thread| thread.process != ProcessId::FIRST);
    others.filter_map(|thread| innermost_last(&thread.body))
}

fn innermost_last(body: &[Op]) -> Option<&Op> {
    let last = body.last()?;
    innermost_last(last.kind.body()).or(Some(last))
}

fn ids<'a>(ops: impl Iterator<Item = &'a Op>) -> BTreeSet<u64> {
    ops.map(|op| u64::from(op.id)).collect()
}
