//! The system calls that change page tables or flush: how each is recognised, and how it is named
//! in a report with the argument that matters.

use crate::filter::Filter;
use libc::c_long;

/// What tells the calls of one system call apart.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Detail {
    /// Its number alone is enough.
    None,
    /// Its third argument is an advice.
    Advice,
    /// Its fourth argument is an advice.
    ProcessAdvice,
    /// Its fourth argument is an advice about a file.
    FileAdvice,
    /// Its third argument is a protection.
    Protection,
    /// Its fourth argument has mapping flags.
    MapFlags,
    /// Its first argument has flags of clone.
    CloneFlags,
}

struct Call {
    number: c_long,
    name: &'static str,
    detail: Detail,
    /// Whether it walks page tables of its own address space and may take pages away.
    walks: bool,
}

const fn call(number: c_long, name: &'static str, detail: Detail, walks: bool) -> Call {
    Call { number, name, detail, walks }
}

/// Those that exist on every architecture.
const COMMON: [Call; 36] = [
    call(libc::SYS_mmap, "mmap", Detail::MapFlags, true),
    call(libc::SYS_munmap, "munmap", Detail::None, true),
    call(libc::SYS_mprotect, "mprotect", Detail::Protection, true),
    call(libc::SYS_pkey_mprotect, "pkey_mprotect", Detail::Protection, true),
    call(libc::SYS_madvise, "madvise", Detail::Advice, true),
    call(libc::SYS_process_madvise, "process_madvise", Detail::ProcessAdvice, false),
    call(libc::SYS_mremap, "mremap", Detail::None, true),
    call(libc::SYS_brk, "brk", Detail::None, true),
    call(libc::SYS_clone, "clone", Detail::CloneFlags, false),
    call(libc::SYS_clone3, "clone3", Detail::None, false),
    call(libc::SYS_execve, "execve", Detail::None, false),
    call(libc::SYS_execveat, "execveat", Detail::None, false),
    call(libc::SYS_exit, "exit", Detail::None, false),
    call(libc::SYS_exit_group, "exit_group", Detail::None, false),
    call(libc::SYS_mbind, "mbind", Detail::None, false),
    call(libc::SYS_move_pages, "move_pages", Detail::None, false),
    call(libc::SYS_migrate_pages, "migrate_pages", Detail::None, false),
    call(libc::SYS_mlock, "mlock", Detail::None, false),
    call(libc::SYS_mlock2, "mlock2", Detail::None, false),
    call(libc::SYS_munlock, "munlock", Detail::None, false),
    call(libc::SYS_msync, "msync", Detail::None, false),
    call(libc::SYS_fsync, "fsync", Detail::None, false),
    call(libc::SYS_fdatasync, "fdatasync", Detail::None, false),
    call(libc::SYS_sync_file_range, "sync_file_range", Detail::None, false),
    call(libc::SYS_sync, "sync", Detail::None, false),
    call(libc::SYS_syncfs, "syncfs", Detail::None, false),
    call(libc::SYS_truncate, "truncate", Detail::None, false),
    call(libc::SYS_ftruncate, "ftruncate", Detail::None, false),
    call(libc::SYS_fallocate, "fallocate", Detail::None, false),
    // POSIX_FADV_DONTNEED may drain the LRU batches of every CPU (mm/fadvise.c: generic_fadvise).
    call(libc::SYS_fadvise64, "fadvise64", Detail::FileAdvice, false),
    call(libc::SYS_shmdt, "shmdt", Detail::None, false),
    call(libc::SYS_swapoff, "swapoff", Detail::None, false),
    call(libc::SYS_userfaultfd, "userfaultfd", Detail::None, false),
    call(libc::SYS_membarrier, "membarrier", Detail::None, false),
    call(libc::SYS_perf_event_open, "perf_event_open", Detail::None, false),
    call(libc::SYS_bpf, "bpf", Detail::None, false),
];

