//! The lock of a last-level page table.
//!
//! A thread that looks a table up and then takes its lock may come too late: MADV_DONTNEED frees
//! tables that it empties, and holds `mmap_lock` for reading as a page fault does. So the table is
//! looked up under the lock. If it is gone, a walk passes over it, and a fault is tried again.
//!
//! Source: mm/pgtable-generic.c:pte_offset_map_lock, __pte_offset_map_lock (6.12, 7.3). In 5.10 and
//! 6.1 (include/linux/mm.h:pte_offset_map_lock) the lock alone is enough: tables of a mapping are
//! freed only with `mmap_lock` held for writing.

use crate::addr::{MmId, PageRange, Vpn};
use crate::arch::TlbCode;
use crate::env::{Env, Learnt, Lock};
use crate::kernel::arm64;
use crate::kernel::zap::by_table;
use crate::machine::lockless::Walked;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::Mutant;
use crate::pte::PresentPte;
use crate::site::Site;

/// Takes the lock of the last-level table of `page` and runs `first`, in one step. If there is no
/// such table, nothing is done, and no lock is held.
pub fn pte_offset_map_lock<E: Env, R>(
    env: &mut E,
    site: Site,
    mm: MmId,
    page: Vpn,
    first: impl FnOnce(&mut World<E::Mode>, At) -> R,
) -> Option<R>
where
    Option<R>: Learnt,
{
    let lock = Lock::page_table(env.arch(), mm, page);
    env.lock(lock);
    let done = env.step(site, |w, at| {
        let unchecked = w.policies.mutant == Mutant::TableUnchecked;
        let there = unchecked || w.mms[mm.index()].table.has_table(page, 1);
        there.then(|| first(w, at))
    });
    if done.is_none() {
        env.unlock(lock);
    }
    done
}

/// Calls `visit` for each last-level table's part of `pages`, with the table's lock held. Parts
/// without a table are skipped.
pub fn each_table<E: Env>(
    env: &mut E,
    site: Site,
    mm: MmId,
    pages: PageRange,
    mut visit: impl FnMut(&mut E, PageRange),
) {
    let arch = *env.arch();
    for part in by_table(&arch, pages) {
        if pte_offset_map_lock(env, site, mm, part.start, |_, _| ()).is_some() {
            visit(env, part);
            pte_unmap_unlock(env, mm, part.start);
        }
    }
}

/// Creates the table of `level` that covers `page`, and those above it. `None` if there is no
/// memory for one (`-ENOMEM`). Part of a step.
///
/// Source: mm/memory.c:__pte_alloc, __pmd_alloc (5.10 to 7.3).
pub fn pte_alloc<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn, level: u32) -> Option<()> {
    pte_alloc_tells(w, at, mm, page, level).map(drop)
}

/// [`pte_alloc`] that also returns whether the table was missing. (A thread that learns this is in
/// a different state from one that does not.)
#[inline]
pub fn pte_alloc_tells<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    page: Vpn,
    level: u32,
) -> Option<bool> {
    let made = w.mms[mm.index()].table.allocate(page, level, &w.room)?;
    if matches!(w.arch.tlb_code, TlbCode::Arm64(_)) {
        arm64::table_linked(w, at, made);
    }
    Some(made > 0)
}

/// Notes that a table was linked elsewhere (`pmd_populate`). Part of a step.
pub fn table_relinked<M: Mode>(w: &mut World<M>, at: At) {
    if matches!(w.arch.tlb_code, TlbCode::Arm64(_)) {
        arm64::table_linked(w, at, 1);
    }
}

/// Takes the empty table of `level` that covers `page` out of the one above it. Returns whether
/// there was one. Part of a step.
///
/// Source: mm/memory.c:free_pte_range, free_pmd_range, free_pud_range (5.10 to 7.3).
pub fn unlink_table<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn, level: u32) -> bool {
    let freed = w.mms[mm.index()].table.free(page, level);
    if freed {
        w.ghost.table_unlinked(&w.cpus, mm, page, level);
        w.drop_structures(mm);
        if level == 1 {
            w.table_becomes(mm, Walked::At(page), Walked::Out(page));
        }
        if matches!(w.arch.tlb_code, TlbCode::Arm64(_)) {
            arm64::table_unlinked(w, at, level);
        }
    }
    freed
}

/// Gives back the lock of the last-level table of `page`.
pub fn pte_unmap_unlock(env: &mut impl Env, mm: MmId, page: Vpn) {
    let lock = Lock::page_table(env.arch(), mm, page);
    env.unlock(lock);
}

/// Whether a TLB may hold the translation of a cleared PTE. A TLB does not hold a PTE without
/// access, unless an open gather may have removed the access and has not flushed yet.
///
/// Source: arch/x86/include/asm/pgtable.h:pte_accessible (5.10 to 7.3).
pub fn pte_accessible<M: Mode>(w: &World<M>, mm: MmId, pte: PresentPte) -> bool {
    let looks = w.policies.mutant != Mutant::NoAccessSkipped;
    !pte.protnone() || looks && w.mms[mm.index()].open_gathers > 0
}
