//! What threads ask of the kernel: each call once, with what its users have to know of it.
//!
//! A scenario holds a [`CallExpr`], whose pages and numbers are expressions. When its turn comes these have values,
//! and it is a [`Call`]. Parser, model, checker, runner and generator each name every case.

use crate::addr::{PageRange, PinId, ProcessId, Vpn};
use crate::backing::{MAX_FILE_PAGES, NamedFile};
use crate::numa::Mempolicy;
use crate::program::{Access, Advice, Backing, Expr, MAX_OTHERS, Prot, RangeExpr};
use crate::userfaultfd::{Answer, Fill, Registration};
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use strum::EnumDiscriminants;

/// A call: `P` says which pages, `A` which area as a whole, `N` how many of something.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(CallKind), derive(strum::EnumIter), doc = "Which call it is.")]
pub enum Asked<P, A, N> {
    /// `madvise`
    Advise {
        /// What.
        pages: P,
        /// Which advice.
        advice: Advice,
    },
    /// `process_madvise` of the process itself: advice about several ranges in one call ([`ranges`]).
    AdviseRanges {
        /// What they are part of.
        pages: P,
        /// How many pages each has.
        each: N,
        /// How many pages are from the start of one to the start of the next.
        stride: N,
        /// Pages of the first one that were done before the call had to wait.
        #[serde(default)]
        done: u64,
        /// Which advice.
        advice: Advice,
    },
    /// `mprotect`
    Protect {
        /// What.
        pages: P,
        /// The new protection.
        prot: Prot,
    },
    /// `munmap`
    Unmap {
        /// What.
        pages: P,
    },
    /// `mmap` of a whole area (`MAP_FIXED_NOREPLACE`).
    Map {
        /// Where.
        area: A,
        /// With which protection.
        prot: Prot,
    },
    /// `mremap(MREMAP_MAYMOVE | MREMAP_FIXED)`: the pages move to the start of another area.
    Remap {
        /// What.
        pages: P,
        /// Where to.
        to: A,
    },
    /// `mlock`: the pages stay in memory, from now on or, by `mlock2(MLOCK_ONFAULT)`, once they are there.
    Mlock {
        /// Which.
        pages: P,
        /// Whether nothing is brought into memory now.
        on_fault: bool,
        /// Whether the mappings are locked already: what is left had to wait for a page.
        locked: bool,
    },
    /// `munlock`
    Munlock {
        /// What.
        pages: P,
    },
    /// `/proc/self/clear_refs`: what is known of how pages were used is forgotten.
    ClearRefs {
        /// What of it.
        refs: Refs,
    },
    /// `read` of `/proc/self/pagemap`: which pages were stored to since soft-dirty bits were cleared.
    Pagemap {
        /// Among these.
        pages: P,
    },
    /// `sigaction(SIGSEGV)`: from now on a store that the mapping's protection forbids is told to a handler, which lets it go on.
    Sigaction,
    /// `UFFDIO_REGISTER`: userfaultfd watches the pages.
    UffdRegister {
        /// Which.
        pages: P,
        /// For what.
        registration: Registration,
    },
    /// `UFFDIO_UNREGISTER`: it watches them no more.
    UffdUnregister {
        /// Which.
        pages: P,
    },
    /// `UFFDIO_WRITEPROTECT`
    UffdProtect {
        /// What.
        pages: P,
        /// Whether stores are watched from now on, or let go on.
        on: bool,
    },
    /// `UFFDIO_COPY`, `UFFDIO_ZEROPAGE`, `UFFDIO_CONTINUE`, `UFFDIO_POISON`: maps something where nothing is yet.
    UffdFill {
        /// Where.
        pages: P,
        /// What.
        how: Fill,
    },
    /// `UFFDIO_MOVE`: the pages move to the start of another area, which is watched.
    UffdMove {
        /// What.
        pages: P,
        /// Where to.
        to: A,
    },
    /// `read` of the userfaultfd, and its answer to the access that waits.
    UffdAnswer {
        /// Which.
        answer: Answer<A>,
    },
    /// `PAGEMAP_SCAN` for pages that were written.
    PagemapScan {
        /// Among these.
        pages: P,
        /// Whether those found are write-protected (`PM_SCAN_WP_MATCHING`).
        protect: bool,
    },
    /// Reclaims the pages as if memory were short.
    Reclaim {
        /// What is taken for old.
        pages: P,
    },
    /// khugepaged comes by: pages become huge pages where these are wanted.
    Khugepaged {
        /// Where it looks.
        pages: P,
    },
    /// The shrinker of large folios of which parts are mapped no more comes by: they are split, and those parts are free.
    SplitDeferred,
    /// Other processes run on the CPU, one after the other, before the thread goes on.
    Switch {
        /// How many: 1 to [`MAX_OTHERS`].
        others: N,
    },
    /// `fork`: another process of the scenario begins, with a copy of this one's memory.
    Fork {
        /// Which.
        process: ProcessId,
    },
    /// `wait4`: until that process has ended.
    Wait {
        /// Which.
        process: ProcessId,
    },
    /// `execve` of a program that ends at once.
    Exec,
    /// `pin_user_pages`, `get_user_pages`: hold of one page, whatever becomes of its mapping.
    Pin {
        /// The page.
        pages: P,
        /// As which pin.
        pin: PinId,
        /// How it is held.
        gup: Gup,
        /// For what.
        access: PinAccess,
    },
    /// A device loads from or stores to the page that a pin holds.
    Dma {
        /// Which pin.
        pin: PinId,
        /// Load or store.
        access: Access,
    },
    /// `unpin_user_page`, `put_page`.
    Unpin {
        /// Which pin.
        pin: PinId,
    },
    /// `msync` with `MS_SYNC`: what was stored to shared mappings of files on disks is written there.
    Sync {
        /// The pages.
        pages: P,
    },
    /// Writes shared memory's dirty pages to where they came from.
    Writeback {
        /// Which.
        pages: P,
    },
    /// `pwrite` of whole pages to a file, one call for each.
    WriteFile {
        /// Which.
        file: NamedFile,
        /// The first.
        first: N,
        /// How many.
        pages: N,
    },
    /// `posix_fadvise(POSIX_FADV_DONTNEED)`: the pages of the file need not be in memory.
    DropFile {
        /// Which.
        file: NamedFile,
        /// The first.
        first: N,
        /// How many.
        pages: N,
    },
    /// `ftruncate`: the file gets another size.
    Truncate {
        /// Which.
        file: NamedFile,
        /// How many pages it has then.
        pages: N,
    },
    /// `fsync`: all that was stored to the file is on its disk.
    SyncFile {
        /// Which.
        file: NamedFile,
    },
    /// `move_pages` of the process itself: each page is moved to the node, and the call answers for each.
    MovePages {
        /// Which pages.
        pages: P,
        /// The target node.
        node: u16,
    },
    /// `mbind`: the memory policy of a mapping.
    Mbind {
        /// Which pages.
        pages: P,
        /// The policy.
        policy: Mempolicy,
        /// Whether pages that do not follow the policy are moved (`MPOL_MF_MOVE`).
        moves: bool,
    },
    /// `migrate_pages` of the process itself: all its pages on one node are moved to another one.
    MigratePages {
        /// The node that pages leave.
        from: u16,
        /// The node that they are moved to.
        to: u16,
    },
    /// `set_mempolicy`: the memory policy of the thread.
    SetMempolicy {
        /// The policy.
        policy: Mempolicy,
    },
    /// `memory.reclaim` of the process's cgroup: reclaim of so many pages, which demotes them where there are slower nodes.
    ReclaimMemory {
        /// How many pages.
        pages: N,
    },
    /// NUMA balancing samples the pages: it makes them inaccessible, so that the next access to each is a hint fault.
    NumaScan {
        /// Which pages.
        pages: P,
    },
}

