//! Moves folios that a mapping locks in memory to the unevictable list, and back.
//!
//! Since 5.18 such a folio waits in a batch of the CPU, as other folios wait in their batches, and
//! the batch holds one reference. The folio waits there again when a mapping that locks it is
//! removed. Before 5.18, `mlock` and a copy-on-write fault took the folio off its list and put it
//! back through the CPU's ordinary batch.
//!
//! Source: mm/mlock.c (6.1 to 7.3): mlock_folio, mlock_new_folio, munlock_folio, mlock_folio_batch;
//! (5.10): mlock_vma_page, munlock_vma_page, clear_page_mlock.

use crate::addr::{CpuId, MmId, Pfn, Vpn};
use crate::env::Env;
use crate::kernel::lru::{folio_add_lru, folio_add_new, joins_list, lru_add_drain};
use crate::kernel::rmap::{Place, page_vma_mapped_walk, rmap_walk};
use crate::kernel::table::pte_unmap_unlock;
use crate::machine::cpu::MlockStep;
use crate::machine::frames::FrameFlags;
use crate::machine::lru::End;
use crate::machine::world::{At, Mode, World};
use crate::policy::MlockPages;
use crate::site::Site;
use smallvec::SmallVec;

/// Puts a new folio on the LRU. `locked`: its mapping locks its pages. Part of a step.
///
/// Source: mm/swap.c:lru_cache_add_inactive_or_unevictable (5.10, 6.1), folio_add_lru_vma (6.12,
/// 7.3).
pub fn folio_add_lru_vma<M: Mode>(w: &mut World<M>, at: At, frame: Pfn, locked: bool) {
    if !locked {
        return folio_add_new(w, at, frame);
    }
    w.frames.change_mlocked(frame, |folio| folio.mlocked = true);
    match w.policies.mlock_pages {
        MlockPages::Isolated => folio_add_new(w, at, frame),
        MlockPages::Batched => enter(w, at, frame, MlockStep::New),
    }
}

/// Notes that an existing folio got one more mapping. `locked`: the mapping locks its pages. Part
/// of a step.
///
/// Source: mm/internal.h:mlock_vma_folio, mm/rmap.c:folio_add_file_rmap_ptes,
/// folio_add_anon_rmap_ptes (6.1 to 7.3; 5.10: nothing).
pub fn folio_add_rmap<M: Mode>(w: &mut World<M>, at: At, frame: Pfn, locked: bool) {
    let large = w.frames.flags(frame).has(FrameFlags::LARGE);
    if locked && !large && w.policies.mlock_pages == MlockPages::Batched {
        mlock_folio(w, at, frame);
    }
}

/// Notes that a PTE that mapped the frame is gone. `locked`: its mapping locks its pages. Part of a
/// step.
///
/// Source: mm/rmap.c:page_remove_rmap (5.10: the last mapping; 6.1), folio_remove_rmap_ptes (6.12,
/// 7.3); mm/internal.h:munlock_vma_folio.
pub fn folio_remove_rmap<M: Mode>(w: &mut World<M>, at: At, frame: Pfn, locked: bool) {
    w.drop_mapping(at, frame);
    munlock_vma_folio(w, at, frame, locked);
}

/// [`folio_remove_rmap`] without the count of mappings: a huge page's was dropped already.
pub fn munlock_vma_folio<M: Mode>(w: &mut World<M>, at: At, frame: Pfn, locked: bool) {
    match w.policies.mlock_pages {
        MlockPages::Isolated if w.frames.folio_maps(frame) == 0 => clear_page_mlock(w, at, frame),
        MlockPages::Isolated => {}
        MlockPages::Batched if locked => munlock_folio(w, at, frame),
        MlockPages::Batched => {}
    }
}

/// Ends the lock of a huge page whose mapping maps it page by page from now on. `locked`: the
/// mapping locks its pages. Part of a step.
///
/// Source: mm/huge_memory.c:__split_huge_pmd (5.10), __split_huge_pmd_locked (6.1 to 7.3).
pub fn munlock_split<M: Mode>(w: &mut World<M>, at: At, folio: Pfn, locked: bool) {
    match w.policies.mlock_pages {
        MlockPages::Isolated => clear_page_mlock(w, at, folio),
        MlockPages::Batched => munlock_vma_folio(w, at, folio, locked),
    }
}

