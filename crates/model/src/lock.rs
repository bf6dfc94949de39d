//! The kernel's locks.
//!
//! Whoever changes a PTE holds the lock of its page table, whoever looks at mappings holds `mmap_lock`:
//! the world asks for it where it is changed or looked at, as the kernel does with lockdep
//! ([`crate::machine::world`]). In the simulator threads never meet inside the kernel, so that nobody holds
//! anything and everything may be done.

use crate::addr::{MmId, Pfn, Vpn};
use crate::arch::Arch;

/// A lock of the kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lock {
    /// `mmap_lock` for reading.
    MmapRead(MmId),
    /// `mmap_lock` for writing.
    MmapWrite(MmId),
    /// The lock of the last-level page table that starts at this page.
    PageTable(MmId, Vpn),
    /// The folio lock.
    Folio(Pfn),
}

impl Lock {
    /// The lock of the last-level page table of `page`.
    pub const fn page_table(arch: &Arch, mm: MmId, page: Vpn) -> Lock {
        let span = arch.table_pages(1);
        Lock::PageTable(mm, Vpn(page.0 / span * span))
    }
}
