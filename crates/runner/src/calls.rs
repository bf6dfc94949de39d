//! Makes the system calls of scenarios.

use crate::files::Files;
use crate::sys::{bytes, pointer};
use crate::{numa, pagemap, pagemap_scan, userfaultfd};
use needless_model::addr::{PageRange, Vpn};
use needless_model::call::{Call, Extent, RANGES, Refs, ranges};
use needless_model::feature::Feature;
use needless_model::numa::PageStatus;
use needless_model::program::{Advice, Backing, Prot};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::{fs, io};

/// Makes a call. It calls `told` with each range of pages that the kernel reports as written, and
/// `answered` with what the kernel reports for a page.
pub fn ask(
    call: Call,
    files: &Files,
    told: impl Fn(PageRange),
    answered: impl Fn(Vpn, PageStatus),
) -> io::Result<()> {
    match call {
        Call::Map { area, prot } => {
            map_area(area, prot, files).and_then(|()| numa::hide_new(area.pages))
        }
        Call::MovePages { pages, node } => numa::move_pages(pages, node, answered),
        Call::Mbind { pages, policy, moves } => numa::mbind(pages, policy, moves),
        Call::MigratePages { from, to } => numa::migrate_pages(from, to),
        Call::SetMempolicy { policy } => numa::set_mempolicy(policy),
        Call::ReclaimMemory { pages } => numa::reclaim(pages),
        Call::NumaScan { pages } => numa::scan(pages),
        Call::Unmap { pages } => unmap(pages),
        Call::Protect { pages, prot } => protect(pages, prot),
        Call::Remap { pages, to } => remap(pages, to.pages.start),
        Call::Advise { pages, advice } => advise(pages, advice),
        Call::AdviseRanges { pages, each, stride, done, advice } => {
            advise_ranges(ranges(pages, each, stride, done), advice)
        }
        Call::Mlock { pages, on_fault, .. } => lock(pages, on_fault),
        Call::Munlock { pages } => unlock(pages),
        Call::ClearRefs { refs } => fs::write("/proc/self/clear_refs", number_of(refs)),
        Call::Pagemap { pages } => pagemap::soft_dirty(pages, told),
        Call::Sync { pages } => sync(pages),
        Call::WriteFile { file, first, pages } => {
            files.write(file.file, first..first + pages, file.write_pages)
        }
        Call::DropFile { file, first, pages } => files.drop(file.file, first..first + pages),
        Call::Truncate { file, pages } => files.truncate(file.file, pages),
        Call::SyncFile { file } => files.sync(file.file),
        Call::UffdRegister { pages, registration } => userfaultfd::register(pages, registration),
        Call::UffdUnregister { pages } => userfaultfd::unregister(pages),
        Call::UffdProtect { pages, on } => userfaultfd::write_protect(pages, on),
        Call::UffdFill { pages, how } => userfaultfd::fill(pages, how),
        Call::UffdMove { pages, to } => userfaultfd::move_pages(pages, to.pages.start),
        Call::PagemapScan { pages, protect } => pagemap_scan::scan(pages, protect, told),
        // 2 runs the shrinkers. One of them splits large folios (mm/vmscan.c:drop_slab).
        Call::SplitDeferred => fs::write("/proc/sys/vm/drop_caches", "2"),
        Call::UffdAnswer { .. }
        | Call::Reclaim { .. }
        | Call::Khugepaged { .. }
        | Call::Writeback { .. }
        | Call::Switch { .. }
        | Call::Pin { .. }
        | Call::Dma { .. }
        | Call::Unpin { .. } => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "runs in the model only"))
        }
        // crates/runner/src/exec.rs carries these out.
        Call::Fork { .. } | Call::Wait { .. } | Call::Exec | Call::Sigaction => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "is no single call"))
        }
    }
}

