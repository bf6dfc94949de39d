//! System calls: what threads ask of the kernel. Each call is declared once, with what its users
//! have to know about it.
//!
//! A scenario holds a [`CallExpr`], whose pages and numbers are expressions. When its turn comes,
//! the expressions have values, and it becomes a [`Call`]. Parser, model, checker, runner and
//! generator each name every case.

use crate::addr::{PageRange, PinId, ProcessId, Vpn};
use crate::backing::{MAX_FILE_PAGES, NamedFile};
use crate::numa::Mempolicy;
use crate::program::{Access, Advice, Backing, Expr, MAX_OTHERS, Prot, RangeExpr};
use crate::userfaultfd::{Answer, Fill, Registration};
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use strum::EnumDiscriminants;

/// A call. `P` is the type of its pages, `A` of an area as a whole, `N` of a number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(CallKind), derive(strum::EnumIter), doc = "Which call it is.")]
pub enum Asked<P, A, N> {
    /// The `madvise` system call.
    Advise {
        /// The pages that the advice is about.
        pages: P,
        /// The advice.
        advice: Advice,
    },
    /// `process_madvise` of the process itself: advice about several ranges in one call
    /// ([`ranges`]).
    AdviseRanges {
        /// The pages that contain all ranges.
        pages: P,
        /// The number of pages in each range.
        each: N,
        /// The number of pages from the start of one range to the start of the next.
        stride: N,
        /// How many pages of the first range were done before the call had to wait.
        #[serde(default)]
        done: u64,
        /// The advice.
        advice: Advice,
    },
    /// The `mprotect` system call.
    Protect {
        /// The pages whose protection changes.
        pages: P,
        /// The new protection.
        prot: Prot,
    },
    /// The `munmap` system call.
    Unmap {
        /// The pages to unmap.
        pages: P,
    },
    /// `mmap` of a whole area (`MAP_FIXED_NOREPLACE`).
    Map {
        /// The area to map.
        area: A,
        /// The protection of the new mapping.
        prot: Prot,
    },
    /// `mremap(MREMAP_MAYMOVE | MREMAP_FIXED)`: the pages move to the start of another area.
    Remap {
        /// The pages to move.
        pages: P,
        /// The area that they move to.
        to: A,
    },
    /// `mlock`: the pages stay in memory, from now on, or (`mlock2(MLOCK_ONFAULT)`) once they are
    /// there.
    Mlock {
        /// The pages to lock.
        pages: P,
        /// Whether the call leaves absent pages absent (`MLOCK_ONFAULT`).
        on_fault: bool,
        /// Whether the mappings are locked already, because the call had to wait for a page. It
        /// then only populates the rest.
        locked: bool,
    },
    /// The `munlock` system call.
    Munlock {
        /// The pages to unlock.
        pages: P,
    },
    /// A write to `/proc/self/clear_refs`, which clears accessed or soft-dirty bits.
    ClearRefs {
        /// The bits to clear.
        refs: Refs,
    },
    /// `read` of `/proc/self/pagemap`, for the pages that were stored to since soft-dirty bits were
    /// cleared.
    Pagemap {
        /// The pages to look at.
        pages: P,
    },
    /// `sigaction(SIGSEGV)`: from now on a store that the mapping's protection forbids calls a
    /// handler, which permits the store.
    Sigaction,
    /// `UFFDIO_REGISTER`: userfaultfd watches the pages from now on.
    UffdRegister {
        /// The pages to watch.
        pages: P,
        /// What userfaultfd watches for.
        registration: Registration,
    },
    /// `UFFDIO_UNREGISTER`: userfaultfd no longer watches the pages.
    UffdUnregister {
        /// The pages to stop watching.
        pages: P,
    },
    /// The `UFFDIO_WRITEPROTECT` ioctl.
    UffdProtect {
        /// The pages to protect or to release.
        pages: P,
        /// Whether the pages become write-protected (else the protection ends).
        on: bool,
    },
    /// `UFFDIO_COPY`, `UFFDIO_ZEROPAGE`, `UFFDIO_CONTINUE`, `UFFDIO_POISON`: fills entries that are
    /// empty.
    UffdFill {
        /// The pages to fill.
        pages: P,
        /// What fills them.
        how: Fill,
    },
    /// `UFFDIO_MOVE`: the pages move to the start of another area, which userfaultfd watches.
    UffdMove {
        /// The pages to move.
        pages: P,
        /// The area that they move to.
        to: A,
    },
    /// `read` of the userfaultfd, and the answer to the access that waits.
    UffdAnswer {
        /// The answer.
        answer: Answer<A>,
    },
    /// `PAGEMAP_SCAN` for pages that were written.
    PagemapScan {
        /// The pages to scan.
        pages: P,
        /// Whether the scan write-protects the pages that it finds (`PM_SCAN_WP_MATCHING`).
        protect: bool,
    },
    /// Reclaim of the pages, as if memory were short.
    Reclaim {
        /// The pages that reclaim considers old.
        pages: P,
    },
    /// A pass of khugepaged: pages become huge pages where these are wanted.
    Khugepaged {
        /// The pages that khugepaged looks at.
        pages: P,
    },
    /// The shrinker of partially mapped large folios: it splits them and frees the pages that
    /// nobody maps any more.
    SplitDeferred,
    /// Other processes run on the CPU, one after the other, before the thread continues.
    Switch {
        /// The number of other processes: 1 to [`MAX_OTHERS`].
        others: N,
    },
    /// `fork`: another process of the scenario begins, with a copy of this process's memory.
    Fork {
        /// The process that begins.
        process: ProcessId,
    },
    /// `wait4`: waits until a process has ended.
    Wait {
        /// The process to wait for.
        process: ProcessId,
    },
    /// `execve` of a program that ends at once.
    Exec,
    /// `pin_user_pages` or `get_user_pages` of one page. The hold lasts whatever happens to the
    /// mapping.
    Pin {
        /// The page (a range of one).
        pages: P,
        /// The name of the pin.
        pin: PinId,
        /// How the page is held.
        gup: Gup,
        /// The access that the hold is for.
        access: PinAccess,
    },
    /// A device's load from or store to the page that a pin holds.
    Dma {
        /// The pin.
        pin: PinId,
        /// Whether the device loads or stores.
        access: Access,
    },
    /// `unpin_user_page` or `put_page`.
    Unpin {
        /// The pin to release.
        pin: PinId,
    },
    /// `msync` with `MS_SYNC`: stores to shared mappings of files on disks are written to the disk.
    Sync {
        /// The pages to write.
        pages: P,
    },
    /// Writeback of dirty pages of shared mappings to the file or the swap space that backs them.
    Writeback {
        /// The pages to write.
        pages: P,
    },
    /// `pwrite` of whole pages to a file, one call for each page.
    WriteFile {
        /// The file.
        file: NamedFile,
        /// The first page of the file.
        first: N,
        /// The number of pages.
        pages: N,
    },
    /// `posix_fadvise(POSIX_FADV_DONTNEED)`: the pages of the file need not stay in memory.
    DropFile {
        /// The file.
        file: NamedFile,
        /// The first page of the file.
        first: N,
        /// The number of pages.
        pages: N,
    },
    /// `ftruncate`: changes the size of the file.
    Truncate {
        /// The file.
        file: NamedFile,
        /// The new size in pages.
        pages: N,
    },
    /// `fsync`: everything that was stored to the file is written to its disk.
    SyncFile {
        /// The file.
        file: NamedFile,
    },
    /// `move_pages` of the process itself: each page is moved to the node, and the call returns a
    /// status for each.
    MovePages {
        /// The pages to move.
        pages: P,
        /// The target node.
        node: u16,
    },
    /// `mbind`: sets the memory policy of a mapping.
    Mbind {
        /// The pages that the policy is for.
        pages: P,
        /// The policy.
        policy: Mempolicy,
        /// Whether pages that do not follow the policy are moved (`MPOL_MF_MOVE`).
        moves: bool,
    },
    /// `migrate_pages` of the process itself: all its pages on one node are moved to another node.
    MigratePages {
        /// The node that the pages leave.
        from: u16,
        /// The node that the pages move to.
        to: u16,
    },
    /// `set_mempolicy`: sets the memory policy of the thread.
    SetMempolicy {
        /// The policy.
        policy: Mempolicy,
    },
    /// A write to `memory.reclaim` of the process's cgroup, which reclaims a number of pages.
    /// Reclaim demotes them if there are slower nodes.
    ReclaimMemory {
        /// The number of pages to reclaim.
        pages: N,
    },
    /// A NUMA balancing scan of the pages. It makes them inaccessible, so that the next access to
    /// each page is a hint fault.
    NumaScan {
        /// The pages to scan.
        pages: P,
    },
}

