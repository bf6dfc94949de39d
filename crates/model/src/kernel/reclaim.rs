//! Reclaim: takes pages to swap or out of the page cache, with one batched flush for many unmapped
//! pages.
//!
//! A clean page of a file on a disk is dropped, and read again on the next access; a dirty one is
//! unmapped and stays. A page of shared memory or tmpfs goes to swap. If nobody ever stored to it,
//! it is dropped, and a new page of zeros takes its place.
//!
//! A page is unmapped first and flushed later: before it is written if its PTE was dirty (a CPU
//! could still write), else at the end, before it is freed ([`crate::kernel::unmap_batch`]).
//!
//! Source: mm/vmscan.c:shrink_folio_list, mm/rmap.c:try_to_unmap_one (5.10 to 7.3).

use crate::addr::{MmId, NodeId, ObjectId, PageRange, Pfn, Vpn};
use crate::arch::Flushes;
use crate::env::{Env, Learnt, Lock};
use crate::event::EventKind;
use crate::kernel::deferred::{UnmappedFor, folio_unmapped, join_deferred, leave_frame, may_defer};
use crate::kernel::flush::{Change, FlushRequest, flush_by_rule};
use crate::kernel::gup::maybe_dma_pinned;
use crate::kernel::huge::reclaim::{BeforeSwap, before_swap, large_referenced, try_to_unmap_large};
use crate::kernel::huge::split_folio::split_folio;
use crate::kernel::lru::folio_add_lru;
use crate::kernel::migrate::{Asked, Target, migrate_pages, putback_movable_pages};
use crate::kernel::mlock_batch::{mlock_folio, mlock_vma_page};
use crate::kernel::rmap::{Place, page_vma_mapped_walk, places, rmap_walk};
use crate::kernel::swap_cache::{add_to_swap, leave_swap_cache, swap_cache_references, swap_users};
use crate::kernel::table::pte_unmap_unlock;
use crate::kernel::unmap::{Unmap, UnmapFor, try_to_unmap_one};
use crate::kernel::unmap_batch::try_to_unmap_flush;
use crate::machine::frames::FrameFlags;
use crate::machine::lru::References;
use crate::machine::unmap_batch::Batch;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{
    DeferFlush, MlockPages, Mutant, PageoutYoung, ReclaimFree, RefaultFlush, ZeroSwap,
};
use crate::pte::{Pte, PteFlags};
use crate::site::Site;
use smallvec::SmallVec;

/// Folios isolated from the LRU.
pub type FolioList = SmallVec<[Pfn; 8]>;

/// Reclaims pages of `range` as if memory were short. Finds them on the LRU lists that reclaim
/// scans, ages them without a flush, and writes those to swap that were not used since.
///
/// Source: mm/vmscan.c:shrink_active_list, shrink_inactive_list (5.10 to 7.3). Which pages come
/// first is not modelled.
pub fn shrink_range(env: &mut impl Env, mm: MmId, range: PageRange) {
    let pages = env.step(Site::ShrinkFolioList, |w, at| {
        let mut pages = FolioList::new();
        for page in range.iter() {
            let Pte::Present(pte) = w.page_entry(mm, page) else { continue };
            let folio = w.frames.folio(pte.pfn).0;
            let found = !pte.special() && !w.frames.mlocked(folio).unevictable;
            if found && w.isolate_lru(at, folio) {
                pages.push(folio);
            }
        }
        pages
    });
    for frame in &pages {
        folio_referenced(env, *frame);
    }
    if !demotes(env) {
        let kept = shrink_folio_list(env, &pages, Aging::Activates, false);
        return putback(env, &kept);
    }
    for list in pages.chunks(CLUSTER) {
        let kept = shrink_folio_list(env, list, Aging::Activates, true);
        putback(env, &kept);
    }
}

