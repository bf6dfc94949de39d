//! What to change, by cause: one table, each row with what it removes, when it does not help, and
//! where that is from. Where no row fits, nothing is said.

use crate::fold::{Asked, Cause};
use serde::Serialize;

/// A cause that a row of the table is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Situation {
    /// Memory that madvise gave back is touched again.
    GivenBack,
    /// Memory that the C library's allocator gave back by brk is touched again.
    Trimmed,
    /// Memory that brk gave back is touched again.
    HeapShrunk,
    /// Memory that was unmapped is mapped and touched again.
    Unmapped,
    /// Memory that the process paged out is touched again.
    PagedOut,
    /// Pages that reclaim of the machine's memory took come back.
    ReclaimedMachine,
    /// Pages that a memory cgroup's limit took come back.
    ReclaimedCgroup,
    /// A file is read page by page without readahead.
    NoReadahead,
    /// A file is read through a mapping for the first time.
    ColdFile,
    /// Stores to pages that a fork made read-only, for a child that was gone.
    ReusedAfterFork,
    /// Stores to pages that a fork shares.
    CopiedAfterFork,
    /// Stores to pages of a file that were written back.
    Writeback,
    /// New memory is touched page by page.
    NewMemory,
    /// Threads fault on the same pages at the same time.
    Raced,
    /// A protection of many pages is changed to and fro.
    ProtectedMany,
    /// A protection of a few pages is changed.
    ProtectedFew,
    /// Memory that was given back in pieces comes back as huge pages.
    Collapsed,
    /// Single pages are mapped over.
    MappedOver,
    /// The LRU batches of every CPU are drained for advice about a file.
    FileAdviceDrains,
}

/// One row.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// The cause.
    pub situation: Situation,
    /// What to change.
    pub change: &'static str,
    /// What that leaves.
    pub leaves: &'static str,
    /// When it does not help.
    pub unless: &'static str,
    /// Where that is from.
    pub source: &'static str,
}

const fn row(
    situation: Situation,
    change: &'static str,
    leaves: &'static str,
    unless: &'static str,
    source: &'static str,
) -> Remedy {
    Remedy { situation, change, leaves, unless, source }
}

