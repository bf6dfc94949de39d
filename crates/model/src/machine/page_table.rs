//! A page table: tables of entries, level by level.
//!
//! An entry of the last level is a PTE. An entry above it names a table of the level below, or maps
//! a huge page. For each entry, a table also stores the address space's unload count from when the
//! entry's translation was last established. This count says whether a CPU that left the address
//! space can have cached the translation ([`super::tlb`]). Tables exist from when the kernel
//! allocates them until it frees them: their presence decides what a flush covers and whether a
//! huge page fits.

use super::room::Room;
use crate::addr::{Span, TableId, Vpn};
use crate::arch::{Arch, MAX_LEVELS};
use crate::ignored::Ignored;
use crate::pte::{PresentPte, Pte};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The entry before a change, as far as processors could cache it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The translation, if the entry had one.
    pub old: Option<PresentPte>,
    /// The unload count from when the translation was established.
    pub since: u32,
}

#[inline]
fn same_translation(old: Option<PresentPte>, new: Option<PresentPte>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old.pfn == new.pfn && !new.protnone() && !old.protnone(),
        _ => false,
    }
}

/// A table without its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Table {
    /// The unload count of each entry; empty while all counts would be 0.
    since: Box<[u32]>,
    used: u32,
}

/// All tables of one level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Level {
    tables: Vec<Table>,
    /// The entries of all tables, table after table.
    entries: Vec<u64>,
    free: Vec<TableId>,
}

/// A page table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PageTable {
    arch: Arch,
    /// The levels, from the last level up. The root is the first table of the uppermost level.
    levels: [Level; MAX_LEVELS],
    last: Ignored<LastLeaf>,
    /// The number of bytes that it has taken from [`Room`].
    taken: Ignored<u64>,
}

/// The position of the entries of the last-level table that was found most recently, and the span
/// of pages that it covers. It is a cache and no state: page tables compare as equal whatever was
/// looked up in them.
///
/// It is one word. The upper bits have the span's number, the lower bits the difference between a
/// page's number and its entry's position.
#[derive(Debug)]
struct LastLeaf(AtomicU64);

impl LastLeaf {
    /// The number of bits of a position among all entries of the level.
    const BITS: u32 = 28;
    const PLACES: u64 = (1 << LastLeaf::BITS) - 1;

    /// The empty cache: no address space has a span with that number.
    fn unknown() -> LastLeaf {
        LastLeaf(AtomicU64::new(u64::MAX))
    }

    /// The position of the entry of `page`, which is in span number `span`; `None` if the cache has
    /// another span.
    #[inline(always)]
    fn get(&self, page: Vpn, span: u64) -> Option<usize> {
        let last = self.0.load(Relaxed);
        let place = page.0.wrapping_add(last) & LastLeaf::PLACES;
        (last >> LastLeaf::BITS == span).then_some(place as usize)
    }