/// The access that a page is held for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PinAccess {
    /// Loads only.
    Read,
    /// Loads and stores (`FOLL_WRITE`).
    Write,
    /// Loads and stores, even where a private mapping does not allow stores. They go to a private
    /// copy, as a debugger's do (`FOLL_FORCE`).
    Force,
}

impl PinAccess {
    /// All kinds of access, each with its word in scenarios.
    pub const ALL: [(&'static str, PinAccess); 3] =
        [("read", PinAccess::Read), ("write", PinAccess::Write), ("force", PinAccess::Force)];

    /// Whether the access includes stores.
    pub const fn is_write(self) -> bool {
        !matches!(self, PinAccess::Read)
    }
}

/// How a page is held.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Gup {
    /// An ordinary reference (`FOLL_GET`). It keeps the frame, even after another frame replaces it
    /// in the mapping.
    Get,
    /// A pin (`FOLL_PIN`). The mapping has to keep this frame.
    Pin,
}

impl Gup {
    /// Both kinds, each with its word in scenarios.
    pub const ALL: [(&'static str, Gup); 2] = [("pin", Gup::Pin), ("get", Gup::Get)];
}

/// The bits that `/proc/PID/clear_refs` clears.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refs {
    /// `1`: the accessed bits.
    Accessed,
    /// `4`: the soft-dirty bits.
    SoftDirty,
}

impl Refs {
    /// Both kinds, each with its word in scenarios.
    pub const ALL: [(&'static str, Refs); 2] =
        [("accessed", Refs::Accessed), ("soft-dirty", Refs::SoftDirty)];
}

/// A call in a scenario: its pages are expressions, and its areas are indices of
/// [`crate::program::Program::areas`].
pub type CallExpr = Asked<RangeExpr, u16, Expr>;

/// A call whose turn has come, with values.
pub type Call = Asked<PageRange, Extent, u64>;

/// An area as a whole.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The area's pages.
    pub pages: PageRange,
    /// The memory that is mapped there.
    pub backing: Backing,
}

/// The range of a number in a call.
#[derive(Copy, Clone, Debug)]
pub struct Bounds {
    /// The name of the number in messages.
    pub what: &'static str,
    /// The smallest allowed value.
    pub least: i64,
    /// The largest allowed value.
    pub most: i64,
}

/// The number of processes of [`Asked::Switch`].
pub const OTHERS: Bounds = Bounds { what: "the number of processes", least: 1, most: MAX_OTHERS };

/// The first page of a range of a file.
pub const FILE_FIRST: Bounds =
    Bounds { what: "the first page", least: 0, most: MAX_FILE_PAGES as i64 };

/// The number of pages of a file.
pub const FILE_PAGES: Bounds =
    Bounds { what: "the number of pages", least: 0, most: MAX_FILE_PAGES as i64 };

/// The most pages for `move_pages`: targets keep an answer for each page.
pub const MOST_MOVED: i64 = 1 << 20;

/// The number of pages to reclaim.
pub const RECLAIMED: Bounds = Bounds { what: "the number of pages", least: 1, most: 1 << 20 };

/// The number of pages in each range of a vectored call.
pub const EACH: Bounds = Bounds { what: "the pages of a range", least: 1, most: i64::MAX };

/// The number of pages between the starts of two ranges of a vectored call.
pub const STRIDE: Bounds = Bounds { what: "the stride", least: 1, most: i64::MAX };

/// The number of ranges of a vectored call (`UIO_MAXIOV`).
pub const RANGES: Bounds = Bounds { what: "the number of ranges", least: 1, most: 1024 };

/// The ranges of a vectored call. A range starts at every `stride`th page of `pages` and has `each`
/// pages, or as many as are left. The first range leaves out the pages that are `done`.
pub fn ranges(
    pages: PageRange,
    each: u64,
    stride: u64,
    done: u64,
) -> impl ExactSizeIterator<Item = PageRange> + Clone {
    let count = pages.pages().div_ceil(stride) as usize;
    (0..count).map(move |index| {
        let start = pages.start.add(index as u64 * stride);
        let end = start.add(each).min(pages.end);
        PageRange { start: start.add(if index == 0 { done } else { 0 }), end }
    })
}

/// The ranges of a vectored call from `page` on: their pages, and how many pages of the first range
/// are done.
pub fn left_of_ranges(pages: PageRange, stride: u64, page: Vpn) -> (PageRange, u64) {
    let done = page.since(pages.start) % stride;
    (PageRange { start: Vpn(page.0 - done), ..pages }, done)
}

/// What a call does to pages, as far as it is known before the call runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Purpose {
    /// Pages that the call takes away from their users.
    pub revokes: SmallVec<[PageRange; 2]>,
    /// Pages whose contents are not needed any more until the next store.
    pub gives_up: SmallVec<[PageRange; 2]>,
}

impl<P, A, N> Asked<P, A, N> {
    /// The call with its pages, areas and numbers converted or checked.
    #[inline]
    pub fn try_map<Q, B, M, E>(
        &self,
        pages: impl Fn(&P) -> Result<Q, E>,
        area: impl Fn(&A) -> Result<B, E>,
        number: impl Fn(&N, Bounds) -> Result<M, E>,
    ) -> Result<Asked<Q, B, M>, E> {
        Ok(match self {
            Asked::Map { area: a, prot } => Asked::Map { area: area(a)?, prot: *prot },
            Asked::Unmap { pages: p } => Asked::Unmap { pages: pages(p)? },
            Asked::Protect { pages: p, prot } => Asked::Protect { pages: pages(p)?, prot: *prot },
            Asked::Remap { pages: p, to } => Asked::Remap { pages: pages(p)?, to: area(to)? },
            Asked::Advise { pages: p, advice } => {
                Asked::Advise { pages: pages(p)?, advice: *advice }
            }
            Asked::AdviseRanges { pages: p, each, stride, done, advice } => Asked::AdviseRanges {
                pages: pages(p)?,
                each: number(each, EACH)?,
                stride: number(stride, STRIDE)?,
                done: *done,
                advice: *advice,
            },
            Asked::Mlock { pages: p, on_fault, locked } => {
                Asked::Mlock { pages: pages(p)?, on_fault: *on_fault, locked: *locked }
            }
            Asked::Munlock { pages: p } => Asked::Munlock { pages: pages(p)? },
            Asked::ClearRefs { refs } => Asked::ClearRefs { refs: *refs },
            Asked::Pagemap { pages: p } => Asked::Pagemap { pages: pages(p)? },
            Asked::Sigaction => Asked::Sigaction,
            Asked::UffdRegister { pages: p, registration } => {
                Asked::UffdRegister { pages: pages(p)?, registration: *registration }
            }
            Asked::UffdUnregister { pages: p } => Asked::UffdUnregister { pages: pages(p)? },
            Asked::UffdProtect { pages: p, on } => Asked::UffdProtect { pages: pages(p)?, on: *on },
            Asked::UffdFill { pages: p, how } => Asked::UffdFill { pages: pages(p)?, how: *how },
            Asked::UffdMove { pages: p, to } => Asked::UffdMove { pages: pages(p)?, to: area(to)? },
            Asked::UffdAnswer { answer } => Asked::UffdAnswer { answer: answer.try_map(&area)? },
            Asked::PagemapScan { pages: p, protect } => {
                Asked::PagemapScan { pages: pages(p)?, protect: *protect }
            }
            Asked::Reclaim { pages: p } => Asked::Reclaim { pages: pages(p)? },
            Asked::Khugepaged { pages: p } => Asked::Khugepaged { pages: pages(p)? },
            Asked::SplitDeferred => Asked::SplitDeferred,
            Asked::Sync { pages: p } => Asked::Sync { pages: pages(p)? },
            Asked::Writeback { pages: p } => Asked::Writeback { pages: pages(p)? },
            Asked::Switch { others } => Asked::Switch { others: number(others, OTHERS)? },
            Asked::Fork { process } => Asked::Fork { process: *process },
            Asked::Wait { process } => Asked::Wait { process: *process },
            Asked::Exec => Asked::Exec,
            Asked::Pin { pages: p, pin, gup, access } => {
                Asked::Pin { pages: pages(p)?, pin: *pin, gup: *gup, access: *access }
            }
            Asked::Dma { pin, access } => Asked::Dma { pin: *pin, access: *access },
            Asked::Unpin { pin } => Asked::Unpin { pin: *pin },
            Asked::WriteFile { file, first, pages } => Asked::WriteFile {
                file: *file,
                first: number(first, FILE_FIRST)?,
                pages: number(pages, FILE_PAGES)?,
            },
            Asked::DropFile { file, first, pages } => Asked::DropFile {
                file: *file,
                first: number(first, FILE_FIRST)?,
                pages: number(pages, FILE_PAGES)?,
            },
            Asked::Truncate { file, pages } => {
                Asked::Truncate { file: *file, pages: number(pages, FILE_PAGES)? }
            }
            Asked::SyncFile { file } => Asked::SyncFile { file: *file },
            Asked::MovePages { pages: p, node } => {
                Asked::MovePages { pages: pages(p)?, node: *node }
            }
            Asked::Mbind { pages: p, policy, moves } => {
                Asked::Mbind { pages: pages(p)?, policy: *policy, moves: *moves }
            }
            Asked::MigratePages { from, to } => Asked::MigratePages { from: *from, to: *to },
            Asked::SetMempolicy { policy } => Asked::SetMempolicy { policy: *policy },
            Asked::ReclaimMemory { pages } => {
                Asked::ReclaimMemory { pages: number(pages, RECLAIMED)? }
            }
            Asked::NumaScan { pages: p } => Asked::NumaScan { pages: pages(p)? },
        })
    }

