//! A large folio of a file of which a truncation, or a hole, takes a part.
//!
//! The part becomes zeros, and the folio is split where it begins, and where it ends: into halves, and these again, so that few small folios
//! are made. A folio is unmapped before it is split, wherever it is mapped, also what stays: whoever touches that later faults. While a part of it
//! is to be written that stays, it cannot be split. Then newer kernels unmap it all the same (`unsplit-folio`), with a flush for each page (or run of
//! pages: `file-unmap`), by which lazy CPUs are interrupted (`unmap-flush`), and not one for all; and it stays as it is, so that what was cut off is in memory, and found there, as zeros, when the file grows
//! again.
//!
//! Source: mm/truncate.c:truncate_inode_pages_range, truncate_inode_partial_folio (6.12, 7.2), folio_split_or_unmap (7.2); mm/huge_memory.c:__folio_split,
//! unmap_folio (7.2); fs/buffer.c:try_to_free_buffers, block_invalidate_folio (6.12, 7.2).

use crate::addr::{MmId, ObjectId, PageRange, Pfn, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::flush::arch_tlbbatch_should_defer;
use crate::kernel::mlock_batch::folio_remove_rmap;
use crate::kernel::rmap::{Part, folio_places};
use crate::kernel::table::each_table;
use crate::kernel::truncate::truncate_inode_folio;
use crate::kernel::unmap::{Flush, Unmap, UnmapFor, all_of, flush_unmapped};
use crate::kernel::unmap_batch::try_to_unmap_flush;
use crate::kernel::zap::marks_protection;
use crate::machine::frames::FrameFlags;
use crate::machine::unmap_batch::Batch;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{FileUnmap, UnsplitFolio};
use crate::pte::{Marker, PresentPte, Pte, PteFlags};
use crate::site::Site;
use smallvec::SmallVec;
use std::ops::Range;

/// What became of a folio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The indices that it had.
    pub folio: Range<u64>,
    /// Whether what is cut off of it can leave by itself; else it is still of the folio.
    pub split: bool,
}

/// Cuts these pages off the folio that has the page of this index, if there is one.
pub(super) fn cut_folio_at(
    env: &mut impl Env,
    file: ObjectId,
    index: u64,
    pages: &Range<u64>,
) -> Option<Cut> {
    let site = Site::TruncateInodePages;
    let found = env.step(site, |w, at| {
        let folio = w.frames.folio(w.objects.page(file, index)?).0;
        w.get_frame(at, folio);
        Some(folio)
    })?;
    env.lock(Lock::Folio(found));
    let indices = env.step(site, |w, _| {
        let there = w.frames.place(found).0 == file && w.folio_indices(found).contains(&index);
        there.then(|| w.folio_indices(found))
    });
    let cut = indices.map(|folio| {
        let split =
            cut_folio(env, file, found, folio.start.max(pages.start)..folio.end.min(pages.end));
        Cut { folio, split }
    });
    env.unlock(Lock::Folio(found));
    env.step(Site::FolioPut, |w, at| w.put_frame(at, found));
    cut
}

/// The part of a folio, which is locked, whether or not it is all of it. False: it is still of the folio.
fn cut_folio(env: &mut impl Env, file: ObjectId, folio: Pfn, part: Range<u64>) -> bool {
    let site = Site::TruncateInodePages;
    let behind = env.step(site, |w, _| {
        let indices = w.folio_indices(folio);
        zero(w, file, folio, &part);
        (part != indices).then_some(indices.end > part.end)
    });
    // 1. All of it: it was mapped or filled again meanwhile.
    let Some(behind) = behind else {
        truncate_inode_folio(env, file, folio, &part);
        return true;
    };
    // 2. Where the part begins.
    if !split_or_unmap(env, file, folio, part.start) {
        let dirty = env.step(site, |w, _| w.frames.flags(folio).has(FrameFlags::DIRTY));
        if !dirty {
            truncate_inode_folio(env, file, folio, &part);
        }
        return !dirty;
    }
    // 3. Where it ends, if anybody else does not have that folio just now.
    let next = env.step(site, |w, at| {
        let frame = w.objects.page(file, part.end).filter(|_| behind)?;
        let next = w.frames.folio(frame).0;
        w.frames.flags(next).has(FrameFlags::LARGE).then(|| {
            w.get_frame(at, next);
            next
        })
    });
    if let Some(next) = next {
        if env.try_lock(Site::FolioTryLock, Lock::Folio(next)) {
            split_or_unmap(env, file, next, part.end);
            env.unlock(Lock::Folio(next));
        }
        env.step(Site::FolioPut, |w, at| w.put_frame(at, next));
    }
    true
}

