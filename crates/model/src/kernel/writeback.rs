//! Writeback: writes stores to shared mappings back to the file that was mapped.
//!
//! A folio is written as a whole, even if only a part of it is requested. Before the write, each
//! mapping of each of its pages loses the right to store and the dirty bit, with a flush. The next
//! store to the page faults, and marks the folio dirty again
//! ([`super::fault::file::wp_page_shared`]). [`msync`] and [`fsync`] write for the caller. The
//! kernel's own threads write at any time; tests express that as `writeback`. That operation also
//! writes shared anonymous memory, which kernels write only to swap.
//!
//! Source: mm/msync.c; fs/ext4/inode.c:mpage_prepare_extent_to_map;
//! mm/page-writeback.c:folio_clear_dirty_for_io, mm/rmap.c:folio_mkclean, page_vma_mkclean_one
//! (5.10 to 7.3).

use crate::addr::{MmId, ObjectId, PageRange, Pfn, ProcessId};
use crate::backing::NamedFile;
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::lru::{end_writeback, lru_add_drain};
use crate::kernel::reclaim::FolioList;
use crate::kernel::rmap::{Place, page_vma_mapped_walk, rmap_walk};
use crate::kernel::table::{pte_accessible, pte_unmap_unlock};
use crate::machine::frames::FrameFlags;
use crate::machine::world::{Ghost, Mode, World, process_of};
use crate::policy::Mutant;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use std::ops::Range;