/// All of them. crates/cli/tests/stat/cases.rs tries those whose cause has a program there: memory
/// given back, trimmed or unmapped, readahead, protection, fork, collapse and drains. The others
/// rest on their source.
pub const TABLE: [Remedy; 19] = [
    row(
        Situation::GivenBack,
        "give the memory back later (an allocator's decay time), or keep it",
        "none of these faults, and one flush for all that is given back at once",
        "the memory is needed elsewhere meanwhile; munmap in place of madvise flushes as often",
        "mm/madvise.c: madvise_dontneed_single_vma; jemalloc: dirty_decay_ms",
    ),
    row(
        Situation::Trimmed,
        "GLIBC_TUNABLES=glibc.malloc.trim_threshold=BYTES:glibc.malloc.top_pad=BYTES, or mallopt(3)",
        "none of these faults and flushes after the first use",
        "the idle process must not keep the memory",
        "glibc manual: Memory Allocation Tunables; malloc/malloc.c: systrim",
    ),
    row(
        Situation::HeapShrunk,
        "lower the program break less often, or keep the memory",
        "none of these faults and flushes after the first use",
        "the idle process must not keep the memory",
        "mm/mmap.c: brk",
    ),
    row(
        Situation::Unmapped,
        "keep the mapping and use it again (with malloc: glibc.malloc.mmap_threshold above its size)",
        "none of these faults, and no flush by munmap",
        "the memory is needed elsewhere meanwhile",
        "mm/vma.c: do_vmi_align_munmap; glibc manual: Memory Allocation Tunables",
    ),
    row(
        Situation::PagedOut,
        "no MADV_PAGEOUT for what is read again soon",
        "none of these faults, and no flush by MADV_PAGEOUT",
        "the memory is needed elsewhere meanwhile",
        "madvise(2): MADV_PAGEOUT",
    ),
    row(
        Situation::ReclaimedMachine,
        "more memory, or less of it used; memory.min or mlock(2) for what must stay",
        "none of these faults once the working set fits",
        "the pages are read once only: then advice, not memory, helps",
        "mm/vmscan.c; Documentation/admin-guide/cgroup-v2.rst: memory.min",
    ),
    row(
        Situation::ReclaimedCgroup,
        "a higher limit of the memory cgroup (memory.max; memory.limit_in_bytes in version 1)",
        "none of these faults once the working set fits below the limit",
        "the pages are read once only: then advice, not memory, helps",
        "mm/memcontrol.c: try_charge; Documentation/admin-guide/cgroup-v2.rst: memory.max",
    ),
    row(
        Situation::NoReadahead,
        "no MADV_RANDOM for a range that is read from begin to end",
        "one major fault for each piece that is read ahead",
        "the accesses are really random: then the pages around are read for nothing",
        "madvise(2): MADV_RANDOM; mm/filemap.c: do_sync_mmap_readahead",
    ),
    row(
        Situation::ColdFile,
        "madvise(MADV_POPULATE_READ) or MADV_WILLNEED before use, or a larger read_ahead_kb of the disk",
        "the data are read once either way, in fewer and larger pieces",
        "the accesses are random and the file does not fit",
        "madvise(2); mm/filemap.c: do_sync_mmap_readahead",
    ),
    row(
        Situation::ReusedAfterFork,
        "posix_spawn(3) or vfork(2) for a child that only executes another program; else madvise(MADV_DONTFORK)",
        "none of these faults; posix_spawn saves the flush in fork as well",
        "the child needs the memory",
        "kernel/fork.c: dup_mmap; mm/memory.c: copy_present_ptes, wp_page_reuse",
    ),
    row(
        Situation::CopiedAfterFork,
        "madvise(MADV_DONTFORK) for memory that no child needs; posix_spawn(3) for a child that only executes another program",
        "none of these copies",
        "the child reads what the parent changes (a snapshot): then the copies are what it is for",
        "madvise(2); mm/memory.c: wp_page_copy",
    ),
    row(
        Situation::Writeback,
        "fewer fsync(2) and msync(2), or write(2) in place of stores to a mapping",
        "one fault for each page and writeback",
        "each change has to be on the disk before the next",
        "mm/page-writeback.c: folio_clear_dirty_for_io",
    ),
    row(
        Situation::NewMemory,
        "madvise(MADV_POPULATE_WRITE) for the range, or huge pages (madvise(MADV_HUGEPAGE))",
        "no exceptions after populate (the pages are still allocated and zeroed), one for each 2 MiB with huge pages",
        "most of the range is never touched",
        "madvise(2); mm/huge_memory.c: do_huge_pmd_anonymous_page",
    ),
    row(
        Situation::Raced,
        "let one thread touch the memory first, or madvise(MADV_POPULATE_WRITE) before the threads begin",
        "none of the pages that are allocated and freed again",
        "the threads touch different pages: then nothing is raced",
        "mm/memory.c: do_anonymous_page",
    ),
    row(
        Situation::ProtectedMany,
        "protect only the pages that are written, or write more in between",
        "flushes of one page in place of everything, or fewer of them",
        "every page is written each time",
        "mm/mprotect.c: change_protection; arch/x86/mm/tlb.c: tlb_single_page_flush_ceiling",
    ),
    row(
        Situation::ProtectedFew,
        "write more for each change of the protection, or map the memory twice (memfd_create(2)), once writable",
        "fewer flushes, or none",
        "the change is meant to reach other CPUs",
        "mm/mprotect.c: change_protection",
    ),
    row(
        Situation::Collapsed,
        "no MADV_COLLAPSE, and khugepaged/max_ptes_none 0 or MADV_NOHUGEPAGE, for memory that is given back in pieces",
        "the pages given back, and no flush for a collapse",
        "whole huge pages are given back",
        "mm/khugepaged.c: collapse_huge_page; Documentation/admin-guide/mm/transhuge.rst",
    ),
    row(
        Situation::MappedOver,
        "take away whole huge pages, or more at once",
        "one flush for each call in place of two",
        "single pages must go: madvise(MADV_DONTNEED) then saves mappings, not flushes",
        "mm/huge_memory.c: __split_huge_pmd",
    ),
    row(
        Situation::FileAdviceDrains,
        "no POSIX_FADV_DONTNEED for files of which a page is mapped or dirty, or once for many",
        "no kernel thread on the other CPUs",
        "all pages can leave at once: then nothing is drained",
        "mm/fadvise.c: generic_fadvise; mm/swap.c: lru_add_drain_all",
    ),
];

