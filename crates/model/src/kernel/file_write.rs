//! `pwrite`: writes whole pages of a file through the page cache.
//!
//! A page that is in the page cache is overwritten in place. Every mapping of it sees that at once,
//! and no translation changes. A page that is not there is created. Nothing is read, since the
//! whole page is written. The page is then dirty: a later store to a file in memory does not dirty
//! it again, and a later store to a file on a disk still faults if its mapping has no right to
//! store. The file grows if it has to. Newer kernels create folios as large as a call is, where its
//! position allows it (`file-folios`).
//!
//! Source: mm/filemap.c:generic_perform_write; mm/shmem.c:shmem_write_begin, shmem_write_end,
//! shmem_get_folio_gfp (SGP_WRITE); fs/ext4/inode.c:ext4_da_write_begin, ext4_da_write_end;
//! fs/buffer.c:block_write_end (5.10 to 7.3).

use crate::addr::{ObjectId, Pfn, Vpn};
use crate::backing::{NamedFile, folio_order};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::alloc::{Request, with_frames};
use crate::kernel::deferred::{Before, flush_owed_before};
use crate::kernel::fault::file::FilePage;
use crate::kernel::fault::shmem::shmem_swapin;
use crate::kernel::lru::{folio_add_lru, mark_accessed};
use crate::machine::frames::FrameFlags;
use crate::machine::world::{Ghost, Mode, World};
use crate::policy::FileFolios;
use crate::site::Site;
use std::ops::Range;

/// Writes these pages, in calls of `write_pages` pages each.
pub fn pwrite(env: &mut impl Env, file: NamedFile, pages: Range<u64>) -> Result<(), Errno> {
    let found = env.step(Site::GenericPerformWrite, |w, _| w.objects.file(file.file));
    let Some(object) = found else { return Err(Errno::Ebadf) };
    let mut rest = pages;
    while !rest.is_empty() {
        let end = rest.end.min(rest.start + file.write_pages);
        env.lock(Lock::Inode(object));
        while rest.start < end {
            let call = rest.start..end;
            let Some(next) = write_folio(env, object, call, file.fs.is_written_back()) else {
                env.unlock(Lock::Inode(object));
                return Err(Errno::Enomem);
            };
            rest.start = next;
        }
        env.unlock(Lock::Inode(object));
        flush_owed_before(env, Before::FileWritten);
    }
    Ok(())
}

/// Writes the first of these pages and those behind it that lie in the same folio. Returns where
/// the next folio begins; `None` if there is no memory left.
fn write_folio(
    env: &mut impl Env,
    file: ObjectId,
    pages: Range<u64>,
    on_disk: bool,
) -> Option<u64> {
    let FilePage { frame, folio } = grab_page(env, file, &pages, on_disk)?;
    flush_owed_before(env, Before::FileWrite);
    let end = env.step(Site::GenericPerformWrite, |w, at| {
        let end = pages.end.min(w.folio_indices(frame).end);
        for (index, frame) in (pages.start..end).zip((frame.0..).map(Pfn)) {
            w.frames.set_flags(frame, FrameFlags::ZERO_FILLED, false);
            w.frames.set_flags(frame, FrameFlags::DIRTY, true);
            // Only the written part of a large folio goes to the disk (block_write_end).
            if w.frames.flags(frame).has(FrameFlags::LARGE) {
                w.frames.set_flags(frame, FrameFlags::BUFFER_DIRTY, true);
            }
            w.ghost.file_written(at, frame, (file, index));
        }
        let size = w.objects.size(file).max(end);
        w.objects.set_size(file, size);
        end
    });
    env.unlock(Lock::Folio(folio));
    env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    Some(end)
}

/// Returns the first of these pages, locked and with a reference. If it is not there, creates a
/// folio for it, at most as large as `pages`, whose contents nobody has filled. `None` if there is
/// no memory left.
fn grab_page(
    env: &mut impl Env,
    file: ObjectId,
    pages: &Range<u64>,
    on_disk: bool,
) -> Option<FilePage> {
    let index = pages.start;
    loop {
        if !on_disk {
            shmem_swapin(env, Vpn(0), (file, index))?;
        }
        let of_memory = FrameFlags::SWAP_BACKED.and(FrameFlags::REFERENCED);
        let flags = if on_disk { FrameFlags::default() } else { of_memory };
        let request = Request::here(flags).of_order(folio_order(pages.start, pages.end));
        let page = with_frames(env, Site::FilemapGetFolio, request, |w, at, door| {
            if let Some(frame) = w.objects.page(file, index) {
                w.get_frame(at, frame);
                if !on_disk {
                    mark_accessed(w, at, frame);
                }
                return Some(FilePage::of(w, frame));
            }
            let large = on_disk && w.policies.file_folios == FileFolios::AsWritten;
            let order = if large { order_of_new(w, file, pages) } else { 0 };
            // As large as memory allows.
            let new = (0..=order).rev().find_map(|order| door.take_of(w, at, order))?;
            w.add_to_page_cache(new, file, index);
            for (frame, index) in w.frames.pages_of_folio(new).zip(index..) {
                w.ghost.filled(frame, (file, index));
            }
            w.get_frame(at, new);
            folio_add_lru(w, at.site(Site::FolioAddLru), new);
            Some(FilePage { frame: new, folio: new })
        })?;
        env.lock(Lock::Folio(page.folio));
        if env.step(Site::FilemapGetFolio, |w, _| page.is_at(w, (file, index))) {
            return Some(page);
        }
        env.unlock(Lock::Folio(page.folio));
        env.step(Site::FolioPut, |w, at| w.put_frame(at, page.frame));
    }
}

/// The order of a new folio for a write of these pages: at most their number, aligned to its own
/// size, and only where no page exists yet.
///
/// Source: mm/filemap.c:__filemap_get_folio, __filemap_add_folio (7.2).
fn order_of_new<M: Mode>(w: &World<M>, file: ObjectId, pages: &Range<u64>) -> u8 {
    let largest = folio_order(pages.start, pages.end);
    let free = |order: &u8| {
        let mut indices = pages.start..pages.start + (1 << order);
        indices.all(|index| w.objects.page(file, index).is_none())
    };
    (0..=largest).rev().find(free).unwrap_or(0)
}
