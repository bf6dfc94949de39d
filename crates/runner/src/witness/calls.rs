//! The operations of a program that affect more than their own pages, by operation id. (Records
//! name operations by id.)

use needless_model::addr::ProcessId;
use needless_model::arch::X86_64;
use needless_model::call::CallExpr;
use needless_model::program::{Advice, Op, OpKind, Program};
use std::collections::BTreeSet;

/// The operations that may make every CPU drain its LRU batches (mm/fadvise.c:generic_fadvise,
/// mm/khugepaged.c:madvise_collapse; before pages are moved mm/migrate.c:do_pages_move,
/// mm/mempolicy.c:do_mbind, do_migrate_pages: migrate_prep in 5.10, lru_cache_disable from 6.1 on).
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

/// The operations that may flush once more if their thread is pushed out during them. The kernel
/// flushes dirtied pages of shared memory before it releases the page table's lock, and it releases
/// the lock to let another task run (mm/memory.c:zap_pte_range, 5.10 to 7.2: `force_flush`,
/// `need_resched`).
///
/// If the program has shared areas, these are all calls, because most of them can end a mapping or
/// shrink a file, and the last operation of a forked process, which ends with it. `fadvise` is left
/// out: it drops only unmapped pages (mm/truncate.c:invalidate_mapping_pages), and it makes a
/// worker drain the LRU batches of its own CPU, too.
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

/// The operations that may free page tables, or flush as if they did. A lazy CPU has to leave the
/// address space for such a flush (arch/x86/mm/tlb.c:flush_tlb_multi, 5.10 to 7.2: `freed_tables`),
/// and for no other flush. Every flush of a range outside of an mmu_gather flushes as if tables
/// were freed (arch/x86/include/asm/tlbflush.h:flush_tlb_range, 5.10 to 7.3): those of mprotect and
/// uffdio_writeprotect in 5.10, and those of mremap, PAGEMAP_SCAN and of a huge page's entry in all
/// kernels. Only faults on small pages remain (`flush_tlb_page`).
pub(super) fn freeing_tables(program: &Program) -> BTreeSet<u64> {
    let huge = program.areas.iter().any(|area| area.range.pages() >= 1 << X86_64.order(2));
    let frees = |op: &&Op| huge || matches!(op.kind, OpKind::Call(_));
    ids(program.ops().filter(frees).chain(ends(program)))
}

/// The last operation of each forked process.
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