/// Those that newer architectures do without.
#[cfg(target_arch = "x86_64")]
const OLD: [Call; 2] = [
    call(libc::SYS_fork, "fork", Detail::None, false),
    call(libc::SYS_vfork, "vfork", Detail::None, false),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: [Call; 0] = [];

/// An advice's name, the same on every architecture that is watched
/// (include/uapi/asm-generic/mman-common.h, 7.3).
const ADVICE: [(u64, &str); 25] = [
    (0, "MADV_NORMAL"),
    (1, "MADV_RANDOM"),
    (2, "MADV_SEQUENTIAL"),
    (3, "MADV_WILLNEED"),
    (4, "MADV_DONTNEED"),
    (8, "MADV_FREE"),
    (9, "MADV_REMOVE"),
    (10, "MADV_DONTFORK"),
    (11, "MADV_DOFORK"),
    (12, "MADV_MERGEABLE"),
    (13, "MADV_UNMERGEABLE"),
    (14, "MADV_HUGEPAGE"),
    (15, "MADV_NOHUGEPAGE"),
    (16, "MADV_DONTDUMP"),
    (17, "MADV_DODUMP"),
    (18, "MADV_WIPEONFORK"),
    (19, "MADV_KEEPONFORK"),
    (20, "MADV_COLD"),
    (MADV_PAGEOUT, "MADV_PAGEOUT"),
    (22, "MADV_POPULATE_READ"),
    (23, "MADV_POPULATE_WRITE"),
    (24, "MADV_DONTNEED_LOCKED"),
    (MADV_COLLAPSE, "MADV_COLLAPSE"),
    (102, "MADV_GUARD_INSTALL"),
    (103, "MADV_GUARD_REMOVE"),
];

/// Names of advice about a file (include/uapi/linux/fadvise.h, 7.3).
const FILE_ADVICE: [&str; 6] = [
    "POSIX_FADV_NORMAL",
    "POSIX_FADV_RANDOM",
    "POSIX_FADV_SEQUENTIAL",
    "POSIX_FADV_WILLNEED",
    "POSIX_FADV_DONTNEED",
    "POSIX_FADV_NOREUSE",
];

/// Pages out what it names.
pub const MADV_PAGEOUT: u64 = 21;

/// Makes huge pages of what it names.
pub const MADV_COLLAPSE: u64 = 25;

/// An ioctl that is watched: its request (include/uapi/linux/userfaultfd.h and fs.h, 7.3), its
/// name, and whether it ends a wait for a page.
const IOCTLS: [(u64, &str, bool); 9] = [
    (0x8010_aa02, "UFFDIO_WAKE", true),
    (0xc028_aa03, "UFFDIO_COPY", true),
    (0xc020_aa04, "UFFDIO_ZEROPAGE", true),
    (0xc028_aa05, "UFFDIO_MOVE", true),
    (0xc018_aa06, "UFFDIO_WRITEPROTECT", true),
    (0xc020_aa07, "UFFDIO_CONTINUE", true),
    (0xc020_aa08, "UFFDIO_POISON", true),
    (0xc020_aa00, "UFFDIO_REGISTER", false),
    (0xc060_6610, "PAGEMAP_SCAN", false),
];

fn calls() -> impl Iterator<Item = &'static Call> {
    COMMON.iter().chain(&OLD)
}

fn numbers() -> impl Iterator<Item = u64> {
    calls().map(|call| call.number as u64)
}

/// What an advice does to the pages of its range.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Advised {
    /// They are given back, now or when memory is short.
    GivesBack,
    /// They are written out and taken away.
    PagesOut,
    /// They are there afterwards.
    Populates,
    /// Pages around a fault are read ahead, or not.
    ReadsAhead(bool),
    /// Nothing that a later fault shows.
    Nothing,
}

/// What an advice does (mm/madvise.c, 6.12).
pub fn advice_does(advice: u64) -> Advised {
    match advice {
        4 | 8 | 9 | 24 | 102 => Advised::GivesBack,
        MADV_PAGEOUT => Advised::PagesOut,
        22 | 23 | MADV_COLLAPSE => Advised::Populates,
        0 | 2 => Advised::ReadsAhead(true),
        1 => Advised::ReadsAhead(false),
        _ => Advised::Nothing,
    }
}

/// A tracing filter that lets these system calls through.
pub fn filter() -> Option<String> {
    Filter::among("id", numbers()).map(|filter| filter.to_string())
}

/// A tracing filter for the ends of these system calls and of ioctl, whose beginnings another
/// tracepoint tells.
pub fn filter_ends() -> Option<String> {
    let numbers = numbers().chain([libc::SYS_ioctl as u64]);
    Filter::among("id", numbers).map(|filter| filter.to_string())
}

/// A tracing filter that lets these ioctls through.
pub fn ioctls() -> Option<String> {
    let requests = IOCTLS.iter().map(|(request, ..)| *request);
    Filter::among("cmd", requests).map(|filter| filter.to_string())
}

/// The number by which an ioctl is known here, away from those of system calls.
pub const IOCTL_BASE: i32 = 0x1_0000;

/// Where an ioctl stands in the table, as a number of its own.
pub fn ioctl(request: u64) -> Option<i32> {
    let at = IOCTLS.iter().position(|(known, ..)| *known == request)?;
    Some(IOCTL_BASE + at as i32)
}

/// Whether the ioctl ends a wait for a page of userfaultfd.
pub fn resolves_faults(number: i32) -> bool {
    let at = usize::try_from(number - IOCTL_BASE).ok();
    at.and_then(|at| IOCTLS.get(at)).is_some_and(|(.., resolves)| *resolves)
}