    /// The call's name if it exists only in the model.
    pub const fn model_only(&self) -> Option<&'static str> {
        match self {
            Asked::Reclaim { .. } => Some("reclaim"),
            Asked::Khugepaged { .. } => Some("khugepaged"),
            Asked::Writeback { .. } => Some("writeback"),
            Asked::Switch { .. } => Some("switch"),
            Asked::Pin { .. } => Some("pin"),
            Asked::Dma { .. } => Some("dma"),
            Asked::Unpin { .. } => Some("unpin"),
            Asked::UffdAnswer { .. } => Some("uffd-answer"),
            Asked::SplitDeferred
            | Asked::Fork { .. }
            | Asked::Wait { .. }
            | Asked::Exec
            | Asked::Map { .. }
            | Asked::Unmap { .. }
            | Asked::Protect { .. }
            | Asked::Remap { .. }
            | Asked::Mlock { .. }
            | Asked::Munlock { .. }
            | Asked::ClearRefs { .. }
            | Asked::Pagemap { .. }
            | Asked::Sigaction
            | Asked::UffdRegister { .. }
            | Asked::UffdUnregister { .. }
            | Asked::UffdProtect { .. }
            | Asked::UffdFill { .. }
            | Asked::UffdMove { .. }
            | Asked::PagemapScan { .. }
            | Asked::Advise { .. }
            | Asked::AdviseRanges { .. }
            | Asked::Sync { .. }
            | Asked::WriteFile { .. }
            | Asked::DropFile { .. }
            | Asked::Truncate { .. }
            | Asked::MovePages { .. }
            | Asked::Mbind { .. }
            | Asked::MigratePages { .. }
            | Asked::SetMempolicy { .. }
            | Asked::ReclaimMemory { .. }
            | Asked::NumaScan { .. }
            | Asked::SyncFile { .. } => None,
        }
    }

