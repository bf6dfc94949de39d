//! Memory that rounds act on, at fixed places.
//!
//! Each area begins at a 2 MiB boundary. The last page below the next boundary after the area
//! belongs to a mapping of its own that stays, so the area's (last) page table stays, too.
//! Otherwise `munmap` would free the table, and the flush would be of another kind
//! (`freed_tables`).

use crate::sys::{PAGE, check};
use std::io;
use std::os::fd::RawFd;

const BASE: usize = 0x6000_0000_0000;
/// The bytes that one page table maps.
pub const TABLE: usize = 2 << 20;

/// Consecutive pages.
#[derive(Copy, Clone, Debug)]
pub struct Area {
    start: usize,
    pages: usize,
}

/// The protection that allows loads and stores.
pub const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

impl Area {
    /// A place for `pages` pages where nothing is mapped, with a neighbour that keeps the page
    /// table. Places have numbers.
    pub fn place(number: usize, pages: usize) -> io::Result<Area> {
        let start = BASE + number * 2 * TABLE;
        let end = (start + (pages + 1) * PAGE).next_multiple_of(TABLE);
        let neighbour = Area { start: end - PAGE, pages: 1 };
        neighbour.map(RW, PRIVATE, -1)?;
        neighbour.write(0);
        Ok(Area { start, pages })
    }

    /// Private anonymous memory of base pages, at this place.
    pub fn anonymous(number: usize, pages: usize) -> io::Result<Area> {
        let area = Area::place(number, pages)?;
        area.map_anonymous()?;
        area.forbid_huge_pages();
        Ok(area)
    }

    /// Private anonymous memory of base pages, at this place and without a neighbour. The area may
    /// have any number of pages.
    pub fn alone(number: usize, pages: usize) -> io::Result<Area> {
        let area = Area { start: BASE + number * 2 * TABLE, pages };
        area.map_anonymous()?;
        area.forbid_huge_pages();
        Ok(area)
    }

    /// Private anonymous memory as large as one page table maps, without a neighbour.
    pub fn table(number: usize) -> io::Result<Area> {
        let area = Area::whole_table(number);
        area.map(RW, PRIVATE, -1)?;
        Ok(area)
    }

    fn whole_table(number: usize) -> Area {
        Area { start: BASE + number * 2 * TABLE, pages: TABLE / PAGE }
    }

    /// One page of hugetlb.
    pub fn hugetlb(number: usize) -> io::Result<Area> {
        let area = Area::whole_table(number);
        area.map_hugetlb()?;
        Ok(area)
    }

    /// A mapping of a file, at this place.
    pub fn file(
        number: usize,
        pages: usize,
        prot: i32,
        sharing: i32,
        file: RawFd,
    ) -> io::Result<Area> {
        let area = Area::place(number, pages)?;
        area.map(prot, sharing, file)?;
        Ok(area)
    }

    /// The first address of the area.
    pub fn address(self) -> usize {
        self.start
    }

    /// The size of the area in bytes.
    pub fn bytes(self) -> usize {
        self.pages * PAGE
    }

    /// The first address of the area, as a pointer.
    pub fn pointer(self) -> *mut libc::c_void {
        self.start as *mut libc::c_void
    }

    /// `madvise(MADV_NOHUGEPAGE)`. A kernel that refuses it has no huge pages, so an error is not
    /// reported.
    pub fn forbid_huge_pages(self) {
        let _ = self.advise(libc::MADV_NOHUGEPAGE);
    }

    /// Calls `mmap` for private anonymous memory where nothing is mapped.
    pub fn map_anonymous(self) -> io::Result<()> {
        self.map(RW, PRIVATE, -1)
    }

    /// Calls `mmap` for pages of hugetlb where nothing is mapped.
    pub fn map_hugetlb(self) -> io::Result<()> {
        self.map(RW, PRIVATE | libc::MAP_HUGETLB, -1)
    }

