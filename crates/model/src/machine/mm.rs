//! An address space: its mappings, its page table, who has it loaded.

use super::cpuset::CpuSet;
use super::page_table::PageTable;
use crate::addr::{PageRange, Vpn};
use crate::arch::Arch;
use crate::program::Prot;

/// A mapping (`vm_area_struct`): private anonymous memory, for now.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vma {
    /// Its pages.
    pub range: PageRange,
    /// Its protection.
    pub prot: Prot,
    /// The page number that the first page had when the mapping was made; it moves with `mremap`.
    pub pgoff: u64,
}

impl Vma {
    /// The part of it inside `range`.
    pub fn cut(&self, range: PageRange) -> Vma {
        let part = self.range.intersect(range);
        Vma { range: part, pgoff: self.pgoff + (part.start.0 - self.range.start.0), ..*self }
    }

    /// Whether `next`, which begins where this ends, can be one mapping with it.
    fn continues(&self, next: &Vma) -> bool {
        self.range.end == next.range.start
            && self.prot == next.prot
            && self.pgoff + self.range.pages() == next.pgoff
    }
}

/// The pending mark that a batched unmap leaves (`mm->tlb_flush_batched`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchedMark {
    /// Unmaps batched so far.
    pub pending: u32,
    /// Of those, how many had been batched at the last flush that the mark caused.
    pub flushed: u32,
}

/// An address space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mm {
    vmas: Vec<Vma>,
    /// Its page table.
    pub table: PageTable,
    /// CPUs that may have it loaded (`mm_cpumask`).
    pub cpumask: CpuSet,
    /// Generation of its latest flush (`context.tlb_gen`).
    pub tlb_gen: u64,
    /// Open gathers (`tlb_flush_pending`).
    pub open_gathers: u32,
    /// The pending mark.
    pub batched: BatchedMark,
    /// How often a CPU went from this address space to another.
    pub unloads: u32,
}

impl Mm {
    /// An empty address space.
    pub fn new(arch: Arch) -> Mm {
        Mm {
            vmas: Vec::new(),
            table: PageTable::new(arch),
            cpumask: CpuSet::default(),
            tlb_gen: 1,
            open_gathers: 0,
            batched: BatchedMark::default(),
            unloads: 0,
        }
    }

    /// The mapping that holds `page`.
    pub fn vma(&self, page: Vpn) -> Option<&Vma> {
        let after = self.vmas.partition_point(|vma| vma.range.start <= page);
        self.vmas[..after].last().filter(|vma| vma.range.contains(page))
    }

    /// All mappings in ascending order.
    pub fn vmas(&self) -> &[Vma] {
        &self.vmas
    }

    /// The mappings' parts inside `range`, ascending.
    pub fn vmas_in(&self, range: PageRange) -> impl Iterator<Item = Vma> + '_ {
        self.vmas.iter().filter(move |v| v.range.overlaps(range)).map(move |v| v.cut(range))
    }

    /// Whether every page of `range` is mapped.
    pub fn covers(&self, range: PageRange) -> bool {
        self.vmas_in(range).map(|vma| vma.range.pages()).sum::<u64>() == range.pages()
    }

    /// The end of the last mapping before `page` and the start of the first one at or after `end`:
    /// between them, page tables are nobody else's (`floor` and `ceiling` of `free_pgtables`).
    pub fn neighbours(&self, range: PageRange) -> (Option<Vpn>, Option<Vpn>) {
        let before = self.vmas.iter().rev().find(|vma| vma.range.end <= range.start);
        let after = self.vmas.iter().find(|vma| vma.range.start >= range.end);
        (before.map(|vma| vma.range.end), after.map(|vma| vma.range.start))
    }

    /// Takes `range` out of the mappings and puts `with` in its place, if given; adjacent mappings
    /// that continue each other become one.
    pub fn replace(&mut self, range: PageRange, with: Option<Vma>) {
        let mut vmas = Vec::with_capacity(self.vmas.len() + 2);
        for vma in &self.vmas {
            let below = PageRange { start: vma.range.start, end: vma.range.end.min(range.start) };
            let above = PageRange { start: vma.range.start.max(range.end), end: vma.range.end };
            vmas.extend([below, above].into_iter().filter(|r| !r.is_empty()).map(|r| vma.cut(r)));
        }
        vmas.extend(with);
        vmas.sort_by_key(|vma| vma.range.start);
        self.vmas.clear();
        for vma in vmas {
            match self.vmas.last_mut() {
                Some(last) if last.continues(&vma) => last.range.end = vma.range.end,
                _ => self.vmas.push(vma),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::X86_64;

    fn vma(start: u64, pages: u64, prot: Prot) -> Vma {
        Vma { range: PageRange::new(Vpn(start), pages), prot, pgoff: start }
    }

    #[test]
    fn mappings_split_and_merge() {
        let mut mm = Mm::new(X86_64);
        let all = vma(10, 10, Prot::ReadWrite);
        mm.replace(all.range, Some(all));
        let middle = vma(13, 2, Prot::Read);
        mm.replace(middle.range, Some(middle));
        assert_eq!(mm.vmas().len(), 3);
        assert_eq!(mm.vma(Vpn(14)).unwrap().prot, Prot::Read);
        assert!(mm.covers(all.range));
        mm.replace(middle.range, Some(Vma { prot: Prot::ReadWrite, ..middle }));
        assert_eq!(mm.vmas(), [all]);
        mm.replace(PageRange::new(Vpn(12), 3), None);
        assert!(!mm.covers(all.range) && mm.vma(Vpn(12)).is_none());
        let hole = PageRange::new(Vpn(12), 3);
        assert_eq!(mm.neighbours(hole), (Some(Vpn(12)), Some(Vpn(15))));
    }
}