    /// The row that counts the call in tables over many scenarios. (All scenarios map memory, so
    /// maps have no row; neither have calls that only the model runs.)
    pub const fn group(&self) -> Option<&'static str> {
        match self {
            Asked::Unmap { .. } => Some("munmap"),
            Asked::Protect { .. } => Some("mprotect"),
            Asked::Remap { .. } => Some("mremap"),
            Asked::Fork { .. } => Some("fork"),
            Asked::Exec => Some("exec"),
            Asked::Mlock { .. } | Asked::Munlock { .. } => Some("mlock"),
            Asked::ClearRefs { refs: Refs::Accessed } => Some("clear_refs"),
            Asked::ClearRefs { refs: Refs::SoftDirty } | Asked::Pagemap { .. } => {
                Some("soft-dirty")
            }
            Asked::Sigaction => Some("sigaction"),
            Asked::UffdRegister { .. }
            | Asked::UffdUnregister { .. }
            | Asked::UffdProtect { .. }
            | Asked::UffdFill { .. }
            | Asked::UffdMove { .. } => Some("userfaultfd"),
            Asked::PagemapScan { .. } => Some("pagemap_scan"),
            Asked::Sync { .. } => Some("msync"),
            Asked::WriteFile { .. } => Some("pwrite"),
            Asked::DropFile { .. } => Some("fadvise"),
            Asked::Truncate { .. } => Some("ftruncate"),
            Asked::SyncFile { .. } => Some("fsync"),
            Asked::MovePages { .. } => Some("move_pages"),
            Asked::Mbind { .. } | Asked::SetMempolicy { .. } => Some("mempolicy"),
            Asked::MigratePages { .. } => Some("migrate_pages"),
            Asked::ReclaimMemory { .. } => Some("memory.reclaim"),
            Asked::NumaScan { .. } => Some("numa-scan"),
            Asked::AdviseRanges { .. } => Some("process_madvise"),
            Asked::Advise { advice, .. } => Some(match advice {
                Advice::DontNeed => "dontneed",
                Advice::Free => "free",
                Advice::Cold => "cold",
                Advice::PageOut => "pageout",
                Advice::PopulateRead | Advice::PopulateWrite => "populate",
                Advice::Remove => "remove",
                Advice::HugePage | Advice::NoHugePage => "huge pages",
                Advice::Collapse => "collapse",
                Advice::GuardInstall | Advice::GuardRemove => "guard",
            }),
            Asked::Map { .. }
            | Asked::Reclaim { .. }
            | Asked::Khugepaged { .. }
            | Asked::SplitDeferred
            | Asked::Writeback { .. }
            | Asked::Switch { .. }
            | Asked::Wait { .. }
            | Asked::Pin { .. }
            | Asked::Dma { .. }
            | Asked::Unpin { .. }
            | Asked::UffdAnswer { .. } => None,
        }
    }