    /// Calls `mmap` for private anonymous memory in place of what is mapped.
    pub fn replace(self) -> io::Result<()> {
        let flags = PRIVATE | libc::MAP_FIXED;
        // SAFETY: no object lives in areas, so nothing is lost.
        let at = unsafe { libc::mmap(self.pointer(), self.bytes(), RW, flags, -1, 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Calls `mmap` where nothing is mapped.
    pub fn map(self, prot: i32, flags: i32, file: RawFd) -> io::Result<()> {
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping, so nothing is lost.
        let at = unsafe { libc::mmap(self.pointer(), self.bytes(), prot, flags, file, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if at != self.pointer() {
            return Err(io::Error::other("the kernel mapped it elsewhere"));
        }
        Ok(())
    }

    /// Calls `munmap` for the whole area.
    pub fn unmap(self) -> io::Result<()> {
        // SAFETY: no object lives in areas.
        check(unsafe { libc::munmap(self.pointer(), self.bytes()) })
    }

    /// Calls `mprotect` for the whole area.
    pub fn protect(self, prot: i32) -> io::Result<()> {
        // SAFETY: as for `unmap`.
        check(unsafe { libc::mprotect(self.pointer(), self.bytes(), prot) })
    }

    /// Calls `madvise` for the whole area.
    pub fn advise(self, advice: i32) -> io::Result<()> {
        // SAFETY: as for `unmap`.
        check(unsafe { libc::madvise(self.pointer(), self.bytes(), advice) })
    }

    /// Calls `madvise(MADV_DONTNEED)`. The flush is sent to the second thread's CPU if there is
    /// one.
    pub fn drop_pages(self, meeting: &crate::rounds::Meeting) -> io::Result<()> {
        meeting.meet();
        self.advise(libc::MADV_DONTNEED)
    }

    /// Moves all pages to another place with `mremap`.
    pub fn move_to(self, to: Area) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (from, size) = (self.pointer(), self.bytes());
        // SAFETY: as for `unmap`; the destination is an area too.
        let at = unsafe { libc::mremap(from, size, size, flags, to.pointer()) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Calls `msync` and waits for it (`MS_SYNC`).
    pub fn sync(self) -> io::Result<()> {
        // SAFETY: as for `unmap`.
        check(unsafe { libc::msync(self.pointer(), self.bytes(), libc::MS_SYNC) })
    }

    /// Loads from a page.
    #[inline]
    pub fn read(self, page: usize) -> u8 {
        // SAFETY: areas are mapped readable while they are read.
        unsafe { std::ptr::read_volatile((self.start + page * PAGE) as *const u8) }
    }

    /// Stores to a page.
    #[inline]
    pub fn write(self, page: usize) {
        // SAFETY: areas are mapped writable while they are written, and no object lives there.
        unsafe { std::ptr::write_volatile((self.start + page * PAGE) as *mut u8, 1) };
    }

    /// Loads an aligned number.
    #[inline]
    pub fn read_at(self, offset: usize) -> u64 {
        debug_assert!(offset.is_multiple_of(size_of::<u64>()) && offset < self.bytes());
        // SAFETY: as for `read`; the number lies in the area.
        unsafe { std::ptr::read_volatile((self.start + offset) as *const u64) }
    }

    /// Stores an aligned number.
    #[inline]
    pub fn write_at(self, offset: usize, number: u64) {
        debug_assert!(offset.is_multiple_of(size_of::<u64>()) && offset < self.bytes());
        // SAFETY: as for `write`; the number lies in the area.
        unsafe { std::ptr::write_volatile((self.start + offset) as *mut u64, number) };
    }

    /// Some of the area's pages.
    pub fn part(self, first: usize, pages: usize) -> Area {
        Area { start: self.start + first * PAGE, pages }
    }

    /// Calls `madvise` for one page.
    pub fn advise_page(self, page: usize, advice: i32) -> io::Result<()> {
        self.part(page, 1).advise(advice)
    }

    /// Loads from every page, in order.
    #[inline]
    pub fn read_all(self) {
        for page in 0..self.pages {
            self.read(page);
        }
    }

    /// Stores to every page, in order.
    #[inline]
    pub fn write_all(self) {
        for page in 0..self.pages {
            self.write(page);
        }
    }
}