/// Reclaims isolated pages for `MADV_PAGEOUT`. Each run of pages that lie on one node is reclaimed
/// by itself, with its own flush.
///
/// Source: mm/vmscan.c:reclaim_pages (5.10 to 7.3).
pub fn reclaim_pages(env: &mut impl Env, pages: &[Pfn]) {
    let aging = match env.policies().pageout_young {
        PageoutYoung::Clear => Aging::Activates,
        PageoutYoung::Ignore => Aging::Ignored,
    };
    if pages.is_empty() || !env.config().several_nodes {
        let kept = shrink_folio_list(env, pages, aging, false);
        return putback(env, &kept);
    }
    let nodes: Vec<NodeId> = env.step(Site::ShrinkFolioList, |w, _| {
        pages.iter().map(|page| w.nodes.of_frame(*page)).collect()
    });
    let mut left = pages;
    for run in nodes.chunk_by(|one, next| one == next) {
        let (these, others) = left.split_at(run.len());
        let kept = shrink_folio_list(env, these, aging, false);
        putback(env, &kept);
        left = others;
    }
}

/// What reclaim does with a page whose accessed bit is set.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Aging {
    /// The accessed bit has no effect.
    Ignored,
    /// The page stays, as an active one.
    Activates,
    /// The page stays. The second time it becomes active ([`References`]).
    Counts,
}

/// Reclaims isolated pages. Returns those that stay; the caller puts them back on the LRU.
/// `demotes`: pages of fast memory go to slower memory first.
pub fn shrink_folio_list(
    env: &mut impl Env,
    pages: &[Pfn],
    aging: Aging,
    demotes: bool,
) -> FolioList {
    if pages.is_empty() {
        return FolioList::new();
    }
    let batch = match env.policies().reclaim_free {
        ReclaimFree::AtEnd => usize::MAX,
        ReclaimFree::PerBatch => env.step(Site::ShrinkFolioList, |w, _| w.lru_batch_size()),
    };
    let (mut done, mut kept, mut slower) = (Vec::new(), FolioList::new(), FolioList::new());
    let mut left: FolioList = pages.iter().rev().copied().collect();
    while let Some(frame) = left.pop() {
        let (became, split_off) = shrink_folio(env, frame, (aging, demotes));
        left.extend(split_off.into_iter().rev());
        match became {
            Became::Reclaimed { owes } => {
                done.push((frame, owes));
                if done.len() == batch {
                    flush_and_free(env, &mut done, &mut kept);
                }
            }
            Became::Kept => kept.push(frame),
            Became::Demoted => slower.push(frame),
        }
    }
    demote_folio_list(env, &slower);
    flush_and_free(env, &mut done, &mut kept);
    kept
}

/// Puts folios into this CPU's LRU batch, as for new pages (mm/vmscan.c:folio_putback_lru).
fn putback(env: &mut impl Env, kept: &[Pfn]) {
    if kept.is_empty() {
        return;
    }
    env.step(Site::FolioPutbackLru, |w, at| {
        for &frame in kept {
            folio_add_lru(w, at, frame);
            w.put_frame(at, frame);
        }
    });
}

fn flush_and_free(env: &mut impl Env, done: &mut Vec<(Pfn, bool)>, kept: &mut FolioList) {
    let defers = env.policies().defer_flush == DeferFlush::Unmap;
    let deferred = defers && join_deferred(env, Site::TryToUnmapFlush);
    try_to_unmap_flush(env, Batch::Task, Site::TryToUnmapFlush);
    if env.policies().refault_flush == RefaultFlush::RemovedAfter {
        done.retain(|(frame, _)| {
            let removed = env.step(Site::RemoveMapping, |w, at| remove_mapping(w, at, *frame));
            env.unlock(Lock::Folio(*frame));
            if !removed {
                kept.push(*frame);
            }
            removed
        });
    }
    env.step(Site::FolioPut, |w, at| {
        for (frame, owes) in done.drain(..) {
            match owes && deferred {
                true => leave_frame(w, at, frame, None),
                false => w.put_frame(at, frame),
            }
        }
    });
}

/// What became of a folio that reclaim looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Became {
    /// The folio stays.
    Kept,
    /// Only our own reference is left. With `removed-after` the swap cache's is left as well, and
    /// the folio is still locked. `owes`: a later flush may do the folio's flush.
    Reclaimed { owes: bool },
    /// The folio should go to slower memory.
    Demoted,
}