    /// Whether the call leaves pages in a state that exceptions do not reveal.
    pub const fn hides_state(&self) -> bool {
        match self {
            Asked::Remap { .. }
            | Asked::Mlock { .. }
            | Asked::Pin { .. }
            | Asked::UffdFill { .. }
            | Asked::UffdMove { .. } => true,
            Asked::Advise { advice, .. } | Asked::AdviseRanges { advice, .. } => match advice {
                Advice::PopulateRead | Advice::PopulateWrite | Advice::Collapse => true,
                Advice::DontNeed
                | Advice::Free
                | Advice::Cold
                | Advice::PageOut
                | Advice::Remove
                | Advice::HugePage
                | Advice::NoHugePage
                | Advice::GuardInstall
                | Advice::GuardRemove => false,
            },
            Asked::Map { .. }
            | Asked::Unmap { .. }
            | Asked::Protect { .. }
            | Asked::Munlock { .. }
            | Asked::ClearRefs { .. }
            | Asked::Pagemap { .. }
            | Asked::Sigaction
            | Asked::UffdRegister { .. }
            | Asked::UffdUnregister { .. }
            | Asked::UffdProtect { .. }
            | Asked::UffdAnswer { .. }
            | Asked::PagemapScan { .. }
            | Asked::Reclaim { .. }
            | Asked::Khugepaged { .. }
            | Asked::SplitDeferred
            | Asked::Sync { .. }
            | Asked::Writeback { .. }
            | Asked::Switch { .. }
            | Asked::Fork { .. }
            | Asked::Wait { .. }
            | Asked::Exec
            | Asked::Dma { .. }
            | Asked::Unpin { .. }
            | Asked::WriteFile { .. }
            | Asked::DropFile { .. }
            | Asked::Truncate { .. }
            | Asked::MovePages { .. }
            | Asked::Mbind { .. }
            | Asked::MigratePages { .. }
            | Asked::SetMempolicy { .. }
            | Asked::ReclaimMemory { .. }
            | Asked::NumaScan { .. }
            | Asked::SyncFile { .. } => false,
        }
    }
}

