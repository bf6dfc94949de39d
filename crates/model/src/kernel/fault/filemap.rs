//! The page cache of files on disks. A page that is not there is read, by the fault that asks for it alone: there is no readahead on
//! the disks that scenarios have.
//!
//! Whoever reads gives its lock back first, and the fault is tried again: it is major, on every kernel, and finds the page then. (Here the lock
//! is given back after the page was read.)
//!
//! Source: mm/filemap.c:filemap_fault, do_sync_mmap_readahead, maybe_unlock_mmap_for_io; mm/memory.c:mm_account_fault (5.10 to 7.3).

use super::file::{FilePage, page_in};
use super::outcome::{Attempt, Fault, Served, Unserved};
use crate::addr::ObjectId;
use crate::env::{Env, Lock};
use crate::kernel::lru::folio_add_new;
use crate::machine::frames::FrameFlags;
use crate::machine::world::Ghost;
use crate::site::Site;

/// The file's page, with a reference and locked, unless the file ends before it.
pub fn filemap_fault(
    env: &mut impl Env,
    fault: Fault,
    file: ObjectId,
    index: u64,
) -> Result<FilePage, Unserved> {
    loop {
        let found = env.step(Site::FilemapFault, |w, _| page_in(w, file, index));
        match found {
            Err(()) => return Err(Unserved::NotAllowed),
            Ok(Some(page)) => {
                env.lock(Lock::Folio(page.folio));
                // The file may have become smaller meanwhile, or have a hole there.
                let there = env.step(Site::FilemapFault, |w, _| {
                    let there = w.objects.page(file, index) == Some(page.frame);
                    index < w.objects.size(file) && there && FilePage::of(w, page.frame) == page
                });
                if there {
                    return Ok(page);
                }
                env.unlock(Lock::Folio(page.folio));
                env.step(Site::FolioPut, |w, at| w.put_frame(at, page.frame));
            }
            Ok(None) => {
                read_page(env, file, index)?;
                if fault.attempt != Attempt::Tried {
                    let read = Served { major: true, ..Served::spurious() };
                    return Err(Unserved::TryAgain(read));
                }
            }
        }
    }
}

/// Reads a page from the disk, unless somebody was faster.
fn read_page(env: &mut impl Env, file: ObjectId, index: u64) -> Result<(), Unserved> {
    env.lock(Lock::InvalidateRead(file));
    let done = env.step(Site::FilemapAddFolio, |w, at| {
        if w.objects.page(file, index).is_some() {
            return true;
        }
        let Some(new) = w.allocate_frame(FrameFlags::default()) else { return false };
        w.ghost.filled(new, (file, index));
        w.frames.update(new, |f| (f.object, f.index) = (file, index));
        w.objects.set_page(file, index, new);
        folio_add_new(w, at.site(Site::FolioAddLru), new);
        true
    });
    env.unlock(Lock::InvalidateRead(file));
    if done { Ok(()) } else { Err(Unserved::OutOfMemory) }
}
