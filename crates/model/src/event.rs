//! The event record: what happened, in one shape for every target.
//!
//! The model fills every kind. A real kernel gives the subset that it can show; what it cannot
//! show is listed beside its events ([`crate::run::TargetRun::unseen`]), never counted as zero.

use crate::addr::{CpuId, Pfn, ThreadId, Vpn};
use crate::numa::PageStatus;
use crate::site::Site;
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// Version of the event record, raised whenever a field or a kind changes.
pub const EVENT_VERSION: u32 = 8;

/// One event.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// Position in the run; unique, ascending.
    pub seq: u64,
    /// Nanoseconds of CLOCK_MONOTONIC_RAW on a real kernel; 0 in the model, which has no clock.
    pub time_ns: u64,
    /// Where it happened.
    pub cpu: CpuId,
    /// The scenario's thread that was running there; `None` for anybody else.
    pub thread: Option<ThreadId>,
    /// The operation that the thread was in ([`crate::program::Op::id`]), where known.
    pub op: Option<u32>,
    /// The kernel function, where known.
    pub site: Option<Site>,
    /// What happened.
    pub kind: EventKind,
    /// The verdict, where one is given.
    pub verdict: Option<Verdict>,
}

/// What happened.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An exception: the handler starts.
    Fault {
        /// The page.
        page: Vpn,
        /// Present, write, user bits.
        code: FaultCode,
    },
    /// The handler of the CPU's last [`EventKind::Fault`] is done. Also emitted, alone, for
    /// faults without exception (`MADV_POPULATE_*`).
    FaultDone {
        /// The page.
        page: Vpn,
        /// What the fault turned out to be.
        class: FaultClass,
        /// Whether it counts as a major fault.
        major: bool,
        /// False for faults that took no exception.
        exception: bool,
    },
    /// A fault gave its locks back and is tried again (`VM_FAULT_RETRY`). Only the model shows it.
    FaultRetry {
        /// The page.
        page: Vpn,
        /// Whether this try has mapped it: it only waits its turn to make pages dirty.
        mapped: bool,
    },
    /// The next try of a fault begins, with `mmap_lock`. Only the model shows it.
    FaultAgain {
        /// The page.
        page: Vpn,
        /// Whether it may give its lock back no more (`FAULT_FLAG_TRIED`).
        tried: bool,
    },
    /// A fault is over, and has given its lock back already, so that whoever dirties much can wait without it (`VM_FAULT_COMPLETED`). Only the model shows it.
    FaultCompleted {
        /// The page.
        page: Vpn,
    },
    /// A store may meet a translation from before its page became writable. The processor may have one, and may fault
    /// then, once, which the kernel answers with nothing, or walk again (Intel SDM 3A, 4.10.4.3); here it walks again.
    MayFault {
        /// The page.
        page: Vpn,
    },
    /// A page was copied.
    Copy {
        /// The page whose fault copied it.
        page: Vpn,
        /// The frame copied.
        from: Pfn,
        /// The new frame.
        to: Pfn,
    },
    /// A frame was filled with zeros.
    Zero {
        /// The page it is for.
        page: Vpn,
        /// The frame.
        frame: Pfn,
    },
    /// A page was read from swap.
    PageIn {
        /// The page.
        page: Vpn,
        /// The frame it was read into.
        frame: Pfn,
        /// Whether it was filled with zeros instead of read.
        zero_filled: bool,
    },
    /// A page was written to swap.
    PageOut {
        /// The page.
        page: Vpn,
        /// The frame written.
        frame: Pfn,
        /// Whether the write was skipped because the page held only zeros.
        zero_filled: bool,
    },
    /// A huge page's entry is replaced by one for each page, for a function that is about a part of it. Only the model shows
    /// it: kernels count them (`thp_split_pmd`).
    Split {
        /// The first page.
        page: Vpn,
        /// The folio's first frame.
        frame: Pfn,
        /// Whether the folio has other mappings. (The huge zero page's do not count.)
        shared: bool,
    },
    /// A frame went back to the allocator.
    Free {
        /// The frame.
        frame: Pfn,
    },
    /// A PTE changed (only recorded on request).
    Pte {
        /// The page.
        page: Vpn,
        /// What it was.
        old: crate::pte::Pte,
        /// What it is.
        new: crate::pte::Pte,
    },
    /// A `tlb:tlb_flush` event.
    Flush {
        /// Its reason.
        reason: FlushReason,
        /// Pages, as the tracepoint prints them: `None` is `TLB_FLUSH_ALL`.
        pages: Option<u32>,
        /// For [`FlushReason::RemoteSend`]: CPUs interrupted. `None`: not visible.
        asked: Option<u16>,
    },
    /// A call tells that pages were stored to since they began to be tracked.
    Told {
        /// The first.
        page: Vpn,
        /// How many.
        pages: u32,
    },
    /// `move_pages` answers for a page. Answers come when the call is over, in the order of its pages.
    PageStatus {
        /// The page.
        page: Vpn,
        /// The node that it is on, or why it was not moved.
        status: PageStatus,
    },
    /// A CPU is interrupted to make sure that it walks no page table without a lock (`tlb_remove_table_sync_one`), and waited
    /// for. It is no flush.
    TableSync {
        /// The CPU.
        to: CpuId,
    },
    /// A flush of arm64: `TLBI` instructions, of which QEMU counts how many there are in all. Only the model tells
    /// flushes apart.
    Tlbi {
        /// Which.
        operation: Tlbi,
        /// Pages; `None`: the address space.
        pages: Option<u32>,
        /// How many of the operation itself.
        single: u32,
        /// How many of its form for ranges (`rvale1is`).
        ranged: u32,
    },
    /// A barrier of arm64 that page-table changes and flushes need (`DSB`).
    Dsb {
        /// Which.
        barrier: Dsb,
        /// How many.
        times: u32,
    },
    /// A CPU switched to another thread, or went idle.
    Switch {
        /// Who runs now; `None`: idle or a stranger.
        to: Option<ThreadId>,
    },
    /// A phase mark of the scenario ([`crate::program::Program::marks`]).
    Mark {
        /// Which.
        mark: u16,
    },
    /// A round starts (index from 0, warm-up not counted; negative in warm-up).
    RoundStart {
        /// The round.
        round: i64,
    },
    /// A round is over.
    RoundEnd {
        /// The round.
        round: i64,
    },
    /// A `measure` block starts.
    MeasureStart,
    /// A `measure` block is over.
    MeasureEnd,
}