impl Call {
    /// The file, first page and number of pages that the call is about, if it is about pages of a
    /// file.
    #[inline]
    pub const fn file_pages(&self) -> Option<(NamedFile, u64, u64)> {
        match *self {
            Asked::WriteFile { file, first, pages } | Asked::DropFile { file, first, pages } => {
                Some((file, first, pages))
            }
            Asked::Truncate { file, pages } => Some((file, 0, pages)),
            _ => None,
        }
    }

    /// The pages that the call is about, if there are any.
    #[inline]
    pub const fn pages(&self) -> Option<PageRange> {
        match *self {
            Asked::Unmap { pages }
            | Asked::Protect { pages, .. }
            | Asked::Remap { pages, .. }
            | Asked::Advise { pages, .. }
            | Asked::AdviseRanges { pages, .. }
            | Asked::Mlock { pages, .. }
            | Asked::Munlock { pages }
            | Asked::UffdRegister { pages, .. }
            | Asked::UffdUnregister { pages }
            | Asked::UffdProtect { pages, .. }
            | Asked::UffdFill { pages, .. }
            | Asked::UffdMove { pages, .. }
            | Asked::PagemapScan { pages, .. }
            | Asked::Pagemap { pages }
            | Asked::Reclaim { pages }
            | Asked::Khugepaged { pages }
            | Asked::Sync { pages }
            | Asked::Writeback { pages }
            | Asked::MovePages { pages, .. }
            | Asked::Mbind { pages, .. }
            | Asked::NumaScan { pages }
            | Asked::Pin { pages, .. } => Some(pages),
            Asked::Map { area, .. } => Some(area.pages),
            Asked::ClearRefs { .. }
            | Asked::SplitDeferred
            | Asked::Sigaction
            | Asked::UffdAnswer { .. }
            | Asked::Switch { .. }
            | Asked::Fork { .. }
            | Asked::Wait { .. }
            | Asked::Exec
            | Asked::Dma { .. }
            | Asked::Unpin { .. }
            | Asked::WriteFile { .. }
            | Asked::DropFile { .. }
            | Asked::Truncate { .. }
            | Asked::MigratePages { .. }
            | Asked::SetMempolicy { .. }
            | Asked::ReclaimMemory { .. }
            | Asked::SyncFile { .. } => None,
        }
    }

