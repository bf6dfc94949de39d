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
    /// The position in the run: unique and ascending.
    pub seq: u64,
    /// Nanoseconds of CLOCK_MONOTONIC_RAW on a real kernel; 0 in the model, which has no clock.
    pub time_ns: u64,
    /// The CPU that it happened on.
    pub cpu: CpuId,
    /// The scenario's thread that was running there; `None` for any other thread.
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
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EventKind {
    /// An exception: the handler starts.
    Fault {
        /// The page.
        page: Vpn,
        /// Whether the entry was present, whether the access was a write, and whether it came from
        /// user mode.
        code: FaultCode,
    },
    /// The handler of the CPU's last [`EventKind::Fault`] is done. This event also occurs alone,
    /// for faults without an exception (`MADV_POPULATE_*`).
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
        /// Whether this try mapped the page and gives up the lock only so that the thread is
        /// throttled for making pages dirty.
        mapped: bool,
    },
    /// The next try of a fault begins and holds `mmap_lock`. Only the model shows it.
    FaultAgain {
        /// The page.
        page: Vpn,
        /// Whether this try may no longer give the lock back (`FAULT_FLAG_TRIED`).
        tried: bool,
    },
    /// A fault is done and gave its lock back early, so that a thread that makes many pages dirty
    /// is throttled without it (`VM_FAULT_COMPLETED`). Only the model shows it.
    FaultCompleted {
        /// The page.
        page: Vpn,
    },
    /// A store may meet a translation from before its page became writable. A processor that holds
    /// one may fault once, and the kernel then does nothing; or it may walk again (Intel SDM 3A,
    /// 4.10.4.3). The model walks again.
    MayFault {
        /// The page.
        page: Vpn,
    },
    /// A page was copied.
    Copy {
        /// The page whose fault copied it.
        page: Vpn,
        /// The frame that was copied.
        from: Pfn,
        /// The new frame.
        to: Pfn,
    },
    /// A frame was filled with zeros.
    Zero {
        /// The page that the frame is for.
        page: Vpn,
        /// The frame.
        frame: Pfn,
    },
    /// A page was read from swap.
    PageIn {
        /// The page.
        page: Vpn,
        /// The frame that the page was read into.
        frame: Pfn,
        /// Whether the frame was filled with zeros instead of read.
        zero_filled: bool,
    },
    /// A page was written to swap.
    PageOut {
        /// The page.
        page: Vpn,
        /// The frame that was written.
        frame: Pfn,
        /// Whether the write was skipped because the page held only zeros.
        zero_filled: bool,
    },
    /// A huge page's entry was replaced by one entry for each page, because an operation is about a
    /// part of it. Only the model shows it; kernels count such splits (`thp_split_pmd`).
    Split {
        /// The first page of the huge page.
        page: Vpn,
        /// The folio's first frame.
        frame: Pfn,
        /// Whether the folio has other mappings. (Mappings of the huge zero page do not count.)
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
        /// The PTE before the change.
        old: crate::pte::Pte,
        /// The PTE after the change.
        new: crate::pte::Pte,
    },
    /// A `tlb:tlb_flush` event, or what the model has in its place.
    Flush {
        /// The flush's reason.
        reason: FlushReason,
        /// The number of pages, as the tracepoint prints it; `None` is `TLB_FLUSH_ALL`.
        pages: Option<u32>,
        /// For [`FlushReason::RemoteSend`]: the number of CPUs interrupted. `None`: not visible.
        asked: Option<u16>,
    },
    /// A call reports that pages were stored to since their tracking began.
    Told {
        /// The first page.
        page: Vpn,
        /// The number of pages.
        pages: u32,
    },
    /// `move_pages` returns the status of a page. The statuses come when the call is over, in the
    /// order of its pages.
    PageStatus {
        /// The page.
        page: Vpn,
        /// The node that the page is on, or why it was not moved.
        status: PageStatus,
    },
    /// A CPU is interrupted to make sure that it walks no page table without a lock
    /// (`tlb_remove_table_sync_one`). The sender waits for it. This is no flush.
    TableSync {
        /// The CPU that is interrupted.
        to: CpuId,
    },
    /// A flush on arm64: `TLBI` instructions. QEMU counts only their total; only the model
    /// distinguishes flushes.
    Tlbi {
        /// The `TLBI` operation.
        operation: Tlbi,
        /// The number of pages; `None`: the whole address space.
        pages: Option<u32>,
        /// How many instructions of the operation itself.
        single: u32,
        /// How many instructions of its form for ranges (`rvale1is`).
        ranged: u32,
    },
    /// A barrier on arm64 that page-table changes and flushes need (`DSB`).
    Dsb {
        /// The kind of barrier.
        barrier: Dsb,
        /// The number of barriers.
        times: u32,
    },
    /// A CPU switched to another thread, or went idle.
    Switch {
        /// The thread that runs now; `None`: the CPU is idle, or a thread outside the scenario
        /// runs.
        to: Option<ThreadId>,
    },
    /// A phase mark of the scenario ([`crate::program::Program::marks`]).
    Mark {
        /// The mark's index in [`crate::program::Program::marks`].
        mark: u16,
    },
    /// A round starts.
    RoundStart {
        /// The round's number: from 0, without warm-up rounds; negative in warm-up.
        round: i64,
    },
    /// A round is over.
    RoundEnd {
        /// The round's number, as in [`EventKind::RoundStart`].
        round: i64,
    },
    /// A `measure` block starts.
    MeasureStart,
    /// A `measure` block is over.
    MeasureEnd,
}

