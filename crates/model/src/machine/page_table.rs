//! A page table: directories of `levels - 1` levels above leaves of PTEs.
//!
//! A leaf stores, beside each PTE, the address space's unload count when the PTE's translation was
//! last established: that is what tells whether a CPU that went elsewhere can have cached it
//! ([`super::tlb`]). Tables exist as the kernel allocates and frees them: their presence decides
//! what a flush covers and, later, whether a huge page fits.

use crate::addr::Vpn;
use crate::arch::Arch;
use crate::ignored::Ignored;
use crate::pte::Pte;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Index of a table in its arena; 0 is "none" in a directory entry (the root is directory 0 and
/// never the child of anything).
type TableIndex = u32;

/// A directory's entries: children plus one, 0 for none.
type Directory = Box<[TableIndex]>;

/// A last-level table, but for its PTEs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Leaf {
    /// Empty while every count in it would be 0.
    since: Box<[u32]>,
    used: u32,
}

/// What a PTE was.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The PTE.
    pub old: Pte,
    /// The unload count at which its translation was established.
    pub since: u32,
}

fn same_translation(old: Pte, new: Pte) -> bool {
    match (old, new) {
        (Pte::Present(old), Pte::Present(new)) => {
            old.pfn == new.pfn && !new.protnone() && !old.protnone()
        }
        _ => false,
    }
}

/// A page table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PageTable {
    arch: Arch,
    directories: Vec<Directory>,
    leaves: Vec<Leaf>,
    /// The PTEs of all last-level tables, table after table.
    ptes: Vec<u64>,
    free_directories: Vec<TableIndex>,
    free_leaves: Vec<TableIndex>,
    last: Ignored<LastLeaf>,
}

/// The leaf found last and the span of pages it covers. It is no state: two tables are equal
/// whatever was looked up in them.
#[derive(Debug)]
struct LastLeaf(AtomicU64);

impl LastLeaf {
    /// Bits of a leaf's index; the span's number is above them.
    const BITS: u32 = 28;

    fn unknown() -> LastLeaf {
        LastLeaf(AtomicU64::new(u64::MAX))
    }

    #[inline]
    fn get(&self, span: u64) -> Option<usize> {
        let last = self.0.load(Relaxed);
        (last >> Self::BITS == span).then_some((last & ((1 << Self::BITS) - 1)) as usize)
    }

    fn set(&self, span: u64, leaf: usize) {
        let fits = leaf as u64 >> Self::BITS == 0 && span < u64::MAX >> Self::BITS;
        self.0.store(if fits { span << Self::BITS | leaf as u64 } else { u64::MAX }, Relaxed);
    }

    fn forget(&self) {
        self.0.store(u64::MAX, Relaxed);
    }
}

impl Clone for LastLeaf {
    fn clone(&self) -> LastLeaf {
        LastLeaf(AtomicU64::new(self.0.load(Relaxed)))
    }
}

impl PageTable {
    /// An empty table.
    pub fn new(arch: Arch) -> PageTable {
        PageTable {
            arch,
            directories: vec![vec![0; arch.entries()].into()],
            leaves: Vec::new(),
            ptes: Vec::new(),
            free_directories: Vec::new(),
            free_leaves: Vec::new(),
            last: Ignored(LastLeaf::unknown()),
        }
    }

    #[inline]
    fn index(&self, page: Vpn, level: u32) -> usize {
        (page.0 >> (self.arch.index_bits * (level - 1))) as usize & (self.arch.entries() - 1)
    }

    /// The directory of `level` (2 or more) that covers `page`.
    #[inline]
    fn directory(&self, page: Vpn, level: u32) -> Option<usize> {
        let mut table = 0usize;
        for above in (level + 1..=self.arch.levels).rev() {
            table = self.directories[table][self.index(page, above)].checked_sub(1)? as usize;
        }
        Some(table)
    }

    #[inline]
    fn leaf(&self, page: Vpn) -> Option<usize> {
        let span = page.0 >> self.arch.index_bits;
        match self.last.get(span) {
            Some(leaf) => Some(leaf),
            None => self.find_leaf(page, span),
        }
    }

