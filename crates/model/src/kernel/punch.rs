//! `MADV_REMOVE`: a hole is punched into a file on tmpfs, or into shared memory: its pages go, whoever has them mapped.
//!
//! Every mapping of the file loses its translations first, each in a gather of its own and with its own flush; then page by
//! page leaves the page cache. A fault may bring a page back in between: then it is unmapped once more, by itself. Copies that
//! private mappings have of the file's pages stay. (Kernels let one thread at a time punch holes into a file, by the inode's lock, and
//! have faults on what is being punched wait, for speed; here both may come between any two steps.)
//!
//! Source: mm/madvise.c:madvise_remove; mm/shmem.c:shmem_fallocate, shmem_undo_range; mm/memory.c:unmap_mapping_range,
//! unmap_mapping_range_vma, zap_page_range_single; mm/truncate.c:truncate_inode_folio, truncate_cleanup_folio (5.10 to 7.3).

use crate::addr::{MmId, ObjectId, PageRange, Pfn};
use crate::env::{Env, Lock};
use crate::kernel::gather::Gather;
use crate::kernel::lru::lru_add_drain;
use crate::kernel::reclaim::FolioList;
use crate::kernel::zap::{Zap, zap_range};
use crate::machine::world::Ghost;
use crate::policy::ZapDrain;
use crate::site::Site;
use smallvec::SmallVec;
use std::ops::Range;

/// Punches holes into the files that `mm` has mapped in `range`; whether there is no gap between the mappings. `mmap_lock` is not
/// held while the file system works.
pub fn remove(env: &mut impl Env, mm: MmId, range: PageRange) -> bool {
    let (mut rest, mut covered) = (range, true);
    while !rest.is_empty() {
        env.lock(Lock::MmapRead(mm));
        let found = env.step(Site::MadviseRemove, |w, at| {
            w.mmap_assert_locked(at, mm);
            let vma = w.mms[mm.index()].vmas_in(rest).next()?;
            let first = vma.index(vma.range.start);
            Some((vma.range, vma.shared_file()?, first..first + vma.range.pages()))
        });
        env.unlock(Lock::MmapRead(mm));
        let Some((part, file, pages)) = found else { break };
        covered &= part.start == rest.start;
        punch_hole(env, file, pages);
        rest.start = part.end;
    }
    covered && rest.is_empty()
}

fn punch_hole(env: &mut impl Env, file: ObjectId, pages: Range<u64>) {
    unmap_mapping_range(env, file, pages.clone(), None);
    let mut removed = FolioList::new();
    for index in pages {
        let found = env.step(Site::ShmemUndoRange, |w, _| {
            let frame = w.objects.page(file, index)?;
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
        unmap_mapping_range(env, file, index..index + 1, Some(frame));
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

/// Takes the translations of these pages away in every mapping of the file, or of one page only.
fn unmap_mapping_range(env: &mut impl Env, file: ObjectId, pages: Range<u64>, only: Option<Pfn>) {
    env.lock(Lock::RmapRead(file));
    let mappings = env.step(Site::UnmapMappingRange, |w, _| {
        let mut found: SmallVec<[(u64, MmId, PageRange); 4]> = SmallVec::new();
        for &mm in w.objects.mapped_by(file) {
            let of = w.mms[mm.index()].mappings_of(file, &pages);
            found.extend(of.map(|(first, range)| (first, mm, range)));
        }
        // As in the tree of the file's mappings (i_mmap): by the page that they begin with, and a child's right after the one that it was
        // forked from. Those of one process that begin with the same page are in the tree as they were mapped, here by address.
        found.sort_by_key(|(first, _, range)| (*first, range.start));
        found
    });
    for (_, mm, range) in mappings {
        if env.policies().zap_drain == ZapDrain::Yes {
            lru_add_drain(env);
        }
        let mut gather = Gather::open(env, mm);
        zap_range(env, &mut gather, range, Zap::File { only });
        gather.finish(env);
    }
    env.unlock(Lock::RmapRead(file));
}
