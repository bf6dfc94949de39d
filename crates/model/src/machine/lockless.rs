//! Walks of page tables without a lock: which table a CPU reads with interrupts off, and what becomes of the table meanwhile.
//!
//! The walk has found the table once and goes on reading it, wherever it is by then. Tables that a gather frees stay as they are,
//! empty, until every such walk is over (RCU). The one that a collapse takes out holds its entries until they are
//! copied, and is put by afterwards: its next use is for other pages, or somebody else's.
//!
//! Source: mm/gup.c:gup_fast (local_irq_save; lockless_pages_from_mm in 5.10 and 6.1), mm/mmu_gather.c:tlb_remove_table_free;
//! mm/pgtable-generic.c:pgtable_trans_huge_deposit, pgtable_trans_huge_withdraw (what was put by last goes first).

use super::world::{At, Ghost, Mode, World};
use crate::addr::{MmId, PageRange, ThreadId, Vpn};
use crate::policy::Mutant;
use crate::pte::Pte;

/// A walk that a CPU is in the middle of. Meanwhile it answers no interrupt, and no other thread runs there.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Walk {
    /// Who walks.
    pub thread: ThreadId,
    /// In which address space.
    pub mm: MmId,
    /// The first page of the huge page's worth that it looks at.
    pub start: Vpn,
    /// The last-level table that it has found.
    pub table: Walked,
}

/// Where a page table is that a walk has found.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Walked {
    /// In the page table, for the pages from there on.
    At(Vpn),
    /// It was taken out from there.
    Out(Vpn),
    /// It is put by, on top of so many others.
    PutBy(u32),
    /// It went back to the allocator, or is in use by others.
    GivenBack,
}

/// What a table holds that was taken out of the page table to be copied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TakenTable {
    /// Its pages.
    pub pages: PageRange,
    /// The entries that are not empty.
    pub entries: Vec<(Vpn, Pte)>,
}

impl<M: Mode> World<M> {
    /// The CPU's interrupts are off from here on, and it has found the table of `page`.
    pub fn walk_begins(&mut self, at: At, mm: MmId, page: Vpn) {
        let start = self.arch.huge_pages(page).start;
        let table = Walked::At(start);
        self.cpus[at.cpu.index()].walk = Some(Walk { thread: at.thread, mm, start, table });
    }

    /// They are on again.
    pub fn walk_ends(&mut self, at: At) {
        self.cpus[at.cpu.index()].walk = None;
    }

    /// What the table that the CPU's walk has found says of `page`.
    pub fn walked_pte(&mut self, at: At, page: Vpn) -> Pte {
        let Some(Walk { mm, start, table, .. }) = self.cpus[at.cpu.index()].walk else {
            self.impossible(at, "a page table was read without a lock and with interrupts on");
            return Pte::None;
        };
        match table {
            Walked::At(there) => self.pte(mm, there.add(page.since(start))),
            Walked::Out(there) => {
                let page = there.add(page.since(start));
                let taken = self.mms[mm.index()].taken.iter().flat_map(|taken| &taken.entries);
                taken.copied().find(|(of, _)| *of == page).map_or(Pte::None, |(_, pte)| pte)
            }
            Walked::PutBy(_) => Pte::None,
            Walked::GivenBack => {
                self.ghost.given_back_read(at.cpu, mm, page);
                Pte::None
            }
        }
    }

    /// Whether the table is the one of the page, still or again (`pmd_val(pmd) == pmd_val(*pmdp)`).
    pub fn is_walk_current(&self, at: At) -> bool {
        let unchecked = self.policies.mutant == Mutant::WalkPmdUnchecked;
        let walk = self.cpus[at.cpu.index()].walk;
        walk.is_some_and(|walk| unchecked || walk.table == Walked::At(walk.start))
    }

    /// A table is somewhere else from now on.
    pub fn table_becomes(&mut self, mm: MmId, from: Walked, to: Walked) {
        let found = |walk: &Option<_>| matches!(walk, Some(Walk { mm: of, table, .. }) if (*of, *table) == (mm, from));
        for index in 0..self.cpus.len() {
            if found(&self.cpus[index].walk)
                && let Some(walk) = &mut self.cpus[index].walk
            {
                walk.table = to;
            }
        }
    }
}
