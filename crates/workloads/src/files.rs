//! Mappings of files.

use crate::area::{Area, RW};
use crate::rounds::Rounds;
use crate::sys::{PAGE, check};
use crate::table::{Expectation, Need, Waits, Workload, cause, class, expect};
use needless_watch::stacks::For;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "fault_around",
        "reads 1 page of a private file mapping from the page cache, then MADV_DONTNEED",
        fault_around,
        expect(&[(class::FAULT_AROUND, 1)], &[(cause::DONTNEED, 0, 1)]),
    )
    .needs(&[Need::DiskFile]),
    Workload::new(
        "file_map",
        "reads 1 page of a file that is not in the page cache (POSIX_FADV_DONTNEED)",
        file_map,
        expect(&[(class::FILE_MAP, 1)], &[(cause::DONTNEED, 0, 1)]),
    )
    .needs(&[Need::DiskFile]),
    Workload::new(
        "file_read",
        "the same, from a disk that takes its time",
        file_map,
        Expectation {
            waits: Some(Waits::Always(For::Read, 1)),
            ..expect(&[(class::FILE_MAP, 1)], &[(cause::DONTNEED, 0, 1)])
        },
    )
    .needs(&[Need::DiskFile, Need::SlowDisk]),
    Workload::new(
        "page_locked",
        "the same by two threads at once: one waits for the page that the other reads",
        page_locked,
        Expectation {
            waits: Some(Waits::AtTimes(&[For::Read, For::PageLock])),
            ..expect(&[], &[])
        },
    )
    .needs(&[Need::DiskFile])
    .second(),
    Workload::new(
        "file_cow",
        "writes 4 pages of a private file mapping, then MADV_DONTNEED",
        file_cow,
        expect(&[(class::COW_COPY, 4)], &[(cause::DONTNEED, 0, 1)]),
    )
    .needs(&[Need::DiskFile]),
    Workload::new(
        "file_read_cow",
        "reads and then writes 1 page of a private file mapping, then MADV_DONTNEED",
        file_read_cow,
        expect(
            &[(class::FAULT_AROUND, 1), (class::COW_COPY, 1)],
            &[(cause::FAULT_COW, 0, 1), (cause::DONTNEED, 0, 1)],
        ),
    )
    .needs(&[Need::DiskFile]),
    Workload::new(
        "shared_dirty",
        "reads and then writes 1 page of a shared file mapping, then MADV_DONTNEED",
        shared_dirty,
        expect(&[(class::FAULT_AROUND, 1), (class::SHARED_DIRTY, 1)], &[(cause::DONTNEED, 0, 1)]),
    )
    .needs(&[Need::DiskFile]),
    Workload::new(
        "shared_write",
        "writes 1 page of a shared file mapping, then MADV_DONTNEED",
        shared_write,
        expect(&[(class::SHARED_DIRTY, 1)], &[(cause::DONTNEED, 0, 1)]),
    )
    .needs(&[Need::DiskFile]),
    Workload::new(
        "fsync",
        "writes 1 page of a shared file mapping, then fsync, which write-protects it",
        |rounds| write_back(rounds, false),
        expect(&[(class::SHARED_DIRTY, 1)], &[(cause::FSYNC, 0, 1)]),
    )
    .needs(&[Need::DiskFile]),
    Workload::new(
        "msync",
        "the same by msync",
        |rounds| write_back(rounds, true),
        expect(&[(class::SHARED_DIRTY, 1)], &[(cause::MSYNC, 0, 1)]),
    )
    .needs(&[Need::DiskFile]),
    Workload::new(
        "fsync_sent",
        "the same as fsync with a second thread on CPU 1",
        |rounds| write_back(rounds, false),
        expect(&[(class::SHARED_DIRTY, 1)], &[(cause::FSYNC, 1, 0)]),
    )
    .needs(&[Need::DiskFile])
    .second(),
    Workload::new(
        "page_fault3_process",
        "maps 4 pages of a file shared, writes them and unmaps them: the loop of will-it-scale's page_fault3",
        page_fault3,
        expect(&[(class::SHARED_DIRTY, PAGES as u64)], &[(cause::MUNMAP, 0, 1)]),
    )
    .needs(&[Need::DiskFile]),
    Workload::new(
        "page_fault3_thread",
        "the same with a second thread on CPU 1",
        page_fault3,
        expect(&[(class::SHARED_DIRTY, PAGES as u64)], &[(cause::MUNMAP, 1, 0)]),
    )
    .needs(&[Need::DiskFile])
    .second(),
    Workload::new(
        "memfd_first",
        "writes 4 fresh pages of a memfd, then MADV_REMOVE",
        memfd_first,
        expect(&[(class::FIRST_TOUCH, 4)], &[(cause::REMOVE, 0, 1)]),
    ),
    Workload::new(
        "memfd_write",
        "writes 4 pages that a memfd has, then MADV_DONTNEED",
        memfd_write,
        expect(&[(class::SHARED_DIRTY, 4)], &[(cause::DONTNEED, 0, 1)]),
    ),
    Workload::new(
        "memfd_read_write",
        "reads and then writes 1 page that a memfd has, then MADV_DONTNEED",
        memfd_read_write,
        expect(&[(class::FAULT_AROUND, 1)], &[(cause::DONTNEED, 0, 1)]),
    ),
];

