//! Large folios of which parts are mapped no more keep those parts, until memory is short: then they are split, and the parts are free.
//!
//! Kernels queue such a folio when a part of it loses its last mapping. (Folios of zeros alone, which 6.13 and later would split too, stay by the settings that kernels begin with.)

use super::run::split_and_put;
use crate::addr::Pfn;
use crate::env::{Env, Lock};
use crate::machine::world::{Mode, World};
use crate::site::Site;

/// Comes to all such folios, in the order of their frames. (Kernels: in the order in which they were queued.)
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

/// Whether it is a large folio of private memory of which a part is mapped, and a part no more.
///
/// Source: mm/rmap.c:page_remove_rmap, page_remove_anon_compound_rmap (5.10, 6.1), __folio_remove_rmap (6.12, 7.2).
fn is_queued<M: Mode>(w: &World<M>, folio: Pfn) -> bool {
    let of_file = w.objects.is_file(w.frames.place(folio).0);
    !of_file && w.frames.is_partly_mapped(folio) && w.frames.folio_maps(folio) > 0
}
