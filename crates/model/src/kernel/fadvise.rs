//! `posix_fadvise` with `POSIX_FADV_DONTNEED`: pages of a file need not be in memory.
//!
//! What is dirty is written first, which takes the right to store from every mapping with a flush for each page ([`super::writeback`]). Then each
//! page leaves the page cache that nobody else has: neither a mapping nor a batch, which holds a reference, nor whoever has it locked. No
//! translation changes by that. A large folio leaves as a whole, and not if a part of it is not meant. If a page of them stayed, because it is mapped or because it waits in another CPU's batch, the batches of
//! all CPUs are emptied and all is tried once more, so that only pages stay that are in use. Who touches later what left has it read. Of files in
//! memory nothing is written and nothing leaves.
//!
//! (Kernels from 5.12 on lock the pages of a batch all at once; here one by one, as in 5.10. What is under writeback is passed over: here writing
//! is over when its page is let go.)
//!
//! Source: mm/fadvise.c:generic_fadvise; mm/truncate.c:__invalidate_mapping_pages, invalidate_inode_page (5.10), invalidate_mapping_pagevec,
//! mapping_evict_folio (6.1), mapping_try_invalidate (6.12 to 7.3); mm/vmscan.c:remove_mapping.

use crate::addr::{ObjectId, Pfn};
use crate::backing::NamedFile;
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::lru::{deactivate_file, lru_add_drain, lru_add_drain_all};
use crate::kernel::reclaim::FolioList;
use crate::kernel::writeback::write_file_pages;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Mode, World};
use crate::site::Site;
use std::ops::Range;

/// These pages need not be in memory.
pub fn fadvise_dontneed(
    env: &mut impl Env,
    file: NamedFile,
    pages: Range<u64>,
) -> Result<(), Errno> {
    let found = env.step(Site::GenericFadvise, |w, _| w.objects.file(file.file));
    let Some(object) = found else { return Err(Errno::Ebadf) };
    if !file.fs.is_written_back() {
        return Ok(());
    }
    write_file_pages(env, object, pages.clone());
    lru_add_drain(env);
    if mapping_try_invalidate(env, object, pages.clone()) > 0 {
        lru_add_drain_all(env);
        mapping_try_invalidate(env, object, pages);
    }
    Ok(())
}

/// Takes what nobody uses out of the page cache, batch by batch; how many pages were in use. The first batch that is let go empties this CPU's
/// batches (`__pagevec_release`).
fn mapping_try_invalidate(env: &mut impl Env, file: ObjectId, mut pages: Range<u64>) -> usize {
    let (mut failed, mut drained) = (0, false);
    env.step(Site::MappingTryInvalidate, |w, _| w.objects.forget_evicted(file, pages.clone()));
    loop {
        let (found, next) = find_entries(env, file, pages.clone());
        if found.is_empty() {
            return failed;
        }
        pages.start = next;
        for &frame in &found {
            failed += usize::from(!invalidate_folio(env, file, frame));
        }
        if !std::mem::replace(&mut drained, true) {
            lru_add_drain(env);
        }
        for frame in found {
            env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
        }
    }
}

/// As many of the folios as a batch holds that are wholly of these pages, with references, and the page behind them.
///
/// Source: mm/filemap.c:find_lock_entries (6.12, 7.2).
fn find_entries(env: &mut impl Env, file: ObjectId, pages: Range<u64>) -> (FolioList, u64) {
    env.step(Site::MappingTryInvalidate, |w, at| {
        let (mut found, mut next) = (FolioList::new(), pages.end);
        for index in pages.clone() {
            let Some(frame) = w.objects.page(file, index) else { continue };
            let (folio, indices) = (w.frames.folio(frame).0, w.folio_indices(frame));
            if index != indices.start || indices.end > pages.end {
                continue;
            }
            w.get_frame(at, folio);
            found.push(folio);
            if found.len() == w.lru_batch_size() {
                next = indices.end;
                break;
            }
        }
        (found, next)
    })
}

/// One folio, to which the caller has a reference; false if it stays because it is in use. One that somebody has locked stays without a word.
fn invalidate_folio(env: &mut impl Env, file: ObjectId, frame: Pfn) -> bool {
    if !env.try_lock(Site::FolioTryLock, Lock::Folio(frame)) {
        return true;
    }
    let gone = env.step(Site::MappingTryInvalidate, |w, at| evict_folio(w, at, file, frame));
    env.unlock(Lock::Folio(frame));
    if !gone {
        env.step(Site::MappingTryInvalidate, |w, at| deactivate_file(w, at, frame));
    }
    gone
}

/// Takes the folio out of the page cache, if it is clean and the caller's and the cache's references are all that there are.
fn evict_folio<M: Mode>(w: &mut World<M>, at: At, file: ObjectId, folio: Pfn) -> bool {
    let (f, cached) = (w.frames.get(folio), 1 << w.frames.folio(folio).1);
    if f.object != file || f.flags.has(FrameFlags::DIRTY) || f.refs > cached + 1 {
        return false;
    }
    w.remove_from_page_cache(at, folio);
    true
}