/// `msync` with `MS_SYNC`: writes the dirty pages of each mapping that is shared and maps a file on
/// a disk. `mmap_lock` is not held during a write.
pub fn msync(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<(), Errno> {
    let (mut rest, mut covered) = (range, true);
    while !rest.is_empty() {
        env.lock(Lock::MmapRead(mm));
        let found = env.step(Site::Msync, |w, at| {
            w.mmap_assert_locked(at, mm);
            let vma = w.mms[mm.index()].vmas_in(rest).next()?;
            Some((vma.range, vma.tells_file_system()))
        });
        env.unlock(Lock::MmapRead(mm));
        let Some((part, on_disk)) = found else { break };
        covered &= part.start == rest.start;
        if on_disk {
            writeback(env, mm, part);
        }
        rest.start = part.end;
    }
    match covered && rest.is_empty() {
        true => Ok(()),
        false => Err(Errno::Enomem),
    }
}

/// Writes the dirty pages of the shared memory that `mm` maps at `range`. The writer of a file's
/// pages on a disk empties its CPU's LRU batches when it releases the first ones.
///
/// Source: fs/ext4/inode.c:mpage_prepare_extent_to_map; mm/swap.c:__pagevec_release (5.10),
/// __folio_batch_release (6.12).
pub fn writeback(env: &mut impl Env, mm: MmId, range: PageRange) {
    let (frames, on_disk) = env.step(Site::FolioClearDirtyForIo, |w, at| {
        // For a file on a disk, take only pages that are known to be dirty: a PTE is not dirty
        // unless the page is (PAGECACHE_TAG_DIRTY).
        let knows = |page| w.mms[mm.index()].vma(page).is_some_and(|vma| vma.tells_file_system());
        let is_dirty = |page, frame| !knows(page) || w.frames.flags(frame).has(FrameFlags::DIRTY);
        let frames = range.iter().filter_map(|page| {
            let (object, index) = w.shared_object_of(mm, page)?;
            w.objects.page(object, index).filter(|frame| is_dirty(page, *frame))
        });
        let frames = folios(w, frames);
        let on_disk = !frames.is_empty() && knows(range.start);
        frames.iter().for_each(|frame| w.get_frame(at, *frame));
        (frames, on_disk)
    });
    write_folios(env, frames, on_disk);
}

/// `fsync`: writes all dirty pages of the file, if it is on a disk.
///
/// Source: fs/sync.c:vfs_fsync_range; fs/ext4/fsync.c:ext4_sync_file (5.10 to 7.3).
pub fn fsync(env: &mut impl Env, file: NamedFile) -> Result<(), Errno> {
    let found = env.step(Site::VfsFsync, |w, _| w.objects.file(file.file));
    let Some(object) = found else { return Err(Errno::Ebadf) };
    if file.fs.is_written_back() {
        write_file_pages(env, object, 0..file.pages);
    }
    Ok(())
}

/// Writes those of `pages` that are known to be dirty, whether or not they are mapped. The file is
/// on a disk.
pub fn write_file_pages(env: &mut impl Env, file: ObjectId, pages: Range<u64>) {
    let frames = env.step(Site::FolioClearDirtyForIo, |w, at| {
        let frames = pages.clone().filter_map(|index| w.objects.page(file, index));
        let dirty = frames.filter(|frame| w.frames.flags(*frame).has(FrameFlags::DIRTY));
        let frames = folios(w, dirty);
        frames.iter().for_each(|frame| w.get_frame(at, *frame));
        frames
    });
    let any = !frames.is_empty();
    write_folios(env, frames, any);
}

/// The folios of these pages, each once. The pages are in order.
fn folios<M: Mode>(w: &World<M>, pages: impl Iterator<Item = Pfn>) -> FolioList {
    let mut folios: FolioList = pages.map(|page| w.frames.folio(page).0).collect();
    folios.dedup();
    folios
}

/// Writes these folios and drops the caller's references to them. `drains`: they were found in a
/// file on a disk, and the CPU's LRU batches are emptied.
fn write_folios(env: &mut impl Env, frames: FolioList, drains: bool) {
    let mut wanted = FolioList::new();
    for frame in frames {
        env.lock(Lock::Folio(frame));
        let is_wanted = write_folio(env, frame);
        env.unlock(Lock::Folio(frame));
        if is_wanted {
            wanted.push(frame);
            continue;
        }
        env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    }
    if drains {
        lru_add_drain(env);
    }
    // All writes start together, and these end last.
    for frame in wanted {
        env.step(Site::FolioEndWriteback, |w, at| {
            end_writeback(w, at, frame);
            w.put_frame(at, frame);
        });
    }
}

/// Writes one locked folio. First, each dirty PTE of its pages loses its rights, with a flush, and
/// the folio is marked dirty instead. The kernel skips that if the folio counts as not mapped.
/// Returns whether the folio was written and reclaim waits for that.
fn write_folio(env: &mut impl Env, frame: Pfn) -> bool {
    let mut cleaned = false;
    let passes_over = env.policies().mutant == Mutant::MkcleanSkipsChild;
    let clean = |env: &mut _, place: Place| {
        if !passes_over || process_of(place.0) == ProcessId::FIRST {
            cleaned |= page_mkclean_one(env, frame, place);
        }
    };
    if env.step(Site::PageMkcleanOne, |w, _| w.frames.folio_maps(frame) > 0) {
        rmap_walk(env, Site::PageMkcleanOne, frame, clean);
    }
    env.step(Site::FolioClearDirtyForIo, |w, _| {
        if cleaned {
            w.dirty_folio(frame);
        }
        let dirty = w.frames.flags(frame).has(FrameFlags::DIRTY);
        if dirty {
            w.clean_folio(frame);
            for page in w.frames.pages_of_folio(frame) {
                let of = w.frames.place(page);
                let zeros = w.frames.is_zero_filled(page);
                w.objects.set_on_disk(of.0, of.1, !zeros);
                w.ghost.written_back(page, of);
            }
        }
        dirty && w.frames.is_wanted(frame)
    })
}

/// Cleans one mapping of the page. Returns whether a store may have gone through it. A PTE that
/// forbids access needs no flush here: the operation that took the access away has flushed it, or
/// will.
fn page_mkclean_one(env: &mut impl Env, frame: Pfn, place: Place) -> bool {
    let (site, (mm, page)) = (Site::PageMkcleanOne, place);
    let found = page_vma_mapped_walk(env, site, frame, place, |w, at, pte| {
        let stores = pte.writable() || pte.dirty();
        if stores {
            w.set_pte(at, mm, page, Pte::None);
        }
        (pte, stores, pte_accessible(w, mm, pte))
    });
    let Some((pte, stores, accessible)) = found else { return false };
    if stores {
        if accessible && env.policies().mutant != Mutant::CleanUnflushed {
            flush_tlb_mm_range(env, FlushRequest::page(Site::PtepClearFlush, mm, page));
        }
        let clean: PresentPte = pte.without(PteFlags::WRITABLE).without(PteFlags::DIRTY);
        env.step(site, |w, at| w.set_pte(at, mm, page, Pte::Present(clean)));
    }
    pte_unmap_unlock(env, mm, page);
    stores
}
