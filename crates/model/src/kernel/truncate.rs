//! What a file loses for good: `ftruncate`, and what it has in common with holes ([`super::punch`]).
//!
//! The file gets its new size first: whoever faults behind its end from then on has a SIGBUS. Then every mapping loses what it has there, the
//! copies of private ones among it, each mapping in a gather of its own and with its own flush; page by page leaves the page cache; and mappings
//! are looked at once more, for a private one may have copied a page meanwhile, before it left. A file on a disk is looked at whenever its
//! size is set, even to what it was; one in memory only where it gets smaller.
//!
//! Source: fs/open.c:do_truncate; mm/shmem.c:shmem_setattr, shmem_undo_range; fs/ext4/inode.c:ext4_setattr; mm/truncate.c:truncate_pagecache,
//! truncate_inode_pages_range, truncate_inode_folio; mm/memory.c:unmap_mapping_range, unmap_mapping_range_vma, zap_page_range_single (5.10 to
//! 7.3).

use crate::addr::{ObjectId, Pfn};
use crate::backing::NamedFile;
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::gather::Gather;
use crate::kernel::lru::lru_add_drain;
use crate::kernel::reclaim::FolioList;
use crate::kernel::swap_cache::free_swap_and_cache;
use crate::kernel::zap::{Zap, zap_range};
use crate::machine::world::Ghost;
use crate::policy::ZapDrain;
use crate::site::Site;
use smallvec::SmallVec;
use std::ops::Range;

/// The file has so many pages from now on.
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

/// Page by page leaves the page cache, and what the file had there is gone.
pub(super) fn truncate_inode_pages(env: &mut impl Env, file: ObjectId, pages: Range<u64>) {
    let mut removed = FolioList::new();
    for index in pages {
        let found = env.step(Site::TruncateInodePages, |w, at| {
            let Some(frame) = w.objects.page(file, index) else {
                w.ghost.punched((file, index));
                w.objects.forget_evicted(file, index..index + 1);
                if let Some(slot) = w.objects.set_slot(file, index, None) {
                    free_swap_and_cache(w, at, slot);
                }
                return None;
            };
            w.get_frame(frame);
            Some(frame)
        });
        let Some(frame) = found else { continue };
        env.lock(Lock::Folio(frame));
        truncate_inode_folio(env, file, index, frame);
        env.unlock(Lock::Folio(frame));
        removed.push(frame);
    }
    if !removed.is_empty() {
        lru_add_drain(env);
    }
    for frame in removed {
        env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    }
}

/// A page, which is locked, leaves the page cache, unless it has left it already.
fn truncate_inode_folio(env: &mut impl Env, file: ObjectId, index: u64, frame: Pfn) {
    let mapped = env.step(Site::TruncateInodeFolio, |w, _| w.frames.get(frame).maps > 0);
    if mapped {
        unmap_mapping_range(env, file, index..index + 1, Cows::Only(frame));
    }
    env.step(Site::FilemapRemoveFolio, |w, at| {
        if w.objects.page(file, index) == Some(frame) {
            w.objects.remove_page(file, index);
            w.ghost.punched((file, index));
            w.frames.update(frame, |f| (f.object, f.index) = Default::default());
            w.put_frame(at, frame);
        }
    });
}

/// What of a file's mappings goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Cows {
    /// What is of the file.
    Stay,
    /// The copies of private mappings as well (`even_cows`).
    Too,
    /// One page of the file.
    Only(Pfn),
}

/// Takes the translations of these pages away in every mapping of the file.
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
        // As in the tree of the file's mappings (i_mmap).
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
