//! Walks of page tables without a lock: the table that a CPU reads with interrupts off, and what
//! happens to this table meanwhile.
//!
//! A walk finds the table once and continues to read it, wherever it is by then. A table that a
//! gather frees stays unchanged, and empty, until every such walk is over (RCU). A table that a
//! collapse takes out keeps its entries until they are copied, and is deposited afterwards. Its
//! next use is for other pages, or by someone else.
//!
//! Source: mm/gup.c:gup_fast (local_irq_save; lockless_pages_from_mm in 5.10 and 6.1),
//! mm/mmu_gather.c:tlb_remove_table_free; mm/pgtable-generic.c:pgtable_trans_huge_deposit,
//! pgtable_trans_huge_withdraw (the table deposited last is withdrawn first).

use super::world::{At, Ghost, Mode, World};
use crate::addr::{MmId, PageRange, ThreadId, Vpn};
use crate::policy::Mutant;
use crate::pte::Pte;

/// A walk that a CPU is in. Until it ends, the CPU answers no interrupt and runs no other thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Walk {
    /// The thread that walks.
    pub thread: ThreadId,
    /// The address space whose page table is read.
    pub mm: MmId,
    /// The first page of the range that one last-level table maps.
    pub start: Vpn,
    /// The location of the last-level table that the walk found.
    pub table: Walked,
}

/// The location of a page table that a walk found.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Walked {
    /// It is part of the page table, for the pages from this one on.
    At(Vpn),
    /// It was taken out of the page table, where it was for the pages from this one on.
    Out(Vpn),
    /// It is deposited, above this many others.
    PutBy(u32),
    /// It was freed, or others use it.
    GivenBack,
}

/// A table that was taken out of the page table to be copied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TakenTable {
    /// The pages that the table maps.
    pub pages: PageRange,
    /// The entries that are not empty.
    pub entries: Vec<(Vpn, Pte)>,
}

impl<M: Mode> World<M> {
    /// Begins a walk: the CPU's interrupts are off, and it has found the table of `page`.
    pub fn walk_begins(&mut self, at: At, mm: MmId, page: Vpn) {
        let start = self.arch.huge_pages(page).start;
        let table = Walked::At(start);
        self.cpus[at.cpu.index()].walk = Some(Walk { thread: at.thread, mm, start, table });
    }

    /// Ends the walk: the CPU's interrupts are on again.
    pub fn walk_ends(&mut self, at: At) {
        self.cpus[at.cpu.index()].walk = None;
    }

    /// The entry for `page` in the table that the CPU's walk found.
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

    /// Whether the page table has this table at the page's place, still or again (`pmd_val(pmd) ==
    /// pmd_val(*pmdp)`).
    pub fn is_walk_current(&self, at: At) -> bool {
        let unchecked = self.policies.mutant == Mutant::WalkPmdUnchecked;
        let walk = self.cpus[at.cpu.index()].walk;
        walk.is_some_and(|walk| unchecked || walk.table == Walked::At(walk.start))
    }

    /// Notes for all walks that a table changed its location.
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