/// Instructions that user address spaces are flushed by where no CPU is interrupted: operations of
/// arm64's `TLBI` (Arm ARM, C5.5), and AMD's `INVLPGB` (APM volume 3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tlbi {
    /// An address space, on all CPUs.
    Aside1is,
    /// An address and the tables that lead to it, on all CPUs.
    Vae1is,
    /// An address, what the last level says of it, on all CPUs.
    Vale1is,
    /// An address, what the last level says of it, on this CPU.
    Vale1,
    /// x86: addresses or an address space, on all CPUs. `TLBSYNC` waits for it. How many pages one
    /// instruction takes is the processor's affair: a flush counts as one.
    Invlpgb,
}

impl Tlbi {
    /// All of them.
    pub const ALL: [Tlbi; 5] =
        [Tlbi::Aside1is, Tlbi::Vae1is, Tlbi::Vale1is, Tlbi::Vale1, Tlbi::Invlpgb];

    /// The assembler's name.
    pub const fn name(self) -> &'static str {
        match self {
            Tlbi::Aside1is => "aside1is",
            Tlbi::Vae1is => "vae1is",
            Tlbi::Vale1is => "vale1is",
            Tlbi::Vale1 => "vale1",
            Tlbi::Invlpgb => "invlpgb",
        }
    }

    /// The instruction, with its operation where it has several.
    pub fn instruction(self) -> String {
        match self {
            Tlbi::Invlpgb => self.name().to_owned(),
            _ => format!("tlbi {}", self.name()),
        }
    }

    /// Whether all CPUs obey it.
    pub const fn is_broadcast(self) -> bool {
        !matches!(self, Tlbi::Vale1)
    }
}

/// Barriers of arm64 (Arm ARM, C6.2 "DSB"): for whom, and what before it they wait for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dsb {
    /// Stores, for all CPUs: page-table walks see them.
    Ishst,
    /// Everything, for all CPUs: invalidations are done.
    Ish,
    /// Stores, for this CPU.
    Nshst,
    /// Everything, for this CPU.
    Nsh,
}

impl Dsb {
    /// The assembler's name.
    pub const fn name(self) -> &'static str {
        match self {
            Dsb::Ishst => "ishst",
            Dsb::Ish => "ish",
            Dsb::Nshst => "nshst",
            Dsb::Nsh => "nsh",
        }
    }
}

/// The x86 page-fault error code, as far as Linux tells user faults apart by it.
/// Source: Intel SDM volume 3, section 4.7; arch/x86/include/asm/trap_pf.h.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FaultCode(pub u8);

impl FaultCode {
    /// Bit 0: the translation was present.
    pub const PRESENT: u8 = 1;
    /// Bit 1: the access was a write.
    pub const WRITE: u8 = 2;
    /// Bit 2: the access came from user mode.
    pub const USER: u8 = 4;