/// The instructions that flush user address spaces without interrupting a CPU: `TLBI` operations of
/// arm64 (Arm ARM, C5.5), and AMD's `INVLPGB` (APM volume 3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tlbi {
    /// Invalidates an address space on all CPUs.
    Aside1is,
    /// Invalidates an address, with the tables that lead to it, on all CPUs.
    Vae1is,
    /// Invalidates the last-level entry of an address on all CPUs.
    Vale1is,
    /// Invalidates the last-level entry of an address on this CPU.
    Vale1,
    /// Invalidates addresses or an address space on all CPUs (x86). `TLBSYNC` waits until they
    /// have. How many pages one instruction covers depends on the processor. A flush counts as one.
    Invlpgb,
}

impl Tlbi {
    /// All of these instructions.
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

/// Barriers on arm64 (Arm ARM, C6.2 "DSB"): which CPUs a barrier is for, and which earlier accesses
/// it waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dsb {
    /// Waits for stores, for all CPUs: page-table walks see them afterwards.
    Ishst,
    /// Waits for all accesses, for all CPUs: invalidations are done afterwards.
    Ish,
    /// Waits for stores, for this CPU.
    Nshst,
    /// Waits for all accesses, for this CPU.
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

/// The bits of the x86 page-fault error code that distinguish user faults in Linux.
///
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
        /// The class of a fault. The order is the order of report columns.
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

            /// The name in reports about any program (`needless stat`).
            pub const fn title(self) -> &'static str {
                match self {
                    $(FaultClass::$class => $title,)*
                }
            }
        }
    };
}

fault_classes! {
    /// A page that was never touched got a zeroed frame.
    FirstTouch = "first-touch", "first touch";
    /// A read of a page that was never touched mapped the zero page.
    ZeroPage = "zero-page", "zero page";
    /// A write replaced the zero page by a zeroed frame.
    ZeroUpgrade = "zero-upgrade", "zero-page upgrade";
    /// A write to a read-only page copied it.
    CowCopy = "cow-copy", "COW copy";
    /// A write to a read-only page made it writable in place.
    Reuse = "reuse", "reuse after write-protect";
    /// The page came back from swap.
    SwapIn = "swap-in", "swap-in";
    /// The kernel set the accessed or the dirty bit, on a processor that does not.
    AccessFlag = "access-flag", "access flag";
    /// A file's page was mapped, after it was read if it was not in memory.
    FileMap = "file-map", "file map";
    /// The file's pages around the fault were mapped at once.
    FaultAround = "fault-around", "fault-around";
    /// A write to a shared page made it writable and dirty.
    SharedDirty = "shared-dirty", "shared dirtying";
    /// A huge page or a large folio was mapped.
    HugePage = "huge-page", "huge page";
    /// The fault waited for userfaultfd.
    Userfaultfd = "userfaultfd", "userfaultfd";
    /// NUMA balancing had made the page inaccessible to sample the access.
    NumaHint = "numa-hint", "NUMA hint";
    /// There was nothing to do: the translation already allowed the access, or came to allow it
    /// meanwhile.
    Spurious = "spurious", "spurious";
    /// The access is not allowed, and the thread gets a signal.
    Signal = "signal", "signal";
    /// The kernel did not resolve the fault: the access is not allowed, or kernel code expected the
    /// fault.
    Failed = "failed", "signal or fix-up";
    /// The visible events do not show the class.
    Unknown = "unknown", "unknown";
}

/// `enum tlb_flush_reason` (include/linux/mm_types.h, include/trace/events/tlb.h). The numbers are
/// the tracepoint's and are equal from 5.10 to 7.3; its strings are not.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
pub enum FlushReason {
    /// A switch wrote CR3. Pages are 0 if nothing was flushed.
    TaskSwitch = 0,
    /// A CPU answered a shootdown.
    RemoteShootdown = 1,
    /// The initiator's part of a flush without address space (`arch_tlbbatch_flush`).
    LocalBatch = 2,
    /// The initiator's part of a flush of one address space.
    LocalMm = 3,
    /// A shootdown is sent. The kernel has not decided yet which CPUs it interrupts.
    RemoteSend = 4,
    /// A CPU answered a shootdown, but runs another address space.
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

    /// Whether the initiator of a flush records it: a send, or the initiator's own part.
    pub const fn is_initiators(self) -> bool {
        match self {
            FlushReason::RemoteSend | FlushReason::LocalMm | FlushReason::LocalBatch => true,
            FlushReason::TaskSwitch
            | FlushReason::RemoteShootdown
            | FlushReason::RemoteWrongCpu => false,
        }
    }
}
