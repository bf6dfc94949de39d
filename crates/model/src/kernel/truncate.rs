//! `ftruncate`: removes pages from a file. Holes ([`super::punch`]) share most of this code.
//!
//! The file gets its new size first; from then on a fault behind its end raises SIGBUS. Then every
//! mapping loses its translations of these pages, including the copies of private mappings. Each
//! mapping has its own gather and its own flush. Then the folios leave the page cache one by one. A
//! large folio of which a part stays is cut in two ([`super::cut_folio`]). Then the mappings are
//! walked once more, because a private one may have copied a page before it left. For a file on a
//! disk, this happens whenever its size is set, even to the old size; for a file in memory, only if
//! it shrinks.
//!
//! Source: fs/open.c:do_truncate; mm/shmem.c:shmem_setattr, shmem_undo_range;
//! fs/ext4/inode.c:ext4_setattr; mm/truncate.c:truncate_pagecache, truncate_inode_pages_range,
//! truncate_inode_folio; mm/memory.c:unmap_mapping_range, unmap_mapping_range_vma,
//! zap_page_range_single (5.10 to 7.3).

use crate::addr::{ObjectId, Pfn};
use crate::backing::NamedFile;
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::cut_folio::{Cut, cut_folio_at};
use crate::kernel::gather::Gather;
use crate::kernel::lru::lru_add_drain;
use crate::kernel::reclaim::FolioList;
use crate::kernel::swap_cache::free_swap_and_cache;
use crate::kernel::zap::{Zap, zap_range};
use crate::machine::world::Ghost;
use crate::policy::{HoleEnds, ZapDrain};
use crate::site::Site;
use smallvec::SmallVec;
use std::ops::Range;

/// Sets the size of the file, in pages.
pub fn ftruncate(env: &mut impl Env, file: NamedFile, pages: u64) -> Result<(), Errno> {
    let on_disk = file.fs.is_written_back();
    let found = env.step(Site::DoTruncate, |w, _| w.objects.file(file.file));
    let Some(object) = found else { return Err(Errno::Ebadf) };
    env.lock(Lock::Inode(object));
    if on_disk {
        env.lock(Lock::InvalidateWrite(object));
    }
    let before = env.step(Site::DoTruncate, |w, _| w.objects.set_size(object, pages));
    let behind = pages..file.pages;
    if (on_disk || pages < before) && !behind.is_empty() {
        unmap_mapping_range(env, object, behind.clone(), Cows::Too);
        truncate_inode_pages(env, object, behind.clone());
        unmap_mapping_range(env, object, behind, Cows::Too);
    }
    if on_disk {
        env.unlock(Lock::InvalidateWrite(object));
    }
    env.unlock(Lock::Inode(object));
    Ok(())
}

/// Removes these pages from the page cache, folio by folio, with their contents. A folio that lies
/// only partly in them is cut afterwards. Then the rest of these pages leaves as well.
pub(super) fn truncate_inode_pages(env: &mut impl Env, file: ObjectId, pages: Range<u64>) {
    remove_whole_folios(env, file, pages.clone());
    if env.policies().hole_ends == HoleEnds::PagesOnly {
        return;
    }
    let mut rest = pages.clone();
    let first = cut_folio_at(env, file, pages.start, &pages);
    let last = match &first {
        Some(cut) if cut.folio.end >= pages.end => None,
        _ => cut_folio_at(env, file, pages.end - 1, &pages),
    };
    // The pages of a folio that could not be split stay.
    if let Some(Cut { folio, split: false }) = &first {
        rest.start = folio.end;
    }
    if let Some(Cut { folio, split: false }) = &last {
        rest.end = folio.start;
    }
    if first.is_some() || last.is_some() {
        remove_whole_folios(env, file, rest);
    }
}