    #[cold]
    fn find_leaf(&self, page: Vpn, span: u64) -> Option<usize> {
        let directory = self.directory(page, 2)?;
        let leaf = self.directories[directory][self.index(page, 2)].checked_sub(1)? as usize;
        self.last.set(span, leaf);
        Some(leaf)
    }

    /// Where the PTE of `page` is, whose last-level table is `leaf`.
    #[inline]
    fn place(&self, leaf: usize, page: Vpn) -> usize {
        leaf << self.arch.index_bits | self.index(page, 1)
    }

    /// Whether the last-level table of `page` exists.
    pub fn has_leaf(&self, page: Vpn) -> bool {
        self.leaf(page).is_some()
    }

    /// Whether the last-level table of `page` exists and holds nothing.
    pub fn leaf_is_empty(&self, page: Vpn) -> bool {
        self.leaf(page).is_some_and(|leaf| self.leaves[leaf].used == 0)
    }

    /// The PTE of `page`.
    #[inline]
    pub fn get(&self, page: Vpn) -> Pte {
        match self.leaf(page) {
            Some(leaf) => self.arch.codec.decode(self.ptes[self.place(leaf, page)]),
            None => Pte::None,
        }
    }

    /// Every PTE that holds something, with its page, ascending.
    pub fn entries(&self) -> Vec<(Vpn, Pte)> {
        let mut found = Vec::new();
        self.collect(0, self.arch.levels, 0, &mut found);
        found
    }

    /// The entries under a table of `level` whose first page is `start`.
    fn collect(&self, table: usize, level: u32, start: u64, found: &mut Vec<(Vpn, Pte)>) {
        let span = 1 << (self.arch.index_bits * (level - 1));
        for index in 0..self.arch.entries() {
            let page = start + index as u64 * span;
            if level > 1 {
                if let Some(child) = self.directories[table][index].checked_sub(1) {
                    self.collect(child as usize, level - 1, page, found);
                }
            } else if self.ptes[table << self.arch.index_bits | index] != 0 {
                found.push((Vpn(page), self.get(Vpn(page))));
            }
        }
    }

    /// Sets the PTE of `page` and returns what was there; `None`, changing nothing, if its table
    /// does not exist. `unloads` is the address space's unload count: a translation that is
    /// another one than before bears it from now on.
    #[inline]
    pub fn set(&mut self, page: Vpn, new: Pte, unloads: u32) -> Option<Replaced> {
        let leaf = self.leaf(page)?;
        let (place, index) = (self.place(leaf, page), self.index(page, 1));
        let (pte, leaf) = (&mut self.ptes[place], &mut self.leaves[leaf]);
        let (old_bits, new_bits) = (*pte, self.arch.codec.encode(new));
        *pte = new_bits;
        let old = self.arch.codec.decode(old_bits);
        let since = leaf.since.get(index).copied().unwrap_or(0);
        leaf.used = leaf.used + u32::from(new_bits != 0) - u32::from(old_bits != 0);
        if since != unloads && !same_translation(old, new) {
            if leaf.since.is_empty() {
                leaf.since = vec![0; self.arch.entries()].into();
            }
            leaf.since[index] = unloads;
        }
        Some(Replaced { old, since })
    }

    /// Makes the tables above and of `page` (`pte_alloc`).
    pub fn allocate(&mut self, page: Vpn) {
        let mut table = 0usize;
        for level in (3..=self.arch.levels).rev() {
            table = self.child_directory(table, self.index(page, level));
        }
        let index = self.index(page, 2);
        if self.directories[table][index] == 0 {
            let leaf = self.new_leaf();
            self.directories[table][index] = leaf + 1;
        }
    }

    /// Makes the directory of `level` (2 and up) that covers `page`, and those above it.
    pub fn allocate_directory(&mut self, page: Vpn, level: u32) {
        let mut table = 0usize;
        for above in (level + 1..=self.arch.levels).rev() {
            table = self.child_directory(table, self.index(page, above));
        }
    }

