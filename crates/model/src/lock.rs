//! The kernel's locks.
//!
//! An operation that changes a PTE holds the lock of its page table. An operation that looks at
//! mappings holds `mmap_lock` or the mapping's lock. The world checks this at each change or look,
//! as the kernel does with lockdep ([`crate::machine::world`]). In the simulator threads never meet
//! inside the kernel, so nobody holds a lock and every action is allowed.

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
    /// The read lock of the mapping of these pages. A fault needs no other lock to look at the
    /// mapping.
    VmaRead(MmId, PageRange),
    /// The read lock of the mapping that contains this page when the lock is taken
    /// (`lock_vma_under_rcu`).
    VmaOf(MmId, Vpn),
    /// The write lock of the mapping of these pages. It is released with `mmap_lock`, or when that
    /// is downgraded (`vma_end_write_all`).
    VmaWrite(MmId, PageRange),
    /// The lock of the last-level page table that starts at this page.
    PageTable(MmId, Vpn),
    /// The lock of the table one level above the last, which starts at this page (`pmd_lock`).
    Pmd(MmId, Vpn),
    /// The read lock of the uppermost `anon_vma` (`anon_vma->root`), which is also the lock of all
    /// `anon_vma`s below it.
    RmapRead(ObjectId),
    /// The read lock of the object that the folio belongs to when the lock is taken
    /// (`folio_lock_anon_vma_read`).
    RmapOf(Pfn),
    /// The write lock of the uppermost `anon_vma` (`anon_vma_lock_write`).
    RmapWrite(ObjectId),
    /// The folio lock.
    Folio(Pfn),
    /// The lock for changing a file (`inode->i_rwsem`).
    Inode(ObjectId),
    /// The lock for removing a file's pages from the page cache, which keeps others from adding any
    /// (`invalidate_lock`; before 5.15 each file system had its own).
    InvalidateWrite(ObjectId),
    /// The lock for adding pages to a file's page cache (`invalidate_lock` for reading).
    InvalidateRead(ObjectId),
}

impl Lock {
    /// The lock of the last-level page table of `page`.
    pub const fn page_table(arch: &Arch, mm: MmId, page: Vpn) -> Lock {
        let span = arch.table_pages(1);
        Lock::PageTable(mm, Vpn(page.0 / span * span))
    }

    /// The lock of the table above the last-level table of `page`.
    pub const fn pmd(arch: &Arch, mm: MmId, page: Vpn) -> Lock {
        let span = arch.table_pages(2);
        Lock::Pmd(mm, Vpn(page.0 / span * span))
    }

    /// The actual lock at this moment: [`Lock::RmapOf`] and [`Lock::VmaOf`] are resolved. `None` if
    /// it does not exist.
    pub fn resolved<M: Mode>(self, w: &World<M>) -> Option<Lock> {
        Some(match self {
            Lock::RmapOf(frame) => Lock::RmapRead(w.objects.root(w.frames.get(frame).object)),
            Lock::VmaOf(mm, page) => Lock::VmaRead(mm, w.mms[mm.index()].vma(page)?.range),
            lock => lock,
        })
    }

    /// Whether two threads cannot hold the two locks at the same time.
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
