//! Reverse mapping: walks from a frame to the page tables that map it.
//!
//! Operations that begin with a page and not with an address walk this way: unmapping (for reclaim,
//! for migration and for the split of a folio), aging, and write protection for writeback.
//!
//! Source: mm/rmap.c:rmap_walk_anon; mm/page_vma_mapped.c:page_vma_mapped_walk (5.10 to 7.3).

use crate::addr::{MmId, ObjectId, PageRange, Pfn, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::vma::Vma;
use crate::machine::world::{At, Mode, World};
use crate::pte::PresentPte;
use crate::site::Site;
use smallvec::SmallVec;

/// A page of an address space.
pub type Place = (MmId, Vpn);

/// A part of a mapping.
pub type Part = (MmId, PageRange);

/// The places where mappings of the frame's object have the frame's page, whether or not their page
/// tables map it. For a file's folio: the places of all its pages, mapping by mapping.
#[inline(always)]
pub fn places<M: Mode>(w: &World<M>, frame: Pfn) -> SmallVec<[Place; 1]> {
    let (object, index) = w.frames.place(frame);
    if w.objects.is_file(object) {
        return file_places(w, frame)
            .iter()
            .flat_map(|(mm, part)| part.iter().map(|page| (*mm, page)))
            .collect();
    }
    let mut places: SmallVec<[_; 1]> = SmallVec::new();
    for &mm in w.objects.mapped_by(object) {
        let visit = |_: &Vma, page| places.push((mm, page));
        w.mms[mm.index()].pages_of(&w.objects, object, index, visit);
    }
    places
}

/// The parts of mappings that cover pages of a file's folio, in the order of the file's tree of
/// mappings (`i_mmap`).
///
/// Source: mm/rmap.c:rmap_walk_file, vma_address (5.10 to 7.3).
fn file_places<M: Mode>(w: &World<M>, frame: Pfn) -> SmallVec<[Part; 1]> {
    let (file, indices) = (w.frames.place(frame).0, w.folio_indices(frame));
    let mut parts: SmallVec<[_; 1]> = SmallVec::new();
    for &mm in w.objects.mapped_by(file) {
        let of = w.mms[mm.index()].mappings_of(file, &indices);
        parts.extend(of.map(|(order, part)| (order, (mm, part))));
    }
    parts.sort_by_key(|(order, _)| *order);
    parts.into_iter().map(|(_, part)| part).collect()
}

/// The parts of mappings that cover pages of the folio.
pub fn folio_places<M: Mode>(w: &World<M>, folio: Pfn) -> SmallVec<[Part; 1]> {
    let (head, order) = w.frames.folio(folio);
    let (object, index) = w.frames.place(head);
    if w.objects.is_file(object) {
        return file_places(w, head);
    }
    let mut places = SmallVec::new();
    for &mm in w.objects.mapped_by(object) {
        let parts = w.mms[mm.index()].parts_of(&w.objects, object, index..index + (1 << order));
        places.extend(parts.map(|part| (mm, part)));
    }
    places
}

/// Calls `visit` for each place where the frame may be mapped, with the lock of its object held.
/// The list of places is read once, at the start. A mapping that `mremap` moves pages to comes
/// after the one that they leave. Returns the first page.
///
/// Source: mm/rmap.c:page_lock_anon_vma_read (5.10), folio_lock_anon_vma_read (6.1 to 7.3).
pub fn rmap_walk<E: Env>(
    env: &mut E,
    site: Site,
    frame: Pfn,
    visit: impl FnMut(&mut E, Place),
) -> Option<Vpn> {
    walk(env, site, frame, places, visit).map(|(_, page)| page)
}

/// [`rmap_walk`] for a large folio, by parts of mappings. Returns the first page.
pub fn rmap_walk_folio<E: Env>(
    env: &mut E,
    site: Site,
    folio: Pfn,
    visit: impl FnMut(&mut E, Part),
) -> Option<Vpn> {
    walk(env, site, folio, folio_places, visit).map(|(_, pages)| pages.start)
}

fn walk<E: Env, P: Copy>(
    env: &mut E,
    site: Site,
    frame: Pfn,
    find: impl FnOnce(&World<E::Mode>, Pfn) -> SmallVec<[P; 1]>,
    mut visit: impl FnMut(&mut E, P),
) -> Option<P>
where
    (ObjectId, SmallVec<[P; 1]>): Learnt,
{
    env.lock(Lock::RmapOf(frame));
    let (root, places) =
        env.step(site, |w, _| (w.objects.root(w.frames.place(frame).0), find(w, frame)));
    for place in &places {
        visit(env, *place);
    }
    env.unlock(Lock::RmapRead(root));
    places.first().copied()
}

/// Takes the lock of the page table of `place`. If the table maps the frame there, or another page
/// of the same folio, runs `first` on the PTE in the same step. Otherwise no lock is held
/// afterwards. (For a large folio, kernels keep the lock from page to page.)
pub fn page_vma_mapped_walk<E: Env, R>(
    env: &mut E,
    site: Site,
    frame: Pfn,
    (mm, page): Place,
    first: impl FnOnce(&mut World<E::Mode>, At, PresentPte) -> R,
) -> Option<R>
where
    R: std::hash::Hash + Clone + Send + Sync + 'static,
{
    let found = pte_offset_map_lock(env, site, mm, page, |w, at| {
        let ours = |pte: &PresentPte| w.frames.folio(pte.pfn).0 == frame;
        let pte = w.pte(mm, page).present().filter(ours)?;
        Some(first(w, at, pte))
    });
    if found.as_ref().is_some_and(Option::is_none) {
        pte_unmap_unlock(env, mm, page);
    }
    found.flatten()
}
