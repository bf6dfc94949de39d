//! The class of a fault: from its error code, what was allocated in it, and what memory it hit.
//!
//! Every rule stands in one table with the class that it assigns, how sure that is, and why. The
//! runner knows its pages from their first fault on and watches no allocations: what it tells from
//! the flush inside a fault is a table of its own (crates/runner/src/classify.rs).

use crate::maps::Memory;
use needless_model::event::{FaultClass, FaultCode};
use serde::Serialize;

/// How sure something is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Nothing else looks like this.
    Certain,
    /// Something rarer looks the same.
    Likely,
    /// What was visible does not tell.
    Unknown,
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// The class that it assigns.
    pub class: FaultClass,
    /// How sure that is.
    pub confidence: Confidence,
    /// The class in a report, with what tells this rule from others of it.
    pub label: &'static str,
    /// By what a fault of the class is known, and what else it might be.
    pub text: &'static str,
}

macro_rules! rules {
    ($($name:ident: $class:ident, $confidence:ident, $label:literal, $text:literal;)*) => {
        /// A rule by its name.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $(#[doc = $text] $name,)* }

        impl Reason {
            /// All, in the order of the table.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// The rule.
            pub const fn rule(self) -> Rule {
                match self {
                    $(Reason::$name => Rule {
                        class: FaultClass::$class,
                        confidence: Confidence::$confidence,
                        label: $label,
                        text: $text,
                    }),*
                }
            }
        }
    };
}

rules! {
    Zeroed: FirstTouch, Certain, "first touch", "a page that was not there; a zeroed page was allocated";
    SharedNew: FirstTouch, Likely, "first touch, shared memory", "a page of shared memory that was not there; a page was allocated and nothing read";
    SharedTwice: FirstTouch, Likely, "first touch, shared memory, counted as major", "a page of shared memory that was not there; a page was allocated; this kernel handles writes that make a page dirty twice and counts that as major (shared memory from swap looks the same)";
    Zero: ZeroPage, Likely, "zero page", "a read of private memory without a page; nothing was allocated, there is no swap in use, no userfaultfd and no NUMA balancing (a page on its way to another frame looks the same)";
    ZeroOrCached: ZeroPage, Likely, "zero page", "a read of private memory without a page; nothing was allocated (a page of the swap cache looks the same)";
    ZeroReplaced: ZeroUpgrade, Certain, "zero-page upgrade", "a write to a read-only page; a zeroed page was allocated";
    Copied: CowCopy, Certain, "COW copy", "a write to a read-only page; a page was allocated, not zeroed";
    CopiedFile: CowCopy, Certain, "COW copy of a file", "a write to a file's private page that was not mapped; a page was allocated";
    Reused: Reuse, Likely, "reuse after write-protect", "a write to a read-only private page; nothing was allocated (a stale translation looks the same)";
    SwapRead: SwapIn, Certain, "swap-in", "a major fault of private memory without a file";
    SwapCached: SwapIn, Likely, "swap-in, minor", "private memory without a page; a page was allocated, not zeroed";
    FileRead: FileMap, Certain, "file map, major", "a major fault of a file's mapping";
    FileMapped: FileMap, Certain, "file map", "a file's page was looked up in the page cache (filemap_fault)";
    FileAny: FileMap, Likely, "file map", "a file's mapping, a minor fault; this kernel does not tell fault-around apart (nor samples of NUMA balancing, where that is on)";
    Around: FaultAround, Certain, "fault-around", "pages around the fault were mapped from the page cache (filemap_map_pages) and nothing else was needed";
    SharedWritten: SharedDirty, Certain, "shared dirtying", "a write to a read-only page of a shared mapping; nothing was allocated";
    SharedMapped: SharedDirty, Certain, "shared dirtying, first", "a write to a page of a shared mapping that was not mapped; nothing was allocated";
    Huge: HugePage, Certain, "huge page", "a page larger than the base size was allocated";
    Hugetlb: HugePage, Certain, "huge page, hugetlb", "a mapping of hugetlb pages";
    Resolved: Userfaultfd, Likely, "userfaultfd", "an ioctl of the process resolved a fault of userfaultfd meanwhile";
    Hinted: NumaHint, Likely, "NUMA hint", "a write to private memory without a page; nothing was allocated, and NUMA balancing samples";
    Raced: Spurious, Certain, "spurious, raced", "the page allocated in this fault was freed in it: another thread was faster";
    RacedOverlap: Spurious, Likely, "spurious, overlapping", "another thread's fault on the same page, small or huge, overlapped with this one, and both allocated it: one of them was for nothing";
    RacedUnseen: Spurious, Likely, "spurious, raced", "a write to private memory without a page; nothing was allocated: another thread was faster";
    Stale: Spurious, Certain, "spurious", "a read of a page that may be read: a stale translation";
    Moved: Spurious, Certain, "spurious, page moved", "nothing was allocated: the fault waited for a page that was on its way to another frame, and it was there";
    NoEnd: Failed, Certain, "signal or fix-up", "the kernel did not count it: a signal, or a fault that kernel code expects";
    Unmapped: Unknown, Unknown, "unknown memory", "memory whose mapping was not seen; nothing was allocated";
    HintMoved: NumaHint, Likely, "NUMA hint, page moved", "private memory without a page; a page was allocated, not zeroed, there is no swap in use, and NUMA balancing samples";
    HintOrSwap: Unknown, Unknown, "unknown: swap-in or hint", "private memory without a page; a page was allocated, not zeroed: a page of the swap cache, or a sample of NUMA balancing that moved it";
    HintOrFile: Unknown, Unknown, "unknown: file map or hint", "a file's mapping or shared memory, a minor fault in which nothing was allocated and the page cache was not seen to be asked: the page was there already, or a sample of NUMA balancing";
    HintOrZero: Unknown, Unknown, "unknown: zero page or hint", "a read of private memory without a page: the zero page or a sample of NUMA balancing";
    NotOver: Unknown, Unknown, "unknown: not over", "neither the kernel's count nor anything else of the thread was seen after it";
    NoStart: Unknown, Unknown, "unknown: no exception seen", "the exception was not seen, only that the kernel counted a fault";
}

