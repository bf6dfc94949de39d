//! `posix_fadvise` with `POSIX_FADV_DONTNEED`: the caller does not need these pages of a file in
//! memory.
//!
//! Dirty pages are written first. That takes the right to store from every mapping, with a flush
//! for each page ([`super::writeback`]). Then each page that nobody else uses leaves the page
//! cache: no mapping, no LRU batch (which holds a reference), and no holder of its lock. No
//! translation changes by that. A large folio leaves as a whole, and stays if the range covers only
//! a part of it. If a page stayed because it is mapped or waits in another CPU's batch, the batches
//! of all CPUs are emptied and everything is tried once more. Then only pages that are in use stay.
//! A later access to a page that left reads it again. Of files in memory, nothing is written and
//! nothing leaves.
//!
//! (Kernels from 5.12 on lock all pages of a batch at once; the model locks them one by one, as
//! 5.10 does. Kernels pass over pages under writeback; in the model, a write has ended when its
//! page is released.)
//!
//! Source: mm/fadvise.c:generic_fadvise; mm/truncate.c:__invalidate_mapping_pages,
//! invalidate_inode_page (5.10), invalidate_mapping_pagevec, mapping_evict_folio (6.1),
//! mapping_try_invalidate (6.12 to 7.3); mm/vmscan.c:remove_mapping.

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

/// Takes those of `pages` out of the page cache that nobody uses.
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

/// Takes unused pages out of the page cache, batch by batch. Returns how many folios were in use.
/// When the first batch is released, this CPU's LRU batches are emptied (`__pagevec_release`).
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

/// Finds folios that lie completely in `pages`, up to a batch of them, and takes references.
/// Returns them and the index of the page behind them.
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

/// Takes one folio, to which the caller has a reference, out of the page cache. Returns false if it
/// stays because it is in use. A folio that somebody has locked stays, too, but does not count as
/// in use.
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

/// Takes the folio out of the page cache, if it is clean and only the caller and the cache have
/// references to it.
fn evict_folio<M: Mode>(w: &mut World<M>, at: At, file: ObjectId, folio: Pfn) -> bool {
    let (f, cached) = (w.frames.get(folio), 1 << w.frames.folio(folio).1);
    if f.object != file || f.flags.has(FrameFlags::DIRTY) || f.refs > cached + 1 {
        return false;
    }
    w.remove_from_page_cache(at, folio);
    true
}