/// The number of folios that reclaim takes at once (`SWAP_CLUSTER_MAX`).
pub const CLUSTER: usize = 32;

/// Decides about a folio of private memory, and remembers whether it was used
/// (`folio_check_references`).
fn check<M: Mode>(w: &mut World<M>, folio: Pfn, used: bool) -> References {
    let marked = w.frames.flags(folio).has(FrameFlags::REFERENCED);
    w.frames.set_flags(folio, FrameFlags::REFERENCED, used);
    References::check(u32::from(used), marked)
}

/// Whether reclaim moves pages to slower memory. `MADV_PAGEOUT` never does.
///
/// Source: mm/vmscan.c:can_demote (6.12; 5.10 has no demotion, and 6.1 no slower memory).
pub fn demotes(env: &impl Env) -> bool {
    env.config().demotion && env.config().several_nodes
}

/// Moves folios to slower memory. A folio that cannot move stays: without swap space it cannot be
/// reclaimed.
///
/// Source: mm/vmscan.c:demote_folio_list (6.12).
fn demote_folio_list(env: &mut impl Env, folios: &[Pfn]) {
    let Some(&first) = folios.first() else { return };
    let target = env.step(Site::DemoteFolioList, |w, _| w.nodes.slower(w.nodes.of_frame(first)));
    match target {
        Some(node) => {
            let left = migrate_pages(env, folios, Target::Node(node), Asked::ByReclaim);
            let moved = folios.len() - left.unwrap_or(folios.len());
            env.step(Site::DemoteFolioList, |w, _| {
                w.count_moves(|moves| moves.demoted += moved as u64);
            });
        }
        None => putback_movable_pages(env, folios, Asked::ByReclaim),
    }
}

/// Reclaims one folio. If a large one had to be split, returns its other pages for the list.
fn shrink_folio(env: &mut impl Env, frame: Pfn, how: (Aging, bool)) -> (Became, FolioList) {
    let mut split_off = FolioList::new();
    if !env.try_lock(Site::FolioTryLock, Lock::Folio(frame)) {
        return (Became::Kept, split_off);
    }
    let became = shrink_locked_folio(env, frame, how, &mut split_off);
    let reclaimed = matches!(became, Became::Reclaimed { .. });
    if !reclaimed || env.policies().refault_flush != RefaultFlush::RemovedAfter {
        env.unlock(Lock::Folio(frame));
    }
    (became, split_off)
}