/// What the machine may do to memory.
#[derive(Copy, Clone, Debug, Default)]
pub struct Surroundings {
    /// Whether there is swap space.
    pub swap: bool,
    /// Whether NUMA balancing is on and there is more than one node.
    pub numa_balancing: bool,
    /// Whether look-ups in the page cache are seen.
    pub file_points: bool,
    /// Whether a write that makes a shared page dirty is handled twice, which counts as major:
    /// mm/memory.c: fault_dirty_shared_page, mm_account_fault of 5.10; 6.1 does not.
    pub dirties_twice: bool,
    /// Whether flushes are sent by means that no event tells.
    pub flushes_hidden: bool,
}

/// What was seen of a fault that has ended.
#[derive(Copy, Clone, Debug, Default)]
pub struct Seen {
    /// The processor's error code.
    pub code: FaultCode,
    /// What memory it hit, if known.
    pub memory: Option<Memory>,
    /// Whether it was major.
    pub major: bool,
    /// What was allocated: its order, and whether it was zeroed.
    pub allocated: Option<(u8, bool)>,
    /// Whether what was allocated was freed again.
    pub undone: bool,
    /// Whether what is freed was recorded when it began.
    pub frees_seen: bool,
    /// Whether a fault of another thread on the same page, small or huge, which overlapped with it,
    /// had allocated one.
    pub overlapped: bool,
    /// Whether pages around were mapped.
    pub mapped_around: bool,
    /// Whether the page cache was asked for one page.
    pub file_fault: bool,
    /// Whether it waited for a page that was on its way to another frame.
    pub migrated: bool,
    /// Whether userfaultfd was answered meanwhile.
    pub resolved: bool,
    /// Whether the process uses userfaultfd.
    pub userfaultfd: bool,
}

/// Assigns the rule.
pub fn classify(seen: &Seen, context: Surroundings) -> Reason {
    let present = seen.code.present();
    // For a missing page the kernel allocates one before it asks, and frees it (seen on 6.18,
    // crates/workloads: uffd_missing).
    let kept = seen.allocated.is_some() && seen.frees_seen && !seen.undone;
    if seen.resolved && (present || !kept) {
        return Reason::Resolved;
    }
    if seen.migrated && !present && seen.allocated.is_none() {
        return Reason::Moved;
    }
    if seen.memory == Some(Memory::Hugetlb) {
        return Reason::Hugetlb;
    }
    let of_file = seen.file_fault || seen.memory == Some(Memory::PrivateFile);
    // Faults on files free page tables that they did not need, and readahead's pages.
    if seen.undone && !seen.major && !of_file {
        return Reason::Raced;
    }
    // Of large pages it is not recorded that they are freed.
    let large = seen.allocated.is_some_and(|(order, _)| order > 0);
    let free_unseen = large || !seen.frees_seen && seen.allocated.is_some();
    if seen.overlapped && free_unseen && !seen.major && !of_file {
        return Reason::RacedOverlap;
    }
    if large && !seen.major && !of_file {
        return Reason::Huge;
    }
    if present { protection(seen) } else { not_present(seen, context) }
}