/// The number of pages of most files here. One fault-around maps them all.
const PAGES: usize = 4;

/// Whether temporary files are on tmpfs or ramfs (include/uapi/linux/magic.h). Files there behave
/// otherwise than on a disk.
pub fn temporary_is_memory() -> bool {
    let kind = rustix::fs::statfs(std::env::temp_dir()).map(|system| system.f_type);
    matches!(kind, Ok(0x0102_1994 | 0x8584_58f6))
}

/// Whether temporary files are on a disk that is memory. Such a disk has read the page before any
/// task can wait.
pub fn disk_is_memory() -> bool {
    let Ok(folder) = rustix::fs::stat(std::env::temp_dir()) else { return true };
    let (major, minor) = (rustix::fs::major(folder.st_dev), rustix::fs::minor(folder.st_dev));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap_or_default();
    let name = device.file_name().and_then(|name| name.to_str()).unwrap_or("ram");
    ["ram", "zram", "pmem"].iter().any(|memory| name.starts_with(memory))
}

/// A file without a name, written and on disk.
fn temporary() -> io::Result<File> {
    temporary_by(PAGES, PAGES)
}

/// A file without a name, of `all` pages, written `pages` at a time. The length of a write limits
/// the size of folios.
pub fn temporary_by(all: usize, pages: usize) -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("needless-workload-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    let part = vec![1; pages * PAGE];
    for _ in 0..all / pages {
        file.write_all(&part)?;
    }
    file.sync_all()?;
    Ok(file)
}

/// An empty file in memory.
pub fn memfd() -> io::Result<File> {
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"needless-workload".as_ptr(), libc::MFD_CLOEXEC) };
    check(file)?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(file) })
}

fn memfd_of_pages() -> io::Result<File> {
    let file = memfd()?;
    file.set_len((PAGES * PAGE) as u64)?;
    Ok(file)
}

/// mm/memory.c: do_read_fault, do_fault_around: all pages are in the page cache and are mapped.
fn fault_around(rounds: &mut Rounds) -> io::Result<()> {
    let file = temporary()?;
    let area = Area::file(0, PAGES, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd())?;
    rounds.each(|meeting| {
        area.read(0);
        area.drop_pages(meeting)
    })
}

/// mm/filemap.c: filemap_fault reads one page (with MADV_RANDOM none ahead). The page cache drops a
/// page only if it is not mapped (mm/fadvise.c, mm/truncate.c: mapping_evict_folio).
fn file_map(rounds: &mut Rounds) -> io::Result<()> {
    let file = temporary()?;
    let descriptor = file.as_raw_fd();
    let area = Area::file(0, PAGES, libc::PROT_READ, libc::MAP_PRIVATE, descriptor)?;
    area.advise(libc::MADV_RANDOM)?;
    rounds.each(|meeting| {
        area.drop_pages(meeting)?;
        drop_cached(descriptor)?;
        area.read(0);
        Ok(())
    })
}

