//! Large folios that are only partly mapped keep their other pages until memory is short. They are
//! then split, and those pages are free.
//!
//! Kernels queue such a folio when a part of it loses its last mapping. (6.13 and later can also
//! split folios of zeros, but not with the settings that kernels begin with.)

use super::run::split_and_put;
use crate::addr::Pfn;
use crate::env::{Env, Lock};
use crate::machine::world::{Mode, World};
use crate::site::Site;

/// Splits all such folios, in the order of their frames. (Kernels take them in the order in which
/// they were queued.)
///
/// Source: mm/huge_memory.c:deferred_split_scan (5.10 to 7.2).
pub fn deferred_split_scan(env: &mut impl Env) {
    let site = Site::DeferredSplitScan;
    let mut last = None;
    while let Some(folio) = env.step(site, |w, at| {
        let after = |folio: &Pfn| Some(*folio) > last && is_queued(w, *folio);
        let next = w.frames.large_folios().find(after)?;
        w.get_frame(at, next);
        Some(next)
    }) {
        last = Some(folio);
        match env.try_lock(Site::FolioTryLock, Lock::Folio(folio)) {
            true => _ = split_and_put(env, folio),
            false => env.step(Site::FolioPut, |w, at| w.put_frame(at, folio)),
        }
    }
}

/// Whether the folio is a large folio of private memory of which one part is mapped and another
/// part no longer is.
///
/// Source: mm/rmap.c:page_remove_rmap, page_remove_anon_compound_rmap (5.10, 6.1),
/// __folio_remove_rmap (6.12, 7.2).
fn is_queued<M: Mode>(w: &World<M>, folio: Pfn) -> bool {
    let of_file = w.objects.is_file(w.frames.place(folio).0);
    !of_file && w.frames.is_partly_mapped(folio) && w.frames.folio_maps(folio) > 0
}