    /// What the call does to pages.
    pub fn purpose(self) -> Purpose {
        let revokes = |revokes| Purpose { revokes, ..Purpose::default() };
        match self {
            Asked::Unmap { pages } | Asked::Protect { pages, prot: Prot::None | Prot::Read } => {
                revokes(smallvec![pages])
            }
            Asked::UffdMove { pages, .. } => revokes(smallvec![pages]),
            // The page that the access waits for is known only later. Other answers keep the right
            // that the access needs.
            Asked::UffdAnswer { answer: Answer::Move { from, .. } } => {
                revokes(smallvec![from.pages])
            }
            Asked::Remap { pages, to } => {
                revokes(smallvec![pages, PageRange::new(to.pages.start, pages.pages())])
            }
            Asked::Advise { pages, advice } => advice.purpose(smallvec![pages]),
            Asked::AdviseRanges { pages, each, stride, done, advice } => {
                advice.purpose(ranges(pages, each, stride, done).collect())
            }
            Asked::Map { .. }
            | Asked::Protect { prot: Prot::ReadWrite, .. }
            | Asked::Mlock { .. }
            | Asked::Munlock { .. }
            | Asked::ClearRefs { .. }
            | Asked::Pagemap { .. }
            | Asked::Sigaction
            | Asked::UffdRegister { .. }
            | Asked::UffdUnregister { .. }
            // userfaultfd reports the store, and the answer restores the right to store at once.
            | Asked::UffdProtect { .. }
            | Asked::UffdFill { .. }
            | Asked::UffdAnswer { .. }
            | Asked::PagemapScan { .. }
            | Asked::Reclaim { .. }
            | Asked::Khugepaged { .. }
            | Asked::SplitDeferred
            | Asked::Sync { .. }
            | Asked::Writeback { .. }
            | Asked::Switch { .. }
            | Asked::Fork { .. }
            | Asked::Wait { .. }
            | Asked::Exec
            | Asked::Pin { .. }
            | Asked::Dma { .. }
            | Asked::Unpin { .. }
            | Asked::WriteFile { .. }
            | Asked::DropFile { .. }
            | Asked::Truncate { .. }
            | Asked::MovePages { .. }
            | Asked::Mbind { .. }
            | Asked::MigratePages { .. }
            | Asked::SetMempolicy { .. }
            | Asked::ReclaimMemory { .. }
            | Asked::NumaScan { .. }
            | Asked::SyncFile { .. } => Purpose::default(),
        }
    }
}

