//! The kernel's locks.
//!
//! Whoever changes a PTE holds the lock of its page table, whoever looks at mappings holds `mmap_lock` or theirs:
//! the world asks for it where it is changed or looked at, as the kernel does with lockdep
//! ([`crate::machine::world`]). In the simulator threads never meet inside the kernel, so that nobody holds
//! anything and everything may be done.

use crate::addr::{MmId, ObjectId, PageRange, Pfn, Vpn};
use crate::arch::Arch;
use crate::machine::world::{Mode, World};

/// A lock of the kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lock {
    /// `mmap_lock` for reading.
    MmapRead(MmId),
    /// `mmap_lock` for writing.
    MmapWrite(MmId),
    /// The lock of the mapping of these pages, for reading: a fault needs no other to look at it.
    VmaRead(MmId, PageRange),
    /// The same of whichever mapping has this page when it is taken (`lock_vma_under_rcu`).
    VmaOf(MmId, Vpn),
    /// The lock of the mapping of these pages, for writing. It is given back with `mmap_lock`, or when that is
    /// downgraded (`vma_end_write_all`).
    VmaWrite(MmId, PageRange),
    /// The lock of the last-level page table that starts at this page.
    PageTable(MmId, Vpn),
    /// The lock of the table above it that starts at this page (`pmd_lock`).
    Pmd(MmId, Vpn),
    /// The `anon_vma` for reading.
    RmapRead(ObjectId),
    /// The same of whatever the folio is of when it is taken (`folio_lock_anon_vma_read`).
    RmapOf(Pfn),
    /// The `anon_vma` for writing (`anon_vma_lock_write`).
    RmapWrite(ObjectId),
    /// The folio lock.
    Folio(Pfn),
}

impl Lock {
    /// The lock of the last-level page table of `page`.
    pub const fn page_table(arch: &Arch, mm: MmId, page: Vpn) -> Lock {
        let span = arch.table_pages(1);
        Lock::PageTable(mm, Vpn(page.0 / span * span))
    }

    /// The lock of the table above the last-level one of `page`.
    pub const fn pmd(arch: &Arch, mm: MmId, page: Vpn) -> Lock {
        let span = arch.table_pages(2);
        Lock::Pmd(mm, Vpn(page.0 / span * span))
    }

    /// The lock that is meant now, if there is one.
    pub fn resolved<M: Mode>(self, w: &World<M>) -> Option<Lock> {
        Some(match self {
            Lock::RmapOf(frame) => Lock::RmapRead(w.frames.get(frame).object),
            Lock::VmaOf(mm, page) => Lock::VmaRead(mm, w.mms[mm.index()].vma(page)?.range),
            lock => lock,
        })
    }

    /// Whether both cannot be held at a time, by two threads.
    pub fn excludes(self, other: Lock) -> bool {
        match (self, other) {
            (Lock::MmapWrite(a), Lock::MmapRead(b) | Lock::MmapWrite(b))
            | (Lock::MmapRead(a), Lock::MmapWrite(b)) => a == b,
            (Lock::MmapRead(_), Lock::MmapRead(_)) => false,
            (Lock::VmaWrite(a, these), Lock::VmaRead(b, those) | Lock::VmaWrite(b, those))
            | (Lock::VmaRead(a, these), Lock::VmaWrite(b, those)) => {
                a == b && these.overlaps(those)
            }
            (Lock::VmaRead(..), Lock::VmaRead(..)) => false,
            (Lock::RmapWrite(a), Lock::RmapRead(b) | Lock::RmapWrite(b))
            | (Lock::RmapRead(a), Lock::RmapWrite(b)) => a == b,
            (Lock::RmapRead(_), Lock::RmapRead(_)) => false,
            (one, other) => one == other,
        }
    }
}
