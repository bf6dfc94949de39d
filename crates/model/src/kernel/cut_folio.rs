//! Cuts a large folio of a file where a truncation or a hole takes only a part of it.
//!
//! The part becomes zeros. The folio is split where the part begins and where it ends: into halves,
//! and these again, so that few small folios are made. A folio is unmapped before it is split,
//! wherever it is mapped, including the part that stays; a later access to that part faults. A
//! folio cannot be split while a part of it that stays has to be written. Newer kernels unmap it
//! all the same (`unsplit-folio`), with a flush for each page (or run of pages: `file-unmap`) and
//! not one for all. Those flushes interrupt lazy CPUs (`unmap-flush`). The folio stays whole, so
//! the part that was cut off stays in memory, as zeros, and is found there when the file grows
//! again.
//!
//! Source: mm/truncate.c:truncate_inode_pages_range, truncate_inode_partial_folio (6.12, 7.2),
//! folio_split_or_unmap (7.2); mm/huge_memory.c:__folio_split, unmap_folio (7.2);
//! fs/buffer.c:try_to_free_buffers, block_invalidate_folio (6.12, 7.2).

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

/// The result of cutting a folio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The indices that the folio had.
    pub folio: Range<u64>,
    /// Whether the cut pages can leave the page cache by themselves. If not, they still belong to
    /// the folio.
    pub split: bool,
}

/// Cuts these pages off the folio that holds the page `index`. `None` if no folio is there.
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

/// Cuts `part` off a locked folio; it may be the whole folio. Returns false if the part still
/// belongs to the folio.
fn cut_folio(env: &mut impl Env, file: ObjectId, folio: Pfn, part: Range<u64>) -> bool {
    let site = Site::TruncateInodePages;
    let behind = env.step(site, |w, _| {
        let indices = w.folio_indices(folio);
        zero(w, file, folio, &part);
        (part != indices).then_some(indices.end > part.end)
    });
    // 1. The part is the whole folio: it was mapped or filled again in the meantime.
    let Some(behind) = behind else {
        truncate_inode_folio(env, file, folio, &part);
        return true;
    };
    // 2. Split where the part begins.
    if !split_or_unmap(env, file, folio, part.start) {
        let dirty = env.step(site, |w, _| w.frames.flags(folio).has(FrameFlags::DIRTY));
        if !dirty {
            truncate_inode_folio(env, file, folio, &part);
        }
        return !dirty;
    }
    // 3. Split where the part ends, if nobody else has that folio locked.
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

/// Fills the part of the folio with zeros. Nothing of it needs to be written.
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

/// Splits the folio so that the page `index` becomes a folio of its own. The caller has locked the
/// folio and holds one reference. If the split fails, newer kernels remove the folio's mappings.
fn split_or_unmap(env: &mut impl Env, file: ObjectId, folio: Pfn, index: u64) -> bool {
    let split = split_folio_at(env, file, folio, index);
    if !split && env.policies().unsplit_folio == UnsplitFolio::Unmapped {
        env.lock(Lock::RmapRead(file));
        unmap_folio(env, folio, false);
        env.unlock(Lock::RmapRead(file));
    }
    split
}

/// Splits a folio. Returns false if it is in use or has to be written.
///
/// Source: mm/huge_memory.c:__folio_split (7.2).
fn split_folio_at(env: &mut impl Env, file: ObjectId, folio: Pfn, index: u64) -> bool {
    let site = Site::SplitFolio;
    // 1. No part of it has to be written (filemap_release_folio).
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
        // 2. Unmap the folio.
        unmap_folio(env, folio, true);
        try_to_unmap_flush(env, Batch::Task, Site::TryToUnmapFlush);
        // 3. Split it, unless somebody has taken a reference in the meantime. Pages behind the end
        //    of the file leave the page cache.
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

/// Whether only mappings, the page cache and the caller hold references.
fn is_unreferenced<M: Mode>(w: &World<M>, folio: Pfn) -> bool {
    w.frames.get(folio).refs == w.frames.folio_maps(folio) + (1 << w.frames.folio(folio).1) + 1
}

fn split_unmapped<M: Mode>(w: &mut World<M>, at: At, file: ObjectId, folio: Pfn, index: u64) {
    let indices = w.folio_indices(folio);
    w.split_folio_at(folio, Pfn(folio.0 + (index - indices.start) as u32));
    // The caller's reference.
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

/// Removes the folio's translations in all mappings. `may_wait`: their flushes may be batched.
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

/// The pages whose translations were removed, and how these are flushed.
type Cleared = (SmallVec<[(Vpn, PresentPte); 1]>, Flush);

/// Removes the first translation of the folio in `part`, or the first run of translations with
/// equal rights. Returns the first page and the number of pages, if there was one. The caller holds
/// the table's lock.
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
        // A flush that is not batched happens even if the PTE forbids access (flush_tlb_range).
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