impl Advice {
    /// What the advice about these ranges does to pages.
    fn purpose(self, ranges: SmallVec<[PageRange; 2]>) -> Purpose {
        match self {
            Advice::DontNeed | Advice::Remove | Advice::GuardInstall => {
                Purpose { revokes: ranges, ..Purpose::default() }
            }
            Advice::Free => Purpose { gives_up: ranges, ..Purpose::default() },
            Advice::Cold
            | Advice::PageOut
            | Advice::PopulateRead
            | Advice::PopulateWrite
            | Advice::GuardRemove
            | Advice::HugePage
            | Advice::NoHugePage
            | Advice::Collapse => Purpose::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_vectored_call() {
        let parts = |pages, each, stride| {
            let all = ranges(PageRange::new(Vpn(100), pages), each, stride, 0);
            all.map(|part| (part.start.0, part.pages())).collect::<Vec<_>>()
        };
        assert_eq!(parts(5, 1, 2), [(100, 1), (102, 1), (104, 1)]);
        assert_eq!(parts(5, 2, 2), [(100, 2), (102, 2), (104, 1)], "the last one is cut");
        assert_eq!(parts(4, 1, 64), [(100, 1)]);
        // A call that has to wait at its eighth page resumes there, at the second page of its third
        // range.
        let all = PageRange::new(Vpn(100), 9);
        let (left, done) = left_of_ranges(all, 3, Vpn(107));
        let mut rest = ranges(left, 3, 3, done);
        assert_eq!(rest.next(), Some(PageRange::new(Vpn(107), 2)));
        assert_eq!(rest.next(), None);
    }
}
