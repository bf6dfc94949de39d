//! What each series does since its first release: of the policies those that changed since the one before. What a stable release changed
//! is in stable.rs.

use crate::policy::*;

pub(super) const V5_8: Policies = Policies {
    reuse: Reuse::MapCount,
    swapin_read: SwapinRead::ReadOnly,
    swapin_write: SwapinWrite::MapCount,
    swapin_drain: SwapinDrain::Never,
    swapin_free: SwapinFree::SoleUser,
    anon_exclusive: AnonExclusive::No,
    pageout_young: PageoutYoung::Clear,
    protect_flush: ProtectFlush::WholeRange,
    protect_restore: ProtectRestore::Never,
    huge_zero_write: HugeZeroWrite::Split,
    split_dirty: SplitDirty::Page,
    split_flush: SplitFlush::Each,
    split_remap: SplitRemap::Old,
    split_zeros: SplitZeros::Stay,
    huge_cold: HugeCold::Invalidate,
    advise_large: AdviseLarge::Split,
    large_shared: LargeShared::First,
    large_reclaim: LargeReclaim::IfMappedWhole,
    lazyfree_huge: LazyfreeHuge::Split,
    lazyfree_unmap: LazyfreeUnmap::Each,
    large_reuse: LargeReuse::Alone,
    collapse: Collapse::None,
    table_sync: TableSync::Implied,
    flush_order: FlushOrder::LocalFirst,
    cpumask: CpumaskClear::AtSwitch,
    interrupt: Interrupt::NotLazy,
    gen_skip: GenSkip::Event,
    self_receive: SelfReceive::Yes,
    lru_batch: LruBatch::Fifteen,
    cold_batch: ColdBatch::All,
    new_folio: NewFolio::Active,
    used_once: UsedOnce::Oldest,
    lazyfree_held: LazyfreeHeld::BackedAgain,
    reclaim_free: ReclaimFree::AtEnd,
    zap_drain: ZapDrain::Yes,
    dontneed_tables: DontneedTables::Keep,
    advise_gather: AdviseGather::PerMapping,
    fault_lock: FaultLock::Mmap,
    advise_lock: AdviseLock::Mmap,
    vma_merge: VmaMerge::IntoFaulted,
    protect_charge: ProtectCharge::Keep,
    move_range: MoveRange::OneMapping,
    move_tables: MoveTables::LastLevelOnly,
    move_start: MoveStart::AsGiven,
    gather_batch: GatherBatch::Full,
    populate: Populate::No,
    zero_swap: ZeroSwap::Write,
    batched_pending: BatchedPending::KeepMark,
    unmap_batch: UnmapBatching::Defer,
    pending_mark: PendingMark::Flag,
    fork_accessed: ForkAccessed::Clear,
    fork_shared: ForkShared::Skip,
    fork_dirty: ForkDirty::Clear,
    demand_young: DemandYoung::Set,
    dirty_retry: DirtyRetry::RetryFlush,
    retry_fault: RetryFault::Update,
    read_fault_dirty: ReadFaultDirty::No,
    zap_rmap: ZapRmap::BeforeFlush,
    arm64_upgrade: Arm64Upgrade::Broadcast,
    arm64_spurious: Arm64Spurious::Broadcast,
    arm64_protect: Arm64Protect::All,
    arm64_ranges: Arm64Ranges::Ascending,
    arm64_whole: Arm64Whole::Once,
    arm64_va: Arm64Va::Bits48,
    arm64_unmap: Arm64Unmap::Waited,
    prefault: Prefault::Young,
    punch_dirty: PunchDirty::Written,
    fork_pinned: ForkPinned::Share,
    gup_read: GupRead::BreakCow,
    swapin_exclusive: SwapinExclusive::SoleReference,
    vectored_advice: VectoredAdvice::None,
    guard_regions: GuardRegions::None,
    skip: Skip::None,
    refault_flush: RefaultFlush::Nothing,
    mutant: Mutant::None,
};

pub(super) const V5_10: Policies = Policies {
    reuse: Reuse::PageCount,
    fork_pinned: ForkPinned::Copy,
    vectored_advice: VectoredAdvice::Hints,
    dirty_retry: DirtyRetry::Retry,
    arm64_spurious: Arm64Spurious::Nobody,
    gup_read: GupRead::AsMapped,
    ..V5_8
};

pub(super) const V5_15: Policies = Policies {
    flush_order: FlushOrder::Concurrent,
    self_receive: SelfReceive::No,
    move_tables: MoveTables::UpperFirst,
    populate: Populate::Yes,
    prefault: Prefault::AsArch,
    ..V5_10
};