fn shrink_locked_folio(
    env: &mut impl Env,
    frame: Pfn,
    (aging, demotes): (Aging, bool),
    split_off: &mut FolioList,
) -> Became {
    // 0. Keep a folio that a mapping locks in memory.
    if env.config().locks_memory
        && env.step(Site::ShrinkFolioList, |w, _| w.frames.mlocked(frame).mlocked)
    {
        return activate(env, frame);
    }
    // 1. Keep a page that was accessed since its accessed bit was cleared.
    if aging != Aging::Ignored {
        let used = folio_referenced(env, frame);
        match aging {
            Aging::Counts => match env.step(Site::ShrinkFolioList, |w, _| check(w, frame, used)) {
                References::Activate => return activate(env, frame),
                References::Keep => return Became::Kept,
                References::Reclaim => {}
            },
            _ if used => return activate(env, frame),
            _ => {}
        }
    }
    if demotes && env.step(Site::ShrinkFolioList, |w, _| has_slower(w, frame)) {
        return Became::Demoted;
    }
    // 2. Give it a place in swap. A page freed by MADV_FREE needs none, and a pinned page gets
    //    none. Pages of files have a place already: shared memory gets a slot when it is written.
    let (of_file, swap_backed, stays) = env.step(Site::ShrinkFolioList, |w, _| {
        let flags = w.frames.flags(frame);
        let uncached = flags.has(FrameFlags::SWAP_BACKED) && !flags.has(FrameFlags::SWAP_CACHE);
        // A page that belonged to a file until just now belongs to nobody.
        let lost = uncached && w.frames.place(frame).0 == ObjectId::default();
        let stays = lost || uncached && maybe_dma_pinned(w, frame);
        (w.is_of_file(frame), flags.has(FrameFlags::SWAP_BACKED), stays)
    });
    if stays {
        return Became::Kept;
    }
    if swap_backed && !of_file && !give_slots(env, frame, split_off) {
        return activate(env, frame);
    }
    // 3. Remove its translations.
    let defers = may_defer(env.policies(), UnmappedFor::Reclaim);
    let unmapped = try_to_unmap(env, frame, defers);
    let owes = defers && folio_unmapped(env, Site::TryToUnmapOne);
    let Some(page) = unmapped else { return activate(env, frame) };
    // 4. Write it, once no CPU can write to it any more.
    if env.step(Site::ShrinkFolioList, |w, _| w.frames.flags(frame).has(FrameFlags::DIRTY)) {
        if of_file && !swap_backed {
            return leave_to_flusher(env, frame);
        }
        if !swap_backed {
            return Became::Kept;
        }
        let writable = env.step(Site::TryToUnmapFlushDirty, |w, at| {
            w.unmap_batch(Batch::Task, at.thread).is_some_and(|batch| batch.writable)
        });
        if writable && env.policies().mutant != Mutant::WrittenUnflushed {
            try_to_unmap_flush(env, Batch::Task, Site::TryToUnmapFlushDirty);
        }
        match env.step(Site::Pageout, |w, at| pageout(w, at, frame, page)) {
            Written::Yes => {}
            Written::Keep => return Became::Kept,
            Written::NoSpace => return activate(env, frame),
        }
    }
    // 5. From here on nobody else may hold it.
    match env.policies().refault_flush {
        RefaultFlush::RemovedAfter => return Became::Reclaimed { owes },
        RefaultFlush::BeforeRemoval => try_to_unmap_flush(env, Batch::Task, Site::TryToUnmapFlush),
        _ => {}
    }
    match env.step(Site::RemoveMapping, |w, at| remove_mapping(w, at, frame)) {
        true => Became::Reclaimed { owes },
        false => Became::Kept,
    }
}

/// Whether there is slower memory for the folio to go to.
fn has_slower<M: Mode>(w: &World<M>, folio: Pfn) -> bool {
    w.nodes.slower(w.nodes.of_frame(folio)).is_some()
}

/// Keeps a dirty page of a file on a disk, as an active page: reclaim does not write it. Once it is
/// written, it is the next page to be reclaimed.
///
/// Source: mm/vmscan.c:shrink_page_list (5.10), shrink_folio_list (6.1, 6.12: except by kswapd
/// where the node has too many dirty pages; 7.2: by nobody).
fn leave_to_flusher(env: &mut impl Env, frame: Pfn) -> Became {
    env.step(Site::ShrinkFolioList, |w, _| _ = w.frames.set_wanted(frame, true));
    activate(env, frame)
}

/// Gives the folio a place in swap. A large folio needs one of its own size. If there is none, or
/// if the folio should not be written as a whole, it is split first, and only its first page gets a
/// slot here. Returns whether there is a place now.
fn give_slots(env: &mut impl Env, frame: Pfn, split_off: &mut FolioList) -> bool {
    let whole = match is_large(env, frame) {
        false => true,
        true => match env.step(Site::ShrinkFolioList, |w, _| before_swap(w, frame)) {
            BeforeSwap::Keep => return false,
            BeforeSwap::Write => true,
            BeforeSwap::Split => false,
        },
    };
    let add = |w: &mut World<_>, _| add_to_swap(w, frame);
    if whole && env.step(Site::AddToSwap, add) {
        return true;
    }
    is_large(env, frame)
        && split_folio(env, frame, Some(split_off))
        && env.step(Site::AddToSwap, add)
}

/// Whether the folio is large.
fn is_large(env: &mut impl Env, frame: Pfn) -> bool {
    env.config().huge_pages
        && env.step(Site::ShrinkFolioList, |w, _| w.frames.flags(frame).has(FrameFlags::LARGE))
}

