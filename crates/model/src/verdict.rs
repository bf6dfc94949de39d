//! Verdicts: was it needed?
//!
//! Definitions: docs/design.md, "Verdicts". The kernel operations decide them where the evidence
//! is at hand (the copy, the fault's end, the flush) and attach them to the event.

use crate::site::Site;
use serde::{Deserialize, Serialize};

/// Was it needed?
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// It was.
    Needed,
    /// Leaving it out would have changed nothing that anybody can see.
    Needless,
}

/// A judgement with its reason.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Verdict {
    /// The judgement.
    pub judgement: Judgement,
    /// Why.
    pub reason: Reason,
    /// The event ([`crate::event::Event::seq`]) without which this one would not have happened,
    /// if that one was needless.
    pub caused_by: Option<u64>,
}

impl Verdict {
    /// A verdict with no cause.
    pub const fn new(judgement: Judgement, reason: Reason) -> Verdict {
        Verdict { judgement, reason, caused_by: None }
    }

    /// The same of a fault that grants a store; one by which that is noted (`notes`) was needed, whoever had the page.
    #[must_use]
    pub fn of_store(self, notes: bool) -> Verdict {
        match notes && self.is_needless() {
            true => Verdict::new(Judgement::Needed, Reason::SoftDirtyNoted),
            false => self,
        }
    }

    /// The verdict with its cause counted from the event numbered `first`.
    #[must_use]
    pub fn counted_from(self, first: u64) -> Verdict {
        Verdict { caused_by: self.caused_by.map(|seq| seq.wrapping_sub(first)), ..self }
    }

    /// Whether it is [`Judgement::Needless`].
    pub fn is_needless(self) -> bool {
        self.judgement == Judgement::Needless
    }

    /// Whether it is of a flush that was needed, but not as one of everything.
    pub fn is_too_wide(self) -> bool {
        self.judgement == Judgement::Needed && self.reason == Reason::OnlyHugeStale
    }
}

/// Declares [`Reason`] with the sentence that reports print.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// Why a verdict is what it is.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// The reason in words.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// Flush: somebody may hold a stale translation.
    StaleTranslations = "a CPU may hold a translation that the page table no longer grants";
    /// Flush: paging-structure caches may point to a freed page table.
    FreedTables = "a page table was freed; paging-structure caches may still point to it";
    /// Flush: nobody can hold a stale translation in the range.
    NothingStale = "no CPU can hold a stale translation in this range";
    /// Flush: only huge entries may be stale, and it takes everything because it counts base pages.
    OnlyHugeStale =
        "only entries of huge pages may be stale: one invalidation for each would be enough, but it flushes everything";
    /// Flush: without it the access would fault again and again.
    KeptEntry = "the processor keeps the entry with which the access faulted, and would fault on it again";
    /// Flush: the pending mark of a batched unmap that was flushed already.
    PendingAlreadyFlushed =
        "the batched unmap that left the pending mark was flushed already; nothing was unmapped since";
    /// Flush: its pages were unmapped and flushed before.
    UnmappedAndFlushed = "its pages were unmapped and flushed before";
    /// Flush: permissions were only added.
    OnlyGranted = "the page table only grants more than before";
    /// Flush: only accessed bits were cleared.
    OnlyAccessedBit = "only accessed bits were cleared, which revokes no right";
    /// Copy: somebody else can observe the old page.
    OldPageShared = "somebody else can still observe the old page";
    /// Copy: only a transient reference kept the old page from being reused.
    OnlyTransientReference =
        "nobody else could observe the old page: the extra reference was an LRU batch's";
    /// Fault: the page table could not have allowed the access before.
    NewTranslation = "there was nothing that could have been mapped before the access";
    /// Fault: the translation was there already.
    AlreadyGranted = "the page table allowed the access already";
    /// Fault: only bits were set that processors can set.
    OnlySetBits = "it only set the accessed or the dirty bit, which a processor could have done";
    /// Fault: write permission could have been given when the PTE was last written.
    CouldHaveBeenWritable =
        "write permission could have been granted when the PTE was last written; nobody else had a claim on the page";
    /// Fault: the translation had been taken away to see who uses the page.
    Sampled = "NUMA balancing had removed the translation to learn who uses the page";
    /// Fault: userfaultfd was told of the access, or noted that the page is written.
    UserfaultfdTold = "userfaultfd had to learn of the access";
    /// Fault: the kernel noted by it that the page is stored to.
    SoftDirtyNoted = "the store had to be recorded (soft-dirty)";
    /// Fault: the old page had to be kept for others.
    WriteWasClaimed = "write permission could not have been granted earlier";
    /// Fault: a read had mapped the huge zero page, which nobody may store to.
    HugeZeroMapped =
        "a read had mapped the huge zero page, which everybody shares; only a huge page of its own for the read would have avoided the fault";
    /// Fault: the kernel, or the file system, was to learn of the store.
    StoreNoted =
        "the page was mapped without write permission: this fault makes it dirty and tells its file system of the store";
    /// Retry: the try that gave its lock back had mapped its page.
    RetriedMapped = "the try that gave its lock back had mapped the page: the next one has nothing to do";
    /// Retry: the try that gave its lock back had to wait for what it needs.
    RetriedUnmapped = "the fault could not get what it needs while it held its lock";
    /// Split: its thread did the same to the rest before anybody used any of it.
    RestFollowed =
        "its thread did the same to the rest of the huge page, and nobody had used any of it in between";
    /// Split: what it made possible was made use of.
    UsedInParts = "the huge page was used in parts, or was left in parts at the end of the round";
}

/// A needless event, told in one line: what, where, why.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// What was needless.
    pub what: Needless,
    /// The kernel function that did it.
    pub site: Option<Site>,
    /// Why it was needless.
    pub reason: Reason,
}

/// The things that can be needless.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needless {
    /// A fault.
    Fault,
    /// A page copy.
    Copy,
    /// A flush that was sent to other CPUs.
    Shootdown,
    /// A flush on the initiator only.
    LocalFlush,
    /// An interrupt of one CPU.
    Interrupt,
    /// The width of a needed flush: it takes everything.
    FullFlush,
    /// A huge page's entry replaced by one for each page.
    Split,
    /// A second try of a fault.
    Retry,
}

impl Needless {
    /// All of them.
    pub const ALL: &'static [Needless] = &[
        Needless::Fault,
        Needless::Copy,
        Needless::Shootdown,
        Needless::LocalFlush,
        Needless::Interrupt,
        Needless::FullFlush,
        Needless::Split,
        Needless::Retry,
    ];

    /// The name in JSON and in studies.
    pub const fn name(self) -> &'static str {
        match self {
            Needless::Fault => "fault",
            Needless::Copy => "copy",
            Needless::Shootdown => "shootdown",
            Needless::LocalFlush => "local-flush",
            Needless::Interrupt => "interrupt",
            Needless::FullFlush => "full-flush",
            Needless::Split => "split",
            Needless::Retry => "retry",
        }
    }
}