/// Drops a file from the page cache. The file is on disk and not mapped.
fn drop_cached(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the call only concerns the page cache.
    match unsafe { libc::posix_fadvise(descriptor, 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// mm/filemap.c: filemap_fault: a task that finds the page which another one reads waits for its
/// lock.
fn page_locked(rounds: &mut Rounds) -> io::Result<()> {
    let file = temporary()?;
    let descriptor = file.as_raw_fd();
    let area = Area::file(0, PAGES, libc::PROT_READ, libc::MAP_PRIVATE, descriptor)?;
    area.advise(libc::MADV_RANDOM)?;
    rounds.each(|meeting| {
        area.drop_pages(meeting)?;
        drop_cached(descriptor)?;
        meeting.meet_to_read(area.address());
        area.read(0);
        meeting.meet();
        Ok(())
    })
}

/// mm/memory.c: do_cow_fault: the page was not mapped, so nothing is flushed.
fn file_cow(rounds: &mut Rounds) -> io::Result<()> {
    let file = temporary()?;
    let area = Area::file(0, PAGES, RW, libc::MAP_PRIVATE, file.as_raw_fd())?;
    rounds.each(|meeting| {
        area.write_all();
        area.drop_pages(meeting)
    })
}

/// The read maps all pages; mm/memory.c: do_wp_page, wp_page_copy: ptep_clear_flush.
fn file_read_cow(rounds: &mut Rounds) -> io::Result<()> {
    let file = temporary()?;
    let area = Area::file(0, PAGES, RW, libc::MAP_PRIVATE, file.as_raw_fd())?;
    rounds.each(|meeting| {
        area.read(0);
        meeting.meet();
        area.write(0);
        area.drop_pages(meeting)
    })
}

/// The file system wants to know about writes (mm/vma.c: vma_wants_writenotify). So the read maps
/// the page read-only, and the write faults: mm/memory.c: wp_page_shared, without a flush.
fn shared_dirty(rounds: &mut Rounds) -> io::Result<()> {
    let file = temporary()?;
    let area = Area::file(0, PAGES, RW, libc::MAP_SHARED, file.as_raw_fd())?;
    rounds.each(|meeting| {
        area.read(0);
        area.write(0);
        area.drop_pages(meeting)
    })
}

/// mm/memory.c: do_shared_fault. The workload writes one page only: 6.18 maps all of a large folio
/// of the page cache in one fault, and the file system decides how large folios are.
fn shared_write(rounds: &mut Rounds) -> io::Result<()> {
    let file = temporary()?;
    let area = Area::file(0, PAGES, RW, libc::MAP_SHARED, file.as_raw_fd())?;
    rounds.each(|meeting| {
        area.write(0);
        area.drop_pages(meeting)
    })
}

/// Writeback makes the page clean in all page tables: mm/page-writeback.c:
/// folio_clear_dirty_for_io, mm/rmap.c: page_vma_mkclean_one: ptep_clear_flush. The next write
/// faults: mm/memory.c: wp_page_shared.
fn write_back(rounds: &mut Rounds, by_address: bool) -> io::Result<()> {
    let file = temporary()?;
    let area = Area::file(0, 1, RW, libc::MAP_SHARED, file.as_raw_fd())?;
    rounds.each(|meeting| {
        area.write(0);
        meeting.meet();
        if by_address { area.sync() } else { file.sync_all() }
    })
}

/// mm/memory.c: do_shared_fault, do_page_mkwrite: the first store to each page since it was mapped
/// tells the file system. Where dirty pages are counted, 5.10 gives mmap_lock back and tries again
/// (fault_dirty_shared_page); the fault is then major.
fn page_fault3(rounds: &mut Rounds) -> io::Result<()> {
    let file = temporary_by(PAGES, 1)?;
    let area = Area::file(0, PAGES, RW, libc::MAP_SHARED, file.as_raw_fd())?;
    area.unmap()?;
    rounds.each(|meeting| {
        area.map(RW, libc::MAP_SHARED, file.as_raw_fd())?;
        area.write_all();
        meeting.meet();
        area.unmap()
    })
}

/// mm/shmem.c: shmem_fault allocates. MADV_REMOVE unmaps (mm/memory.c: unmap_mapping_range, one
/// gather) and frees.
fn memfd_first(rounds: &mut Rounds) -> io::Result<()> {
    let file = memfd_of_pages()?;
    let area = Area::file(0, PAGES, RW, libc::MAP_SHARED, file.as_raw_fd())?;
    rounds.each(|meeting| {
        area.write_all();
        meeting.meet();
        area.advise(libc::MADV_REMOVE)
    })
}

/// mm/memory.c: do_shared_fault: a write does not map pages around it.
fn memfd_write(rounds: &mut Rounds) -> io::Result<()> {
    let file = memfd_of_pages()?;
    let area = Area::file(0, PAGES, RW, libc::MAP_SHARED, file.as_raw_fd())?;
    area.write_all();
    rounds.each(|meeting| {
        area.write_all();
        area.drop_pages(meeting)
    })
}

/// tmpfs wants no notice of writes, so the read maps the page writable, and the processor sets the
/// dirty bit.
fn memfd_read_write(rounds: &mut Rounds) -> io::Result<()> {
    let file = memfd_of_pages()?;
    let area = Area::file(0, PAGES, RW, libc::MAP_SHARED, file.as_raw_fd())?;
    area.write_all();
    rounds.each(|meeting| {
        area.read(0);
        area.write(0);
        area.drop_pages(meeting)
    })
}
