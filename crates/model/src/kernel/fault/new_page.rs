//! A new page that belongs to one address space: its frame, its accounts, its PTE.

use crate::addr::{MmId, Pfn, Span, Vpn};
use crate::event::EventKind;
use crate::kernel::alloc::{Door, Request};
use crate::kernel::mlock_batch::folio_add_lru_vma;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{AnonExclusive, DemandYoung};
use crate::pte::{PresentPte, PteFlags};
use crate::site::Site;

/// A request for a zeroed frame for this page.
#[inline(always)]
pub const fn zeroed(mm: MmId, page: Vpn) -> Request {
    Request::page(mm, page, FrameFlags::SWAP_BACKED.and(FrameFlags::ZERO_FILLED))
}

/// Takes a frame and fills it with zeros. `None` if no memory is left.
pub fn allocate_zeroed<M: Mode>(w: &mut World<M>, at: At, page: Vpn, door: &Door) -> Option<Pfn> {
    let frame = door.take(w, at)?;
    w.ghost.zeroed(frame);
    w.emit(at, EventKind::Zero { page, frame });
    Some(frame)
}

/// Takes a large folio for these pages and fills it with zeros. `None` if no memory is left.
pub fn allocate_zeroed_folio<M: Mode>(
    w: &mut World<M>,
    at: At,
    pages: Span,
    door: &Door,
) -> Option<Pfn> {
    let folio = door.take_of(w, at, pages.order)?;
    w.frames.pages_of_folio(folio).for_each(|frame| w.ghost.zeroed(frame));
    w.emit(at, EventKind::Zero { page: pages.start, frame: folio });
    Some(folio)
}

/// Accounts a fresh frame as mapped here and exclusive, and sends it to the LRU.
#[inline(always)]
pub fn map_new_page<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn, frame: Pfn) {
    let exclusive = w.policies.anon_exclusive == AnonExclusive::Yes;
    let ((object, index), locked) = (w.object_of(mm, page), w.locks(mm, page));
    w.frames.update(frame, |f| {
        (f.maps, f.object, f.index) = (1, object, index);
        f.flags.set(FrameFlags::EXCLUSIVE, exclusive);
    });
    folio_add_lru_vma(w, at.site(Site::FolioAddLru), frame, locked);
}

/// The PTE of a page that a fault maps.
pub fn new_pte<M: Mode>(w: &World<M>, pfn: Pfn, writable: bool, dirty: bool) -> PresentPte {
    PresentPte::new(pfn)
        .with(PteFlags::WRITABLE, writable)
        .with(PteFlags::ACCESSED, w.policies.demand_young == DemandYoung::Set)
        .with(PteFlags::DIRTY, dirty)
        .with(PteFlags::SOFT_DIRTY, dirty && w.config.soft_dirty)
}
