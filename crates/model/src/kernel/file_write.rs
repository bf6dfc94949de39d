//! `pwrite`: whole pages of a file are written, by way of the page cache.
//!
//! What is there is overwritten where it lies: who has the page mapped sees it at once, and no translation changes. What is not there is made, and
//! nothing is read, since the whole page is written. The page is dirty, so that a later store to a file in memory does not make it so, and to one
//! on a disk still faults where the mapping has no right to store. The file grows if it has to.
//!
//! Source: mm/filemap.c:generic_perform_write; mm/shmem.c:shmem_write_begin, shmem_write_end, shmem_get_folio_gfp (SGP_WRITE);
//! fs/ext4/inode.c:ext4_da_write_begin, ext4_da_write_end; fs/buffer.c:block_write_end (5.10 to 7.3).

use crate::addr::{ObjectId, Pfn, Vpn};
use crate::backing::NamedFile;
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::fault::shmem::shmem_swapin;
use crate::kernel::lru::{folio_add_lru, mark_accessed};
use crate::machine::frames::FrameFlags;
use crate::machine::world::Ghost;
use crate::site::Site;
use std::ops::Range;

/// Writes these pages, each by a call of its own.
pub fn pwrite(env: &mut impl Env, file: NamedFile, pages: Range<u64>) -> Result<(), Errno> {
    let found = env.step(Site::GenericPerformWrite, |w, _| w.objects.file(file.file));
    let Some(object) = found else { return Err(Errno::Ebadf) };
    for index in pages {
        env.lock(Lock::Inode(object));
        let written = write_page(env, object, index, file.fs.is_written_back());
        env.unlock(Lock::Inode(object));
        written?;
    }
    Ok(())
}

fn write_page(env: &mut impl Env, file: ObjectId, index: u64, on_disk: bool) -> Result<(), Errno> {
    let frame = grab_page(env, file, index, on_disk).ok_or(Errno::Enomem)?;
    env.step(Site::GenericPerformWrite, |w, at| {
        w.frames.set_flags(frame, FrameFlags::ZERO_FILLED, false);
        w.frames.set_flags(frame, FrameFlags::DIRTY, true);
        w.ghost.file_written(at, frame, (file, index));
        let size = w.objects.size(file).max(index + 1);
        w.objects.set_size(file, size);
    });
    env.unlock(Lock::Folio(frame));
    env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    Ok(())
}

/// The page, with a reference and locked: what is there, else a new one that nobody has filled; `None` if there is no memory left.
fn grab_page(env: &mut impl Env, file: ObjectId, index: u64, on_disk: bool) -> Option<Pfn> {
    loop {
        if !on_disk {
            shmem_swapin(env, Vpn(0), (file, index))?;
        }
        let frame = env.step(Site::FilemapGetFolio, |w, at| {
            if let Some(frame) = w.objects.page(file, index) {
                w.get_frame(frame);
                if !on_disk {
                    mark_accessed(w, at, frame);
                }
                return Some(frame);
            }
            let of_memory = FrameFlags::SWAP_BACKED.and(FrameFlags::REFERENCED);
            let flags = if on_disk { FrameFlags::default() } else { of_memory };
            let new = w.allocate_frame(flags)?;
            w.ghost.filled(new, (file, index));
            w.frames.update(new, |f| (f.object, f.index) = (file, index));
            w.get_frame(new);
            w.objects.set_page(file, index, new);
            folio_add_lru(w, at.site(Site::FolioAddLru), new);
            Some(new)
        })?;
        env.lock(Lock::Folio(frame));
        if env.step(Site::FilemapGetFolio, |w, _| w.objects.page(file, index) == Some(frame)) {
            return Some(frame);
        }
        env.unlock(Lock::Folio(frame));
        env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    }
}