    /// The code of a user access.
    pub const fn user(present: bool, write: bool) -> FaultCode {
        FaultCode(FaultCode::USER | present as u8 | (write as u8) << 1)
    }

    /// Whether the translation was present.
    pub const fn present(self) -> bool {
        self.0 & FaultCode::PRESENT != 0
    }

    /// Whether the access was a write.
    pub const fn write(self) -> bool {
        self.0 & FaultCode::WRITE != 0
    }
}

/// Declares [`FaultClass`] with the names of each class.
macro_rules! fault_classes {
    ($($(#[$doc:meta])* $class:ident = $name:literal, $title:literal;)*) => {
        /// What a fault turned out to be. The order is the order of report columns.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum FaultClass {
            $($(#[$doc])* #[serde(rename = $name)] $class,)*
        }

        impl FaultClass {
            /// All classes.
            pub const ALL: &'static [FaultClass] = &[$(FaultClass::$class),*];

            /// The name in reports and JSON of scenarios.
            pub const fn name(self) -> &'static str {
                match self {
                    $(FaultClass::$class => $name,)*
                }
            }

            /// The name in what is said of any program (`needless stat`).
            pub const fn title(self) -> &'static str {
                match self {
                    $(FaultClass::$class => $title,)*
                }
            }
        }
    };
}

fault_classes! {
    /// A page never touched before got a zeroed frame.
    FirstTouch = "first-touch", "first touch";
    /// A read of a page never touched mapped the zero page.
    ZeroPage = "zero-page", "zero page";
    /// A write replaced the zero page by a zeroed frame.
    ZeroUpgrade = "zero-upgrade", "zero-page upgrade";
    /// A write to a read-only page copied it.
    CowCopy = "cow-copy", "COW copy";
    /// A write to a read-only page made it writable in place.
    Reuse = "reuse", "reuse after write-protect";
    /// The page came back from swap.
    SwapIn = "swap-in", "swap-in";
    /// The kernel set the accessed or the dirty bit, where the processor does not.
    AccessFlag = "access-flag", "access flag";
    /// A file's page was mapped, and read if it was not in memory.
    FileMap = "file-map", "file map";
    /// Pages of a file around the fault were mapped at once.
    FaultAround = "fault-around", "fault-around";
    /// A write to a shared page made it writable and dirty.
    SharedDirty = "shared-dirty", "shared dirtying";
    /// A huge page or a large folio was mapped.
    HugePage = "huge-page", "huge page";
    /// The fault waited for userfaultfd.
    Userfaultfd = "userfaultfd", "userfaultfd";
    /// The access was sampled by NUMA balancing.
    NumaHint = "numa-hint", "NUMA hint";
    /// Nothing was to be done: the translation already allowed the access, or allows it by now.
    Spurious = "spurious", "spurious";
    /// The access is not allowed: the thread gets a signal.
    Signal = "signal", "signal";
    /// The kernel did not serve it: the access is not allowed, or kernel code expected the fault.
    Failed = "failed", "signal or fix-up";
    /// What was visible does not tell.
    Unknown = "unknown", "unknown";
}

/// `enum tlb_flush_reason` (include/linux/mm_types.h, include/trace/events/tlb.h). The numbers
/// are the tracepoint's and the same in 5.10 to 7.3; the strings are not.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum FlushReason {
    /// CR3 was written at a switch; pages 0 if nothing was flushed.
    TaskSwitch = 0,
    /// A CPU answered a shootdown.
    RemoteShootdown = 1,
    /// The initiator's part of a flush without address space (`arch_tlbbatch_flush`).
    LocalBatch = 2,
    /// The initiator's part of a flush of one address space.
    LocalMm = 3,
    /// A shootdown is sent (before it is decided which CPUs are interrupted).
    RemoteSend = 4,
    /// A CPU answered, but runs another address space.
    RemoteWrongCpu = 5,
}

impl FlushReason {
    /// The reason with the tracepoint's number.
    pub const fn from_number(number: u32) -> Option<FlushReason> {
        Some(match number {
            0 => FlushReason::TaskSwitch,
            1 => FlushReason::RemoteShootdown,
            2 => FlushReason::LocalBatch,
            3 => FlushReason::LocalMm,
            4 => FlushReason::RemoteSend,
            5 => FlushReason::RemoteWrongCpu,
            _ => return None,
        })
    }

    /// Whether who flushes leaves it: a send, or the initiator's own part.
    pub const fn is_initiators(self) -> bool {
        match self {
            FlushReason::RemoteSend | FlushReason::LocalMm | FlushReason::LocalBatch => true,
            FlushReason::TaskSwitch
            | FlushReason::RemoteShootdown
            | FlushReason::RemoteWrongCpu => false,
        }
    }
}
