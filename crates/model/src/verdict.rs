//! Verdicts: whether a fault, copy, flush, interrupt, retry or split was needed.
//!
//! The definitions are in docs/design.md, "Verdicts". The kernel operations decide where they have
//! the evidence (at the copy, the end of the fault, the flush), and attach the verdict to the
//! event.

use crate::site::Site;
use serde::{Deserialize, Serialize};

/// Whether an event was needed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// The event was needed.
    Needed,
    /// Without the event, nothing that anyone can observe would have changed.
    Needless,
}

/// A judgement with its reason.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Verdict {
    /// The judgement.
    pub judgement: Judgement,
    /// The reason for the judgement.
    pub reason: Reason,
    /// The [`crate::event::Event::seq`] of the needless event without which this one would not have
    /// happened, if there is one.
    pub caused_by: Option<u64>,
}

impl Verdict {
    /// A verdict without a cause.
    pub const fn new(judgement: Judgement, reason: Reason) -> Verdict {
        Verdict { judgement, reason, caused_by: None }
    }

    /// The verdict for a fault that grants a store. If the fault also records the store (`notes`),
    /// it was needed in any case.
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

    /// Whether the judgement is [`Judgement::Needless`].
    pub fn is_needless(self) -> bool {
        self.judgement == Judgement::Needless
    }

    /// Whether the verdict is about a flush that was needed, but flushed too much.
    pub fn is_too_wide(self) -> bool {
        self.judgement == Judgement::Needed && self.reason == Reason::OnlyHugeStale
    }
}

/// Declares [`Reason`] with the sentence that reports print.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// The reason for a verdict.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// The sentence for the reason.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// Flush: some CPU may hold a stale translation.
    StaleTranslations = "a CPU may hold a translation that the page table no longer grants";
    /// Flush: paging-structure caches may point to a freed page table.
    FreedTables = "a page table was freed; paging-structure caches may still point to it";
    /// Flush: no CPU can hold a stale translation in the range.
    NothingStale = "no CPU can hold a stale translation in this range";
    /// Flush: only entries of huge pages may be stale, and the flush takes everything because it
    /// counts base pages.
    OnlyHugeStale =
        "only entries of huge pages may be stale: one invalidation for each would be enough, but it flushes everything";
    /// Flush: without it the access would fault repeatedly.
    KeptEntry = "the processor keeps the entry with which the access faulted, and would fault on it again";
    /// Flush: it follows the pending mark of a batched unmap that was flushed already.
    PendingAlreadyFlushed =
        "the batched unmap that left the pending mark was flushed already; nothing was unmapped since";
    /// Flush: its pages were unmapped and flushed before.
    UnmappedAndFlushed = "its pages were unmapped and flushed before";
    /// Flush: permissions were only added.
    OnlyGranted = "the page table only grants more than before";
    /// Flush: only accessed bits were cleared.
    OnlyAccessedBit = "only accessed bits were cleared, which revokes no right";
    /// Copy: someone else can observe the old page.
    OldPageShared = "somebody else can still observe the old page";
    /// Copy: only a transient reference kept the old page from being reused.
    OnlyTransientReference =
        "nobody else could observe the old page: the extra reference was an LRU batch's";
    /// Fault: the page table could not have allowed the access before.
    NewTranslation = "there was nothing that could have been mapped before the access";
    /// Fault: the translation was there already.
    AlreadyGranted = "the page table allowed the access already";
    /// Fault: it only set bits that processors can set.
    OnlySetBits = "it only set the accessed or the dirty bit, which a processor could have done";
    /// Fault: write permission could have been given when the PTE was last written.
    CouldHaveBeenWritable =
        "write permission could have been granted when the PTE was last written; nobody else had a claim on the page";
    /// Fault: the translation had been removed to find out who uses the page.
    Sampled = "NUMA balancing had removed the translation to learn who uses the page";
    /// Fault: userfaultfd reported the access, or recorded that the page is written.
    UserfaultfdTold = "userfaultfd had to learn of the access";
    /// Fault: the kernel recorded the store.
    SoftDirtyNoted = "the store had to be recorded (soft-dirty)";
    /// Fault: the old page had to be kept for others.
    WriteWasClaimed = "write permission could not have been granted earlier";
    /// Fault: a read had mapped the huge zero page, to which nobody may store.
    HugeZeroMapped =
        "a read had mapped the huge zero page, which everybody shares; only a huge page of its own for the read would have avoided the fault";
    /// Fault: the kernel or the file system had to be notified of the store.
    StoreNoted =
        "the page was mapped without write permission: this fault makes it dirty and tells its file system of the store";
    /// Retry: the try that gave its lock back had mapped its page.
    RetriedMapped = "the try that gave its lock back had mapped the page: the next one has nothing to do";
    /// Retry: the try that gave its lock back had to wait for something that it needed.
    RetriedUnmapped = "the fault could not get what it needs while it held its lock";
    /// Split: its thread did the same to the rest before anyone used a part of it.
    RestFollowed =
        "its thread did the same to the rest of the huge page, and nobody had used any of it in between";
    /// Split: the huge page was then used in parts, or left in parts at the end of the round.
    UsedInParts = "the huge page was used in parts, or was left in parts at the end of the round";
}

/// A needless event in one line: what it was, where, and why it was needless.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// The kind of event.
    pub what: Needless,
    /// The kernel function that caused the event.
    pub site: Option<Site>,
    /// The reason why it was needless.
    pub reason: Reason,
}

/// Kinds of needless events.
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
    /// The width of a needed flush that takes everything.
    FullFlush,
    /// The replacement of a huge page's entry by one entry for each page.
    Split,
    /// A second try of a fault.
    Retry,
}

impl Needless {
    /// All kinds.
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