/// The feature that this kernel lacks, if the kernel refused the call because of that.
pub fn missing(call: Call, errno: Option<i32>) -> Option<&'static str> {
    match call {
        Call::Advise { advice: Advice::PopulateRead | Advice::PopulateWrite, .. }
            if errno == Some(libc::EINVAL) =>
        {
            Some(Feature::Populate.words())
        }
        Call::Advise { advice: Advice::Collapse, .. }
            if errno == Some(libc::EINVAL) && !knows(Advice::Collapse) =>
        {
            Some(Feature::Collapse.words())
        }
        Call::Advise { advice: Advice::HugePage | Advice::NoHugePage, .. }
            if errno == Some(libc::EINVAL) =>
        {
            Some(Feature::HugePages.words())
        }
        Call::Advise { advice: Advice::GuardInstall | Advice::GuardRemove, .. }
            if errno == Some(libc::EINVAL) =>
        {
            Some(Feature::Guards.words())
        }
        Call::AdviseRanges { advice, .. }
            if errno == Some(libc::EINVAL) && !knows_of_ranges(advice) =>
        {
            Some(Feature::AdviceOfRanges.words())
        }
        Call::AdviseRanges { .. } if errno == Some(libc::ENOSYS) => {
            Some(Feature::ProcessMadvise.words())
        }
        Call::UffdRegister { .. } if errno == Some(libc::ENOSYS) => {
            Some(Feature::Userfaultfd.words())
        }
        Call::UffdRegister { registration, .. } if errno == Some(libc::EOPNOTSUPP) => {
            Some(userfaultfd::missing(registration.features))
        }
        Call::UffdRegister { registration, .. } if errno == Some(libc::EINVAL) => {
            userfaultfd::lacks_mode(registration)
        }
        Call::UffdFill { how, .. } if errno == Some(libc::EINVAL) => userfaultfd::lacks_fill(how),
        Call::UffdMove { .. } if errno == Some(libc::EINVAL) => userfaultfd::lacks_move(),
        Call::PagemapScan { .. } if errno == Some(libc::ENOTTY) => {
            Some(Feature::PagemapScan.words())
        }
        Call::Mlock { .. } if errno == Some(libc::EPERM) => {
            Some("memory to lock (CAP_IPC_LOCK, or more than 0 of RLIMIT_MEMLOCK)")
        }
        Call::Pagemap { .. } if errno == Some(libc::ENOTTY) => Some(Feature::SoftDirty.words()),
        Call::ClearRefs { .. } if errno == Some(libc::ENOENT) => {
            Some("/proc/PID/clear_refs (CONFIG_PROC_PAGE_MONITOR)")
        }
        Call::Map { .. }
        | Call::Unmap { .. }
        | Call::Protect { .. }
        | Call::Remap { .. }
        | Call::Advise { .. }
        | Call::AdviseRanges { .. }
        | Call::Mlock { .. }
        | Call::Munlock { .. }
        | Call::ClearRefs { .. }
        | Call::Pagemap { .. }
        | Call::Sigaction
        | Call::UffdRegister { .. }
        | Call::UffdUnregister { .. }
        | Call::UffdProtect { .. }
        | Call::UffdFill { .. }
        | Call::UffdMove { .. }
        | Call::UffdAnswer { .. }
        | Call::PagemapScan { .. }
        | Call::Reclaim { .. }
        | Call::Khugepaged { .. }
        | Call::SplitDeferred
        | Call::Sync { .. }
        | Call::Writeback { .. }
        | Call::Switch { .. }
        | Call::Fork { .. }
        | Call::Wait { .. }
        | Call::Exec
        | Call::Pin { .. }
        | Call::Dma { .. }
        | Call::Unpin { .. }
        | Call::WriteFile { .. }
        | Call::DropFile { .. }
        | Call::Truncate { .. }
        | Call::MovePages { .. }
        | Call::Mbind { .. }
        | Call::MigratePages { .. }
        | Call::SetMempolicy { .. }
        | Call::ReclaimMemory { .. }
        | Call::NumaScan { .. }
        | Call::SyncFile { .. } => None,
    }
}

fn prot_bits(prot: Prot) -> i32 {
    match prot {
        Prot::None => libc::PROT_NONE,
        Prot::Read => libc::PROT_READ,
        Prot::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    }
}

/// The number to write to `clear_refs`.
const fn number_of(refs: Refs) -> &'static str {
    match refs {
        Refs::Accessed => "1",
        Refs::SoftDirty => "4",
    }
}

fn check(status: i32) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes what was stored to the pages' files to their disks, and waits for it.
fn sync(pages: PageRange) -> io::Result<()> {
    // SAFETY: msync only writes the contents of mapped pages to their files.
    check(unsafe { libc::msync(pointer(pages.start), bytes(pages), libc::MS_SYNC) })
}

/// Maps an area as its backing says.
fn map_area(area: Extent, prot: Prot, files: &Files) -> io::Result<()> {
    match area.backing {
        Backing::Anonymous => map_anonymous(area.pages, prot),
        Backing::Shared => map(area.pages, prot, libc::MAP_SHARED | libc::MAP_ANONYMOUS, (-1, 0)),
        Backing::File(mapping) => {
            let kind = if mapping.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            let first = bytes(PageRange::new(Vpn(0), mapping.first));
            map(area.pages, prot, kind, (files.descriptor(mapping.file)?, first as i64))
        }
    }
}

/// Maps private anonymous memory at a fixed place where nothing is mapped yet.
pub fn map_anonymous(range: PageRange, prot: Prot) -> io::Result<()> {
    map(range, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, (-1, 0))
}

/// Maps a file from an offset on, or no file, at a fixed place where nothing is mapped yet.
fn map(range: PageRange, prot: Prot, kind: i32, (file, offset): (i32, i64)) -> io::Result<()> {
    let flags = kind | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping, so nothing of ours is lost.
    let at = unsafe {
        libc::mmap(pointer(range.start), bytes(range), prot_bits(prot), flags, file, offset)
    };
    if at == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        return Err(match owner(range) {
            Some(owner) if error.kind() == io::ErrorKind::AlreadyExists => taken(&owner),
            _ => error,
        });
    }
    if at != pointer(range.start) {
        return Err(io::Error::other("the kernel mapped it elsewhere"));
    }
    Ok(())
}