/// The row about a cause.
pub fn of(situation: Situation) -> &'static Remedy {
    &TABLE[situation as usize]
}

/// What keeps an interrupt away whose sender was doing this; none where nothing that is known fits.
pub fn of_interrupt(asked: Asked, cause: &Cause) -> Option<&'static str> {
    let situation = match (asked, cause) {
        (_, cause) if cause.starts_or_ends() => return None,
        (Asked::LruDrain, Cause::Call(number, _)) if i64::from(*number) == libc::SYS_fadvise64 => {
            Situation::FileAdviceDrains
        }
        (Asked::TlbFlush, cause) => return of_flush(cause),
        (asked, _) => return Some(asked.remedy()),
    };
    Some(of(situation).change)
}

fn of_flush(cause: &Cause) -> Option<&'static str> {
    let Cause::Call(number, detail) = cause else {
        return match cause {
            Cause::Reclaim(crate::fold::Reclaim::Machine) => {
                Some(of(Situation::ReclaimedMachine).change)
            }
            Cause::Reclaim(crate::fold::Reclaim::Cgroup) => {
                Some(of(Situation::ReclaimedCgroup).change)
            }
            _ => None,
        };
    };
    let situation = match i64::from(*number) {
        libc::SYS_madvise => match crate::syscalls::advice_does(*detail) {
            crate::syscalls::Advised::GivesBack => Situation::GivenBack,
            crate::syscalls::Advised::PagesOut => Situation::PagedOut,
            crate::syscalls::Advised::Populates if *detail == crate::syscalls::MADV_COLLAPSE => {
                Situation::Collapsed
            }
            _ => return None,
        },
        libc::SYS_brk => Situation::HeapShrunk,
        libc::SYS_munmap => Situation::Unmapped,
        libc::SYS_mmap => Situation::MappedOver,
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => Situation::ProtectedFew,
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_msync => Situation::Writeback,
        libc::SYS_clone => Situation::ReusedAfterFork,
        _ => return None,
    };
    Some(of(situation).change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_situation() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.situation as usize, at, "{row:?}");
        }
    }

    #[test]
    fn a_remedy_is_for_the_cause_and_not_for_the_kind_of_interrupt() {
        let call = |number: i64, detail| Cause::Call(number as i32, detail);
        let flush = |cause: Cause| of_interrupt(Asked::TlbFlush, &cause);
        assert!(flush(call(libc::SYS_madvise, 4)).unwrap().contains("later"));
        assert!(flush(call(libc::SYS_clone, 0)).unwrap().contains("posix_spawn"));
        assert_eq!(flush(call(libc::SYS_execve, 0)), None, "every command is started");
        assert_eq!(flush(Cause::Exit), None);
        assert_eq!(flush(call(libc::SYS_mbind, 0)), None, "nothing is known");
        let drain = of_interrupt(Asked::LruDrain, &call(libc::SYS_fadvise64, 4)).unwrap();
        assert!(drain.contains("POSIX_FADV_DONTNEED"), "{drain}");
    }
}