/// Whether a system call walks page tables of its own address space and may take pages away.
pub fn walks(number: i32) -> bool {
    calls().any(|call| call.number == c_long::from(number) && call.walks)
}

/// Whether the first argument is an address of the memory that the call is about.
pub fn is_about_memory(number: i32) -> bool {
    [
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_pkey_mprotect,
        libc::SYS_madvise,
        libc::SYS_mremap,
        libc::SYS_mbind,
        libc::SYS_mlock,
        libc::SYS_mlock2,
        libc::SYS_munlock,
        libc::SYS_msync,
        libc::SYS_brk,
        libc::SYS_shmdt,
    ]
    .contains(&c_long::from(number))
}

/// Whether a call may wait for a disk, or until another process does something.
pub fn waits(number: i32) -> bool {
    [
        libc::SYS_msync,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_sync_file_range,
        libc::SYS_sync,
        libc::SYS_syncfs,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_swapoff,
        libc::SYS_membarrier,
        libc::SYS_fallocate,
        libc::SYS_truncate,
        libc::SYS_ftruncate,
    ]
    .contains(&c_long::from(number))
        || is_vfork(number)
}

#[cfg(target_arch = "x86_64")]
fn is_vfork(number: i32) -> bool {
    c_long::from(number) == libc::SYS_vfork
}
#[cfg(not(target_arch = "x86_64"))]
fn is_vfork(_: i32) -> bool {
    false
}

/// The argument by which calls of one system call are told apart.
pub fn detail(number: i32, args: &[u64; 4]) -> u64 {
    let Some(call) = calls().find(|call| call.number == c_long::from(number)) else { return 0 };
    match call.detail {
        Detail::None => 0,
        Detail::Advice | Detail::Protection => args[2] & 0xffff_ffff,
        Detail::ProcessAdvice | Detail::FileAdvice | Detail::MapFlags => args[3] & 0xffff_ffff,
        Detail::CloneFlags => args[0] & libc::CLONE_VM as u64,
    }
}

/// A system call as a report names it.
pub fn name(number: i32, detail: u64) -> String {
    if let Ok(at) = usize::try_from(number - IOCTL_BASE)
        && let Some((_, name, _)) = IOCTLS.get(at)
    {
        return format!("ioctl({name})");
    }
    let Some(call) = calls().find(|call| call.number == c_long::from(number)) else {
        return format!("system call {number}");
    };
    let name = call.name;
    match call.detail {
        Detail::None => name.to_owned(),
        Detail::Advice | Detail::ProcessAdvice => {
            match ADVICE.iter().find(|(known, _)| *known == detail) {
                Some((_, advice)) => format!("{name}({advice})"),
                None => format!("{name}(advice {detail})"),
            }
        }
        Detail::FileAdvice => {
            match usize::try_from(detail).ok().and_then(|at| FILE_ADVICE.get(at)) {
                Some(advice) => format!("{name}({advice})"),
                None => format!("{name}(advice {detail})"),
            }
        }
        Detail::Protection => format!("{name}({})", protection(detail)),
        Detail::MapFlags if detail & libc::MAP_FIXED as u64 != 0 => format!("{name}(MAP_FIXED)"),
        Detail::CloneFlags if detail != 0 => format!("{name}(CLONE_VM)"),
        Detail::MapFlags | Detail::CloneFlags => name.to_owned(),
    }
}

fn protection(bits: u64) -> String {
    let names = [(1, "PROT_READ"), (2, "PROT_WRITE"), (4, "PROT_EXEC")];
    let set: Vec<&str> =
        names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "PROT_NONE".to_owned() } else { set.join("|") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_with_what_matters() {
        let named = |number: c_long, args| name(number as i32, detail(number as i32, args));
        assert_eq!(named(libc::SYS_madvise, &[0, 0, 21, 0]), "madvise(MADV_PAGEOUT)");
        assert_eq!(named(libc::SYS_madvise, &[0, 0, 77, 0]), "madvise(advice 77)");
        assert_eq!(named(libc::SYS_mprotect, &[0, 0, 3, 0]), "mprotect(PROT_READ|PROT_WRITE)");
        assert_eq!(named(libc::SYS_mprotect, &[0, 0, 0, 0]), "mprotect(PROT_NONE)");
        assert_eq!(named(libc::SYS_fadvise64, &[3, 0, 0, 4]), "fadvise64(POSIX_FADV_DONTNEED)");
        assert_eq!(named(libc::SYS_munmap, &[1, 2, 3, 4]), "munmap");
        assert_eq!(named(libc::SYS_mmap, &[0, 0, 3, 0x32]), "mmap(MAP_FIXED)");
        let copy = ioctl(0xc028_aa03).unwrap();
        assert!(resolves_faults(copy) && name(copy, 0) == "ioctl(UFFDIO_COPY)");
        assert!(!resolves_faults(libc::SYS_munmap as i32));
    }
}