    fn set(&self, page: Vpn, span: u64, place: usize) {
        let fits = place as u64 <= LastLeaf::PLACES && span < u64::MAX >> LastLeaf::BITS;
        let difference = (place as u64).wrapping_sub(page.0) & LastLeaf::PLACES;
        self.0.store(if fits { span << LastLeaf::BITS | difference } else { u64::MAX }, Relaxed);
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

/// A table during a walk over its entries.
struct Walked {
    /// The first page that the table covers.
    first: Vpn,
    /// The positions that are still to be looked at.
    places: Range<usize>,
    /// The number of entries among them that are not empty.
    left: u32,
}

impl PageTable {
    /// An empty page table.
    pub fn new(arch: Arch) -> PageTable {
        let (last, taken) = (Ignored(LastLeaf::unknown()), Ignored(0));
        let mut table = PageTable { arch, levels: Default::default(), last, taken };
        table.new_table(arch.levels(), &Room::UNBOUNDED);
        table.taken = Ignored(0);
        table
    }

    /// The number of bytes that were taken for it, without the root.
    pub fn taken(&self) -> u64 {
        *self.taken
    }

    #[inline]
    fn level(&self, level: u32) -> &Level {
        &self.levels[level as usize - 1]
    }

    #[inline]
    fn level_mut(&mut self, level: u32) -> &mut Level {
        &mut self.levels[level as usize - 1]
    }

    /// The index of the entry that covers `page` in a table of `level`.
    #[inline]
    fn index(&self, page: Vpn, level: u32) -> usize {
        (page.0 >> self.arch.order(level)) as usize & (self.arch.entries(level) - 1)
    }

    /// The position of that entry among all entries of the level.
    #[inline]
    fn place(&self, table: TableId, page: Vpn, level: u32) -> usize {
        table.index() << self.arch.bits(level) | self.index(page, level)
    }

    #[inline(always)]
    fn entry(&self, place: usize, level: u32) -> Pte {
        self.arch.codec.decode(self.level(level).entries[place], level)
    }

    /// The table of `level` that covers `page`. If there is none, the entry at which the descent
    /// ends, and its level.
    fn descend(&self, page: Vpn, level: u32) -> Result<TableId, (Pte, u32)> {
        let (mut table, mut at) = (TableId(0), self.arch.levels());
        while at > level {
            match self.entry(self.place(table, page, at), at) {
                Pte::Table(child) => table = child,
                other => return Err((other, at)),
            }
            at -= 1;
        }
        Ok(table)
    }

    #[inline]
    fn table(&self, page: Vpn, level: u32) -> Option<TableId> {
        if level == 1 {
            self.leaf(page).map(|place| self.table_at(place, 1))
        } else {
            self.descend(page, level).ok()
        }
    }

    /// The table of `level` that contains the entry at that position.
    #[inline]
    fn table_at(&self, place: usize, level: u32) -> TableId {
        TableId((place >> self.arch.bits(level)) as u32)
    }

    /// The position of the last-level entry of `page`, if its table exists.
    #[inline(always)]
    fn leaf(&self, page: Vpn) -> Option<usize> {
        let span = page.0 >> self.arch.bits(1);
        match self.last.get(page, span) {
            Some(place) => Some(place),
            None => self.find_leaf(page, span),
        }
    }

    #[cold]
    fn find_leaf(&self, page: Vpn, span: u64) -> Option<usize> {
        let place = self.place(self.descend(page, 1).ok()?, page, 1);
        self.last.set(page, span, place);
        Some(place)
    }

    /// Whether the table of `level` that would cover `page` exists.
    pub fn has_table(&self, page: Vpn, level: u32) -> bool {
        self.table(page, level).is_some()
    }

    /// The level of the lowest table that covers `page`.
    pub fn lowest_table(&self, page: Vpn) -> u32 {
        let top = self.arch.levels();
        (1..top).find(|level| self.has_table(page, *level)).unwrap_or(top)
    }

    /// Whether the table of `level` that covers `page` exists and is empty.
    pub fn is_empty(&self, page: Vpn, level: u32) -> bool {
        let table = self.table(page, level);
        table.is_some_and(|table| self.level(level).tables[table.index()].used == 0)
    }

    /// The PTE of `page`: the last-level entry, if there is a last-level table.
    #[inline(always)]
    pub fn get(&self, page: Vpn) -> Pte {
        self.leaf(page).map_or(Pte::None, |place| self.entry(place, 1))
    }

    /// The translation of `page` at the last level. The outer `None` means that there is no such
    /// table.
    #[inline(always)]
    pub fn in_leaf(&self, page: Vpn) -> Option<Option<PresentPte>> {
        let codec = self.arch.codec;
        self.leaf(page).map(|place| codec.translation(self.level(1).entries[place], 1))
    }

    /// The translation that a walk for `page` finds, if any, and the pages of its entry.
    #[inline]
    pub fn walk(&self, page: Vpn) -> (Option<PresentPte>, Span) {
        match self.in_leaf(page) {
            Some(translation) => (translation, Span::one(page)),
            None => self.walk_above(page),
        }
    }

    #[cold]
    fn walk_above(&self, page: Vpn) -> (Option<PresentPte>, Span) {
        let (pte, level) = self.descend(page, 1).err().unwrap_or((Pte::None, 1));
        (pte.present(), Span::around(page, self.arch.order(level)))
    }

    /// The entry that the descent to `page` ends at, whatever it contains, and the pages of this
    /// entry.
    pub fn find(&self, page: Vpn) -> (Pte, Span) {
        let span = page.0 >> self.arch.bits(1);
        let place = match self.last.get(page, span) {
            Some(place) => place,
            None => match self.descend(page, 1) {
                Ok(table) => {
                    let place = self.place(table, page, 1);
                    self.last.set(page, span, place);
                    place
                }
                Err((pte, level)) => return (pte, Span::around(page, self.arch.order(level))),
            },
        };
        (self.entry(place, 1), Span::one(page))
    }

    /// The number of tables without the root.
    pub fn tables(&self) -> u64 {
        let below = &self.levels[..self.arch.levels() as usize - 1];
        below.iter().map(|level| (level.tables.len() - level.free.len()) as u64).sum()
    }

    /// Every entry that is not empty and names no table, with its pages, in ascending order.
    pub fn entries(&self) -> impl Iterator<Item = (Span, Pte)> + '_ {
        self.entries_of_levels_from(1)
    }

    /// The entries of [`PageTable::entries`] above the last level. Each is for a huge page.
    pub fn huge_entries(&self) -> impl Iterator<Item = (Span, Pte)> + '_ {
        self.entries_of_levels_from(2)
    }