/// The part of the runner that lies in the range, if any does, from `/proc/self/maps`.
fn owner(range: PageRange) -> Option<String> {
    let (start, end) = (range.start.address(), range.end.address());
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let overlaps = number(from)? < end && start < number(to)?;
        // The scenario's own areas have no name, or the name of a deleted file.
        let name = words.nth(4)?;
        let own = name.starts_with('[') || name.ends_with("needless-runner");
        (overlaps && own).then(|| format!("0x{from} to 0x{to}, {name}"))
    })
}

fn taken(owner: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!(
            "the process that runs scenarios has its own memory there ({owner}): choose another at=, or leave it out"
        ),
    )
}

/// Calls `munmap`.
pub fn unmap(range: PageRange) -> io::Result<()> {
    // SAFETY: the range lies in the scenario's areas, and no object of the runner lives there.
    check(unsafe { libc::munmap(pointer(range.start), bytes(range)) })
}

/// Calls `mprotect`.
pub fn protect(range: PageRange, prot: Prot) -> io::Result<()> {
    // SAFETY: the range lies in the scenario's areas, and no object of the runner lives there.
    check(unsafe { libc::mprotect(pointer(range.start), bytes(range), prot_bits(prot)) })
}

/// Calls `mlock`, or `mlock2` with `MLOCK_ONFAULT`.
fn lock(range: PageRange, on_fault: bool) -> io::Result<()> {
    let flags = if on_fault { libc::MLOCK_ONFAULT } else { 0 };
    // SAFETY: the range lies in the scenario's areas, and no object of the runner lives there.
    check(unsafe { libc::mlock2(pointer(range.start), bytes(range), flags as _) })
}

/// Calls `munlock`.
fn unlock(range: PageRange) -> io::Result<()> {
    // SAFETY: the range lies in the scenario's areas, and no object of the runner lives there.
    check(unsafe { libc::munlock(pointer(range.start), bytes(range)) })
}

/// Moves the whole range to `to` (`mremap`).
pub fn remap(range: PageRange, to: Vpn) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let size = bytes(range);
    // SAFETY: both ranges lie in the scenario's areas, and no object of the runner lives there.
    let at = unsafe { libc::mremap(pointer(range.start), size, size, flags, pointer(to)) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The kernel's number for an advice.
const fn number(advice: Advice) -> i32 {
    match advice {
        Advice::DontNeed => libc::MADV_DONTNEED,
        Advice::Free => libc::MADV_FREE,
        Advice::Cold => libc::MADV_COLD,
        Advice::PageOut => libc::MADV_PAGEOUT,
        Advice::PopulateRead => libc::MADV_POPULATE_READ,
        Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
        Advice::Remove => libc::MADV_REMOVE,
        Advice::HugePage => libc::MADV_HUGEPAGE,
        Advice::NoHugePage => libc::MADV_NOHUGEPAGE,
        // include/uapi/asm-generic/mman-common.h (6.1 and later).
        Advice::Collapse => 25,
        Advice::GuardInstall => MADV_GUARD_INSTALL,
        Advice::GuardRemove => MADV_GUARD_REMOVE,
    }
}

// include/uapi/asm-generic/mman-common.h (6.13 and later).
const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;

/// Whether the kernel knows an advice. `madvise` of an empty range refuses only an unknown advice
/// (mm/madvise.c:madvise_behavior_valid).
fn knows(advice: Advice) -> bool {
    // SAFETY: the range is empty.
    check(unsafe { libc::madvise(std::ptr::null_mut(), 0, number(advice)) }).is_ok()
}

/// Whether `process_madvise` knows an advice (mm/madvise.c:process_madvise).
fn knows_of_ranges(advice: Advice) -> bool {
    advise_ranges(std::iter::empty(), advice).is_ok()
}

/// Calls `madvise`.
pub fn advise(range: PageRange, advice: Advice) -> io::Result<()> {
    // SAFETY: the range lies in the scenario's areas, and no object of the runner lives there.
    check(unsafe { libc::madvise(pointer(range.start), bytes(range), number(advice)) })
}

/// Calls `process_madvise` for this process. Allocates nothing.
fn advise_ranges(
    ranges: impl ExactSizeIterator<Item = PageRange>,
    advice: Advice,
) -> io::Result<()> {
    let (count, mut total) = (ranges.len(), 0);
    let mut parts = [const { MaybeUninit::uninit() }; RANGES.most as usize];
    for (part, range) in parts.iter_mut().zip(ranges) {
        part.write(libc::iovec { iov_base: pointer(range.start), iov_len: bytes(range) });
        total += bytes(range);
    }
    let process = rustix::process::pidfd_open(
        rustix::process::getpid(),
        rustix::process::PidfdFlags::empty(),
    )?;
    // SAFETY: the ranges lie in the scenario's areas. The first `count` of `parts` were written,
    // because there are no more ranges than parts.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            parts.as_ptr(),
            count,
            number(advice),
            0,
        )
    };
    match usize::try_from(advised) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(advised) if advised == total => Ok(()),
        Ok(advised) => Err(io::Error::other(format!(
            "the kernel took the advice for {advised} of {total} bytes, up to a range that it refuses, or that is not mapped as a whole"
        ))),
    }
}