/// Removes each folio that lies completely in `pages` from the page cache.
///
/// Source: mm/filemap.c:find_lock_entries (6.12, 7.2).
fn remove_whole_folios(env: &mut impl Env, file: ObjectId, mut pages: Range<u64>) {
    let mut removed = FolioList::new();
    let whole = pages.clone();
    while !pages.is_empty() {
        let index = pages.start;
        let (found, next) = env.step(Site::TruncateInodePages, |w, at| {
            let Some(frame) = w.objects.page(file, index) else {
                w.objects.set_on_disk(file, index, false);
                w.ghost.punched((file, index));
                w.objects.forget_evicted(file, index..index + 1);
                if let Some(slot) = w.objects.set_slot(file, index, None) {
                    free_swap_and_cache(w, at, slot);
                }
                return (None, index + 1);
            };
            let (folio, indices) = (w.frames.folio(frame).0, w.folio_indices(frame));
            if indices.start < whole.start || indices.end > whole.end {
                return (None, indices.end);
            }
            w.get_frame(at, folio);
            (Some(folio), indices.end)
        });
        pages.start = next.clamp(index + 1, pages.end);
        let Some(folio) = found else { continue };
        env.lock(Lock::Folio(folio));
        truncate_inode_folio(env, file, folio, &whole);
        env.unlock(Lock::Folio(folio));
        removed.push(folio);
    }
    if !removed.is_empty() {
        lru_add_drain(env);
    }
    for folio in removed {
        env.step(Site::FolioPut, |w, at| w.put_frame(at, folio));
    }
}

/// Removes a locked folio from the page cache, unless it has left already. The file loses those of
/// its pages that lie in `gone`; the others can be read again.
pub(super) fn truncate_inode_folio(
    env: &mut impl Env,
    file: ObjectId,
    folio: Pfn,
    gone: &Range<u64>,
) {
    let found = env.step(Site::TruncateInodeFolio, |w, _| {
        let there = w.frames.place(folio).0 == file;
        there.then(|| (w.folio_indices(folio), w.frames.folio_maps(folio) > 0))
    });
    let Some((indices, mapped)) = found else { return };
    if mapped {
        unmap_mapping_range(env, file, indices.clone(), Cows::Only(folio));
    }
    env.step(Site::FilemapRemoveFolio, |w, at| {
        let gone = indices.clone().filter(|index| gone.contains(index));
        gone.for_each(|index| {
            w.objects.set_on_disk(file, index, false);
            w.ghost.punched((file, index));
        });
        w.remove_from_page_cache(at, folio);
    });
}

/// Which translations of a file's pages go.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Cows {
    /// Those that map the file's own pages.
    Stay,
    /// Those that map copies in private mappings as well (`even_cows`).
    Too,
    /// Those that map this folio of the file.
    Only(Pfn),
}

/// Removes the translations of these pages in every mapping of the file.
pub(super) fn unmap_mapping_range(
    env: &mut impl Env,
    file: ObjectId,
    pages: Range<u64>,
    cows: Cows,
) {
    let zap = match cows {
        Cows::Stay => Zap::File { only: None },
        Cows::Only(frame) => Zap::File { only: Some(frame) },
        Cows::Too => Zap::Pages,
    };
    env.lock(Lock::RmapRead(file));
    let mappings = env.step(Site::UnmapMappingRange, |w, _| {
        let mut found: SmallVec<[_; 4]> = SmallVec::new();
        for &mm in w.objects.mapped_by(file) {
            let of = w.mms[mm.index()].mappings_of(file, &pages);
            found.extend(of.map(|(order, range)| (order, mm, range)));
        }
        // In the order of the tree of the file's mappings (i_mmap).
        found.sort_by_key(|(order, ..)| *order);
        found
    });
    for (_, mm, range) in mappings {
        if env.policies().zap_drain == ZapDrain::Yes {
            lru_add_drain(env);
        }
        let mut gather = Gather::open(env, mm);
        zap_range(env, &mut gather, range, zap);
        gather.finish(env);
    }
    env.unlock(Lock::RmapRead(file));
}