    fn entries_of_levels_from(&self, lowest: u32) -> impl Iterator<Item = (Span, Pte)> + '_ {
        // The tables on the way down. Most of a table is usually empty, and tests look at all
        // entries after every operation.
        let mut way = vec![self.walk_of(TableId(0), Vpn(0), self.arch.levels())];
        std::iter::from_fn(move || {
            loop {
                let level = self.arch.levels() + 1 - way.len() as u32;
                let table = way.last_mut()?;
                let rest = &self.level(level).entries[table.places.clone()];
                let Some(empty) = rest[..].iter().position(|entry| *entry != 0) else {
                    way.pop();
                    continue;
                };
                let place = table.places.start + empty;
                table.left -= 1;
                // The entries after the last one in use are empty.
                table.places.start = if table.left == 0 { table.places.end } else { place + 1 };
                let (order, index) =
                    (self.arch.order(level), place & (self.arch.entries(level) - 1));
                let page = table.first.add((index as u64) << order);
                match self.entry(place, level) {
                    Pte::None => {}
                    Pte::Table(child) if level > lowest => {
                        way.push(self.walk_of(child, page, level - 1));
                    }
                    Pte::Table(_) => {}
                    pte => return Some((Span::around(page, order), pte)),
                }
            }
        })
    }

    /// The table of `level` whose first page is `first`, before any of its entries was looked at.
    fn walk_of(&self, table: TableId, first: Vpn, level: u32) -> Walked {
        let start = self.place(table, first, level);
        let left = self.level(level).tables[table.index()].used;
        let end = if left == 0 { start } else { start + self.arch.entries(level) };
        Walked { first, places: start..end, left }
    }

    /// Sets the PTE of `page` and returns the translation that was there. If its table does not
    /// exist, returns `None` and changes nothing. `unloads` is the address space's unload count,
    /// which is stored if the translation is a new one.
    #[inline(always)]
    pub fn set(&mut self, page: Vpn, new: Pte, unloads: u32) -> Option<Replaced> {
        let place = self.leaf(page)?;
        Some(self.replace(place, 1, new, unloads))
    }

    /// Sets the entry of `level` (2 and up), which may map a huge page, as [`PageTable::set`] does.
    /// Also returns `None`, and changes nothing, if the entry names a table.
    pub fn set_huge(&mut self, page: Vpn, level: u32, new: Pte, unloads: u32) -> Option<Replaced> {
        let place = self.place(self.table(page, level)?, page, level);
        if let Pte::Table(_) = self.entry(place, level) {
            return None;
        }
        Some(self.replace(place, level, new, unloads))
    }

    /// The compiler knows the level at each call, so it can evaluate most of this in advance.
    #[inline(always)]
    fn replace(&mut self, place: usize, level: u32, new: Pte, unloads: u32) -> Replaced {
        let (table, entries) = (self.table_at(place, level), self.arch.entries(level));
        let (codec, index) = (self.arch.codec, place & (entries - 1));
        let Level { tables, entries: stored, .. } = self.level_mut(level);
        let (entry, table) = (&mut stored[place], &mut tables[table.index()]);
        let (old_bits, new_bits) = (*entry, codec.encode(new, level));
        *entry = new_bits;
        let old = codec.translation(old_bits, level);
        let since = table.since.get(index).copied().unwrap_or(0);
        table.used = table.used + u32::from(new_bits != 0) - u32::from(old_bits != 0);
        if since != unloads && !same_translation(old, new.present()) {
            if table.since.is_empty() {
                table.since = vec![0; entries].into();
            }
            table.since[index] = unloads;
        }
        Replaced { old, since }
    }

    /// Creates the table of `level` that covers `page`, and the tables above it (`pte_alloc`),
    /// unless a huge page is there. Returns the number of tables created; `None` if there is no
    /// memory for one of them.
    #[inline]
    pub fn allocate(&mut self, page: Vpn, level: u32, room: &Room) -> Option<u32> {
        if self.leaf(page).is_none() { self.allocate_down_to(page, level, room) } else { Some(0) }
    }

    #[inline(never)]
    fn allocate_down_to(&mut self, page: Vpn, level: u32, room: &Room) -> Option<u32> {
        let (mut table, mut at, mut made) = (TableId(0), self.arch.levels(), 0);
        while at > level {
            let place = self.place(table, page, at);
            table = match self.entry(place, at) {
                Pte::Table(child) => child,
                Pte::None => {
                    let child = self.new_table(at - 1, room)?;
                    self.replace(place, at, Pte::Table(child), 0);
                    made += 1;
                    child
                }
                _ => break,
            };
            at -= 1;
        }
        Some(made)
    }

    /// Adds a table; `None` if there is no memory for it.
    fn new_table(&mut self, level: u32, room: &Room) -> Option<TableId> {
        let entries = self.arch.entries(level);
        let level = self.level_mut(level);
        if let Some(free) = level.free.pop() {
            return Some(free);
        }
        // This is taken in addition to the lists: the counts in `since`, and an entry on the list
        // of free tables.
        let beside = (entries as u64 + 2) * size_of::<u32>() as u64;
        let lists = room.make(&mut level.tables, 1)? + room.make(&mut level.entries, entries)?;
        room.take(beside).then_some(())?;
        level.tables.push(Table::default());
        level.entries.resize(level.entries.len() + entries, 0);
        let made = TableId(level.tables.len() as u32 - 1);
        *self.taken += lists + beside;
        Some(made)
    }

    /// Frees the table of `level` that covers `page`, whose entries must be empty. Returns whether
    /// there was one.
    pub fn free(&mut self, page: Vpn, level: u32) -> bool {
        let Some(child) = self.table(page, level) else { return false };
        debug_assert!(self.is_empty(page, level), "a freed table is empty");
        self.unlink(page, level);
        self.level_mut(level).free.push(child);
        true
    }

    /// Removes the table of `level` from the table above it.
    fn unlink(&mut self, page: Vpn, level: u32) {
        if let Some(parent) = self.table(page, level + 1) {
            self.replace(self.place(parent, page, level + 1), level + 1, Pte::None, 0);
        }
        self.last.forget();
    }

    /// Moves the last-level table of `from` to `to`, where there must be none (`move_normal_pmd`).
    /// Returns false, and changes nothing, if there is no table to move or the target is not empty.
    pub fn move_leaf(&mut self, from: Vpn, to: Vpn) -> bool {
        let (Some(leaf), Some(target)) = (self.table(from, 1), self.table(to, 2)) else {
            return false;
        };
        let target = self.place(target, to, 2);
        if !self.entry(target, 2).is_none() {
            return false;
        }
        self.unlink(from, 1);
        self.replace(target, 2, Pte::Table(leaf), 0);
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
            table.allocate(page, 1, &Room::UNBOUNDED);
            assert_eq!(table.set(page, pte(7), 3), Some(Replaced { old: None, since: 0 }));
            assert_eq!(table.get(page), pte(7));
            assert!(!table.is_empty(page, 1));
            assert_eq!(
                table.set(page, Pte::None, 4),
                Some(Replaced { old: pte(7).present(), since: 3 })
            );
            assert!(table.is_empty(page, 1));
            for level in 1..arch.levels() {
                assert!(table.free(page, level));
                assert!(!table.free(page, level));
            }
            assert!(!table.has_table(page, 1));
        }
    }

    #[test]
    fn a_leaf_moves_whole() {
        let mut table = PageTable::new(X86_64);
        table.allocate(Vpn(512), 1, &Room::UNBOUNDED);
        table.set(Vpn(513), pte(1), 0);
        table.allocate(Vpn(1024), 2, &Room::UNBOUNDED);
        assert!(table.move_leaf(Vpn(512), Vpn(1024)));
        assert_eq!(table.get(Vpn(1025)), pte(1));
        assert!(!table.has_table(Vpn(512), 1));
        assert!(!table.move_leaf(Vpn(512), Vpn(1024)));
        table.allocate(Vpn(512), 1, &Room::UNBOUNDED);
        table.set(Vpn(513), pte(2), 0);
        assert!(!table.move_leaf(Vpn(512), Vpn(1024)), "there is a table in the way");
        assert_eq!((table.get(Vpn(513)), table.get(Vpn(1025))), (pte(2), pte(1)));
    }

    /// All entries in use are found in order, whatever was there in the meantime.
    #[test]
    fn entries_are_told_in_order() {
        for arch in [X86_64, TINY] {
            let mut table = PageTable::new(arch);
            assert_eq!(table.entries().count(), 0);
            let (width, all) = (arch.entries(1) as u64, arch.user_pages());
            let pages = [0, 1, width - 1, width, 3 * width + 1, all - 1].map(Vpn);
            for page in pages {
                table.allocate(page, 1, &Room::UNBOUNDED);
                table.set(page, pte(page.0 as u32 & 7), 0);
            }
            let told =
                |table: &PageTable| table.entries().map(|(span, _)| span).collect::<Vec<_>>();
            assert_eq!(told(&table), pages.map(Span::one));
            assert!(table.entries().all(|(span, pte)| table.get(span.start) == pte));
            assert_eq!(table.huge_entries().count(), 0);
            for page in [pages[0], pages[3]] {
                table.set(page, Pte::None, 1);
            }
            assert!(table.free(pages[3], 1));
            let huge = Span::around(pages[3], arch.order(2));
            table.set_huge(pages[3], 2, pte(64), 1);
            let [_, one, last, _, third, end] = pages.map(Span::one);
            assert_eq!(told(&table), [one, last, huge, third, end]);
            assert_eq!(table.huge_entries().collect::<Vec<_>>(), [(huge, pte(64))]);
        }
    }

    /// The cached position is right for each page of its table and for no other page.
    #[test]
    fn the_table_found_last() {
        let last = LastLeaf::unknown();
        let found = |page: u64| last.get(Vpn(page), page >> 9);
        assert_eq!([found(0), found(513), found(u64::MAX)], [None; 3]);
        for (table, span) in [(0, 0), (3, 1), (1, 3), (LastLeaf::PLACES >> 9, 1 << 26)] {
            let (first, place) = (span << 9, (table << 9) as usize);
            last.set(Vpn(first + 5), span, place + 5);
            assert_eq!((found(first), found(first + 511)), (Some(place), Some(place + 511)));
            assert_eq!((found(first.wrapping_sub(1)), found(first + 512)), (None, None));
        }
        // These are too large for the word.
        for (span, place) in [(1, 1 << LastLeaf::BITS), (1 << 40, 0)] {
            last.set(Vpn(span << 9), span, place);
            assert_eq!(found(span << 9), None);
        }
    }

    /// A huge page is one entry of the level above the last. It is found from each of its pages. No
    /// table fits where it is, and it fits only where there is no table.
    #[test]
    fn a_huge_page_is_one_entry() {
        for (arch, level) in [(TINY, 2), (X86_64, 2), (X86_64, 3)] {
            let mut table = PageTable::new(arch);
            let pages = 1 << arch.order(level);
            let (first, last) = (Vpn(pages), Vpn(2 * pages - 1));
            assert_eq!(table.set_huge(last, level, pte(64), 3), None, "no table to hold it");
            table.allocate(last, level, &Room::UNBOUNDED);
            let replaced = table.set_huge(last, level, pte(64), 3);
            assert_eq!(replaced, Some(Replaced { old: None, since: 0 }));
            let span = Span { start: first, order: arch.order(level) };
            for page in [first, last] {
                assert_eq!(table.walk(page), (pte(64).present(), span), "{}", arch.name);
                assert_eq!((table.get(page), table.has_table(page, level - 1)), (Pte::None, false));
            }
            assert_eq!(table.entries().collect::<Vec<_>>(), [(span, pte(64))]);
            table.allocate(first, level - 1, &Room::UNBOUNDED);
            assert!(!table.has_table(first, level - 1), "a huge page is in the way");

            table.allocate(Vpn(0), level - 1, &Room::UNBOUNDED);
            assert_eq!(table.set_huge(Vpn(0), level, pte(0), 3), None, "a table is in the way");
            let replaced = table.set_huge(first, level, Pte::None, 4);
            assert_eq!(replaced, Some(Replaced { old: pte(64).present(), since: 3 }));
            assert_eq!(table.walk(first).0, None);
        }
    }
}