/// Keeps the folio, as an active one (`activate_locked`).
fn activate(env: &mut impl Env, frame: Pfn) -> Became {
    env.step(Site::ShrinkFolioList, |w, at| {
        if !w.frames.mlocked(frame).mlocked {
            w.frames.set_flags(frame, FrameFlags::ACTIVE, true);
        } else if w.frames.flags(frame).has(FrameFlags::SWAP_CACHE)
            && w.frames.pages_of_folio(frame).all(|page| swap_users(w, page) == 0)
        {
            // A locked folio needs no place in swap.
            leave_swap_cache(w, at, frame);
        }
    });
    Became::Kept
}

/// Whether the page was used since the last call. On x86, accessed bits are cleared without a
/// flush.
///
/// Source: mm/rmap.c:page_referenced_one (5.10), folio_referenced_one (6.1 to 7.3).
pub fn folio_referenced(env: &mut impl Env, frame: Pfn) -> bool {
    if is_large(env, frame) {
        return large_referenced(env, frame);
    }
    let (site, mut used, mut locked) = (Site::FolioReferenced, false, false);
    rmap_walk(env, site, frame, |env, (mm, page)| {
        locked = locked || finds_locked(env, site, frame, (mm, page));
        if locked {
            return;
        }
        let young = page_vma_mapped_walk(env, site, frame, (mm, page), |w, at, pte| {
            if pte.accessed() {
                w.set_pte(at, mm, page, Pte::Present(pte.without(PteFlags::ACCESSED)));
            }
            pte.accessed()
        });
        if let Some(young) = young {
            used |= young;
            let who = if young { env.arch().flushes.aged } else { Flushes::Nobody };
            flush_by_rule(env, FlushRequest::page(site, mm, page).of(Change::Aged), who);
            pte_unmap_unlock(env, mm, page);
        }
    });
    match env.policies().mlock_pages {
        MlockPages::Isolated => used && !locked,
        MlockPages::Batched => used || locked,
    }
}

/// Whether a mapping that locks its pages maps the page. Then the walk ends here, and the page
/// counts as locked (in 5.10 only when it is about to be unmapped).
///
/// Source: mm/rmap.c:page_referenced_one (5.10), folio_referenced_one (6.1 to 7.3);
/// try_to_unmap_one (5.10 to 7.3).
fn finds_locked(env: &mut impl Env, site: Site, frame: Pfn, (mm, page): Place) -> bool {
    if !env.config().locks_memory {
        return false;
    }
    let found = page_vma_mapped_walk(env, site, frame, (mm, page), |w, at, _| {
        let locked = w.locks(mm, page);
        match w.policies.mlock_pages {
            _ if !locked => {}
            MlockPages::Isolated if site == Site::FolioReferenced => {}
            MlockPages::Isolated => mlock_vma_page(w, at, frame),
            MlockPages::Batched => mlock_folio(w, at, frame),
        }
        locked
    });
    if found.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    found == Some(true)
}

/// Replaces the PTEs that map the page by swap entries. If none is left, returns a page number
/// where it was mapped.
fn try_to_unmap(env: &mut impl Env, frame: Pfn, defers: bool) -> Option<Vpn> {
    if is_large(env, frame) {
        return try_to_unmap_large(env, frame);
    }
    let mut locked = false;
    let unmap = |env: &mut _, place| {
        locked = locked || finds_locked(env, Site::TryToUnmapOne, frame, place);
        if !locked {
            let unmap = Unmap { defers, ..Unmap::of(frame, UnmapFor::Reclaim) };
            try_to_unmap_one(env, unmap, place);
        }
    };
    let page = rmap_walk(env, Site::TryToUnmapOne, frame, unmap);
    let gone = env.step(Site::ShrinkFolioList, |w, _| w.frames.get(frame).maps == 0);
    gone.then(|| page.unwrap_or(Vpn(0)))
}

