//! Addresses and identifiers.
//!
//! Each is a newtype with explicit conversions, so nobody can mistake a page number for a byte
//! address, or a CPU for a thread.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes in a base page. Every architecture modelled here uses 4 KiB base pages.
pub const PAGE_SIZE: u64 = 4096;

/// A virtual page number: a user virtual address divided by [`PAGE_SIZE`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Vpn(pub u64);

impl Vpn {
    /// The page that holds byte address `address`.
    pub const fn containing(address: u64) -> Vpn {
        Vpn(address / PAGE_SIZE)
    }

    /// The byte address of the first byte of the page.
    pub const fn address(self) -> u64 {
        self.0 * PAGE_SIZE
    }

    /// The page `pages` further on.
    pub const fn add(self, pages: u64) -> Vpn {
        Vpn(self.0 + pages)
    }

    /// The number of pages from `start` to this page.
    pub const fn since(self, start: Vpn) -> u64 {
        self.0 - start.0
    }
}

impl fmt::Display for Vpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address())
    }
}

/// A half-open range of virtual pages.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PageRange {
    /// The first page.
    pub start: Vpn,
    /// One past the last page.
    pub end: Vpn,
}

impl PageRange {
    /// `pages` pages from `start`.
    pub const fn new(start: Vpn, pages: u64) -> PageRange {
        PageRange { start, end: Vpn(start.0 + pages) }
    }

    /// The range that holds `page` alone.
    pub const fn one(page: Vpn) -> PageRange {
        PageRange::new(page, 1)
    }

    /// The number of pages.
    pub const fn pages(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether the range has no page.
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether `page` lies inside.
    pub const fn contains(self, page: Vpn) -> bool {
        page.0 >= self.start.0 && page.0 < self.end.0
    }

    /// Whether the two ranges share a page.
    pub const fn overlaps(self, other: PageRange) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0
    }

    /// The pages that both ranges contain (an empty range if there are none).
    pub fn intersect(self, other: PageRange) -> PageRange {
        PageRange { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// The smallest range that contains both. An empty range adds nothing.
    pub fn hull(self, other: PageRange) -> PageRange {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => PageRange { start: self.start.min(other.start), end: self.end.max(other.end) },
        }
    }

    /// The pages in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Vpn> + Clone {
        (self.start.0..self.end.0).map(Vpn)
    }
}

/// The pages that one translation maps: a power of two of them, aligned to their number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// The first page.
    pub start: Vpn,
    /// The number of pages as a power of two (0: a base page).
    pub order: u8,
}

impl Span {
    /// The pages around `page` that one translation of this order maps.
    #[inline]
    pub const fn around(page: Vpn, order: u8) -> Span {
        Span { start: Vpn(page.0 >> order << order), order }
    }

    /// `page` alone.
    #[inline]
    pub const fn one(page: Vpn) -> Span {
        Span { start: page, order: 0 }
    }

    /// The span's pages.
    #[inline]
    pub const fn range(self) -> PageRange {
        PageRange::new(self.start, 1 << self.order)
    }

    /// Whether `page` is one of the span's pages.
    #[inline]
    pub const fn contains(self, page: Vpn) -> bool {
        page.0 >> self.order == self.start.0 >> self.order
    }
}

/// A page frame number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Pfn(pub u32);

impl Pfn {
    /// The frame of `page`, if this is the frame of the first page of `span`.
    #[inline]
    pub const fn of_page(self, span: Span, page: Vpn) -> Pfn {
        Pfn(self.0 + page.since(span.start) as u32)
    }
}

/// A table of a page table: its number among the tables of its level.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TableId(pub u32);

impl TableId {
    /// The table as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A CPU, by Linux's number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct CpuId(pub u16);

impl CpuId {
    /// The CPU as an index into per-CPU arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}

/// A thread of the scenario, by its position in the scenario's declarations.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ThreadId(pub u16);

impl ThreadId {
    /// The thread as an index into the scenario's threads.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A process of the scenario, by its position in the scenario's declarations.
#[derive(
    Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize,
)]
pub struct ProcessId(pub u16);

impl ProcessId {
    /// The process that exists from the start.
    pub const FIRST: ProcessId = ProcessId(0);

    /// The process as an index into the scenario's processes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A pin that a scenario names, by its number.
#[derive(
    Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize,
)]
pub struct PinId(pub u16);

impl PinId {
    /// The pin as an index into the scenario's pins.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An address space (`mm_struct`).
#[derive(
    Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize,
)]
pub struct MmId(pub u16);

impl MmId {
    /// The address space as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A NUMA node.
#[derive(
    Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize,
)]
pub struct NodeId(pub u16);

impl NodeId {
    /// The node as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The object that memory belongs to: a file, shared memory, or an `anon_vma`. 0 means none.
#[derive(Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub u16);

impl ObjectId {
    /// The object as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hull_ignores_empty_ranges() {
        let empty = PageRange::new(Vpn(90), 0);
        let some = PageRange::new(Vpn(3), 2);
        assert_eq!(empty.hull(some), some);
        assert_eq!(some.hull(empty), some);
        assert_eq!(some.hull(PageRange::one(Vpn(66))), PageRange::new(Vpn(3), 64));
    }
}