/// What a page is held on to for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PinAccess {
    /// Loads.
    Read,
    /// Stores as well (`FOLL_WRITE`).
    Write,
    /// Stores as well, even where the mapping allows none, if it is private: to a copy of its own (`FOLL_FORCE`), as a debugger's.
    Force,
}

impl PinAccess {
    /// Each with the word that scenarios use.
    pub const ALL: [(&'static str, PinAccess); 3] =
        [("read", PinAccess::Read), ("write", PinAccess::Write), ("force", PinAccess::Force)];

    /// Whether it is for stores.
    pub const fn is_write(self) -> bool {
        !matches!(self, PinAccess::Read)
    }
}

/// How a page is held on to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Gup {
    /// A reference like any other (`FOLL_GET`): it stays with the page of then.
    Get,
    /// A pin (`FOLL_PIN`): the page has to stay the one that is mapped.
    Pin,
}

impl Gup {
    /// Both with the word that scenarios use.
    pub const ALL: [(&'static str, Gup); 2] = [("pin", Gup::Pin), ("get", Gup::Get)];
}

/// What `/proc/PID/clear_refs` forgets.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refs {
    /// `1`: that pages were used.
    Accessed,
    /// `4`: that they were stored to.
    SoftDirty,
}

impl Refs {
    /// Both with the word that scenarios use.
    pub const ALL: [(&'static str, Refs); 2] =
        [("accessed", Refs::Accessed), ("soft-dirty", Refs::SoftDirty)];
}

/// A call as a scenario holds it: pages by expressions, areas by their index in [`crate::program::Program::areas`].
pub type CallExpr = Asked<RangeExpr, u16, Expr>;

/// A call whose turn has come.
pub type Call = Asked<PageRange, Extent, u64>;

/// An area as a whole.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Where it lies.
    pub pages: PageRange,
    /// What is mapped there.
    pub backing: Backing,
}

/// What a number of a call may be.
#[derive(Copy, Clone, Debug)]
pub struct Bounds {
    /// What is counted.
    pub what: &'static str,
    /// The least.
    pub least: i64,
    /// The most.
    pub most: i64,
}

/// How many processes run in between.
pub const OTHERS: Bounds = Bounds { what: "the number of processes", least: 1, most: MAX_OTHERS };

/// From which page of a file on.
pub const FILE_FIRST: Bounds =
    Bounds { what: "the first page", least: 0, most: MAX_FILE_PAGES as i64 };

/// How many pages of a file.
pub const FILE_PAGES: Bounds =
    Bounds { what: "the number of pages", least: 0, most: MAX_FILE_PAGES as i64 };

/// How many pages `move_pages` takes at most: targets keep an answer for each.
pub const MOST_MOVED: i64 = 1 << 20;

/// How many pages are reclaimed.
pub const RECLAIMED: Bounds = Bounds { what: "the number of pages", least: 1, most: 1 << 20 };

/// How many pages each range of a vectored call has.
pub const EACH: Bounds = Bounds { what: "the pages of a range", least: 1, most: i64::MAX };

/// How far such ranges are apart.
pub const STRIDE: Bounds = Bounds { what: "the stride", least: 1, most: i64::MAX };

/// How many there are (`UIO_MAXIOV`).
pub const RANGES: Bounds = Bounds { what: "the number of ranges", least: 1, most: 1024 };

/// The ranges of a vectored call: `each` pages, or as many as there are, at every `stride`th page of `pages`; of the first
/// without those that are `done`.
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

/// What is left of the ranges of a vectored call from this page of one of them on, and how many pages of the first one are done.
pub fn left_of_ranges(pages: PageRange, stride: u64, page: Vpn) -> (PageRange, u64) {
    let done = page.since(pages.start) % stride;
    (PageRange { start: Vpn(page.0 - done), ..pages }, done)
}

/// What a call does to pages, as far as it can be told before it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Purpose {
    /// It takes them away from whoever uses them.
    pub revokes: SmallVec<[PageRange; 2]>,
    /// What they hold is not needed any more, until they are stored to again.
    pub gives_up: SmallVec<[PageRange; 2]>,
}

impl<P, A, N> Asked<P, A, N> {
    /// The same call with its parts made into something else, or checked.
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

