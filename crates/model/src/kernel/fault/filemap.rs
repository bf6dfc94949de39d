//! The page cache of files on disks. A fault reads the page that it asks for, and only that page:
//! the scenarios' disks have no readahead.
//!
//! A fault that reads a page gives its lock back first and is retried. It counts as major on every
//! kernel, and the retry finds the page. (In the model it gives the lock back after it has read the
//! page.) A fault that finds the page locked is also retried, once. It has read nothing, so it
//! counts as minor, unless the kernel counts every retried fault as major.
//!
//! Source: mm/filemap.c:filemap_fault, do_sync_mmap_readahead, lock_page_maybe_drop_mmap (5.10),
//! lock_folio_maybe_drop_mmap (6.1 to 7.2), maybe_unlock_mmap_for_io; mm/memory.c:mm_account_fault
//! (5.10 to 7.3).

use super::file::{FilePage, page_in};
use super::outcome::{Fault, Served, Unserved};
use crate::addr::{ObjectId, Pfn};
use crate::env::{Env, Lock};
use crate::kernel::alloc::{Request, with_frames};
use crate::kernel::lru::folio_add_new;
use crate::machine::frames::FrameFlags;
use crate::machine::world::Ghost;
use crate::site::Site;
use crate::wait::Wait;

/// Returns the file's page, with a reference and locked, and whether it was read without giving the
/// fault's lock back. Fails if the file ends before the page.
pub fn filemap_fault(
    env: &mut impl Env,
    fault: Fault,
    file: ObjectId,
    index: u64,
) -> Result<(FilePage, bool), Unserved> {
    let mut read = false;
    loop {
        let found = env.step(Site::FilemapFault, |w, at| page_in(w, at, file, index));
        match found {
            Err(()) => return Err(Unserved::NotAllowed),
            Ok(Some(page)) => {
                if let Some(wait) = lock_or_retry(env, fault, page.folio) {
                    return Err(Unserved::Blocked { wait, read: false });
                }
                // The file may have become smaller meanwhile, or may have a hole there.
                let there = env.step(Site::FilemapFault, |w, _| {
                    index < w.objects.size(file) && page.is_at(w, (file, index))
                });
                if there {
                    return Ok((page, read));
                }
                env.unlock(Lock::Folio(page.folio));
                env.step(Site::FolioPut, |w, at| w.put_frame(at, page.frame));
            }
            Ok(None) => {
                read_page(env, file, index)?;
                if !fault.attempt.keeps_locks() {
                    return Err(Unserved::TryAgain(Served { major: true, ..Served::spurious() }));
                }
                read = true;
            }
        }
    }
}

/// Locks the page. If somebody else holds the lock, a first try waits without any lock, with the
/// reference that it has. (Kernels take the page's lock after the wait and give it back.)
fn lock_or_retry(env: &mut impl Env, fault: Fault, folio: Pfn) -> Option<Wait> {
    let lock = Lock::Folio(folio);
    if fault.attempt.keeps_locks() {
        env.lock(lock);
        return None;
    }
    (!env.try_lock(Site::FolioTryLock, lock)).then_some(Wait::Folio(folio))
}

/// Reads a page from the disk, unless another thread was faster.
fn read_page(env: &mut impl Env, file: ObjectId, index: u64) -> Result<(), Unserved> {
    env.lock(Lock::InvalidateRead(file));
    let request = Request::here(FrameFlags::default());
    let done = with_frames(env, Site::FilemapAddFolio, request, |w, at, door| {
        if w.objects.page(file, index).is_some() {
            return true;
        }
        // A page that reclaim took so recently is active (mm/workingset.c:workingset_refault).
        let mut flags = FrameFlags::default();
        flags.set(FrameFlags::ACTIVE, w.objects.was_evicted(file, index));
        flags.set(FrameFlags::ZERO_FILLED, !w.objects.is_on_disk(file, index));
        let Some(new) = door.with(flags).take(w, at) else { return false };
        w.ghost.filled(new, (file, index));
        w.add_to_page_cache(new, file, index);
        folio_add_new(w, at.site(Site::FolioAddLru), new);
        true
    });
    env.unlock(Lock::InvalidateRead(file));
    if done { Ok(()) } else { Err(Unserved::OutOfMemory) }
}
