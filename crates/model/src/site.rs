//! The kernel functions that the model's steps stand for.
//!
//! A site labels the steps of the checker, names the cause of an event in reports, and points to
//! the source of the step. File names are those of Linux 6.12. Where a function had another name in
//! another version, the comment gives it.

use serde::{Deserialize, Serialize};

/// Declares [`Site`] with the function and file of each site.
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

            /// The file that contains the function.
            pub const fn file(self) -> &'static str {
                match self {
                    $(Site::$name => $file,)*
                }
            }
        }
    };
}

sites! {
    /// The processor's page walk, which is no part of the kernel.
    HardwareWalk = "page walk" in "(processor)";
    /// The entry of the page-fault handler.
    ExcPageFault = "exc_page_fault" in "arch/x86/mm/fault.c";
    /// Looks at the PTE and chooses the kind of fault.
    HandlePteFault = "handle_pte_fault" in "mm/memory.c";
    /// Looks at the levels above the last one first.
    HandleMmFault = "__handle_mm_fault" in "mm/memory.c";
    /// Handles the first access to anonymous memory of the size of a huge page.
    DoHugePmdAnonymousPage = "do_huge_pmd_anonymous_page" in "mm/huge_memory.c";
    /// Handles a write to a read-only huge page.
    DoHugePmdWpPage = "do_huge_pmd_wp_page" in "mm/huge_memory.c";
    /// Handles a write to the huge zero page (6.13 and later).
    DoHugeZeroWpPmd = "do_huge_zero_wp_pmd" in "mm/huge_memory.c";
    /// Marks a huge page as accessed.
    HugePmdSetAccessed = "huge_pmd_set_accessed" in "mm/huge_memory.c";
    /// Remaps a huge page page by page.
    SplitHugePmd = "__split_huge_pmd_locked" in "mm/huge_memory.c";
    /// Adjusts a huge page in which a mapping now begins or ends.
    VmaAdjustTransHuge = "vma_adjust_trans_huge" in "mm/huge_memory.c";
    /// Walks page-table pages and removes what they map.
    ZapPmdRange = "zap_pmd_range" in "mm/memory.c";
    /// Walks page tables and moves what they map.
    MovePageTables = "move_page_tables" in "mm/mremap.c";
    /// Splits a large folio into small ones (5.10, 6.1: `split_huge_page_to_list`; 7.3:
    /// `__folio_split`).
    SplitFolio = "split_huge_page_to_list_to_order" in "mm/huge_memory.c";
    /// Handles `MADV_COLLAPSE` of a mapping.
    MadviseCollapse = "madvise_collapse" in "mm/khugepaged.c";
    /// Splits large folios of which parts are no longer mapped.
    DeferredSplitScan = "deferred_split_scan" in "mm/huge_memory.c";
    /// Moves khugepaged on to the next mapping (7.3: `collapse_scan_mm_slot`).
    KhugepagedScanMmSlot = "khugepaged_scan_mm_slot" in "mm/khugepaged.c";
    /// Looks for pages that can be collapsed (7.3: `collapse_scan_pmd`).
    HpageCollapseScanPmd = "hpage_collapse_scan_pmd" in "mm/khugepaged.c";
    /// Checks the mapping again before a collapse.
    HugepageVmaRevalidate = "hugepage_vma_revalidate" in "mm/khugepaged.c";
    /// Makes pages into a huge page.
    CollapseHugePage = "collapse_huge_page" in "mm/khugepaged.c";
    /// Takes a table out of the page table and flushes it.
    PmdpCollapseFlush = "pmdp_collapse_flush" in "mm/pgtable-generic.c";
    /// Unmaps a huge page as a whole for reclaim (6.13 to 6.18).
    UnmapHugePmdLocked = "unmap_huge_pmd_locked" in "mm/huge_memory.c";
    /// Handles `MADV_FREE` of a huge page.
    MadviseFreeHugePmd = "madvise_free_huge_pmd" in "mm/huge_memory.c";
    /// Removes a huge page's entry.
    ZapHugePmd = "zap_huge_pmd" in "mm/huge_memory.c";
    /// Handles `mprotect` of a huge page.
    ChangeHugePmd = "change_huge_pmd" in "mm/huge_memory.c";
    /// Handles `UFFDIO_MOVE` of a huge page as a whole.
    MovePagesHugePmd = "move_pages_huge_pmd" in "mm/huge_memory.c";
    /// Handles `mremap` of a huge page.
    MoveHugePmd = "move_huge_pmd" in "mm/huge_memory.c";
    /// Copies a huge page's entry for a fork.
    CopyHugePmd = "copy_huge_pmd" in "mm/huge_memory.c";
    /// Changes a mapping as `madvise` advised.
    MadviseUpdateVma = "madvise_update_vma" in "mm/madvise.c";
    /// Handles the first access to a page of anonymous memory.
    DoAnonymousPage = "do_anonymous_page" in "mm/memory.c";
    /// Handles a fault on a swap entry (swap-in).
    DoSwapPage = "do_swap_page" in "mm/memory.c";
    /// Handles a fault on an unmapped page of shared memory or of a file.
    DoFault = "do_fault" in "mm/memory.c";
    /// Maps the pages around a read fault.
    FilemapMapPages = "filemap_map_pages" in "mm/filemap.c";
    /// Finds a page of shared memory, or makes a new one (`shmem_getpage_gfp` in 5.10).
    ShmemGetFolio = "shmem_get_folio_gfp" in "mm/shmem.c";
    /// Punches a hole into a mapped file (`MADV_REMOVE`).
    MadviseRemove = "madvise_remove" in "mm/madvise.c";
    /// Removes the translations of a file's pages from every mapping.
    UnmapMappingRange = "unmap_mapping_range" in "mm/memory.c";
    /// Changes the size of a file.
    DoTruncate = "do_truncate" in "fs/open.c";
    /// Removes pages from the file, one by one (`shmem_undo_range` for files in memory).
    TruncateInodePages = "truncate_inode_pages_range" in "mm/truncate.c";
    /// Removes one page from the file, which may have been mapped again.
    TruncateInodeFolio = "truncate_inode_folio" in "mm/truncate.c";
    /// Removes a page from the page cache.
    FilemapRemoveFolio = "filemap_remove_folio" in "mm/filemap.c";
    /// Copies an unmapped page of a file for a store to a private mapping.
    DoCowFault = "do_cow_fault" in "mm/memory.c";
    /// Maps the page that a fault on a file found or made.
    FinishFault = "finish_fault" in "mm/memory.c";
    /// Adds a page to the page cache before it is read.
    FilemapAddFolio = "filemap_add_folio" in "mm/filemap.c";
    /// Finds or makes the page for a write to a file.
    FilemapGetFolio = "__filemap_get_folio" in "mm/filemap.c";
    /// Writes to a page of a file.
    GenericPerformWrite = "generic_perform_write" in "mm/filemap.c";
    /// Handles `posix_fadvise`: pages of a file need not stay in memory.
    GenericFadvise = "generic_fadvise" in "mm/fadvise.c";
    /// Drops pages from the page cache unless they are in use (`__invalidate_mapping_pages` in
    /// 5.10).
    MappingTryInvalidate = "mapping_try_invalidate" in "mm/truncate.c";
    /// Drains the LRU batches of every CPU.
    LruAddDrainAll = "lru_add_drain_all" in "mm/swap.c";
    /// Writes all dirty pages of a file to its disk.
    VfsFsync = "vfs_fsync_range" in "fs/sync.c";
    /// Finds the page of a file on a disk for a fault.
    FilemapFault = "filemap_fault" in "mm/filemap.c";
    /// Notifies the file system of a coming store.
    DoPageMkwrite = "do_page_mkwrite" in "mm/memory.c";
    /// Marks a page of shared memory dirty after a store.
    FaultDirtySharedPage = "fault_dirty_shared_page" in "mm/memory.c";
    /// Throttles a thread that makes many pages dirty.
    BalanceDirtyPages = "balance_dirty_pages" in "mm/page-writeback.c";
    /// Waits for a folio that another thread has locked (`__lock_page_or_retry` in 5.10).
    FolioLockOrRetry = "__folio_lock_or_retry" in "mm/filemap.c";
    /// Waits for a page that is being moved to another frame.
    MigrationEntryWait = "migration_entry_wait" in "mm/migrate.c";
    /// Walks mappings for NUMA balancing, to sample pages.
    TaskNumaWork = "task_numa_work" in "kernel/sched/fair.c";
    /// Handles the fault of an access to a sampled page.
    DoNumaPage = "do_numa_page" in "mm/memory.c";
    /// Handles the list of pages of a `move_pages` call (`__NR_move_pages`).
    DoPagesMove = "do_pages_move" in "mm/migrate.c";
    /// Handles the `mbind` call.
    DoMbind = "do_mbind" in "mm/mempolicy.c";
    /// Isolates the pages that are to move.
    QueuePagesRange = "queue_pages_range" in "mm/mempolicy.c";
    /// Gives a part of a mapping another memory policy.
    MbindRange = "mbind_range" in "mm/mempolicy.c";
    /// Handles the `set_mempolicy` call.
    DoSetMempolicy = "do_set_mempolicy" in "mm/mempolicy.c";
    /// Unmaps a folio that moves (5.10, 6.1: `unmap_and_move`).
    MigrateFolioUnmap = "migrate_folio_unmap" in "mm/migrate.c";
    /// Copies a folio that moves (5.10: `move_to_new_page`, 6.1: `move_to_new_folio`).
    MigrateFolioMove = "migrate_folio_move" in "mm/migrate.c";
    /// Replaces a translation by a migration entry (5.10: `try_to_unmap_one`).
    TryToMigrateOne = "try_to_migrate_one" in "mm/rmap.c";
    /// Replaces a huge page's entry by a migration entry.
    SetPmdMigrationEntry = "set_pmd_migration_entry" in "mm/huge_memory.c";
    /// Replaces the migration entry of a huge page by a translation.
    RemoveMigrationPmd = "remove_migration_pmd" in "mm/huge_memory.c";
    /// Replaces a migration entry by a translation.
    RemoveMigrationPte = "remove_migration_pte" in "mm/migrate.c";
    /// Handles a write to a read-only PTE.
    DoWpPage = "do_wp_page" in "mm/memory.c";
    /// Copies the page of a write fault.
    WpPageCopy = "wp_page_copy" in "mm/memory.c";
    /// Makes the PTE of a write fault writable in place.
    WpPageReuse = "wp_page_reuse" in "mm/memory.c";
    /// Flushes the old translation when a page is copied.
    PtepClearFlush = "ptep_clear_flush" in "mm/pgtable-generic.c";
    /// Makes a mapping (`mmap`).
    MmapRegion = "mmap_region" in "mm/mmap.c";
    /// Zaps the PTEs of one page table (`munmap`).
    ZapPteRange = "zap_pte_range" in "mm/memory.c";
    /// Removes a mapping from the reverse map (`munmap`): walks from frames no longer find it.
    UnlinkAnonVmas = "unlink_anon_vmas" in "mm/rmap.c";
    /// Frees page tables (`munmap`).
    FreePgtables = "free_pgtables" in "mm/memory.c";
    /// Flushes at the end of a gather.
    TlbFinishMmu = "tlb_finish_mmu" in "mm/mmu_gather.c";
    /// Flushes a gather that is full.
    TlbFlushMmu = "tlb_flush_mmu" in "mm/mmu_gather.c";
    /// Stops counting pages as mapped after their flush.
    TlbFlushRmaps = "tlb_flush_rmaps" in "mm/mmu_gather.c";
    /// Changes the PTEs of one page table (`mprotect`).
    ChangePteRange = "change_pte_range" in "mm/mprotect.c";
    /// Changes the protection of a range. `mprotect` flushes here in 5.10.
    ChangeProtectionRange = "change_protection_range" in "mm/mprotect.c";
    /// Moves the PTEs of one page table (`mremap`).
    MovePtes = "move_ptes" in "mm/mremap.c";
    /// Handles `MADV_COLD` and `MADV_PAGEOUT` in one page table.
    MadviseColdOrPageout = "madvise_cold_or_pageout_pte_range" in "mm/madvise.c";
    /// Handles `MADV_GUARD_INSTALL`.
    MadviseGuardInstall = "madvise_guard_install" in "mm/madvise.c";
    /// Handles `MADV_GUARD_REMOVE`.
    MadviseGuardRemove = "madvise_guard_remove" in "mm/madvise.c";
    /// Changes the locking of a mapping (`mlock`, `munlock`).
    MlockFixup = "mlock_fixup" in "mm/mlock.c";
    /// Locks or unlocks the present pages of one page table (`mlock`, `munlock`).
    MlockPteRange = "mlock_pte_range" in "mm/mlock.c";
    /// Brings the pages of a mapping into memory (`mlock`).
    PopulateVmaPageRange = "populate_vma_page_range" in "mm/gup.c";
    /// Handles `UFFDIO_REGISTER`.
    UserfaultfdRegister = "userfaultfd_register" in "fs/userfaultfd.c";
    /// Handles `UFFDIO_UNREGISTER`.
    UserfaultfdUnregister = "userfaultfd_unregister" in "fs/userfaultfd.c";
    /// Closes a userfaultfd.
    UserfaultfdRelease = "userfaultfd_release" in "fs/userfaultfd.c";
    /// Handles `UFFDIO_WRITEPROTECT`.
    MwriteprotectRange = "mwriteprotect_range" in "mm/userfaultfd.c";
    /// Makes an access wait for an answer through the userfaultfd.
    HandleUserfault = "handle_userfault" in "fs/userfaultfd.c";
    /// Wakes the threads whose access was answered.
    WakeUserfault = "wake_userfault" in "fs/userfaultfd.c";
    /// Reads the message about the next access from the userfaultfd.
    UserfaultfdRead = "userfaultfd_ctx_read" in "fs/userfaultfd.c";
    /// Handles `UFFDIO_COPY`, `UFFDIO_ZEROPAGE`, `UFFDIO_CONTINUE` and `UFFDIO_POISON`.
    MfillAtomic = "mfill_atomic" in "mm/userfaultfd.c";
    /// Handles `UFFDIO_MOVE`.
    MovePages = "move_pages" in "mm/userfaultfd.c";
    /// Handles a store to a huge page that is mapped read-only.
    WpHugePmd = "wp_huge_pmd" in "mm/memory.c";
    /// Handles `PAGEMAP_SCAN` for one page table.
    PagemapScan = "pagemap_scan_pmd_entry" in "fs/proc/task_mmu.c";
    /// Write-protects a page that `PAGEMAP_SCAN` found.
    MakeUffdWpPte = "make_uffd_wp_pte" in "fs/proc/task_mmu.c";
    /// Reads `/proc/PID/pagemap`.
    PagemapRead = "pagemap_read" in "fs/proc/task_mmu.c";
    /// Sets a process's handler of a signal.
    Sigaction = "do_sigaction" in "kernel/signal.c";
    /// Handles a write to `/proc/PID/clear_refs` for one page table.
    ClearRefs = "clear_refs_pte_range" in "fs/proc/task_mmu.c";
    /// Handles `MADV_FREE` in one page table.
    MadviseFree = "madvise_free_pte_range" in "mm/madvise.c";
    /// Handles `MADV_DONTNEED` in one mapping.
    MadviseDontneed = "madvise_dontneed_single_vma" in "mm/madvise.c";
    /// Faults pages in for `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`.
    MadvisePopulate = "faultin_page_range" in "mm/gup.c";
    /// Flushes again after a batched unmap.
    FlushTlbBatchedPending = "flush_tlb_batched_pending" in "mm/rmap.c";
    /// Writes stores to a mapped file to its disk.
    Msync = "msync" in "mm/msync.c";
    /// Takes a dirty page for writeback.
    FolioClearDirtyForIo = "folio_clear_dirty_for_io" in "mm/page-writeback.c";
    /// Ends the writeback of a page.
    FolioEndWriteback = "folio_end_writeback" in "mm/filemap.c";
    /// Cleans one mapping of a page for writeback.
    PageMkcleanOne = "page_vma_mkclean_one" in "mm/rmap.c";
    /// Handles a store to shared memory that was written back.
    WpPageShared = "wp_page_shared" in "mm/memory.c";
    /// Takes folios off the LRU.
    FolioIsolateLru = "folio_isolate_lru" in "mm/vmscan.c";
    /// Reclaims the folios of a list (`shrink_page_list` in 5.10).
    ShrinkFolioList = "shrink_folio_list" in "mm/vmscan.c";
    /// Checks for reclaim whether a page was used (`page_referenced_one` in 5.10).
    FolioReferenced = "folio_referenced_one" in "mm/rmap.c";
    /// Gives a page a swap slot.
    AddToSwap = "add_to_swap" in "mm/swap_state.c";
    /// Unmaps one page for reclaim.
    TryToUnmapOne = "try_to_unmap_one" in "mm/rmap.c";
    /// Defers a flush of reclaim: counts it in the address space.
    SetTlbUbcFlushPending = "set_tlb_ubc_flush_pending" in "mm/rmap.c";
    /// Defers a flush of reclaim: notes the generation and the CPUs.
    ArchTlbbatchAddPending = "arch_tlbbatch_add_pending" in "arch/x86/include/asm/tlbflush.h";
    /// Does the batched flush.
    TryToUnmapFlush = "try_to_unmap_flush" in "mm/rmap.c";
    /// Does the batched flush before a page is written that may be dirty.
    TryToUnmapFlushDirty = "try_to_unmap_flush_dirty" in "mm/rmap.c";
    /// Writes a page to swap.
    Pageout = "pageout" in "mm/vmscan.c";
    /// Tries to take a folio's lock.
    FolioTryLock = "folio_trylock" in "include/linux/pagemap.h";
    /// Tries to take the mapping's lock for a fault.
    LockVmaUnderRcu = "lock_vma_under_rcu" in "mm/memory.c";
    /// Tries to take `mmap_lock` for a fault that has a mapping's lock.
    MmapReadTrylock = "mmap_read_trylock" in "include/linux/mmap_lock.h";
    /// Tries to take the mapping's lock for `madvise` (6.18).
    TryVmaReadLock = "try_vma_read_lock" in "mm/madvise.c";
    /// Write-locks a mapping before it is changed.
    VmaStartWrite = "vma_start_write" in "include/linux/mm.h";
    /// Removes a reclaimed page from the swap cache (`__remove_mapping`).
    RemoveMapping = "__remove_mapping" in "mm/vmscan.c";
    /// Reclaims from a node that is short of memory (kswapd).
    BalancePgdat = "balance_pgdat" in "mm/vmscan.c";
    /// Makes one pass over the LRU lists of a node.
    ShrinkLruvec = "shrink_lruvec" in "mm/vmscan.c";
    /// Moves folios from an active to an inactive list.
    ShrinkActiveList = "shrink_active_list" in "mm/vmscan.c";
    /// Moves pages to slower memory.
    DemoteFolioList = "demote_folio_list" in "mm/vmscan.c";
    /// Puts folios back on the LRU.
    FolioPutbackLru = "folio_putback_lru" in "mm/vmscan.c";
    /// Drains the CPU's LRU batches.
    LruAddDrain = "lru_add_drain" in "mm/swap.c";
    /// Adds a folio to the CPU's LRU batch.
    FolioAddLru = "folio_add_lru" in "mm/swap.c";
    /// Removes a page from the swap cache.
    FolioFreeSwap = "folio_free_swap" in "mm/swapfile.c";
    /// Drops a reference to a folio; the last one frees it.
    FolioPut = "folio_put" in "mm/swap.c";
    /// Starts a flush.
    FlushTlbMmRange = "flush_tlb_mm_range" in "arch/x86/mm/tlb.c";
    /// Sends a shootdown (`native_flush_tlb_others` in 5.10).
    FlushTlbMulti = "native_flush_tlb_multi" in "arch/x86/mm/tlb.c";
    /// Flushes the TLB of the CPU that it runs on.
    FlushTlbFunc = "flush_tlb_func" in "arch/x86/mm/tlb.c";
    /// Flushes on behalf of a batch.
    ArchTlbbatchFlush = "arch_tlbbatch_flush" in "arch/x86/mm/tlb.c";
    /// Flushes by an instruction that all CPUs obey.
    BroadcastTlbFlush = "broadcast_tlb_flush" in "arch/x86/mm/tlb.c";
    /// Gives an address space that many CPUs use an identifier that all CPUs share.
    ConsiderGlobalAsid = "consider_global_asid" in "arch/x86/mm/tlb.c";
    /// Flushes on a CPU what others have recorded for it (LATR, which no kernel has).
    FlushSavedStates = "native_flush_saved_states" in "arch/x86/mm/tlb.c";
    /// A CPU's invalidation at the request of another CPU (arm64's TLBI, AMD's INVLPGB), which is
    /// no part of the kernel.
    TlbiBroadcast = "TLBI" in "(processor)";
    /// Links a page table into the table above it.
    PteAlloc = "__pte_alloc" in "mm/memory.c";
    /// Switches a CPU to another address space.
    SwitchMm = "switch_mm_irqs_off" in "arch/x86/mm/tlb.c";
    /// Keeps an address space loaded while a kernel thread runs.
    EnterLazyTlb = "enter_lazy_tlb" in "arch/x86/mm/tlb.c";
    /// Copies the descriptor of an address space for a fork.
    DupMm = "dup_mm" in "kernel/fork.c";
    /// Copies the mappings for a fork, one by one.
    DupMmap = "dup_mmap" in "kernel/fork.c";
    /// Gives the child's mapping an object of its own.
    AnonVmaFork = "anon_vma_fork" in "mm/rmap.c";
    /// Copies the entries of one page table for a fork.
    CopyPteRange = "copy_pte_range" in "mm/memory.c";
    /// Copies the page tables of a mapping for a fork.
    CopyPageRange = "copy_page_range" in "mm/memory.c";
    /// Copies a page that may be pinned for a fork.
    CopyPresentPage = "copy_present_page" in "mm/memory.c";
    /// Takes a hold on a page without a lock (`gup_pte_range` in 5.10 and 6.1).
    GupFast = "gup_fast_pte_range" in "mm/gup.c";
    /// Checks, after taking holds without a lock, whether a fork intervened
    /// (`lockless_pages_from_mm` in 5.10 and 6.1).
    GupFastFork = "gup_fast" in "mm/gup.c";
    /// Takes a hold on a page of a huge page without a lock (`gup_huge_pmd` in 5.10 and 6.1).
    GupFastPmdLeaf = "gup_fast_pmd_leaf" in "mm/gup.c";
    /// Turns interrupts off and finds the table for the page (`gup_pgd_range` in 5.10 and 6.1).
    GupFastPgdRange = "gup_fast_pgd_range" in "mm/gup.c";
    /// Takes the reference of a hold (`try_grab_compound_head` in 5.10).
    TryGrabFolio = "try_grab_folio" in "mm/gup.c";
    /// Takes a hold on a page with its page table's lock.
    FollowPagePte = "follow_page_pte" in "mm/gup.c";
    /// Takes a hold on a page of a huge page with its table's lock (`follow_trans_huge_pmd` in 5.10
    /// and 6.1, mm/huge_memory.c).
    FollowHugePmd = "follow_huge_pmd" in "mm/gup.c";
    /// Waits for walks without a lock before a page table is removed.
    TlbRemoveTableSyncOne = "tlb_remove_table_sync_one" in "mm/mmu_gather.c";
    /// Handles the interrupt that `tlb_remove_table_sync_one` sends; it does nothing.
    TlbRemoveTableSmpSync = "tlb_remove_table_smp_sync" in "mm/mmu_gather.c";
    /// Waits for a grace period of RCU.
    SynchronizeRcu = "synchronize_rcu" in "kernel/rcu/tree.c";
    /// Releases a hold on a page.
    UnpinUserPage = "unpin_user_page" in "mm/gup.c";
    /// A device's access, which is no part of the kernel.
    Dma = "DMA" in "(device)";
    /// Waits for the end of another process.
    DoWait = "do_wait" in "kernel/exit.c";
    /// Changes the address space in `execve`.
    ExecMmap = "exec_mmap" in "fs/exec.c";
    /// Removes an address space at its end.
    ExitMmap = "exit_mmap" in "mm/mmap.c";
}