/// The part of the folio is zeros, and nothing of it is to be written.
fn zero<M: Mode>(w: &mut World<M>, file: ObjectId, folio: Pfn, part: &Range<u64>) {
    let first = w.folio_indices(folio).start;
    for index in part.clone() {
        let frame = Pfn(folio.0 + (index - first) as u32);
        w.objects.set_on_disk(file, index, false);
        w.ghost.punched((file, index));
        w.ghost.zeroed(frame);
        w.frames.set_zero_filled(frame, true);
        w.frames.set_flags(frame, FrameFlags::BUFFER_DIRTY, false);
    }
}

/// Splits the folio, which the caller has locked and holds one reference of, so that the page of this index is one by itself; if that cannot be, newer kernels take
/// its mappings away.
fn split_or_unmap(env: &mut impl Env, file: ObjectId, folio: Pfn, index: u64) -> bool {
    let split = split_folio_at(env, file, folio, index);
    if !split && env.policies().unsplit_folio == UnsplitFolio::Unmapped {
        env.lock(Lock::RmapRead(file));
        unmap_folio(env, folio, false);
        env.unlock(Lock::RmapRead(file));
    }
    split
}

/// Source: mm/huge_memory.c:__folio_split (7.2).
fn split_folio_at(env: &mut impl Env, file: ObjectId, folio: Pfn, index: u64) -> bool {
    let site = Site::SplitFolio;
    // 1. Nothing of it is to be written (filemap_release_folio).
    let released = env.step(site, |w, _| {
        let mut pages = w.frames.pages_of_folio(folio);
        let busy = pages.any(|page| w.frames.flags(page).has(FrameFlags::BUFFER_DIRTY));
        if !busy {
            w.frames.set_flags(folio, FrameFlags::DIRTY, false);
        }
        !busy
    });
    if !released {
        return false;
    }
    env.lock(Lock::RmapRead(file));
    let split = is_free(env, folio) && {
        // 2. No mapping.
        unmap_folio(env, folio, true);
        try_to_unmap_flush(env, Batch::Task, Site::TryToUnmapFlush);
        // 3. Small ones, unless somebody took a reference meanwhile. What is behind the file's end leaves it.
        env.step(site, |w, at| {
            let free = is_unreferenced(w, folio);
            if free {
                split_unmapped(w, at, file, folio, index);
            }
            free
        })
    };
    env.unlock(Lock::RmapRead(file));
    split
}

fn is_free(env: &mut impl Env, folio: Pfn) -> bool {
    env.step(Site::SplitFolio, |w, _| is_unreferenced(w, folio))
}

/// Whether only mappings, the page cache and the caller have references.
fn is_unreferenced<M: Mode>(w: &World<M>, folio: Pfn) -> bool {
    w.frames.get(folio).refs == w.frames.folio_maps(folio) + (1 << w.frames.folio(folio).1) + 1
}