    /// Whether there is a directory of `level` (2 and up) that covers `page`.
    pub fn has_directory(&self, page: Vpn, level: u32) -> bool {
        self.directory(page, level).is_some()
    }

    fn child_directory(&mut self, table: usize, index: usize) -> usize {
        if self.directories[table][index] == 0 {
            let child = self.free_directories.pop().unwrap_or_else(|| {
                self.directories.push(vec![0; self.arch.entries()].into());
                self.directories.len() as TableIndex - 1
            });
            self.directories[table][index] = child + 1;
        }
        self.directories[table][index] as usize - 1
    }

    fn new_leaf(&mut self) -> TableIndex {
        self.free_leaves.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf::default());
            self.ptes.resize(self.ptes.len() + self.arch.entries(), 0);
            self.leaves.len() as TableIndex - 1
        })
    }

    /// Frees the table of `level` that covers `page`; returns whether there was one. Its entries
    /// must be empty.
    pub fn free(&mut self, page: Vpn, level: u32) -> bool {
        let Some(parent) = self.directory(page, level + 1) else { return false };
        let index = self.index(page, level + 1);
        let Some(child) = self.directories[parent][index].checked_sub(1) else { return false };
        self.directories[parent][index] = 0;
        self.last.forget();
        if level == 1 {
            debug_assert_eq!(self.leaves[child as usize].used, 0, "a freed leaf is empty");
            self.free_leaves.push(child);
        } else {
            debug_assert!(self.directories[child as usize].iter().all(|entry| *entry == 0));
            self.free_directories.push(child);
        }
        true
    }

    /// Moves the last-level table of `from` to where `to` has none (`move_normal_pmd`). Returns
    /// false, changing nothing, if there is nothing to move or something in the way.
    pub fn move_leaf(&mut self, from: Vpn, to: Vpn) -> bool {
        let (Some(source), Some(target)) = (self.directory(from, 2), self.directory(to, 2)) else {
            return false;
        };
        let (source_index, target_index) = (self.index(from, 2), self.index(to, 2));
        let leaf = self.directories[source][source_index];
        if leaf == 0 || self.directories[target][target_index] != 0 {
            return false;
        }
        self.last.forget();
        self.directories[source][source_index] = 0;
        self.directories[target][target_index] = leaf;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Pfn;
    use crate::arch::{TINY, X86_64};
    use crate::pte::{PresentPte, PteFlags};

    fn pte(pfn: u32) -> Pte {
        let pte = PresentPte::new(Pfn(pfn)).with(PteFlags::WRITABLE, true);
        Pte::Present(pte.with(PteFlags::ACCESSED, true))
    }

    #[test]
    fn tables_appear_and_go() {
        for arch in [X86_64, TINY] {
            let mut table = PageTable::new(arch);
            let page = Vpn(arch.user_pages() - 1);
            assert_eq!(table.set(page, pte(7), 3), None);
            table.allocate(page);
            assert_eq!(table.set(page, pte(7), 3), Some(Replaced { old: Pte::None, since: 0 }));
            assert_eq!(table.get(page), pte(7));
            assert!(!table.leaf_is_empty(page));
            assert_eq!(table.set(page, Pte::None, 4), Some(Replaced { old: pte(7), since: 3 }));
            assert!(table.leaf_is_empty(page));
            for level in 1..arch.levels {
                assert!(table.free(page, level));
                assert!(!table.free(page, level));
            }
            assert!(!table.has_leaf(page));
        }
    }

    #[test]
    fn a_leaf_moves_whole() {
        let mut table = PageTable::new(X86_64);
        table.allocate(Vpn(512));
        table.set(Vpn(513), pte(1), 0);
        table.allocate_directory(Vpn(1024), 2);
        assert!(table.move_leaf(Vpn(512), Vpn(1024)));
        assert_eq!(table.get(Vpn(1025)), pte(1));
        assert!(!table.has_leaf(Vpn(512)));
        assert!(!table.move_leaf(Vpn(512), Vpn(1024)));
    }
}
