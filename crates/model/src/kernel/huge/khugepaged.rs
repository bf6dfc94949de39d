//! khugepaged: the kernel's thread that looks for pages which are mapped one by one where huge
//! pages are wanted, and collapses them.
//!
//! It collapses as `MADV_COLLAPSE` does ([`super::collapse`]), but it leaves a table alone if
//! nobody used its pages or too few of them are there.

use super::collapse::{Collapser, collapse_one};
use crate::addr::{MmId, PageRange, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::lru::lru_add_drain_all;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{Mode, World};
use crate::policy::{Collapse, KhugepagedFree};
use crate::pte::Pte;
use crate::site::Site;

/// Tries to collapse each huge page's worth of `range` once, in ascending order. (How often
/// khugepaged comes is up to a clock, which the model does not have.)
///
/// Source: mm/khugepaged.c:khugepaged_do_scan, khugepaged_scan_mm_slot (5.10 to 6.12),
/// collapse_scan_mm_slot (7.3).
pub fn khugepaged_scan(env: &mut impl Env, mm: MmId, range: PageRange) {
    let size = env.arch().table_pages(1);
    lru_add_drain_all(env);
    env.lock(Lock::MmapRead(mm));
    let mut rest = range;
    while let Some(pages) = env.step(Site::KhugepagedScanMmSlot, |w, at| {
        w.mmap_assert_locked(at, mm);
        next_wanted(w, mm, rest, size)
    }) {
        // Nothing depends on the result.
        let _ = collapse_one(env, Collapser::Khugepaged, mm, pages);
        rest.start = pages.end;
    }
    env.unlock(Lock::MmapRead(mm));
}

/// The next pages of `range` that a huge page could map, in a mapping where huge pages are wanted.
fn next_wanted<M: Mode>(w: &World<M>, mm: MmId, range: PageRange, size: u64) -> Option<PageRange> {
    let vmas = w.mms[mm.index()].vmas().iter();
    let wanted = vmas.filter(|vma| vma.may_be_huge(w.config.thp) && vma.anon_vma.is_some());
    wanted.map(|vma| vma.range.intersect(range)).find_map(|part| {
        let start = Vpn(part.start.0.next_multiple_of(size));
        (start.add(size) <= part.end).then(|| PageRange::new(start, size))
    })
}

/// Counts of what a table holds. They decide whether it is collapsed.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Tally {
    /// Entries without a page, or with the zero page.
    none: u64,
    /// Pages in swap.
    pub(super) swapped: u64,
    /// Pages that are mapped more than once.
    shared: u64,
    /// Pages that were used.
    used: u64,
    /// Pages given to `MADV_FREE` to which nobody has stored since.
    free: u64,
    /// Whether one of the pages is writable.
    writable: bool,
}

impl Tally {
    /// A tally of this many empty entries.
    pub(super) fn of_empty(none: u64) -> Tally {
        Tally { none, ..Tally::default() }
    }

    pub(super) fn count<M: Mode>(&mut self, w: &World<M>, pte: Pte) {
        match pte {
            Pte::Present(pte) if !pte.special() => {
                let folio = w.frames.folio(pte.pfn).0;
                let flags = w.frames.flags(folio);
                self.shared += u64::from(w.frames.get(pte.pfn).maps > 1);
                self.used += u64::from(pte.accessed() || flags.has(FrameFlags::REFERENCED));
                self.free += u64::from(!flags.has(FrameFlags::SWAP_BACKED) && !pte.dirty());
                self.writable |= pte.writable();
            }
            Pte::Present(_) | Pte::None => self.none += 1,
            Pte::Swap(_) => self.swapped += 1,
            Pte::Migration(_) | Pte::Marker(_) | Pte::Table(_) => {}
        }
    }

    /// Whether the table of these pages stays as it is. The limits are those that kernels begin
    /// with (`max_ptes_none`, `max_ptes_swap`, `max_ptes_shared` in
    /// /sys/kernel/mm/transparent_hugepage/khugepaged).
    ///
    /// Source: mm/khugepaged.c:khugepaged_scan_pmd (5.10), hpage_collapse_scan_pmd (6.1, 6.12),
    /// collapse_scan_pmd (7.3), __collapse_huge_page_isolate, hugepage_init (khugepaged_init).
    pub(super) fn is_left<M: Mode>(&self, w: &World<M>, by: Collapser, pages: PageRange) -> bool {
        let wants_right = matches!(w.policies.collapse, Collapse::None | Collapse::Writable);
        if wants_right && !self.writable {
            return true;
        }
        let size = pages.pages();
        match by {
            Collapser::Madvise => false,
            Collapser::Khugepaged => {
                self.none > size - 1
                    || self.swapped > size / 8
                    || self.shared > size / 2
                    || self.used == 0
                    || self.swapped > 0 && self.used < size / 2
                    || self.free > 0 && w.policies.khugepaged_free == KhugepagedFree::Stay
            }
        }
    }
}