fn split_unmapped<M: Mode>(w: &mut World<M>, at: At, file: ObjectId, folio: Pfn, index: u64) {
    let indices = w.folio_indices(folio);
    w.split_folio_at(folio, Pfn(folio.0 + (index - indices.start) as u32));
    // The caller's.
    w.get_frame(at, folio);
    let size = w.objects.size(file);
    let mut next = indices.start;
    while next < indices.end {
        let piece = Pfn(folio.0 + (next - indices.start) as u32);
        next = w.folio_indices(piece).end;
        if w.folio_indices(piece).start >= size {
            w.remove_from_page_cache(at, piece);
        }
    }
}

/// Takes the folio's translations away in every mapping of it; whether their flushes may wait for each other.
///
/// Source: mm/huge_memory.c:unmap_folio, mm/rmap.c:try_to_unmap_one (6.12, 7.2).
fn unmap_folio(env: &mut impl Env, folio: Pfn, may_wait: bool) {
    let site = Site::TryToUnmapOne;
    let parts = env.step(site, |w, _| folio_places(w, folio));
    for (mm, pages) in parts {
        each_table(env, site, mm, pages, |env, mut part| {
            while let Some((first, count)) = unmap_run(env, folio, (mm, part), may_wait) {
                part.start = first.add(count);
            }
        });
    }
}

/// Pages whose translations were taken, and how these are flushed.
type Cleared = (SmallVec<[(Vpn, PresentPte); 1]>, Flush);

/// The first translation, or all that follow it and allow the same; which pages, if there was one. The table's lock is held.
fn unmap_run(
    env: &mut impl Env,
    folio: Pfn,
    (mm, part): Part,
    may_wait: bool,
) -> Option<(Vpn, u64)> {
    let site = Site::TryToUnmapOne;
    let cleared: Option<Cleared> = env.step(site, |w, at| {
        let entries = first_run(w, folio, mm, part);
        for (page, pte) in &entries {
            let marks = marks_protection(w, (mm, *page), Pte::Present(*pte));
            let left = if marks { Pte::Marker(Marker::UffdWp) } else { Pte::None };
            w.set_pte(at, mm, *page, left);
        }
        let (_, pte) = entries.first()?;
        // What does not wait is flushed also where nothing may be accessed (flush_tlb_range).
        let flush = match may_wait && arch_tlbbatch_should_defer(w, at, mm) {
            true => Flush::of(w, at, mm, *pte, true),
            false => Flush::Now,
        };
        Some((entries, flush))
    });
    let (entries, flush) = cleared?;
    let (first, count) = (entries[0].0, entries.len() as u64);
    let dirty = entries.iter().any(|(_, pte)| pte.dirty());
    let unmap = Unmap::of(folio, UnmapFor::Reclaim);
    flush_unmapped(env, unmap, (mm, PageRange::new(first, count)), flush, all_of(&entries));
    env.step(site, |w, at| {
        if dirty {
            w.dirty_folio(folio);
        }
        for (page, pte) in &entries {
            let locked = w.locks(mm, *page);
            folio_remove_rmap(w, at, pte.pfn, locked);
            w.put_frame(at, pte.pfn);
        }
    });
    Some((first, count))
}

fn first_run<M: Mode>(
    w: &World<M>,
    folio: Pfn,
    mm: MmId,
    part: PageRange,
) -> SmallVec<[(Vpn, PresentPte); 1]> {
    let entry = |page: Vpn| {
        let pte = w.pte(mm, page).present()?;
        (w.frames.folio(pte.pfn).0 == folio).then_some((page, pte))
    };
    let Some((page, pte)) = part.iter().find_map(entry) else { return SmallVec::new() };
    let watched = w.mms[mm.index()].vma(page).is_some_and(|vma| vma.uffd.write_protect);
    let run = match w.policies.file_unmap {
        FileUnmap::Each => 1,
        FileUnmap::Run if watched => 1,
        FileUnmap::Run => {
            w.run_of(mm, PageRange { start: page, end: part.end }, PteFlags::default())
        }
    };
    let rest = PageRange::new(page.add(1), run - 1);
    std::iter::once((page, pte)).chain(rest.iter().filter_map(entry)).collect()
}
