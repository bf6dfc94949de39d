//! Huge pages in the world: entries above the last level, the folios that they map, and the tables
//! deposited for them.

use super::lockless::Walked;
use super::mm::Mm;
use super::world::{At, Ghost, Log, Mode, World};
use crate::addr::{MmId, Pfn, Span, Vpn};
use crate::event::EventKind;
use crate::lock::Lock;
use crate::pte::{MigrationPte, Pmd, PresentPte, Pte};
use crate::site::Site;

impl<M: Mode> World<M> {
    /// The entry for `page`: its PTE, or the PTE that it would have if the huge page were mapped
    /// page by page.
    pub fn page_entry(&self, mm: MmId, page: Vpn) -> Pte {
        match self.mms[mm.index()].table.find(page) {
            (Pte::Present(pte), pages) => {
                Pte::Present(PresentPte { pfn: pte.pfn.of_page(pages, page), ..pte })
            }
            (Pte::Migration(entry), pages) => {
                Pte::Migration(MigrationPte { pfn: entry.pfn.of_page(pages, page), ..entry })
            }
            (other, _) => other,
        }
    }

    /// The huge page's entry around `page`, if there is one.
    #[inline]
    pub fn pmd(&self, mm: MmId, page: Vpn) -> Option<Pmd> {
        match self.mms[mm.index()].table.find(page) {
            (_, pages) if pages.order == 0 => None,
            (Pte::Present(pmd), _) => Some(Pmd::Mapped(pmd)),
            (Pte::Migration(entry), _) => Some(Pmd::Migrating(entry)),
            _ => None,
        }
    }

    /// The translation of the huge page around `page`, if there is one.
    #[inline]
    pub fn huge_page(&self, mm: MmId, page: Vpn) -> Option<PresentPte> {
        match self.pmd(mm, page) {
            Some(Pmd::Mapped(pmd)) => Some(pmd),
            Some(Pmd::Migrating(_)) | None => None,
        }
    }

    /// The frame `pages` after the first frame of a huge page.
    pub const fn frame_in(&self, first: Pfn, pages: u64) -> Pfn {
        Pfn(first.0 + pages as u32)
    }

    /// The huge page around `page`.
    pub const fn huge_span(&self, page: Vpn) -> Span {
        Span::around(page, self.arch.order(2))
    }

    /// Sets the entry for the huge page around `page`. The old and the new entry name no table. The
    /// table that contains the entry must exist, and the caller must hold its lock.
    pub fn set_pmd(&mut self, at: At, mm: MmId, page: Vpn, new: Pte) {
        if !self.ghost.holds(at.thread, Lock::pmd(&self.arch, mm, page)) {
            self.impossible(
                at,
                "an entry for a huge page was changed without the lock of its table",
            );
        }
        let pages = self.huge_span(page);
        if self.log.wants_ptes() {
            self.emit_pte(
                at,
                pages.start,
                self.huge_page(mm, page).map_or(Pte::None, Pte::Present),
                new,
            );
        }
        if new.present().is_some() {
            pages.range().iter().for_each(|page| self.ghost.mapped(at.thread, mm, page));
        }
        let space: &mut Mm = &mut self.mms[mm.index()];
        let replaced = space.table.set_huge(pages.start, 2, new, space.unloads);
        self.replaced(at, mm, pages, new.present(), replaced);
    }

    /// Turns the entry for the huge page around `page` into a table, one that was deposited when
    /// the huge page was mapped (`pmd_populate`). Before, the entry must not contain anything that
    /// a CPU could use. `pte` gives the new table's entries.
    pub fn populate_pmd(
        &mut self,
        at: At,
        mm: MmId,
        page: Vpn,
        mut pte: impl FnMut(&mut World<M>, Vpn) -> Pte,
    ) {
        self.set_pmd(at, mm, page, Pte::None);
        self.withdraw(at, mm, Some(self.huge_span(page).start));
        // This is the deposited table. If there is no memory, the run ends at the next check.
        let _ = self.mms[mm.index()].table.allocate(page, 1, &self.room);
        for page in self.huge_span(page).range().iter() {
            let new = pte(self, page);
            if self.log.wants_ptes() {
                self.emit_pte(at, page, Pte::None, new);
            }
            let space: &mut Mm = &mut self.mms[mm.index()];
            let replaced = space.table.set(page, new, space.unloads);
            self.replaced(at, mm, Span::one(page), new.present(), replaced);
        }
    }

    /// Deposits a table for the time when a huge page will be mapped page by page
    /// (`pgtable_trans_huge_deposit`).
    pub fn deposit(&mut self, mm: MmId) {
        self.mms[mm.index()].deposited += 1;
    }

    /// Takes the last deposited table (`pgtable_trans_huge_withdraw`): for the pages from `to` on,
    /// or (`None`) back to the allocator.
    pub fn withdraw(&mut self, at: At, mm: MmId, to: Option<Vpn>) {
        match self.mms[mm.index()].deposited.checked_sub(1) {
            Some(left) => {
                self.mms[mm.index()].deposited = left;
                let becomes = to.map_or(Walked::GivenBack, Walked::At);
                self.table_becomes(mm, Walked::PutBy(left), becomes);
            }
            None => self.impossible(
                at,
                "a page table was withdrawn for a huge page, but none was deposited",
            ),
        }
    }

    /// Removes one mapping of the folio as a whole.
    pub fn drop_whole_mapping(&mut self, at: At, folio: Pfn) {
        match self.frames.whole_maps(folio) {
            0 => self.impossible(at, "a mapping of a folio was dropped that did not exist"),
            _ => self.frames.count_whole_map(folio, -1),
        }
    }

    /// Frees a large folio that is no longer mapped.
    #[cold]
    pub(super) fn free_folio(&mut self, at: At, frame: Pfn) {
        if self.frames.folio_maps(frame) != 0 {
            return self.impossible(at, "the last reference to a folio in use was dropped");
        }
        let pages = self.frames.pages_of_folio(frame);
        self.lru_forget(self.frames.folio(frame).0);
        self.frames.release(frame);
        for frame in pages {
            self.ghost.freed(frame);
            self.emit(at.site(Site::FolioPut), EventKind::Free { frame });
        }
    }
}
