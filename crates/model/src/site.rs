//! The kernel functions that the model's steps stand for.
//!
//! A site labels the steps of the checker, names the cause of an event in reports, and points to
//! the source that the step was written from. File names are those of Linux 6.12; where a
//! function had another name in 5.10, the comment says so.

use serde::{Deserialize, Serialize};

/// Declares [`Site`] with function and file.
macro_rules! sites {
    ($($(#[$doc:meta])* $name:ident = $function:literal in $file:literal;)*) => {
        /// A kernel function.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Site {
            $($(#[$doc])* $name,)*
        }

        impl Site {
            /// All sites.
            pub const ALL: &'static [Site] = &[$(Site::$name),*];

            /// The function's name.
            pub const fn function(self) -> &'static str {
                match self {
                    $(Site::$name => $function,)*
                }
            }

            /// The file it is in.
            pub const fn file(self) -> &'static str {
                match self {
                    $(Site::$name => $file,)*
                }
            }
        }
    };
}

sites! {
    /// Not the kernel: the processor's page walk.
    HardwareWalk = "page walk" in "(processor)";
    /// The page-fault handler's entry.
    ExcPageFault = "exc_page_fault" in "arch/x86/mm/fault.c";
    /// Looks at the PTE and chooses.
    HandlePteFault = "handle_pte_fault" in "mm/memory.c";
    /// Looks above the last level first.
    HandleMmFault = "__handle_mm_fault" in "mm/memory.c";
    /// First touch of a huge page's worth of anonymous memory.
    DoHugePmdAnonymousPage = "do_huge_pmd_anonymous_page" in "mm/huge_memory.c";
    /// A write to a huge page that is read-only.
    DoHugePmdWpPage = "do_huge_pmd_wp_page" in "mm/huge_memory.c";
    /// A write to the huge zero page (6.13 and later).
    DoHugeZeroWpPmd = "do_huge_zero_wp_pmd" in "mm/huge_memory.c";
    /// A huge page is marked accessed.
    HugePmdSetAccessed = "huge_pmd_set_accessed" in "mm/huge_memory.c";
    /// A huge page is mapped page by page.
    SplitHugePmd = "__split_huge_pmd_locked" in "mm/huge_memory.c";
    /// A mapping begins or ends within a huge page.
    VmaAdjustTransHuge = "vma_adjust_trans_huge" in "mm/huge_memory.c";
    /// Page-table pages are gone through and what they map is taken away.
    ZapPmdRange = "zap_pmd_range" in "mm/memory.c";
    /// Page tables are gone through and what they map is moved.
    MovePageTables = "move_page_tables" in "mm/mremap.c";
    /// A large folio becomes small ones (5.10, 6.1: `split_huge_page_to_list`; 7.3: `__folio_split`).
    SplitFolio = "split_huge_page_to_list_to_order" in "mm/huge_memory.c";
    /// `MADV_COLLAPSE` of a mapping.
    MadviseCollapse = "madvise_collapse" in "mm/khugepaged.c";
    /// Large folios of which parts are mapped no more are split.
    DeferredSplitScan = "deferred_split_scan" in "mm/huge_memory.c";
    /// khugepaged goes on to the next mapping (7.3: `collapse_scan_mm_slot`).
    KhugepagedScanMmSlot = "khugepaged_scan_mm_slot" in "mm/khugepaged.c";
    /// What can be collapsed is looked for (7.3: `collapse_scan_pmd`).
    HpageCollapseScanPmd = "hpage_collapse_scan_pmd" in "mm/khugepaged.c";
    /// The mapping is looked at once more.
    HugepageVmaRevalidate = "hugepage_vma_revalidate" in "mm/khugepaged.c";
    /// Pages become a huge page.
    CollapseHugePage = "collapse_huge_page" in "mm/khugepaged.c";
    /// A table is taken out of the page table and flushed.
    PmdpCollapseFlush = "pmdp_collapse_flush" in "mm/pgtable-generic.c";
    /// Reclaim takes a huge page away as a whole (6.13 to 6.18).
    UnmapHugePmdLocked = "unmap_huge_pmd_locked" in "mm/huge_memory.c";
    /// `MADV_FREE` of a huge page.
    MadviseFreeHugePmd = "madvise_free_huge_pmd" in "mm/huge_memory.c";
    /// A huge page is taken away.
    ZapHugePmd = "zap_huge_pmd" in "mm/huge_memory.c";
    /// `mprotect` of a huge page.
    ChangeHugePmd = "change_huge_pmd" in "mm/huge_memory.c";
    /// `UFFDIO_MOVE` of a huge page as a whole.
    MovePagesHugePmd = "move_pages_huge_pmd" in "mm/huge_memory.c";
    /// `mremap` of a huge page.
    MoveHugePmd = "move_huge_pmd" in "mm/huge_memory.c";
    /// `fork` of a huge page.
    CopyHugePmd = "copy_huge_pmd" in "mm/huge_memory.c";
    /// A mapping is as advised from now on.
    MadviseUpdateVma = "madvise_update_vma" in "mm/madvise.c";
    /// First touch of anonymous memory.
    DoAnonymousPage = "do_anonymous_page" in "mm/memory.c";
    /// Swap-in.
    DoSwapPage = "do_swap_page" in "mm/memory.c";
    /// A page of shared memory, or of a file, is not mapped.
    DoFault = "do_fault" in "mm/memory.c";
    /// Pages around a read fault are mapped with it.
    FilemapMapPages = "filemap_map_pages" in "mm/filemap.c";
    /// Shared memory's page, or a new one (`shmem_getpage_gfp` in 5.10).
    ShmemGetFolio = "shmem_get_folio_gfp" in "mm/shmem.c";
    /// A hole is punched into what is mapped.
    MadviseRemove = "madvise_remove" in "mm/madvise.c";
    /// Every mapping of a file's pages loses their translations.
    UnmapMappingRange = "unmap_mapping_range" in "mm/memory.c";
    /// A file gets another size.
    DoTruncate = "do_truncate" in "fs/open.c";
    /// Page by page leaves the file (`shmem_undo_range` where it is in memory).
    TruncateInodePages = "truncate_inode_pages_range" in "mm/truncate.c";
    /// One of them, which may be mapped again.
    TruncateInodeFolio = "truncate_inode_folio" in "mm/truncate.c";
    /// It leaves the page cache.
    FilemapRemoveFolio = "filemap_remove_folio" in "mm/filemap.c";
    /// A store to a file's private page that is not mapped copies it.
    DoCowFault = "do_cow_fault" in "mm/memory.c";
    /// It is mapped.
    FinishFault = "finish_fault" in "mm/memory.c";
    /// A page enters the page cache, and is read.
    FilemapAddFolio = "filemap_add_folio" in "mm/filemap.c";
    /// The page that is to be written.
    FilemapGetFolio = "__filemap_get_folio" in "mm/filemap.c";
    /// It is written.
    GenericPerformWrite = "generic_perform_write" in "mm/filemap.c";
    /// Pages of a file need not be in memory.
    GenericFadvise = "generic_fadvise" in "mm/fadvise.c";
    /// They leave it, unless they are in use (`__invalidate_mapping_pages` in 5.10).
    MappingTryInvalidate = "mapping_try_invalidate" in "mm/truncate.c";
    /// Every CPU's batches are emptied.
    LruAddDrainAll = "lru_add_drain_all" in "mm/swap.c";
    /// All that is dirty of a file is written to its disk.
    VfsFsync = "vfs_fsync_range" in "fs/sync.c";
    /// The page of a file on a disk.
    FilemapFault = "filemap_fault" in "mm/filemap.c";
    /// The file system is told of a store to come.
    DoPageMkwrite = "do_page_mkwrite" in "mm/memory.c";
    /// A store to shared memory marks the page.
    FaultDirtySharedPage = "fault_dirty_shared_page" in "mm/memory.c";
    /// Whoever dirties much waits.
    BalanceDirtyPages = "balance_dirty_pages" in "mm/page-writeback.c";
    /// A folio is locked by somebody else (`__lock_page_or_retry` in 5.10).
    FolioLockOrRetry = "__folio_lock_or_retry" in "mm/filemap.c";
    /// A page is on its way to another one.
    MigrationEntryWait = "migration_entry_wait" in "mm/migrate.c";
    /// NUMA balancing goes through mappings.
    TaskNumaWork = "task_numa_work" in "kernel/sched/fair.c";
    /// The access of a page that it sampled.
    DoNumaPage = "do_numa_page" in "mm/memory.c";
    /// `move_pages` (`__NR_move_pages`) goes through its list.
    DoPagesMove = "do_pages_move" in "mm/migrate.c";
    /// `mbind`.
    DoMbind = "do_mbind" in "mm/mempolicy.c";
    /// Pages that are to move are isolated.
    QueuePagesRange = "queue_pages_range" in "mm/mempolicy.c";
    /// Part of a mapping gets another memory policy.
    MbindRange = "mbind_range" in "mm/mempolicy.c";
    /// `set_mempolicy`.
    DoSetMempolicy = "do_set_mempolicy" in "mm/mempolicy.c";
    /// A folio that moves is unmapped (5.10, 6.1: `unmap_and_move`).
    MigrateFolioUnmap = "migrate_folio_unmap" in "mm/migrate.c";
    /// It is copied (5.10: `move_to_new_page`, 6.1: `move_to_new_folio`).
    MigrateFolioMove = "migrate_folio_move" in "mm/migrate.c";
    /// A translation becomes a migration entry (5.10: `try_to_unmap_one`).
    TryToMigrateOne = "try_to_migrate_one" in "mm/rmap.c";
    /// The entry of a huge page becomes a migration entry.
    SetPmdMigrationEntry = "set_pmd_migration_entry" in "mm/huge_memory.c";
    /// The migration entry of a huge page becomes a translation.
    RemoveMigrationPmd = "remove_migration_pmd" in "mm/huge_memory.c";
    /// A migration entry becomes a translation.
    RemoveMigrationPte = "remove_migration_pte" in "mm/migrate.c";
    /// Write to a read-only PTE.
    DoWpPage = "do_wp_page" in "mm/memory.c";
    /// Copy.
    WpPageCopy = "wp_page_copy" in "mm/memory.c";
    /// Reuse in place.
    WpPageReuse = "wp_page_reuse" in "mm/memory.c";
    /// The flush inside the copy.
    PtepClearFlush = "ptep_clear_flush" in "mm/pgtable-generic.c";
    /// `mmap`.
    MmapRegion = "mmap_region" in "mm/mmap.c";
    /// `munmap`: the page tables.
    ZapPteRange = "zap_pte_range" in "mm/memory.c";
    /// `munmap`: walks from frames find the mapping no more.
    UnlinkAnonVmas = "unlink_anon_vmas" in "mm/rmap.c";
    /// `munmap`: freeing page tables.
    FreePgtables = "free_pgtables" in "mm/memory.c";
    /// The gather's flush.
    TlbFinishMmu = "tlb_finish_mmu" in "mm/mmu_gather.c";
    /// The gather's flush when it is full.
    TlbFlushMmu = "tlb_flush_mmu" in "mm/mmu_gather.c";
    /// What was flushed does not count as mapped any more.
    TlbFlushRmaps = "tlb_flush_rmaps" in "mm/mmu_gather.c";
    /// `mprotect`.
    ChangePteRange = "change_pte_range" in "mm/mprotect.c";
    /// `mprotect` in 5.10 flushes here.
    ChangeProtectionRange = "change_protection_range" in "mm/mprotect.c";
    /// `mremap`.
    MovePtes = "move_ptes" in "mm/mremap.c";
    /// `MADV_COLD`, `MADV_PAGEOUT`.
    MadviseColdOrPageout = "madvise_cold_or_pageout_pte_range" in "mm/madvise.c";
    /// `MADV_GUARD_INSTALL`.
    MadviseGuardInstall = "madvise_guard_install" in "mm/madvise.c";
    /// `MADV_GUARD_REMOVE`.
    MadviseGuardRemove = "madvise_guard_remove" in "mm/madvise.c";
    /// `mlock`, `munlock`.
    MlockFixup = "mlock_fixup" in "mm/mlock.c";
    /// `mlock` and `munlock` of what is there.
    MlockPteRange = "mlock_pte_range" in "mm/mlock.c";
    /// `mlock` brings pages into memory.
    PopulateVmaPageRange = "populate_vma_page_range" in "mm/gup.c";
    /// `UFFDIO_REGISTER`.
    UserfaultfdRegister = "userfaultfd_register" in "fs/userfaultfd.c";
    /// `UFFDIO_UNREGISTER`.
    UserfaultfdUnregister = "userfaultfd_unregister" in "fs/userfaultfd.c";
    /// A userfaultfd is closed.
    UserfaultfdRelease = "userfaultfd_release" in "fs/userfaultfd.c";
    /// `UFFDIO_WRITEPROTECT`.
    MwriteprotectRange = "mwriteprotect_range" in "mm/userfaultfd.c";
    /// An access waits for whoever has the userfaultfd.
    HandleUserfault = "handle_userfault" in "fs/userfaultfd.c";
    /// Who waited goes on.
    WakeUserfault = "wake_userfault" in "fs/userfaultfd.c";
    /// Of which access the userfaultfd tells next.
    UserfaultfdRead = "userfaultfd_ctx_read" in "fs/userfaultfd.c";
    /// `UFFDIO_COPY`, `UFFDIO_ZEROPAGE`, `UFFDIO_CONTINUE`, `UFFDIO_POISON`.
    MfillAtomic = "mfill_atomic" in "mm/userfaultfd.c";
    /// `UFFDIO_MOVE`.
    MovePages = "move_pages" in "mm/userfaultfd.c";
    /// A store to a huge page that is mapped read-only.
    WpHugePmd = "wp_huge_pmd" in "mm/memory.c";
    /// `PAGEMAP_SCAN`.
    PagemapScan = "pagemap_scan_pmd_entry" in "fs/proc/task_mmu.c";
    /// `PAGEMAP_SCAN` protects what it found.
    MakeUffdWpPte = "make_uffd_wp_pte" in "fs/proc/task_mmu.c";
    /// `/proc/PID/pagemap` is read.
    PagemapRead = "pagemap_read" in "fs/proc/task_mmu.c";
    /// What a process does about signals.
    Sigaction = "do_sigaction" in "kernel/signal.c";
    /// `/proc/PID/clear_refs`.
    ClearRefs = "clear_refs_pte_range" in "fs/proc/task_mmu.c";
    /// `MADV_FREE`.
    MadviseFree = "madvise_free_pte_range" in "mm/madvise.c";
    /// `MADV_DONTNEED`.
    MadviseDontneed = "madvise_dontneed_single_vma" in "mm/madvise.c";
    /// `MADV_POPULATE_*`.
    MadvisePopulate = "faultin_page_range" in "mm/gup.c";
    /// The second flush after a batched unmap.
    FlushTlbBatchedPending = "flush_tlb_batched_pending" in "mm/rmap.c";
    /// What was stored to a file is written.
    Msync = "msync" in "mm/msync.c";
    /// Writeback takes a page that is dirty.
    FolioClearDirtyForIo = "folio_clear_dirty_for_io" in "mm/page-writeback.c";
    /// Writeback of a page ends.
    FolioEndWriteback = "folio_end_writeback" in "mm/filemap.c";
    /// Writeback makes one mapping clean.
    PageMkcleanOne = "page_vma_mkclean_one" in "mm/rmap.c";
    /// A store to shared memory that was written back.
    WpPageShared = "wp_page_shared" in "mm/memory.c";
    /// Taking pages off the LRU.
    FolioIsolateLru = "folio_isolate_lru" in "mm/vmscan.c";
    /// Reclaim (`shrink_page_list` in 5.10).
    ShrinkFolioList = "shrink_folio_list" in "mm/vmscan.c";
    /// Reclaim asks whether a page was used (`page_referenced_one` in 5.10).
    FolioReferenced = "folio_referenced_one" in "mm/rmap.c";
    /// A page gets a swap slot.
    AddToSwap = "add_to_swap" in "mm/swap_state.c";
    /// Reclaim unmaps one page.
    TryToUnmapOne = "try_to_unmap_one" in "mm/rmap.c";
    /// Reclaim puts a flush off: the address space's count.
    SetTlbUbcFlushPending = "set_tlb_ubc_flush_pending" in "mm/rmap.c";
    /// Reclaim puts a flush off: generation and CPUs.
    ArchTlbbatchAddPending = "arch_tlbbatch_add_pending" in "arch/x86/include/asm/tlbflush.h";
    /// The batched flush.
    TryToUnmapFlush = "try_to_unmap_flush" in "mm/rmap.c";
    /// The batched flush before a page that may be dirty is written.
    TryToUnmapFlushDirty = "try_to_unmap_flush_dirty" in "mm/rmap.c";
    /// A page is written to swap.
    Pageout = "pageout" in "mm/vmscan.c";
    /// A folio lock is tried.
    FolioTryLock = "folio_trylock" in "include/linux/pagemap.h";
    /// A fault tries to lock the mapping.
    LockVmaUnderRcu = "lock_vma_under_rcu" in "mm/memory.c";
    /// A fault that has a mapping's lock tries `mmap_lock`.
    MmapReadTrylock = "mmap_read_trylock" in "include/linux/mmap_lock.h";
    /// `madvise` tries to lock the mapping (6.18).
    TryVmaReadLock = "try_vma_read_lock" in "mm/madvise.c";
    /// A mapping is locked before it is changed.
    VmaStartWrite = "vma_start_write" in "include/linux/mm.h";
    /// A page leaves the swap cache for good (`__remove_mapping`).
    RemoveMapping = "__remove_mapping" in "mm/vmscan.c";
    /// A node that runs short of memory is reclaimed from.
    BalancePgdat = "balance_pgdat" in "mm/vmscan.c";
    /// One pass over its lists.
    ShrinkLruvec = "shrink_lruvec" in "mm/vmscan.c";
    /// Active pages become inactive.
    ShrinkActiveList = "shrink_active_list" in "mm/vmscan.c";
    /// Pages go to slower memory.
    DemoteFolioList = "demote_folio_list" in "mm/vmscan.c";
    /// Pages go back on the LRU.
    FolioPutbackLru = "folio_putback_lru" in "mm/vmscan.c";
    /// The CPU's LRU batches are emptied.
    LruAddDrain = "lru_add_drain" in "mm/swap.c";
    /// A page enters the CPU's LRU batch.
    FolioAddLru = "folio_add_lru" in "mm/swap.c";
    /// A page leaves the swap cache.
    FolioFreeSwap = "folio_free_swap" in "mm/swapfile.c";
    /// A frame is given back.
    FolioPut = "folio_put" in "mm/swap.c";
    /// A flush starts.
    FlushTlbMmRange = "flush_tlb_mm_range" in "arch/x86/mm/tlb.c";
    /// A shootdown is sent (`native_flush_tlb_others` in 5.10).
    FlushTlbMulti = "native_flush_tlb_multi" in "arch/x86/mm/tlb.c";
    /// A CPU flushes.
    FlushTlbFunc = "flush_tlb_func" in "arch/x86/mm/tlb.c";
    /// The batch's flush.
    ArchTlbbatchFlush = "arch_tlbbatch_flush" in "arch/x86/mm/tlb.c";
    /// A flush by an instruction that all CPUs obey.
    BroadcastTlbFlush = "broadcast_tlb_flush" in "arch/x86/mm/tlb.c";
    /// Whether an address space gets an identifier that all CPUs share.
    ConsiderGlobalAsid = "consider_global_asid" in "arch/x86/mm/tlb.c";
    /// Not the kernel: a CPU carries out an invalidation that another CPU broadcast (arm64's TLBI, AMD's INVLPGB).
    TlbiBroadcast = "TLBI" in "(processor)";
    /// A page table is linked into the one above it.
    PteAlloc = "__pte_alloc" in "mm/memory.c";
    /// A CPU changes address space.
    SwitchMm = "switch_mm_irqs_off" in "arch/x86/mm/tlb.c";
    /// A CPU keeps an address space loaded for a kernel thread.
    EnterLazyTlb = "enter_lazy_tlb" in "arch/x86/mm/tlb.c";
    /// A process forks: the descriptor of its address space is copied.
    DupMm = "dup_mm" in "kernel/fork.c";
    /// Mapping by mapping.
    DupMmap = "dup_mmap" in "kernel/fork.c";
    /// The child's mapping gets an object of its own.
    AnonVmaFork = "anon_vma_fork" in "mm/rmap.c";
    /// What a page table holds is copied.
    CopyPteRange = "copy_pte_range" in "mm/memory.c";
    /// A mapping's pages are copied.
    CopyPageRange = "copy_page_range" in "mm/memory.c";
    /// A fork copies a page that may be pinned.
    CopyPresentPage = "copy_present_page" in "mm/memory.c";
    /// A page is held without a lock (`gup_pte_range` in 5.10 and 6.1).
    GupFast = "gup_fast_pte_range" in "mm/gup.c";
    /// Whoever did looks whether a fork came between (`lockless_pages_from_mm` in 5.10 and 6.1).
    GupFastFork = "gup_fast" in "mm/gup.c";
    /// The same of a page of a huge page (`gup_huge_pmd` in 5.10 and 6.1).
    GupFastPmdLeaf = "gup_fast_pmd_leaf" in "mm/gup.c";
    /// Interrupts are off from here on, and the table is found that the page is to be in (`gup_pgd_range` in 5.10 and 6.1).
    GupFastPgdRange = "gup_fast_pgd_range" in "mm/gup.c";
    /// The reference that it takes (`try_grab_compound_head` in 5.10).
    TryGrabFolio = "try_grab_folio" in "mm/gup.c";
    /// A page is held under its page table's lock.
    FollowPagePte = "follow_page_pte" in "mm/gup.c";
    /// The same of a page of a huge page (`follow_trans_huge_pmd` in 5.10 and 6.1, mm/huge_memory.c).
    FollowHugePmd = "follow_huge_pmd" in "mm/gup.c";
    /// Whoever takes a page table away waits for those that walk without a lock.
    TlbRemoveTableSyncOne = "tlb_remove_table_sync_one" in "mm/mmu_gather.c";
    /// What a CPU does that is interrupted for it: nothing.
    TlbRemoveTableSmpSync = "tlb_remove_table_smp_sync" in "mm/mmu_gather.c";
    /// A grace period of RCU.
    SynchronizeRcu = "synchronize_rcu" in "kernel/rcu/tree.c";
    /// A page is let go.
    UnpinUserPage = "unpin_user_page" in "mm/gup.c";
    /// Not the kernel: a device.
    Dma = "DMA" in "(device)";
    /// A process waits for another's end.
    DoWait = "do_wait" in "kernel/exit.c";
    /// The step of `execve` at which the address space changes.
    ExecMmap = "exec_mmap" in "fs/exec.c";
    /// An address space ends.
    ExitMmap = "exit_mmap" in "mm/mmap.c";
}