pub(super) const V6_1: Policies = Policies {
    split_remap: SplitRemap::DirtyMarks,
    advise_large: AdviseLarge::SplitByFirst,
    collapse: Collapse::Writable,
    table_sync: TableSync::Broadcast,
    reuse: Reuse::ExclusiveAfterDrain,
    swapin_write: SwapinWrite::Exclusive,
    swapin_drain: SwapinDrain::FromCache,
    swapin_free: SwapinFree::SoleReference,
    anon_exclusive: AnonExclusive::Yes,
    gup_read: GupRead::Unshare,
    dirty_retry: DirtyRetry::Completed,
    protect_flush: ProtectFlush::PerPte,
    protect_restore: ProtectRestore::IfDirty,
    interrupt: Interrupt::NotLazyAndLoaded,
    gen_skip: GenSkip::Silent,
    pending_mark: PendingMark::Counts,
    ..V5_15
};

pub(super) const V6_12: Policies = Policies {
    swapin_read: SwapinRead::Writable,
    split_dirty: SplitDirty::Pte,
    split_flush: SplitFlush::Batched,
    split_remap: SplitRemap::AsBefore,
    split_zeros: SplitZeros::ZeroPage,
    lazyfree_huge: LazyfreeHuge::WholeOrSplit,
    advise_large: AdviseLarge::Batch,
    large_shared: LargeShared::Likely,
    large_reclaim: LargeReclaim::UnlessPart,
    large_reuse: LargeReuse::Never,
    pageout_young: PageoutYoung::Ignore,
    protect_restore: ProtectRestore::IfExclusive,
    fault_lock: FaultLock::Vma,
    protect_charge: ProtectCharge::DropUnfaulted,
    lru_batch: LruBatch::ThirtyOne,
    move_start: MoveStart::AtTable,
    reclaim_free: ReclaimFree::PerBatch,
    gather_batch: GatherBatch::LeaveOne,
    zap_rmap: ZapRmap::AfterFlush,
    arm64_ranges: Arm64Ranges::Descending,
    arm64_whole: Arm64Whole::Twice,
    arm64_va: Arm64Va::Bits52,
    arm64_unmap: Arm64Unmap::Unwaited,
    punch_dirty: PunchDirty::Dropped,
    zero_swap: ZeroSwap::Skip,
    ..V6_1
};

// Debian's archive has none of 6.13 to 6.15: these changed somewhere up to 6.16.
pub(super) const V6_16: Policies = Policies {
    cold_batch: ColdBatch::NotOldest,
    huge_zero_write: HugeZeroWrite::Huge,
    large_shared: LargeShared::Known,
    lazyfree_huge: LazyfreeHuge::Whole,
    lazyfree_unmap: LazyfreeUnmap::Run,
    large_reuse: LargeReuse::Known,
    collapse: Collapse::Any,
    lazyfree_held: LazyfreeHeld::StaysFree,
    cpumask: CpumaskClear::AtNextInterrupt,
    dontneed_tables: DontneedTables::Free,
    advise_gather: AdviseGather::PerCall,
    vectored_advice: VectoredAdvice::OneCall,
    guard_regions: GuardRegions::AnonVma,
    zap_drain: ZapDrain::No,
    vma_merge: VmaMerge::Any,
    read_fault_dirty: ReadFaultDirty::AsFolio,
    ..V6_12
};

pub(super) const V6_17: Policies = Policies { move_range: MoveRange::EachMapping, ..V6_16 };

pub(super) const V6_18: Policies = Policies { advise_lock: AdviseLock::Vma, ..V6_17 };

// Nor has it 6.19 to 7.1.
pub(super) const V7_2: Policies = Policies {
    collapse: Collapse::NothingIsDone,
    swapin_drain: SwapinDrain::Always,
    swapin_exclusive: SwapinExclusive::PteBit,
    swapin_free: SwapinFree::Always,
    new_folio: NewFolio::Referenced,
    used_once: UsedOnce::Recent,
    guard_regions: GuardRegions::Flag,
    arm64_upgrade: Arm64Upgrade::Local,
    arm64_spurious: Arm64Spurious::Local,
    arm64_protect: Arm64Protect::HardwareBits,
    arm64_whole: Arm64Whole::Once,
    ..V6_18
};

pub(super) const V7_3: Policies =
    Policies { reuse: Reuse::ExclusiveCountingBatch, swapin_drain: SwapinDrain::Never, ..V7_2 };