/// What became of a page that reclaim wanted to write.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Written {
    Yes,
    /// The page was not written and stays.
    Keep,
    /// The page stays because swap has no room for it.
    NoSpace,
}

impl Learnt for Written {
    fn nothing() -> Written {
        Written::Keep
    }
}

/// Writes the page to its slot. The device is synchronous, so the page is clean afterwards. A page
/// that somebody besides its cache and the caller holds (such as an LRU batch) could not be freed,
/// so it is not written.
///
/// Source: mm/vmscan.c:pageout, is_page_cache_freeable (5.10 to 7.3).
fn pageout<M: Mode>(w: &mut World<M>, at: At, frame: Pfn, page: Vpn) -> Written {
    if w.frames.get(frame).refs != 1 + cache_references(w, frame) {
        return Written::Keep;
    }
    if w.is_of_file(frame) && !shmem_writeout(w, at, frame) {
        return Written::NoSpace;
    }
    w.frames.set_flags(frame, FrameFlags::DIRTY, false);
    swap_writepage(w, at, frame, page);
    Written::Yes
}

/// Moves a page of memory from the page cache into the swap cache; from now on the file has a swap
/// slot there. Returns false if there is no room.
///
/// Source: mm/shmem.c:shmem_writepage (5.10 to 6.12), shmem_writeout (7.2).
fn shmem_writeout<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) -> bool {
    if !add_to_swap(w, frame) {
        return false;
    }
    let (object, index) = w.frames.place(frame);
    w.remove_from_page_cache(at, frame);
    if let Some(slot) = w.swap.slot_of(frame) {
        w.swap.count(slot, 1);
        w.objects.set_slot(object, index, Some(slot));
    }
    true
}

/// The number of references that the folio's cache holds: the swap cache or the page cache.
fn cache_references<M: Mode>(w: &World<M>, frame: Pfn) -> u32 {
    swap_cache_references(w, frame) + u32::from(w.is_of_file(frame))
}

/// Writes all pages of a folio to their slots. If they hold nothing but zeros and the kernel checks
/// for that, it only marks the slots.
///
/// Source: mm/page_io.c:swap_writepage, is_folio_zero_filled (6.12), swap_writeout (7.3).
fn swap_writepage<M: Mode>(w: &mut World<M>, at: At, folio: Pfn, first: Vpn) {
    let pages = w.frames.pages_of_folio(folio);
    let is_zero = |w: &World<M>, frame| w.frames.flags(frame).has(FrameFlags::ZERO_FILLED);
    let zeros = pages.clone().all(|frame| is_zero(w, frame));
    let zero_filled = zeros && w.policies.zero_swap == ZeroSwap::Skip;
    for frame in pages {
        if let Some(slot) = w.swap.slot_of(frame) {
            let zeros = is_zero(w, frame);
            w.swap.written(slot, zeros, zero_filled);
            w.ghost.swapped_out(frame, slot);
        }
        let page = places(w, frame).first().map_or(first, |(_, page)| *page);
        w.emit(at, EventKind::PageOut { page, frame, zero_filled });
    }
}

/// Takes the page out of the swap cache or the page cache, if only we and the cache hold it.
/// Remembers that a file on a disk had the page there.
///
/// Source: mm/vmscan.c:__remove_mapping (5.10 to 7.2).
fn remove_mapping<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) -> bool {
    let f = w.frames.get(frame);
    let (cached, mapped) = (cache_references(w, frame), w.frames.folio_maps(frame) != 0);
    if f.refs != 1 + cached || mapped || f.flags.has(FrameFlags::DIRTY) {
        return false;
    }
    if w.is_of_file(frame) {
        w.remove_from_page_cache(at, frame);
        if !f.flags.has(FrameFlags::SWAP_BACKED) {
            w.objects.evict(f.object, f.index);
        }
    } else if cached > 0 {
        w.frames.pages_of_folio(frame).for_each(|page| w.swap.uncache(page));
        w.frames.set_flags(frame, FrameFlags::SWAP_CACHE, false);
        w.put_references(at, frame, cached);
    }
    true
}