/// The page was there and did not allow the access.
fn protection(seen: &Seen) -> Reason {
    match (seen.code.write(), seen.allocated, seen.memory) {
        (false, ..) => Reason::Stale,
        (true, Some((_, true)), _) => Reason::ZeroReplaced,
        (true, Some((_, false)), _) => Reason::Copied,
        (true, None, Some(Memory::Shared | Memory::SharedFile)) => Reason::SharedWritten,
        (true, None, _) => Reason::Reused,
    }
}

fn not_present(seen: &Seen, context: Surroundings) -> Reason {
    let write = seen.code.write();
    match seen.memory {
        Some(Memory::Anonymous) => anonymous(seen, write, context),
        Some(Memory::PrivateFile) if write && seen.allocated.is_some() => Reason::CopiedFile,
        Some(Memory::Shared | Memory::SharedFile) => shared(seen, write, context),
        Some(Memory::PrivateFile) => file(seen, context),
        Some(Memory::Hugetlb) => Reason::Hugetlb,
        None if seen.allocated == Some((0, true)) => Reason::Zeroed,
        None if seen.file_fault || seen.mapped_around => file(seen, context),
        None => Reason::Unmapped,
    }
}

fn shared(seen: &Seen, write: bool, context: Surroundings) -> Reason {
    let twice = write && seen.major && context.dirties_twice;
    match seen.allocated {
        Some(_) if !seen.major => Reason::SharedNew,
        Some(_) if twice && seen.memory == Some(Memory::Shared) => Reason::SharedTwice,
        None if write && !seen.major && !seen.file_fault && context.numa_balancing => {
            Reason::HintOrFile
        }
        None if write && (!seen.major || twice) => Reason::SharedMapped,
        _ => file(seen, context),
    }
}

fn anonymous(seen: &Seen, write: bool, context: Surroundings) -> Reason {
    match seen.allocated {
        _ if seen.major => Reason::SwapRead,
        Some((_, true)) => Reason::Zeroed,
        Some((_, false)) if !context.numa_balancing => Reason::SwapCached,
        Some((_, false)) if context.swap => Reason::HintOrSwap,
        Some((_, false)) => Reason::HintMoved,
        None if write && context.numa_balancing => Reason::Hinted,
        None if write => Reason::RacedUnseen,
        None if context.numa_balancing => Reason::HintOrZero,
        None if context.swap || seen.userfaultfd => Reason::ZeroOrCached,
        None => Reason::Zero,
    }
}