/// Notes that a translation replaced a migration entry. `locked`: its mapping locks its pages. Part
/// of a step.
///
/// Source: mm/migrate.c:remove_migration_pte (5.10 to 7.3).
pub fn mapped_again<M: Mode>(w: &mut World<M>, at: At, frame: Pfn, locked: bool) {
    if !locked || w.frames.flags(frame).has(FrameFlags::LARGE) {
        return;
    }
    match w.policies.mlock_pages {
        MlockPages::Isolated => mlock_vma_page(w, at, frame),
        MlockPages::Batched => {
            mlock_folio(w, at, frame);
            drain_mlock(w, at, at.cpu);
        }
    }
}

/// Notes that a mapping locks the folio from now on. Part of a step.
pub fn mlock_folio<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    w.frames.change_mlocked(frame, |folio| folio.mlocked = true);
    enter(w, at, frame, MlockStep::Mlock);
}

/// Notes that a mapping no longer locks the folio. Part of a step.
pub fn munlock_folio<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    enter(w, at, frame, MlockStep::Munlock);
}

fn enter<M: Mode>(w: &mut World<M>, at: At, frame: Pfn, step: MlockStep) {
    let (folio, size) = (w.frames.folio(frame).0, w.lru_batch_size());
    w.get_frame(at, folio);
    let waiting = &mut w.cpus[at.cpu.index()].mlock;
    waiting.push((folio, step));
    let full = waiting.len() == size;
    // A large folio does not wait in the batch.
    if full || w.frames.flags(folio).has(FrameFlags::LARGE) {
        drain_mlock(w, at, at.cpu);
    }
}

/// Empties the CPU's batch. Part of a step.
pub fn drain_mlock<M: Mode>(w: &mut World<M>, at: At, cpu: CpuId) {
    let mut waiting = std::mem::take(&mut w.cpus[cpu.index()].mlock);
    for &(folio, step) in &waiting {
        match step {
            MlockStep::Mlock => mlocked(w, folio),
            MlockStep::New => {
                put_on_list(w, folio);
                w.lru_add(folio, |_| ());
            }
            MlockStep::Munlock => munlocked(w, folio),
        }
        w.put_frame(at, folio);
    }
    waiting.clear();
    w.cpus[cpu.index()].mlock = waiting;
}

/// Locks a folio. If it is not on the LRU, nothing is done: the code that puts it back there looks
/// at its flag.
///
/// Source: mm/mlock.c:__mlock_folio (6.1 to 7.3).
fn mlocked<M: Mode>(w: &mut World<M>, folio: Pfn) {
    let state = w.frames.mlocked(folio);
    if !w.frames.flags(folio).on_lru() {
        return;
    }
    if state.mlocked && state.unevictable {
        w.frames.change_mlocked(folio, |folio| folio.count += 1);
    } else if state.mlocked || state.unevictable {
        put_on_list(w, folio);
    }
}

/// Counts one mapping off. With the last one the folio goes back to the lists that reclaim scans.
///
/// Source: mm/mlock.c:__munlock_folio (6.1 to 7.3).
fn munlocked<M: Mode>(w: &mut World<M>, folio: Pfn) {
    let on_lru = w.frames.flags(folio).on_lru();
    let mut state = w.frames.mlocked(folio);
    if on_lru && state.unevictable {
        state.count = state.count.saturating_sub(1);
    }
    let others = on_lru && state.unevictable && state.count > 0;
    state.mlocked &= others;
    w.frames.change_mlocked(folio, |folio| *folio = state);
    if on_lru && state.unevictable && !others {
        put_on_list(w, folio);
    }
}

/// Puts the folio on the list where it belongs: the unevictable one, counted once, if it is locked,
/// else an ordinary one.
fn put_on_list<M: Mode>(w: &mut World<M>, folio: Pfn) {
    let locked = w.frames.mlocked(folio).mlocked;
    w.frames.change_mlocked(folio, |folio| {
        (folio.unevictable, folio.count) = (locked, u32::from(locked));
    });
    let (mglru, used_once) = (w.config.mglru, w.policies.used_once);
    w.frames.change_flags(folio, |flags| match locked {
        true => flags.set(FrameFlags::ACTIVE.and(FrameFlags::OLDEST), false),
        false => joins_list(flags, mglru, used_once),
    });
    w.lru_move(folio, End::Head);
}

/// `mlock` found the page mapped (5.10). The page counts as locked, leaves its list, and goes to
/// the unevictable one through the CPU's ordinary batch. Part of a step.
///
/// Source: mm/mlock.c:mlock_vma_page, mm/vmscan.c:isolate_lru_page, putback_lru_page (5.10).
pub fn mlock_vma_page<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    if !w.frames.mlocked(frame).mlocked {
        w.frames.change_mlocked(frame, |folio| folio.mlocked = true);
        isolate_and_put_back(w, at, frame);
    }
}