    /// Its name if no real kernel can be asked for it.
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

    /// The row of tables over many scenarios in which it is counted. (All scenarios map; what only the model
    /// runs is in none of them.)
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

    /// Whether it leaves pages in a state that exceptions do not tell.
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
    /// The pages of a file that it is about, if it is about any.
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

    /// The pages that it is about, if it is about any.
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

    /// What it is for.
    pub fn purpose(self) -> Purpose {
        let revokes = |revokes| Purpose { revokes, ..Purpose::default() };
        match self {
            Asked::Unmap { pages } | Asked::Protect { pages, prot: Prot::None | Prot::Read } => {
                revokes(smallvec![pages])
            }
            Asked::UffdMove { pages, .. } => revokes(smallvec![pages]),
            // Which page is asked for turns out later; the others keep what grants their accesses.
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
            // A store that somebody is told of gives the right to store back at once.
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
    /// What it is for, about these ranges.
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
        // One that has to wait at its eighth page goes on there, with the second page of its third range.
        let all = PageRange::new(Vpn(100), 9);
        let (left, done) = left_of_ranges(all, 3, Vpn(107));
        let mut rest = ranges(left, 3, 3, done);
        assert_eq!(rest.next(), Some(PageRange::new(Vpn(107), 2)));
        assert_eq!(rest.next(), None);
    }
}
