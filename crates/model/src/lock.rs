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
    /// The uppermost `anon_vma` (`anon_vma->root`), whose lock is that of all below it, for reading.
    RmapRead(ObjectId),
    /// The same of whatever the folio is of when it is taken (`folio_lock_anon_vma_read`).
    RmapOf(Pfn),
    /// The same for writing (`anon_vma_lock_write`).
    RmapWrite(ObjectId),
    /// The folio lock.
    Folio(Pfn),
    /// Whoever changes a file has it (`inode->i_rwsem`).
    Inode(ObjectId),
    /// Whoever takes a file's pages from the page cache for good keeps others from filling it (`invalidate_lock`; before 5.15 each file
    /// system's own).
    InvalidateWrite(ObjectId),
    /// The same for whoever fills it.
    InvalidateRead(ObjectId),
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
            Lock::RmapOf(frame) => Lock::RmapRead(w.objects.root(w.frames.get(frame).object)),
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
            (Lock::InvalidateWrite(a), Lock::InvalidateRead(b) | Lock::InvalidateWrite(b))
            | (Lock::InvalidateRead(a), Lock::InvalidateWrite(b)) => a == b,
            (Lock::InvalidateRead(_), Lock::InvalidateRead(_)) => false,
            (one, other) => one == other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_whom_out() {
        let (mm, other) = (MmId(1), MmId(2));
        let pages = |start, pages| PageRange::new(Vpn(start), pages);
        let (object, frame) = (ObjectId(1), Pfn(1));
        let excluding = [
            (Lock::MmapWrite(mm), Lock::MmapWrite(mm)),
            (Lock::MmapWrite(mm), Lock::MmapRead(mm)),
            (Lock::VmaWrite(mm, pages(0, 4)), Lock::VmaWrite(mm, pages(2, 1))),
            (Lock::VmaWrite(mm, pages(0, 4)), Lock::VmaRead(mm, pages(2, 6))),
            (Lock::RmapWrite(object), Lock::RmapWrite(object)),
            (Lock::RmapWrite(object), Lock::RmapRead(object)),
            (Lock::PageTable(mm, Vpn(0)), Lock::PageTable(mm, Vpn(0))),
            (Lock::Folio(frame), Lock::Folio(frame)),
            (Lock::Inode(object), Lock::Inode(object)),
            (Lock::InvalidateWrite(object), Lock::InvalidateRead(object)),
            (Lock::InvalidateWrite(object), Lock::InvalidateWrite(object)),
        ];
        for (one, two) in excluding {
            assert!(one.excludes(two) && two.excludes(one), "{one:?} {two:?}");
        }
        let together = [
            (Lock::MmapWrite(mm), Lock::MmapWrite(other)),
            (Lock::MmapRead(mm), Lock::MmapRead(mm)),
            (Lock::MmapWrite(mm), Lock::VmaRead(mm, pages(0, 4))),
            (Lock::VmaRead(mm, pages(0, 4)), Lock::VmaRead(mm, pages(0, 4))),
            (Lock::VmaWrite(mm, pages(0, 4)), Lock::VmaRead(mm, pages(4, 1))),
            (Lock::VmaWrite(mm, pages(0, 4)), Lock::VmaRead(other, pages(0, 4))),
            (Lock::RmapRead(object), Lock::RmapRead(object)),
            (Lock::PageTable(mm, Vpn(0)), Lock::Pmd(mm, Vpn(0))),
            (Lock::InvalidateRead(object), Lock::InvalidateRead(object)),
            (Lock::Inode(object), Lock::InvalidateWrite(object)),
        ];
        for (one, two) in together {
            assert!(!one.excludes(two) && !two.excludes(one), "{one:?} {two:?}");
        }
    }
}