/// Ends the lock of a page that counts as locked.
///
/// Source: mm/mlock.c:clear_page_mlock (5.10).
fn clear_page_mlock<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    if w.frames.mlocked(frame).mlocked {
        w.frames.change_mlocked(frame, |folio| folio.mlocked = false);
        isolate_and_put_back(w, at, frame);
    }
}

fn isolate_and_put_back<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let folio = w.frames.folio(frame).0;
    if w.frames.flags(folio).on_lru() {
        w.lru_del(folio, FrameFlags::default());
        folio_add_lru(w, at.site(Site::FolioPutbackLru), folio);
    }
}

/// The pages that `munlock` takes together, each with its frame.
pub type Pagevec = SmallVec<[(Vpn, Pfn); 15]>;

/// Unlocks adjacent pages of a mapping that locked them (5.10). First, all of them leave their
/// lists. If one was on no list (because it waited in a batch, or counts as locked by nobody), the
/// CPU's batches are emptied.
///
/// Source: mm/mlock.c:__munlock_pagevec, mm/swap.c:__pagevec_release (5.10).
pub fn munlock_pagevec(env: &mut impl Env, mm: MmId, pages: &Pagevec) {
    let isolated: Pagevec =
        pages.iter().copied().filter(|(_, frame)| munlock_isolate(env, *frame)).collect();
    if isolated.len() < pages.len() {
        lru_add_drain(env);
    }
    for (page, frame) in isolated {
        munlock_isolated(env, frame, Some((mm, page)));
    }
}

/// Ends the lock of a page that counts as locked (5.10): a mapping gave it up at the place `left`,
/// or (`None`) because it was copied.
///
/// Source: mm/mlock.c:munlock_vma_page (5.10).
pub fn munlock_vma_page(env: &mut impl Env, frame: Pfn, left: Option<Place>) {
    let folio = env.step(Site::MlockPteRange, |w, _| w.frames.folio(frame).0);
    if munlock_isolate(env, folio) {
        munlock_isolated(env, folio, left);
    }
}

/// Clears the folio's lock. Returns whether it was locked and on a list. Then it leaves the list,
/// and the caller gets a reference.
///
/// Source: mm/mlock.c:__munlock_isolate_lru_page (5.10).
fn munlock_isolate(env: &mut impl Env, folio: Pfn) -> bool {
    env.step(Site::MlockPteRange, |w, at| {
        let was = w.frames.mlocked(folio).mlocked && w.frames.flags(folio).on_lru();
        w.frames.change_mlocked(folio, |folio| folio.mlocked = false);
        if was {
            w.lru_del(folio, FrameFlags::default());
            w.get_frame(at, folio);
        }
        was
    })
}

/// Puts the folio on the list where it belongs now: the unevictable one if another mapping locks
/// it, too. It goes through the CPU's batch. It goes at once if `munlock` takes it from a place,
/// nobody else maps it, and it is not large.
///
/// Source: mm/mlock.c:__putback_lru_fast, __munlock_isolated_page (5.10).
fn munlock_isolated(env: &mut impl Env, folio: Pfn, left: Option<Place>) {
    let site = Site::MlockPteRange;
    let shared = env.step(site, |w, _| w.frames.folio_maps(folio) > 1);
    if shared {
        try_to_munlock(env, folio, left);
    }
    env.step(site, |w, at| {
        let large = w.frames.flags(folio).has(FrameFlags::LARGE);
        if left.is_some() && !shared && !large {
            put_on_list(w, folio);
            w.lru_add(folio, |_| ());
        } else {
            folio_add_lru(w, at.site(Site::FolioPutbackLru), folio);
        }
        w.put_frame(at, folio);
    });
}

/// Counts the page as locked again if a mapping that has it elsewhere locks it.
///
/// Source: mm/rmap.c:try_to_munlock, try_to_unmap_one (5.10: TTU_MUNLOCK).
fn try_to_munlock(env: &mut impl Env, frame: Pfn, left: Option<Place>) {
    let site = Site::MlockPteRange;
    rmap_walk(env, site, frame, |env, (mm, page)| {
        let found = page_vma_mapped_walk(env, site, frame, (mm, page), |w, _, _| {
            if w.locks(mm, page) && left != Some((mm, page)) {
                w.frames.change_mlocked(frame, |folio| folio.mlocked = true);
            }
        });
        if found.is_some() {
            pte_unmap_unlock(env, mm, page);
        }
    });
}