fn file(seen: &Seen, context: Surroundings) -> Reason {
    match seen {
        Seen { major: true, .. } => Reason::FileRead,
        Seen { file_fault: true, .. } => Reason::FileMapped,
        Seen { mapped_around: true, .. } => Reason::Around,
        _ if !context.file_points => Reason::FileAny,
        _ if context.numa_balancing => Reason::HintOrFile,
        _ => Reason::FileMapped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANON: Option<Memory> = Some(Memory::Anonymous);

    fn class(seen: Seen) -> FaultClass {
        classify(&seen, Surroundings::default()).rule().class
    }

    #[test]
    fn private_memory() {
        let zeroed = Some((0, true));
        let copied = Some((0, false));
        let seen = |code, allocated| Seen {
            code: FaultCode(code),
            memory: ANON,
            allocated,
            ..Seen::default()
        };
        assert_eq!(class(seen(6, zeroed)), FaultClass::FirstTouch);
        assert_eq!(class(seen(4, None)), FaultClass::ZeroPage);
        assert_eq!(class(seen(7, zeroed)), FaultClass::ZeroUpgrade);
        assert_eq!(class(seen(7, copied)), FaultClass::CowCopy);
        assert_eq!(class(seen(7, None)), FaultClass::Reuse);
        assert_eq!(class(seen(5, None)), FaultClass::Spurious);
        assert_eq!(class(Seen { major: true, ..seen(4, copied) }), FaultClass::SwapIn);
        assert_eq!(class(Seen { undone: true, ..seen(6, zeroed) }), FaultClass::Spurious);
        assert_eq!(class(Seen { resolved: true, ..seen(6, None) }), FaultClass::Userfaultfd);
        let told = Seen { resolved: true, frees_seen: true, ..seen(6, zeroed) };
        assert_eq!(class(told), FaultClass::FirstTouch);
        assert_eq!(class(Seen { frees_seen: false, ..told }), FaultClass::Userfaultfd);
        let overlapped = Seen { overlapped: true, ..seen(6, zeroed) };
        assert_eq!(class(overlapped), FaultClass::Spurious);
        assert_eq!(class(Seen { frees_seen: true, ..overlapped }), FaultClass::FirstTouch);
        let asked = Seen { resolved: true, undone: true, ..seen(6, zeroed) };
        assert_eq!(class(asked), FaultClass::Userfaultfd);
        assert_eq!(class(seen(6, Some((9, true)))), FaultClass::HugePage);
        let moved = Seen { migrated: true, ..seen(4, None) };
        assert_eq!(class(moved), FaultClass::Spurious);
        assert_eq!(class(Seen { allocated: zeroed, ..moved }), FaultClass::FirstTouch);
    }

    #[test]
    fn files_and_shared_memory() {
        let seen =
            |code, memory| Seen { code: FaultCode(code), memory: Some(memory), ..Seen::default() };
        let (private, shared) = (Memory::PrivateFile, Memory::Shared);
        assert_eq!(class(Seen { major: true, ..seen(4, private) }), FaultClass::FileMap);
        assert_eq!(
            class(Seen { mapped_around: true, ..seen(4, private) }),
            FaultClass::FaultAround
        );
        let readahead =
            Seen { file_fault: true, major: true, allocated: Some((2, false)), ..seen(4, private) };
        assert_eq!(class(readahead), FaultClass::FileMap);
        assert_eq!(class(Seen { undone: true, ..readahead }), FaultClass::FileMap);
        assert_eq!(
            class(Seen { allocated: Some((0, false)), ..seen(6, private) }),
            FaultClass::CowCopy
        );
        assert_eq!(class(seen(6, shared)), FaultClass::SharedDirty);
        let old = Surroundings { dirties_twice: true, ..Surroundings::default() };
        let twice = |allocated, memory| {
            let seen = Seen { major: true, allocated, ..seen(6, memory) };
            classify(&seen, old).rule().class
        };
        assert_eq!(twice(Some((0, false)), shared), FaultClass::FirstTouch);
        assert_eq!(twice(Some((0, false)), Memory::SharedFile), FaultClass::FileMap);
        assert_eq!(twice(None, Memory::SharedFile), FaultClass::SharedDirty);
        assert_eq!(class(seen(7, shared)), FaultClass::SharedDirty);
        assert_eq!(
            class(Seen { allocated: Some((0, false)), ..seen(6, shared) }),
            FaultClass::FirstTouch
        );
    }

    #[test]
    fn what_cannot_be_told_is_unknown() {
        assert_eq!(class(Seen { code: FaultCode(4), ..Seen::default() }), FaultClass::Unknown);
        let context = Surroundings { numa_balancing: true, ..Surroundings::default() };
        let seen = Seen { code: FaultCode(4), memory: ANON, ..Seen::default() };
        assert_eq!(classify(&seen, context), Reason::HintOrZero);
        assert_eq!(classify(&Seen { code: FaultCode(6), ..seen }, context), Reason::Hinted);
        let moved = Seen { allocated: Some((0, false)), ..seen };
        assert_eq!(classify(&moved, context), Reason::HintMoved);
        assert_eq!(classify(&moved, Surroundings { swap: true, ..context }), Reason::HintOrSwap);
        let file = Seen { memory: Some(Memory::PrivateFile), ..seen };
        assert_eq!(classify(&file, context), Reason::FileAny);
        let told = Surroundings { file_points: true, ..context };
        assert_eq!(classify(&file, told), Reason::HintOrFile);
        assert_eq!(classify(&Seen { mapped_around: true, ..file }, told), Reason::Around);
        let written = Seen { memory: Some(Memory::SharedFile), code: FaultCode(6), ..seen };
        assert_eq!(classify(&written, context), Reason::HintOrFile);
        let looked_up = Seen { file_fault: true, ..written };
        assert_eq!(classify(&looked_up, context), Reason::SharedMapped);
        let (twice, old) =
            (Seen { major: true, ..written }, Surroundings { dirties_twice: true, ..context });
        assert_eq!(classify(&twice, old), Reason::SharedMapped);
    }
}
