//! Policies: the decisions that kernels take differently.
//!
//! Each policy is an enum, declared once with its values, documentation and source. A kernel row
//! names a value for every policy; there are no defaults. A mechanism asks the row and acts.
//!
//! Mutants are one of the policies. A mutant is known to be wrong, so that the checker has
//! something to find.

/// Declares the policy enums, the [`Policies`] row and the table [`POLICIES`].
macro_rules! policies {
    ($(
        $(#[$doc:meta])*
        $field:ident: $enum:ident = $name:literal in $group:ident, $summary:literal,
            source $source:literal {
            $($variant:ident = $word:literal, $what:literal;)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
            pub enum $enum {
                $(#[doc = $what] $variant,)*
            }

            impl $enum {
                /// The value's word in row options and reports.
                pub const fn word(self) -> &'static str {
                    match self { $($enum::$variant => $word,)* }
                }
            }
        )*

        /// One value for every policy.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        pub struct Policies {
            $(#[doc = $summary] pub $field: $enum,)*
        }

        /// All policies, in the order of the rows.
        pub const POLICIES: &[PolicyInfo] = &[
            $(PolicyInfo {
                name: $name,
                group: $group,
                summary: $summary,
                source: $source,
                values: &[$(($word, $what)),*],
            },)*
        ];

        impl Policies {
            /// The word of each policy's value, in the order of [`POLICIES`].
            pub fn words(&self) -> Vec<&'static str> {
                vec![$(self.$field.word()),*]
            }

            /// This row with policy number `index` (of [`POLICIES`]) taken from `other`.
            #[must_use]
            pub fn with_one_from(mut self, other: &Policies, index: usize) -> Policies {
                let mut at = 0;
                $(
                    if at == index { self.$field = other.$field; }
                    at += 1;
                )*
                let _ = at;
                self
            }

            /// This row with the policy called `name` set to the value called `word`.
            pub fn set(&mut self, name: &str, word: &str) -> Result<(), UnknownPolicy> {
                match name {
                    $($name => {
                        self.$field = match word {
                            $($word => $enum::$variant,)*
                            _ => return Err(UnknownPolicy::Value {
                                policy: $name,
                                value: word.to_owned(),
                                known: &[$($word),*],
                            }),
                        };
                    })*
                    _ => return Err(UnknownPolicy::Policy { name: name.to_owned() }),
                }
                Ok(())
            }
        }
    };
}

/// A policy, for help and documentation.
#[derive(Copy, Clone, Debug)]
pub struct PolicyInfo {
    /// The policy's name in row options.
    pub name: &'static str,
    /// The subject that the policy is about, one of [`GROUPS`].
    pub group: &'static str,
    /// The decision that the policy makes.
    pub summary: &'static str,
    /// The source of that knowledge.
    pub source: &'static str,
    /// The policy's values, each with its meaning.
    pub values: &'static [(&'static str, &'static str)],
}

/// A policy or value that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPolicy {
    /// No policy has this name.
    #[error("there is no policy `{name}`")]
    Policy {
        /// The given policy name.
        name: String,
    },
    /// The policy has no such value.
    #[error("policy `{policy}` has no value `{value}`; it has {}", known.join(", "))]
    Value {
        /// The policy.
        policy: &'static str,
        /// The given value.
        value: String,
        /// The policy's values.
        known: &'static [&'static str],
    },
}

const COW: &str = "Copy-on-write and swap-in";
const FORK: &str = "Fork and pins";
const MAPPINGS: &str = "Mappings, mprotect, mremap, madvise";
const HUGE: &str = "Huge pages and large folios";
const FILES: &str = "Files";
const UFFD: &str = "Userfaultfd";
const SOFT_DIRTY: &str = "Soft-dirty bits and PAGEMAP_SCAN";
const RECLAIM: &str = "LRU and reclaim";
const NUMA: &str = "NUMA nodes and migration";
const FLUSHES: &str = "TLB flushes";
const ARM64: &str = "TLB flushes on arm64";
const DEFERRED: &str = "Flushes left to later ones";
const MISTAKES: &str = "Mistakes";

/// The subjects that policies are about, in the order in which they are listed.
pub const GROUPS: &[&str] = &[
    COW, FORK, MAPPINGS, HUGE, FILES, UFFD, SOFT_DIRTY, RECLAIM, NUMA, FLUSHES, ARM64, DEFERRED,
    MISTAKES,
];

policies! {
    /// When a write fault on a read-only anonymous page reuses it instead of copying.
    reuse: Reuse = "reuse" in COW, "when a write fault on a read-only anonymous page reuses it in place",
        source "mm/memory.c:do_wp_page (5.10, 6.1, 6.12, 7.2, 7.3); 5.8: published description" {
        MapCount = "mapcount", "if nobody else maps the page or has it in swap; other references do not count";
        PageCount = "page-count", "if nobody else holds a reference to the page; an LRU batch's reference counts";
        ExclusiveAfterDrain = "exclusive-drain", "if the page is marked exclusive, or if nobody but the swap cache holds another reference once this CPU's LRU batch is drained; with more than 3 references it copies without draining";
        ExclusiveCountingBatch = "exclusive-count", "as exclusive-drain, but before the drain it allows for one reference of an LRU batch only, and for the swap cache's";
    }
    /// How a read fault maps a page that comes back from swap.
    swapin_read: SwapinRead = "swapin-read" in COW, "how a read fault maps an exclusive page that comes back from swap",
        source "mm/memory.c:do_swap_page (6.1: read-only; 6.12: pte_mkwrite)" {
        ReadOnly = "read-only", "it maps the page read-only, so that a later store faults once more";
        Writable = "writable", "it maps the page writable but clean, so that a later store does not fault";
    }
    /// Which reuse rule a write fault on a swap entry applies.
    swapin_write: SwapinWrite = "swapin-write" in COW, "when a write fault maps a page from swap writable at once",
        source "mm/memory.c:do_swap_page (5.10: reuse_swap_page; 6.1, 6.12: exclusive or sole reference)" {
        MapCount = "mapcount", "if nobody else maps the page or has it in swap";
        Exclusive = "exclusive", "if the page is exclusive, as swapin-exclusive decides";
    }
    /// When a write fault on a swap entry drains this CPU's LRU batch first.
    swapin_drain: SwapinDrain = "swapin-drain" in COW, "when a write fault on a swap entry drains this CPU's LRU batch, if the folio is not on the LRU",
        source "mm/memory.c:do_swap_page (5.10, 7.3: never; 6.1, 6.12: only for folios in the swap cache; 7.2: all folios are there)" {
        Never = "never", "never";
        FromCache = "from-cache", "if it found the folio in the swap cache; a folio that it reads itself bypasses the cache";
        Always = "always", "always: a folio that it reads itself is in the swap cache, too";
    }
    /// When a fault on a swap entry removes the folio that it found from the swap cache.
    swapin_free: SwapinFree = "swapin-free" in COW, "when a fault on a swap entry removes the page that it found in the swap cache from there, if no other swap entry refers to the page",
        source "mm/swapfile.c:reuse_swap_page (5.10), mm/memory.c:should_try_to_free_swap (6.1, 6.12; 7.2, 7.3: always with a synchronous device); tests/regressions/swapin-free.kdl" {
        SoleUser = "sole-user", "in a write fault, if nobody else maps the page or has it in swap";
        SoleReference = "sole-reference", "in a write fault, if only the swap cache and the fault hold a reference; an LRU batch's reference counts, too";
        Always = "always", "in every fault";
    }
    /// Whether anonymous pages carry an exclusive mark.
    anon_exclusive: AnonExclusive = "anon-exclusive" in COW, "whether anonymous pages carry an exclusive mark",
        source "include/linux/page-flags.h:PageAnonExclusive (6.1 has it, 5.10 does not)" {
        No = "no", "they do not";
        Yes = "yes", "they do, and so do their swap PTEs";
    }
    /// What `MADV_PAGEOUT` does with the accessed bit.
    pageout_young: PageoutYoung = "pageout-young" in RECLAIM, "what MADV_PAGEOUT does with the accessed bit",
        source "mm/madvise.c:madvise_cold_or_pageout_pte_range (6.1: cleared; 6.12: `!pageout &&`)" {
        Clear = "clear", "it clears the bit, for which the gather flushes, and reclaims the page unless the bit is set again";
        Ignore = "ignore", "it leaves the bit as it is, and reclaims the page in any case";
    }
    /// Which PTE changes make `mprotect` flush.
    protect_flush: ProtectFlush = "protect-flush" in MAPPINGS, "which PTE changes make mprotect flush",
        source "5.10 mm/mprotect.c:change_protection_range; 6.1 arch/x86/include/asm/tlbflush.h:pte_needs_flush; taken: a proposal (docs/findings/granted-flush.md)" {
        WholeRange = "whole-range", "any change; mprotect flushes the whole range once";
        PerPte = "per-pte", "changes of flags that the TLB can hold; mprotect flushes only such PTEs";
        Taken = "taken", "changes that revoke a right; a CPU that has cached fewer rights than its PTE grants takes one needless fault (a proposal)";
    }
    /// Whether `mprotect` itself gives write permission back.
    protect_restore: ProtectRestore = "protect-restore" in MAPPINGS, "whether mprotect itself makes exclusive pages writable again",
        source "mm/mprotect.c:can_change_pte_writable (5.10: none; 6.1: the PTE has to be dirty; 6.12: it need not be)" {
        Never = "never", "never: each page faults at its next store";
        IfDirty = "if-dirty", "it makes exclusive pages writable if their PTEs are dirty";
        IfExclusive = "if-exclusive", "it makes all exclusive pages writable";
    }
    /// What a store to the huge zero page maps.
    huge_zero_write: HugeZeroWrite = "huge-zero-write" in HUGE, "what a store to the huge zero page maps",
        source "mm/huge_memory.c:do_huge_pmd_wp_page (5.10 to 6.12), do_huge_zero_wp_pmd (6.18, 7.3)" {
        Split = "split", "one page, after the entry of the huge zero page was split into PTEs";
        Huge = "huge", "a huge page";
    }
    /// Where the dirty bit goes when a huge page is remapped page by page.
    split_dirty: SplitDirty = "split-dirty" in HUGE, "where the dirty bit of a huge page's entry goes when the entry is split into PTEs",
        source "mm/huge_memory.c:__split_huge_pmd_locked (5.10, 6.1: SetPageDirty; 6.12 to 7.3: pte_mkdirty as well)" {
        Page = "page", "the page becomes dirty, and the PTEs are clean";
        Pte = "pte", "the page and the PTEs become dirty";
    }
    /// How the mappings of a large folio's single pages are flushed when the folio is split.
    split_flush: SplitFlush = "split-flush" in HUGE, "how the mappings of a large folio's single pages are flushed when the folio is split",
        source "mm/huge_memory.c:unmap_page (5.10, 6.1), unmap_folio (6.12 to 7.3: TTU_BATCH_FLUSH)" {
        Each = "each", "each page is flushed when it is unmapped";
        Batched = "batched", "one flush covers all pages, if another CPU may hold their translations";
    }
    /// The accessed and dirty bits of a large folio's PTEs after a split.
    split_remap: SplitRemap = "split-remap" in HUGE, "what the accessed and dirty bits of a large folio's PTEs are after the folio was split",
        source "mm/migrate.c:remove_migration_pte (5.10: pte_mkold; 6.1: is_migration_entry_young, is_migration_entry_dirty, pte_mksoft_dirty before pte_mkdirty; 6.12 to 7.3: after it)" {
        Old = "old", "they are clear, and only the page knows whether it is dirty";
        DirtyMarks = "dirty-marks", "they are as before, and a dirty PTE becomes soft-dirty";
        AsBefore = "as-before", "they are as before";
    }
    /// What happens to pages of zeros when a large folio is split.
    split_zeros: SplitZeros = "split-zeros" in HUGE, "what happens to pages that hold only zeros when a large folio is split",
        source "mm/migrate.c:try_to_map_unused_to_zeropage (6.12 to 7.3)" {
        Stay = "stay", "they stay";
        ZeroPage = "zero-page", "they are freed, and the zero page is mapped in their place";
    }
    /// How many pages are unmapped together before they move to another node.
    migrate_batch: MigrateBatch = "migrate-batch" in NUMA, "whether pages that move to another node are unmapped together, with one flush",
        source "mm/migrate.c:migrate_pages (5.10, 6.1), migrate_pages_batch (6.12 to 7.3)" {
        Off = "off", "each page is unmapped by itself, with a flush for each translation";
        On = "on", "up to 512 pages are unmapped together, and one flush covers all of them where another CPU may hold their translations";
    }
    /// Where a page waits for the LRU after it moved to another node.
    migrate_lru: MigrateLru = "migrate-lru" in NUMA, "where a page that has moved to another node waits for the LRU",
        source "mm/migrate.c:unmap_and_move (5.10: putback_lru_page), move_to_new_folio (6.1), migrate_folio_move (6.12); mm/swap.c:lru_cache_disable (6.1, 6.12)" {
        Batch = "batch", "in its CPU's LRU batch, which holds a reference, from when it is mapped";
        AtOnce = "at-once", "nowhere, if a call moves it: the LRU batches are disabled, and it is on the LRU before it is mapped; otherwise in its CPU's LRU batch, from before it is mapped";
    }
    /// How long `mbind` keeps `mmap_lock`.
    mempolicy_lock: MempolicyLock = "mempolicy-lock" in NUMA, "how long mbind holds mmap_lock",
        source "mm/mempolicy.c:do_mbind (5.10, 6.1, 6.12)" {
        Moved = "moved", "until the pages have moved";
        Isolated = "isolated", "until the pages are isolated and the mappings have their new policy";
    }
    /// How a kernel recognizes that a node's memory is slower.
    memory_tiers: MemoryTiers = "memory-tiers" in NUMA, "how a kernel recognizes that a node's memory is slower than another's",
        source "mm/memory-tiers.c (6.1: by the kind of device; 6.12: mt_perf_to_adistance, from the machine's HMAT)" {
        ByDevice = "device", "by the kind of device: all memory that is present at boot is one tier";
        ByPerformance = "performance", "by the latency and the bandwidth that the firmware reports";
    }
    /// Which unmaps may leave their flush to a later flush.
    defer_flush: DeferFlush = "defer-flush" in DEFERRED, "which unmapped pages may leave their flush to a later flush; no kernel does this",
        source "proposed: MIGRC v8 (20240226030613.22366-1-byungchul@sk.com), v9 (20240417071847.29584-1), LUF v10 (20240520021734.21527-1)" {
        Never = "never", "none";
        Tiering = "tiering", "pages that move between fast and slow memory (MIGRC, v1 to v8)";
        Migration = "migration", "pages that move in batches (v9)";
        Unmap = "unmap", "pages that move in batches, and pages that reclaim unmaps (LUF, v10 to v12)";
    }
    /// The condition on a page's PTEs for leaving its flush to a later one.
    defer_if: DeferIf = "defer-if" in DEFERRED, "which PTEs a page must have to leave its flush to a later flush",
        source "proposed: MIGRC v3 to v9 (not writable, not dirty), LUF v10 to v12 (not writable)" {
        Clean = "clean", "PTEs that are neither writable nor dirty";
        ReadOnly = "read-only", "PTEs that are not writable";
    }
    /// What happens to a frame whose flush was left to a later one.
    defer_free: DeferFree = "defer-free" in DEFERRED, "what happens to a frame whose flush was left to a later flush",
        source "proposed: MIGRC v1 to v8 (kept), v9 and LUF (freed)" {
        Kept = "kept", "the frame stays in use until the flush";
        Freed = "freed", "the frame is free at once, and is flushed before it is handed out";
    }
    /// Which CPUs a flush that was left still has to reach.
    defer_cpus: DeferCpus = "defer-cpus" in DEFERRED, "which CPUs a deferred flush still has to reach when it is done",
        source "proposed: MIGRC v1 to v3 (CPUs that have flushed since are skipped), v4 to v8 (CPUs that a batched flush has reached are removed)" {
        Remaining = "remaining", "the CPUs that no batched flush has reached since";
        All = "all", "all CPUs that may have cached the translation, unless one batched flush has reached all of them";
    }
    /// Where deferred flushes are done because a page may be stored to from now on.
    defer_upgrade: DeferUpgrade = "defer-upgrade" in DEFERRED, "where deferred flushes are done because a page may be stored to from then on",
        source "proposed: MIGRC v1 to v9 (do_wp_page), LUF v10 (mmap as well), v11 (once a fault has made a PTE writable), v12 (once a fault has set a PTE in a writable mapping)" {
        WriteFault = "write-fault", "before a store to a page that is mapped read-only is served";
        WriteFaultAndMap = "write-fault-map", "as write-fault, and before writable memory is mapped";
        Writable = "writable", "as write-fault, and after every write fault";
        AnyFault = "fault", "as write-fault, and after every fault in a mapping that permits stores";
    }
    /// Where deferred flushes are done for a write to a file.
    defer_file: DeferFile = "defer-file" in DEFERRED, "where deferred flushes are done for a write to a file",
        source "proposed: MIGRC, LUF v10 (nowhere), v11 (file_end_write), v12 (after mapping_write_begin)" {
        Nowhere = "nowhere", "nowhere";
        WriteEnd = "write-end", "after the call has written all pages";
        WriteBegin = "write-begin", "before the call writes each page";
    }
    /// Which calls that free pages leave the flush of other CPUs to a later one.
    defer_zap: DeferZap = "defer-zap" in DEFERRED, "which calls that free pages flush their own CPU only, and leave the flush of the others to a later flush; no kernel does this",
        source "proposed: FPR (arXiv 2409.10946: munmap of mappings that ask for it), LATR (ASPLOS 2018, doi 10.1145/3173162.3173198, and its code for 4.10: mm/mmap.c:munmap, mm/madvise.c:madvise_dontneed set munmap_inprogress)" {
        Never = "never", "none";
        Munmap = "munmap", "munmap: the pages stay in use, and the addresses are not mapped again, until the flush; where page tables are freed, all CPUs are flushed at once";
        Free = "free", "munmap and MADV_DONTNEED, as munmap";
        All = "all", "as free, and even the flush that comes before a dirty page of a file stops counting as mapped (LATR's code)";
    }
    /// Who may use a frame again before the flush that it waits for.
    recycle: Recycle = "recycle" in DEFERRED, "who may use a frame again before the deferred flush that it waits for",
        source "proposed: FPR (arXiv 2409.10946: the process that had it); MIGRC, LUF, LATR (nobody)" {
        Never = "never", "nobody";
        WithinMm = "within-mm", "the address space that alone had it mapped; a frame that goes anywhere else is flushed before";
    }
    /// Which private pages NUMA balancing does not sample because others may have them.
    numa_shared: NumaShared = "numa-shared" in NUMA, "which private pages NUMA balancing does not sample because other processes may have them",
        source "mm/mprotect.c:change_pte_range (6.1: page_count != 1; 6.12: folio_likely_mapped_shared); 5.10: observed" {
        References = "references", "pages to which anybody else holds a reference, an LRU batch included";
        Mappings = "mappings", "pages that several processes map";
    }
    /// What happens to the right to store while a page is sampled.
    hint_write: HintWrite = "hint-write" in NUMA, "what happens to the write permission while NUMA balancing samples a page",
        source "mm/mprotect.c:change_pte_range, mm/memory.c:do_numa_page (6.1: pte_mk_savedwrite; 6.12: can_change_pte_writable)" {
        Saved = "saved", "the PTE keeps it, whether or not the page moves";
        Asked = "asked", "sampling removes it; a page that stays gets it back if it is exclusive, a page that moves does not";
    }
    /// Whether a hint fault maps the page before it moves.
    hint_fault: HintFault = "hint-fault" in NUMA, "whether the fault on a sampled page maps the page before it moves",
        source "mm/memory.c:do_numa_page (6.1, 6.12); 5.10: observed, one flush for each page that moves" {
        MapsFirst = "maps-first", "it does, so the migration has to flush the page";
        MovesFirst = "moves-first", "it does not, so there is nothing to flush";
    }
    /// The status that `move_pages` returns for a page that is not there.
    move_hole: MoveHole = "move-hole" in NUMA, "which status move_pages returns for a page of private memory that is not present",
        source "mm/migrate.c:add_page_for_migration, mm/gup.c:no_page_table (5.10, 6.1), mm/migrate.c:add_folio_for_migration (6.12 to 7.3)" {
        Efault = "efault", "EFAULT";
        Enoent = "enoent", "ENOENT";
    }
    /// How `MADV_COLD` clears a huge page's accessed bit.
    huge_cold: HugeCold = "huge-cold" in HUGE, "how MADV_COLD clears a huge page's accessed bit, and whether advice waits for a folio's lock before it splits the folio",
        source "mm/madvise.c:madvise_cold_or_pageout_pte_range (5.10, 6.1, 6.12.116, 6.18.15, 7.2: pmdp_invalidate, folio_lock; 6.12.117, 6.18.44 by observation, 7.3.4: pmdp_test_and_clear_young, folio_trylock)" {
        Invalidate = "invalidate", "it removes the entry and flushes, then flushes once more at the end; advice waits for the lock";
        Clear = "clear", "it clears the bit and flushes at the end; advice does not wait, and leaves a huge page alone if its folio is locked";
    }
    /// When the end of userfaultfd's protection flushes a huge page.
    huge_unprotect: HugeUnprotect = "huge-unprotect" in HUGE, "when a huge page is flushed because userfaultfd ends its protection",
        source "mm/huge_memory.c:change_huge_pmd (5.10, 6.1; 6.12.111 to 6.12.118, 6.18.44, 7.2.12, 7.3.4: huge_pmd_needs_flush); if-writable: 6.12.90 to 6.12.107, 6.16.12, 6.17.13, 6.18.15 by observation" {
        IfChanged = "if-changed", "if its entry granted other rights before";
        IfWritable = "if-writable", "if its entry granted other rights before, or if it was writable before";
    }
    /// What advice does with a large folio that others map, and with one whose pages are mapped one
    /// by one.
    advise_large: AdviseLarge = "advise-large" in HUGE, "what MADV_FREE, MADV_COLD and MADV_PAGEOUT do with a large folio whose pages are mapped one by one",
        source "mm/madvise.c:madvise_cold_or_pageout_pte_range, madvise_free_pte_range (5.10, 6.1: PageTransCompound; 6.12 to 7.3: folio_pte_batch)" {
        Split = "split", "they split it, unless the page is mapped more than once; then they skip the rest of the page table";
        SplitByFirst = "split-by-first", "as split, but MADV_FREE looks at the mappings of the folio's first page";
        Batch = "batch", "they handle it as a whole if they cover all of it, and split it if they cover a part";
    }
    /// How the kernel recognizes that other processes map a large folio.
    large_shared: LargeShared = "large-shared" in HUGE, "how advice recognizes that others map a large folio",
        source "mm/madvise.c (5.10: page_mapcount; 6.1: folio_estimated_sharers), include/linux/mm.h:folio_likely_mapped_shared (6.12), folio_maybe_mapped_shared (6.18, 7.3)" {
        First = "first-page", "the folio's first page is not mapped exactly once";
        Likely = "likely", "the folio has more mappings than it can have in one process, or its first page has more than one";
        Known = "known", "the folio knows which processes map it";
    }
    /// When reclaim splits a large folio before it writes it.
    large_reclaim: LargeReclaim = "large-reclaim" in HUGE, "when reclaim splits a large folio instead of writing it as a whole",
        source "mm/vmscan.c:shrink_page_list (5.10), shrink_folio_list (6.1: folio_entire_mapcount; 6.12 to 7.3: folio_test_partially_mapped)" {
        IfMappedWhole = "unless-huge", "unless some mapping maps it as a huge page";
        UnlessPart = "if-part", "if some of its pages are no longer mapped";
    }
    /// How reclaim removes a huge page that was given up by `MADV_FREE`.
    lazyfree_huge: LazyfreeHuge = "lazyfree-huge" in HUGE, "how reclaim removes a huge page that MADV_FREE gave up",
        source "mm/rmap.c:try_to_unmap_one (5.10, 6.1, 6.12.117, 6.18.44 by observation, 7.3.2: split), mm/huge_memory.c:unmap_huge_pmd_locked (6.12.116, 7.2)" {
        Split = "split", "it splits the entry into PTEs first";
        WholeOrSplit = "whole-or-split", "it removes the page as a whole; if the page was written since or somebody holds it, it splits the entry into PTEs";
        Whole = "whole", "it removes the page as a whole, unless the page was written since or somebody holds it";
    }
    /// How reclaim removes the pages of a large folio that was given up by `MADV_FREE`.
    lazyfree_unmap: LazyfreeUnmap = "lazyfree-unmap" in HUGE, "how reclaim removes the pages of a large folio that MADV_FREE gave up",
        source "mm/rmap.c:try_to_unmap_one (5.10 to 6.12; 7.2, 7.3: folio_unmap_pte_batch)" {
        Each = "each", "page by page";
        Run = "run", "consecutive pages together, with one flush";
    }
    /// How the flush of a page that `try_to_unmap` removes is done if it is not deferred.
    unmap_flush: UnmapFlush = "unmap-flush" in FLUSHES, "how reclaim flushes a page that it unmaps, if it does not defer the flush",
        source "mm/rmap.c:try_to_unmap_one (5.10 to 6.12: ptep_clear_flush; 7.2, 7.3: flush_tlb_range), arch/x86/include/asm/tlbflush.h:flush_tlb_range (5.10 to 7.3)" {
        Page = "page", "as one page: lazy CPUs are not interrupted";
        Range = "range", "as a range, as if page tables were freed: lazy CPUs are interrupted, too";
    }
    /// Which pages `MADV_COLLAPSE` makes into a huge page.
    collapse: Collapse = "collapse" in HUGE, "which pages MADV_COLLAPSE makes into a huge page",
        source "mm/khugepaged.c:madvise_collapse, hpage_collapse_scan_pmd (6.1, 6.12: SCAN_PAGE_RO; 6.16, 6.17 by observation; 6.18), collapse_scan_pmd (7.3: SCAN_NO_PTE_TABLE)" {
        None = "none", "none: the kernel does not have MADV_COLLAPSE";
        Writable = "writable", "pages of which at least one is writable";
        Any = "any", "any pages";
        NothingIsDone = "any-or-nothing", "any pages; it continues after a missing page table, and succeeds at once if its range has no whole huge page";
    }
    /// What khugepaged does with pages that were given up by `MADV_FREE`.
    khugepaged_free: KhugepagedFree = "khugepaged-free" in HUGE, "what khugepaged does with pages that MADV_FREE gave up and nobody wrote since",
        source "mm/khugepaged.c:collapse_scan_pmd, __collapse_huge_page_isolate (7.2, 7.3: SCAN_PAGE_LAZYFREE; not in 6.12; 6.18: seen)" {
        Huge = "huge", "it makes them part of a huge page, as it does with other pages";
        Stay = "stay", "it makes no huge page of a range that contains one";
    }
    /// How the kernel waits for page-table walks without a lock.
    table_sync: TableSync = "table-sync" in HUGE, "how MADV_COLLAPSE and khugepaged wait for lockless walks (GUP-fast, interrupts off) of the page table that they remove",
        source "mm/khugepaged.c:collapse_huge_page, mm/mmu_gather.c:tlb_remove_table_sync_one (6.1, 6.12, 7.2: broadcast; commit 2ba99c5e0881 of 6.1, in Debian's 5.10.162), tlb_remove_table_sync_rcu (7.2, for the tables of a gather); seen on 6.12, 6.18, 7.3; targeted: a proposal of 2026" {
        Implied = "implied", "they do not wait: the flush before is considered enough (before 6.1, and in 5.10 to 5.10.158)";
        Broadcast = "broadcast", "by an interrupt of every other CPU";
        Rcu = "rcu", "by an RCU grace period (a proposal)";
        Targeted = "targeted", "by an interrupt of the CPUs that may have the address space loaded (mm_cpumask; a proposal)";
    }
    /// When a store may reuse a page of a large folio that is not marked exclusive.
    large_reuse: LargeReuse = "large-reuse" in HUGE, "when a store reuses a page of a large folio that is not marked exclusive",
        source "mm/memory.c:do_wp_page (5.10, 6.1), wp_can_reuse_anon_folio (6.12), __wp_can_reuse_large_anon_folio (6.18, 7.3)" {
        Alone = "alone", "if nobody else holds a reference to the folio";
        Never = "never", "never";
        Known = "known", "if nobody else maps the folio, only its mappings hold references, and more than one of its pages is mapped";
    }
    /// How other CPUs lose a translation.
    shootdown: Shootdown = "shootdown" in FLUSHES, "on x86: how a translation is removed from other CPUs' TLBs",
        source "arch/x86/mm/tlb.c:flush_tlb_multi (5.10 to 7.3); broadcast_tlb_flush, consider_global_asid, arch_tlbbatch_flush (since 6.15, on AMD processors with INVLPGB; read as posted on linux-kernel in February 2025, not run here); latr: proposed, LATR (ASPLOS 2018, doi 10.1145/3173162.3173198; its code for 4.10, native_flush_saved_states in scheduler_tick and __schedule, read, not run); coherent: no kernel and no processor" {
        Interrupts = "interrupts", "the CPUs are interrupted, and flush";
        Invlpgb = "invlpgb", "an instruction that all CPUs obey (INVLPGB) flushes batches, and address spaces that more than three CPUs used at once after a flush had interrupted them; other flushes interrupt";
        InvlpgbAll = "invlpgb-all", "that instruction does all flushes, however few CPUs use the address space; no kernel does this, but small tests of the checker need it";
        Latr = "latr", "each CPU flushes by itself at its next scheduler tick or switch of address spaces; a batch's flush waits until all have done so; other flushes that are not deferred (defer-zap) interrupt";
        Coherent = "coherent", "the hardware removes it when the entry changes, and nobody flushes: the most that any rule about flushes could save";
    }
    /// The order of the local flush and the shootdown within one flush.
    flush_order: FlushOrder = "flush-order" in FLUSHES, "in which order the initiator's own flush and the shootdown happen",
        source "arch/x86/mm/tlb.c:flush_tlb_mm_range (5.10) and flush_tlb_multi (6.1)" {
        LocalFirst = "local-first", "the initiator flushes its own TLB, then interrupts the others";
        Concurrent = "concurrent", "the initiator interrupts the others, then flushes its own TLB while they flush theirs";
    }
    /// When a CPU that runs another address space leaves `mm_cpumask`.
    cpumask: CpumaskClear = "cpumask" in FLUSHES, "when a CPU leaves the mm_cpumask of an address space that it no longer runs",
        source "arch/x86/mm/tlb.c:switch_mm_irqs_off (6.12 clears, 7.3 does not), flush_tlb_func (7.3); tests/regressions/lazy-cpumask.kdl (since 6.16)" {
        AtSwitch = "at-switch", "when it loads another address space";
        AtNextInterrupt = "at-next-interrupt", "when a flush interrupt finds that it has another address space loaded";
    }
    /// Which CPUs of the mask a flush that frees no table interrupts.
    interrupt: Interrupt = "interrupt" in FLUSHES, "which CPUs of the mask a flush that frees no page table interrupts",
        source "arch/x86/mm/tlb.c:tlb_is_not_lazy (5.10), should_flush_tlb (6.1.190, 6.12.117, 7.3)" {
        NotLazy = "not-lazy", "all CPUs that are not lazy";
        NotLazyAndLoaded = "loaded", "all CPUs that are not lazy and have this address space loaded";
    }
    /// Whether a CPU reports a flush that had nothing left to do.
    gen_skip: GenSkip = "gen-skip" in FLUSHES, "whether flush_tlb_func returns early if the CPU has already reached the request's generation",
        source "arch/x86/mm/tlb.c:flush_tlb_func (6.1: new_tlb_gen <= local_tlb_gen)" {
        Event = "event", "it does not, and emits an event with 0 pages";
        Silent = "silent", "it does, without an event";
    }
    /// Whether the initiator also runs the handler of its own shootdown.
    self_receive: SelfReceive = "self-receive" in FLUSHES, "whether the initiator also runs the remote handler of a flush that frees no page table",
        source "5.10 kernel/smp.c:on_each_cpu_cond_mask includes the local CPU" {
        Yes = "yes", "it does, and finds nothing left to flush";
        No = "no", "it does not";
    }
    /// The number of folios in an LRU-add batch.
    lru_batch: LruBatch = "lru-batch" in RECLAIM, "how many folios a per-CPU LRU-add batch holds",
        source "include/linux/pagevec.h:PAGEVEC_SIZE (5.10, 6.1: 15; 6.12, 7.3: 31)" {
        Fifteen = "15", "15";
        ThirtyOne = "31", "31";
    }
    /// Which pages `MADV_COLD` puts into a batch, with multi-generational LRU.
    cold_batch: ColdBatch = "cold-batch" in RECLAIM, "which pages MADV_COLD puts into this CPU's batch, with multi-generational LRU",
        source "mm/swap.c:folio_deactivate (6.12), mm/folio.c:folio_deactivate, lru_gen_clear_refs (7.3)" {
        All = "all", "all pages on the LRU";
        NotOldest = "not-oldest", "all pages on the LRU except those of the oldest generation: lazily freed pages, and pages that reclaim left in the swap cache";
    }
    /// How a fault marks a new page, with multi-generational LRU.
    new_folio: NewFolio = "new-folio" in RECLAIM, "whether a page that a fault allocates counts as used once, with multi-generational LRU",
        source "mm/swap.c:folio_add_lru (6.12), mm/folio.c:folio_add_lru (7.3); tests/regressions/cold-oldest.kdl (6.18: no, 7.2: yes)" {
        Active = "active", "it does not: it is active, and loses that mark when it gets its generation";
        Referenced = "referenced", "it does, so that it is not of the oldest generation after MADV_FREE has freed it";
    }
    /// Whether a page that was used once counts as recent, with multi-generational LRU.
    used_once: UsedOnce = "used-once" in RECLAIM, "which generation a page that was used once joins, with multi-generational LRU, if it can be dropped because MADV_FREE gave it up or it is in the swap cache",
        source "include/linux/mm_inline.h:lru_gen_folio_seq (6.18, 7.3); tests/regressions/cold-referenced.kdl (6.16 to 6.18: oldest; 7.2, 7.3: recent)" {
        Oldest = "oldest", "the oldest generation, like any other page that is not active";
        Recent = "recent", "the generation after the oldest";
    }
    /// How pages that mappings lock get to the unevictable list.
    mlock_pages: MlockPages = "mlock-pages" in RECLAIM, "how pages that a mapping locks get to the unevictable list, and back",
        source "mm/mlock.c, mm/gup.c:follow_page_pte (5.10: FOLL_MLOCK), mm/mlock.c, mm/rmap.c (6.1, 6.12, 7.2; came in 5.18)" {
        Isolated = "isolated", "mlock isolates the pages that are present and puts them back through this CPU's batch of new pages; munlock and the end of a mapping put them back on the evictable lists; a fault on a swap entry or on a file locks nothing";
        Batched = "batched", "a locking mapping puts each page into this CPU's mlock batch when it maps the page and when it unmaps it";
    }
    /// What reclaim does with a page given up by `MADV_FREE` that someone holds.
    lazyfree_held: LazyfreeHeld = "lazyfree-held" in RECLAIM, "what happens to a clean page that MADV_FREE gave up if reclaim finds that somebody else holds it",
        source "mm/rmap.c:try_to_unmap_one (5.10, 6.1, 6.12), ttu_anon_lazyfree_folio (7.3)" {
        BackedAgain = "backed", "it is backed by swap again, as if it had been written";
        StaysFree = "free", "it stays lazily freed, and can be dropped later";
    }
    /// When reclaim flushes and frees the folios that it collected.
    reclaim_free: ReclaimFree = "reclaim-free" in RECLAIM, "when reclaim flushes and frees the folios that it collected",
        source "mm/vmscan.c:shrink_folio_list (6.1: free list; 6.12: free_folios batch)" {
        AtEnd = "at-end", "at the end of the list";
        PerBatch = "per-batch", "whenever a folio batch is full, and at the end";
    }
    /// Whether zapping drains this CPU's LRU batches first.
    zap_drain: ZapDrain = "zap-drain" in MAPPINGS, "whether munmap and MADV_DONTNEED drain this CPU's LRU batches before they clear PTEs and before they free pages",
        source "mm/memory.c:zap_page_range_single, mm/mmap.c:unmap_region, mm/swap_state.c:free_pages_and_swap_cache (6.12: yes; 7.3: no); tests/regressions/lru-dontneed.kdl (since 6.16: no)" {
        Yes = "yes", "they do";
        No = "no", "they do not";
    }
    /// Whether `MADV_DONTNEED` frees empty page tables.
    dontneed_tables: DontneedTables = "dontneed-tables" in MAPPINGS, "whether MADV_DONTNEED frees last-level page tables that it empties",
        source "mm/memory.c:zap_pte_range with CONFIG_PT_RECLAIM (7.3); captures of 6.18; tests/regressions/dontneed-table.kdl (since 6.16)" {
        Keep = "keep", "it keeps them";
        Free = "free", "it frees the tables that it covers completely";
    }
    /// How far one gather of `MADV_DONTNEED` and `MADV_FREE` reaches.
    advise_gather: AdviseGather = "advise-gather" in MAPPINGS, "how much of a call one gather of MADV_DONTNEED and MADV_FREE covers",
        source "mm/madvise.c:madvise_batch_tlb_flush (7.3; not in 6.12); tests/regressions/advise-gather.kdl (since 6.16)" {
        PerMapping = "per-mapping", "one mapping, so that a range with several mappings is flushed several times";
        PerCall = "per-call", "the whole call, with one flush";
    }
    /// Which lock a fault takes first.
    fault_lock: FaultLock = "fault-lock" in MAPPINGS, "which lock a fault takes before it looks at the mapping",
        source "arch/x86/mm/fault.c:do_user_addr_fault (5.10, 6.1: mmap_lock; 6.12, 6.18, 7.3: lock_vma_under_rcu first)" {
        Mmap = "mmap", "mmap_lock: the fault waits for anybody who changes any mapping";
        Vma = "vma", "the mapping's own lock; mmap_lock only if that is write-locked";
    }
    /// Which lock `MADV_DONTNEED` and `MADV_FREE` take.
    advise_lock: AdviseLock = "advise-lock" in MAPPINGS, "which lock MADV_DONTNEED and MADV_FREE take",
        source "mm/madvise.c:get_lock_mode, try_vma_read_lock (6.18, 7.3), madvise_need_mmap_write (6.12)" {
        Mmap = "mmap", "mmap_lock, until the flush is done";
        Vma = "vma", "the mapping's own lock, if there is only one mapping; they release it before the flush";
    }
    /// When two adjacent mappings are merged.
    vma_merge: VmaMerge = "vma-merge" in MAPPINGS, "whether a new or changed mapping that has pages merges with a neighbour that has none",
        source "mm/mmap.c:is_mergeable_anon_vma (5.10, 6.1), mm/vma.c (6.12: list_is_singular of an empty list; 7.3); tests/regressions/merge-moved.kdl (since 6.16)" {
        IntoFaulted = "into-faulted", "it does not: only a mapping without pages merges into one with pages";
        Any = "any", "it does";
    }
    /// What `mprotect` does with the commit charge of a mapping without pages.
    protect_charge: ProtectCharge = "protect-charge" in MAPPINGS, "whether mprotect drops the commit charge of a mapping that becomes read-only before its first page",
        source "mm/mprotect.c:mprotect_fixup (6.1: no; 6.12: VM_ACCOUNT is cleared)" {
        Keep = "keep", "it keeps the charge";
        DropUnfaulted = "drop-unfaulted", "it drops the charge, so that the mapping differs from its neighbours";
    }
    /// What `mremap` does with a range that contains several mappings.
    move_range: MoveRange = "move-range" in MAPPINGS, "whether mremap moves a range of several mappings",
        source "mm/mremap.c:vma_to_resize (5.10 to 6.12), remap_move (7.3); tests/regressions/move-several.kdl (since 6.17)" {
        OneMapping = "one", "it does not: it fails with EFAULT after it has unmapped the target";
        EachMapping = "each", "it moves one mapping after the other; holes behind the first mapping stay holes";
    }
    /// Which tables `mremap` makes in the target for pages without a table.
    move_tables: MoveTables = "move-tables" in MAPPINGS, "whether mremap creates the target's upper page tables before it looks for a last-level table to move",
        source "mm/mremap.c:move_page_tables (5.10: no), get_old_pud and alloc_new_pud (6.1, 6.12, 7.3)" {
        LastLevelOnly = "last-level", "it does not: where the source has no last-level table, it creates nothing";
        UpperFirst = "upper-first", "it does: it creates the third-level table if the source has a second-level table";
    }
    /// Where `mremap` begins to move pages.
    move_start: MoveStart = "move-start" in MAPPINGS, "whether mremap begins at the border of the page table if nothing is mapped in the table before the range, to move a whole table",
        source "mm/mremap.c:move_page_tables, try_realign_addr (6.12; not in 6.1); tests/regressions/mremap-realign.kdl" {
        AsGiven = "as-given", "it does not: it begins at the first page of the range";
        AtTable = "at-table", "it does, if the range reaches the table's end and both addresses have the same offset in their tables";
    }
    /// How many entries of a gather's page batch stay free.
    gather_batch: GatherBatch = "gather-batch" in FLUSHES, "how many entries of a gather's page batch stay free",
        source "mm/mmu_gather.c:__tlb_remove_page_size (6.1), __tlb_remove_folio_pages_size (6.12)" {
        Full = "full", "none";
        LeaveOne = "leave-one", "one, because a folio can need two entries";
    }
    /// How `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` fault pages in, if the kernel has them.
    populate: Populate = "populate" in MAPPINGS, "how MADV_POPULATE_READ and MADV_POPULATE_WRITE fault pages in",
        source "include/uapi/asm-generic/mman-common.h (5.10: no); mm/madvise.c:madvise_populate, mm/gup.c:faultin_vma_page_range (6.1: __get_user_pages), faultin_page_range (6.12, 7.2: __get_user_pages_locked, which sets FOLL_TRIED)" {
        No = "no", "the kernel does not have them: EINVAL";
        Anew = "anew", "a fault that has to be retried starts anew, and a page that was read meanwhile counts as a minor fault";
        Tried = "tried", "a retry counts as a second try, and a page that was read for it counts as a major fault";
    }
    /// Whether pages of zeros are written to swap.
    zero_swap: ZeroSwap = "zero-swap" in COW, "whether reclaim writes pages that hold only zeros to swap",
        source "mm/page_io.c:swap_writepage, swap_zeromap (6.12)" {
        Write = "write", "it writes them";
        Skip = "skip", "it does not write them, and only marks their slots";
    }
    /// Whether reclaim defers the flush of the pages that it unmaps.
    unmap_batch: UnmapBatching = "unmap-batch" in FLUSHES, "whether reclaim defers the flush of the pages that it unmaps",
        source "mm/rmap.c:should_defer_flush (x86: 5.10 to 7.3; other architectures later or never)" {
        Defer = "defer", "it does if another CPU may hold the translation, and flushes once for many pages";
        Each = "each", "it does not: it flushes each page when it unmaps the page";
    }
    /// The mark that a batched unmap leaves in the address space.
    pending_mark: PendingMark = "pending-mark" in FLUSHES, "which mark a batched unmap leaves in the address space for the next page-table walk",
        source "mm/rmap.c:set_tlb_ubc_flush_pending, flush_tlb_batched_pending (5.10: one flag; 6.1 to 7.3: a pair of counts)" {
        Flag = "flag", "a flag, which the walk clears after its flush: it loses an unmap that came in between";
        Counts = "counts", "a count of unmaps; the walk records the count that it saw before its flush";
    }
    /// Whether the flush of a batched unmap clears the mark.
    batched_pending: BatchedPending = "batched-pending" in FLUSHES, "whether a page-table walk flushes once more for a batched unmap that was flushed",
        source "mm/rmap.c:flush_tlb_batched_pending, try_to_unmap_flush (5.10 to 7.3: keep-mark)" {
        KeepMark = "keep-mark", "it does, because the batch's flush leaves the pending mark";
        Cleared = "cleared", "it does not, because the batch's flush records what it covered (a proposal: docs/findings/pending-cleared.md)";
    }
    /// Whether a fork clears the accessed bit in the child's PTEs.
    fork_accessed: ForkAccessed = "fork-accessed" in FORK, "what the accessed bit is in the child's PTEs after a fork",
        source "mm/memory.c:copy_present_pte (5.10), __copy_present_ptes (6.12 to 7.3): pte_mkold; keep: Piggin's proposal of October 2018" {
        Clear = "clear", "it is cleared";
        Keep = "keep", "it is as in the parent's PTE (a proposal: fork-young)";
    }
    /// Whether a fork copies the page tables of shared memory.
    fork_shared: ForkShared = "fork-shared" in FORK, "whether a fork copies the page tables of shared memory",
        source "mm/memory.c:copy_page_range (5.10), vma_needs_copy (6.1, 6.12): not without an anon_vma" {
        Skip = "skip", "it does not: the child faults its pages in";
        Copy = "copy", "it does, with the write permission (hypothetical: no modelled kernel does)";
    }
    /// What a fork does with the dirty bit if it copies the page tables of shared memory.
    fork_dirty: ForkDirty = "fork-dirty" in FORK, "what the dirty bit is in the child's PTEs of shared memory after a fork, with fork-shared=copy",
        source "mm/memory.c:copy_present_pte (5.10), __copy_present_ptes (6.12): pte_mkclean; keep: patch 4 of Piggin's series" {
        Clear = "clear", "it is cleared";
        Keep = "keep", "it is as in the parent's PTE (a proposal: fork-dirty)";
    }
    /// Whether a fork copies the PTEs of a large folio's pages together.
    fork_batch: ForkBatch = "fork-batch" in FORK, "whether a fork that copies the page tables of shared memory copies consecutive PTEs of a large folio together, so that the child may store to all of them if the parent may store to one",
        source "mm/memory.c:copy_one_pte (5.10, 6.1: each), copy_present_ptes (6.12: any_writable, 7.2: FPB_MERGE_WRITE); seen on 6.18 and 7.3" {
        Each = "each", "it copies them page by page";
        Run = "run", "it copies them together";
    }
    /// Whether a PTE that a fault fills is marked as accessed.
    demand_young: DemandYoung = "demand-young" in FORK, "whether the accessed bit is set in a PTE that a fault fills",
        source "arch/x86/include/asm/pgtable_types.h:PAGE_COPY (___A), arch/arm64/include/asm/pgtable-prot.h:_PROT_DEFAULT (PTE_AF), arch/riscv/include/asm/pgtable.h:_PAGE_BASE (6.12); mm/memory.c:pte_sw_mkyoung for architectures whose protections lack it (MIPS)" {
        Set = "set", "it is set: the protections from which PTEs are made include it";
        Clear = "clear", "it is not set, so the access that faulted has to set it (hypothetical: no modelled architecture does this)";
    }
    /// Whether and how a fault that made a shared page dirty gives `mmap_lock` back.
    dirty_retry: DirtyRetry = "dirty-retry" in FILES, "what a fault that made a shared page dirty does with mmap_lock before its writer may be throttled, and whether it is retried",
        source "mm/memory.c:fault_dirty_shared_page (5.10: VM_FAULT_RETRY; 6.1 to 7.3: VM_FAULT_COMPLETED), handle_pte_fault (5.10: FAULT_FLAG_TRIED), mm_account_fault (5.10: a fault that was retried is major); before 5.9 published commits only" {
        InLock = "in-lock", "it keeps the lock and is not retried (5.4 and older)";
        RetryFlush = "retry-flush", "it releases the lock and is retried, finds its own PTE, flushes as a spurious fault does, and counts as minor (5.5 to 5.8)";
        Retry = "retry", "it releases the lock, is retried and finds its own PTE; it does not flush, but counts as major (5.9 to 5.19)";
        Completed = "completed", "it releases the lock and is complete: the access is repeated at once (6.0 and newer)";
    }
    /// Whether a fault counts as major because it was tried again.
    retry_account: RetryAccount = "retry-account" in FILES, "whether a fault that was retried with mmap_lock (FAULT_FLAG_TRIED) counts as major",
        source "mm/memory.c:mm_account_fault (5.10 to 7.2); before 5.9 published commits only" {
        Read = "read", "only if its page had to be read (5.8 and older)";
        Tried = "tried", "always (5.9 and newer)";
    }
    /// Whether a store that makes a page of a file dirty is throttled. This depends on the speed of
    /// the disk, so it is an input.
    throttle: Throttle = "throttle" in FILES, "whether a fault that makes a page of a file dirty waits until fewer pages are dirty, which depends on the disk",
        source "mm/page-writeback.c:balance_dirty_pages (5.10 to 7.3)" {
        Never = "never", "it does not: few enough pages are dirty";
        Always = "always", "it sleeps each time, with or without mmap_lock (dirty-retry), and its CPU is lazy meanwhile";
    }
    /// What the second try of a fault does with the accessed and the dirty bit.
    retry_fault: RetryFault = "retry-fault" in FILES, "what the second try of a fault (FAULT_FLAG_TRIED) does with a PTE that allows the access by then",
        source "mm/memory.c:handle_pte_fault (5.10 to 7.3: after ptep_set_access_flags only the spurious flush is left out; before 5.9 it is not); the other values: the RFC of July 2020 and two texts from its discussion, which no kernel has" {
        Update = "update", "it sets the accessed bit, and for a store the dirty bit, like a first try";
        SkipUpdate = "skip-update", "nothing: it assumes that the first try has set the bits (a proposal: retried-fault)";
        SkipBeforeDirty = "skip-before-dirty", "it ends before it makes the entry dirty (a proposal: the first of Will Deacon's two texts)";
        SkipAfterWrite = "skip-after-write", "it ends after the block for stores, before it makes the entry young (a proposal: the second of the two texts)";
    }
    /// Whether a read fault sets the dirty bit for a dirty page.
    read_fault_dirty: ReadFaultDirty = "read-fault-dirty" in FILES, "whether a read fault on shared memory makes a writable PTE dirty",
        source "mm/memory.c:alloc_set_pte (5.10), do_set_pte (6.1), set_pte_range (6.12: no; 7.2, 7.3: if the folio is); seen on 6.18" {
        No = "no", "it does not";
        AsFolio = "as-folio", "it does, if the page is dirty already";
    }
    /// The size of the folios that a write to a file on a disk makes.
    file_folios: FileFolios = "file-folios" in FILES, "how large the folios are that a write to a file on ext4 creates",
        source "fs/ext4/inode.c:ext4_set_inode_mapping_order (7.2; not in 6.12), mm/filemap.c:__filemap_get_folio; seen on 6.18; 6.16 by its release notes" {
        Page = "page", "one page each";
        AsWritten = "as-written", "as large as what is left to write allows: a power of two of pages, at a multiple of its size in the file";
    }
    /// How much of a file's large folio a fault maps.
    map_folio: MapFolio = "map-folio" in FILES, "which part of a large folio a fault on a file maps, if the folio lies in the file, in the mapping and in one page table completely",
        source "mm/filemap.c:filemap_map_folio_range, mm/memory.c:finish_fault (6.12: the window, the page; 7.2: all of it); seen on 6.18" {
        Window = "window", "a load maps the part in its fault-around window, a store maps its page";
        Whole = "whole", "all of it, if a load's window contains a part of it, or if a store or a load from the disk needs one of its pages";
    }
    /// What the first load in a page table maps around the end of its file.
    end_around: EndAround = "end-around" in FILES, "what a load maps around its page of a file on a disk, if its page table does not exist yet and the file ends with the first folio around the page",
        source "mm/filemap.c:filemap_map_pages (6.12.118, 7.3: filemap_map_pmd, which links the table, is not asked); seen on 6.17.13, 6.18, 7.2 and 7.3, not on 6.16.12; no file of 6.12 on ext4 has folios of several pages" {
        Mapped = "mapped", "the pages around it, as in other places";
        Passed = "passed", "nothing around it: the fault looks for its page alone";
    }
    /// Whether a truncation or a hole looks again for folios at its ends.
    hole_ends: HoleEnds = "hole-ends" in FILES, "whether a truncation or a hole that ends at a page boundary looks once more for the folios at its ends",
        source "mm/truncate.c:truncate_inode_pages_range, mm/shmem.c:shmem_undo_range (5.10: only for parts of pages; 6.1 to 7.3: truncate_inode_partial_folio)" {
        PagesOnly = "pages-only", "it does not: it does this only for a part of a page";
        Folios = "folios", "it does, because folios may be larger than a page";
    }
    /// What happens to the mappings of a file's large folio that cannot be split.
    unsplit_folio: UnsplitFolio = "unsplit-folio" in HUGE, "what happens to the mappings of a file's large folio that a truncation or a hole cuts and that cannot be split",
        source "mm/truncate.c:truncate_inode_partial_folio (split_folio alone), folio_split_or_unmap (7.2; try_folio_split_or_unmap in later stable releases of 6.1 and 6.12, whose files have no large folios); seen on 6.17.13 and 6.18, not on 6.16.12" {
        Mapped = "mapped", "they stay, except those of the part that is cut off";
        Unmapped = "unmapped", "all of them are removed";
    }
    /// How the mappings of a file's large folio are removed when it is split.
    file_unmap: FileUnmap = "file-unmap" in FILES, "how the pages of a file's large folio are unmapped when the folio is split",
        source "mm/rmap.c:try_to_unmap_one (6.12), folio_unmap_pte_batch (7.2)" {
        Each = "each", "page by page";
        Run = "run", "consecutive pages with the same rights together, with one flush";
    }
    /// The size of the folios that the first store to private memory makes.
    anon_folios: AnonFolios = "anon-folios" in HUGE, "how large the folios are that the first store to private memory creates",
        source "mm/memory.c:do_anonymous_page (6.1), alloc_anon_folio (6.12, 7.2); 6.8 by its release notes" {
        Page = "page", "one page each, or a huge page";
        Sized = "sized", "as large as a size that is switched on (mthp), if all of the folio lies in the mapping and nothing is mapped there";
    }
    /// Whether `mprotect` changes the PTEs of a large folio's pages together.
    protect_run: ProtectRun = "protect-run" in HUGE, "whether mprotect changes consecutive PTEs of a large folio with the same rights together, so that all of them are dirty if one was",
        source "mm/mprotect.c:change_pte_range (6.12), mprotect_folio_pte_batch (7.2); since 6.17 by its release notes" {
        Each = "each", "it changes them page by page";
        Together = "together", "it changes them together";
    }
    /// When a dirty page of a file that is zapped stops counting as mapped.
    zap_rmap: ZapRmap = "zap-rmap" in FILES, "when a dirty page of a shared mapping that is zapped stops counting as mapped, so that writeback may skip it",
        source "mm/memory.c:zap_pte_range, mm/rmap.c:page_mkclean (5.10, 6.1); mm/memory.c:zap_present_folio_ptes, mm/mmu_gather.c:tlb_flush_rmaps (6.12 to 7.3; commit 5df397dec7c4 of 6.2)" {
        BeforeFlush = "before-flush", "when its PTE is cleared: a CPU may store through its cached translation after the page was written back, and the store is lost";
        AfterFlush = "after-flush", "after the flush, under the same page-table lock";
    }
    /// On arm64: which CPUs are flushed when a fault grants a right.
    arm64_upgrade: Arm64Upgrade = "arm64-upgrade" in ARM64, "on arm64: which CPUs are flushed when a fault makes a PTE writable in place",
        source "arch/arm64/mm/fault.c:ptep_set_access_flags (5.10, 6.1, 6.12), __ptep_set_access_flags_anysz (7.2, 7.3)" {
        Broadcast = "broadcast", "all CPUs: none of them takes a needless fault afterwards";
        Local = "local", "this CPU: another CPU that has cached the old entry takes a needless fault";
    }
    /// On arm64: which CPUs are flushed after a spurious fault of a store.
    arm64_spurious: Arm64Spurious = "arm64-spurious" in ARM64, "on arm64: which CPUs are flushed when a store has faulted although its entry permits it",
        source "arch/arm64/include/asm/pgtable.h:flush_tlb_fix_spurious_fault (5.10, 6.1, 6.12: nothing; 7.2, 7.3: this CPU); before 5.9 include/asm-generic/pgtable.h's, by published commits only" {
        Broadcast = "broadcast", "all CPUs";
        Nobody = "nobody", "no CPU: the old entry was flushed when the right was granted";
        Local = "local", "this CPU, which has cached the entry from before another CPU's fault granted the right";
    }
    /// On arm64: which PTE changes `mprotect` flushes.
    arm64_protect: Arm64Protect = "arm64-protect" in ARM64, "on arm64: which changes of a PTE make mprotect flush",
        source "mm/mprotect.c:change_pte_range, pte_needs_flush (6.1, 6.12: include/linux/huge_mm.h, always); arch/arm64/include/asm/tlbflush.h:pte_needs_flush (7.2, 7.3)" {
        All = "all", "all, even if nothing changed";
        HardwareBits = "hardware-bits", "changes of bits that the processor reads, in an entry that it could use";
    }
    /// How arm64 divides a range into invalidations.
    arm64_ranges: Arm64Ranges = "arm64-ranges" in ARM64, "on arm64 with FEAT_TLBIRANGE: how a range is divided into invalidations",
        source "arch/arm64/include/asm/tlbflush.h:__flush_tlb_range (5.10, 6.1), __flush_tlb_range_op (6.12 to 7.3)" {
        Ascending = "ascending", "first an odd page by itself, then the rest in parts of increasing size";
        Descending = "descending", "in parts of decreasing size, and the last page of an odd number by itself";
    }
    /// On which arm64 processors a long range becomes a flush of the address space.
    arm64_limit: Arm64Limit = "arm64-limit" in ARM64, "on arm64: on which processors a flush of 8 GiB and more, as for one third-level page table, becomes a flush of the address space, because it is too long for range invalidations",
        source "arch/arm64/include/asm/tlbflush.h:__flush_tlb_range (5.10, 6.1), __flush_tlb_range_nosync (6.12), __flush_tlb_range_limit_excess (7.3); 6.16 to 6.18 were not looked at" {
        OnAll = "on-all", "on all processors";
        WithRanges = "with-ranges", "on processors that have FEAT_TLBIRANGE";
    }
    /// How often arm64 waits for a flush of the address space that replaces one of a range.
    arm64_whole: Arm64Whole = "arm64-whole" in ARM64, "on arm64: how often a flush of a range waits if the range is too long and the flush becomes one of the address space",
        source "arch/arm64/include/asm/tlbflush.h:__flush_tlb_range (5.10, 6.1), __flush_tlb_range_nosync (6.12), __do_flush_tlb_range (7.2, 7.3); 6.16 to 6.18 were not looked at" {
        Once = "once", "once";
        Twice = "twice", "twice: after the flush of the address space, and then needlessly for the range";
    }
    /// The number of address bits that an arm64 kernel is built for.
    arm64_va: Arm64Va = "arm64-va" in ARM64, "on arm64: the number of address bits that the kernel is built for, which decides the form of range invalidations",
        source "arch/arm64/include/asm/tlbflush.h:__flush_tlb_range_op (6.12 to 7.3: lpa2_is_enabled); Debian's configurations of 6.1 (CONFIG_ARM64_VA_BITS_48) and of 6.12 and newer (CONFIG_ARM64_VA_BITS_52), as seen in guests" {
        Bits48 = "48", "48: a range can begin at any page";
        Bits52 = "52", "52: on a processor with FEAT_LPA2, a range begins at a multiple of 64 KiB, and pages before it are invalidated one by one";
    }
    /// Whether reclaim on arm64 waits for each invalidation.
    arm64_unmap: Arm64Unmap = "arm64-unmap" in ARM64, "on arm64: whether reclaim waits for the invalidation of each page that it unmaps",
        source "arch/arm64/Kconfig:ARCH_WANT_BATCHED_UNMAP_TLB_FLUSH (6.12 to 7.3, not 5.10, 6.1), arch/arm64/include/asm/tlbflush.h:arch_tlbbatch_add_pending, arch_tlbbatch_flush" {
        Waited = "waited", "it does";
        Unwaited = "unwaited", "it does not: it invalidates each page, and waits once for the whole batch";
    }
    /// What a walk on arm64 does about unmaps whose batch is not flushed yet.
    arm64_pending: Arm64Pending = "arm64-pending" in ARM64, "on arm64: what a page-table walk does when it finds the mark of an unmap whose batch is not flushed yet",
        source "arch/arm64/include/asm/tlbflush.h:arch_flush_tlb_batched_pending (dsb since commit 43b3dfdd0455 of 6.6; flush since 4b634918384c of 6.16, in 6.6.95, 6.12.35 and 6.15.4; 20250530152445.2430295-1-ryan.roberts@arm.com)" {
        Flush = "flush", "it flushes the address space";
        Dsb = "dsb", "it waits (DSB), which completes the invalidations that this CPU has issued: those of another CPU may still be under way";
    }
    /// Whether the additional pages that fault-around maps are marked as accessed.
    prefault: Prefault = "prefault" in FILES, "whether pages that fault-around maps besides the requested one are marked as accessed",
        source "mm/memory.c:alloc_set_pte (5.10), do_set_pte (6.1), set_pte_range (6.12, 7.3): arch_wants_old_prefaulted_pte, which only arm64 has (cpu_has_hw_af)" {
        Young = "young", "they are";
        AsArch = "as-arch", "they are not if the architecture wants them old, because its processor sets the bit when they are used";
    }
    /// What happens to dirty pages before a hole is punched.
    punch_dirty: PunchDirty = "punch-dirty" in FILES, "what happens to dirty pages of a file on a disk before a hole is punched there",
        source "fs/ext4/inode.c:ext4_punch_hole (5.10, 6.1: filemap_write_and_wait_range; not in Debian's 6.12, nor in 6.18 and 7.3)" {
        Written = "written", "they are written back, so that every mapping loses the write permission, with a flush for each page, before all of them are removed";
        Dropped = "dropped", "nothing: they are removed with the other pages";
    }
    /// What a fork does with pinned pages.
    fork_pinned: ForkPinned = "fork-pinned" in FORK, "what a fork does with a page that may be pinned",
        source "mm/memory.c:copy_present_page (5.10 to 7.3); 5.8: published description" {
        Share = "share", "it shares the page like any other: the process that stores first copies it";
        Copy = "copy", "it copies the page for the child at once, and the parent may still store to the page";
    }
    /// What a reference for loads does about a page that others have as well.
    gup_read: GupRead = "gup-read" in FORK, "what happens to a page that others share before it is held for loads",
        source "mm/gup.c:should_force_cow_break (5.8: 17839856fd58, until a308c71bf1e6), mm/internal.h:gup_must_unshare (6.1, 6.12, 7.3); not in 5.10" {
        AsMapped = "as-mapped", "nothing: the first store decides which process keeps the held page";
        BreakCow = "break-cow", "a reference for loads counts as one for stores, so a page that others share is copied first";
        Unshare = "unshare", "a pin first makes it the process's own (FAULT_FLAG_UNSHARE)";
    }
    /// When a page that comes back from swap is exclusive.
    swapin_exclusive: SwapinExclusive = "swapin-exclusive" in COW, "when a page that comes back from swap is exclusive, in kernels that mark such pages",
        source "mm/memory.c:do_swap_page (6.1 to 6.18: exclusive; 7.2, 7.3: pte_swp_exclusive alone)" {
        SoleReference = "sole-reference", "if its swap PTE says so, if it bypassed the swap cache, or if nobody else holds a reference";
        PteBit = "pte-bit", "if its swap PTE says so";
    }
    /// Which pages that come back from swap a locking mapping marks as locked.
    swapin_mlock: SwapinMlock = "swapin-mlock" in COW, "which pages that come back from swap are marked as locked if the mapping locks its pages",
        source "mm/memory.c:do_swap_page (6.1: page_add_anon_rmap; 6.12, 7.3: folio_add_new_anon_rmap, which marks none, for pages that nobody has mapped since they were read)" {
        Any = "any", "all pages";
        MappedBefore = "mapped-before", "pages that others have mapped since they were read";
    }
    /// What `process_madvise` supports for a process that gives advice about itself.
    vectored_advice: VectoredAdvice = "vectored-advice" in MAPPINGS, "which advice process_madvise takes from a process about itself",
        source "mm/madvise.c:process_madvise, process_madvise_behavior_valid (5.10 to 6.12), vector_madvise, process_madvise_remote_valid, madvise_batch_tlb_flush (7.3); seen on 6.18; 6.13 to 6.15, which batch less, are not available" {
        None = "none", "none: the kernel does not have the call (ENOSYS)";
        Hints = "hints", "MADV_COLD, MADV_PAGEOUT and, if the kernel has it, MADV_COLLAPSE, range by range as madvise does; EINVAL for other advice";
        OneCall = "one-call", "any advice, with one lock for all ranges, and with one gather for MADV_DONTNEED and MADV_FREE";
    }
    /// What a mapping with guards gets, so that a fork copies the guards.
    guard_regions: GuardRegions = "guard-regions" in MAPPINGS, "what a mapping gets when guards are installed in it (MADV_GUARD_INSTALL), so that a fork copies them",
        source "mm/madvise.c:madvise_guard_install (7.2, 7.3: VMA_MAYBE_GUARD_BIT), mm/memory.c:vma_needs_copy; 6.18.15, and 6.18.44, which has the flag, by observation; not in 6.12, files not before 6.15" {
        None = "none", "the kernel has no guards: EINVAL";
        AnonVma = "anon-vma", "an anon_vma, whatever the mapping maps, so that a fork copies all of its page tables";
        Flag = "flag", "a flag; anonymous memory also gets an anon_vma, and once it has one, the mapping's own lock is enough";
    }
    /// The features of userfaultfd.
    uffd_features: UffdFeatures = "uffd-features" in UFFD, "what a userfaultfd can do about stores to anonymous memory",
        source "include/uapi/linux/userfaultfd.h (5.10, 6.1, 6.12, 7.2): UFFD_FEATURE_WP_UNPOPULATED came in 6.4, UFFD_FEATURE_WP_ASYNC and PAGEMAP_SCAN in 6.7" {
        WriteProtect = "wp", "it can protect pages that are present";
        Unpopulated = "unpopulated", "it can also protect missing pages, by a marker";
        Asynchronous = "async", "it can also let stores go on, and the kernel records which pages were written (PAGEMAP_SCAN)";
    }
    /// How a forced store recognizes that a page is the process's own.
    force_write: ForceWrite = "force-write" in MAPPINGS, "how get_user_pages recognizes that a page is the process's own when a debugger stores to it although its mapping permits no store (FOLL_FORCE)",
        source "mm/gup.c:can_follow_write_pte (5.10: FOLL_COW and pte_dirty; 6.1, 6.12, 7.2: PageAnonExclusive; commit 5535be309971 of 6.0, CVE-2022-2590)" {
        Dirty = "dirty", "the page is dirty, after a fault that the call itself took";
        Exclusive = "exclusive", "the page is exclusive anonymous memory";
    }
    /// What userfaultfd can watch in shared memory and files.
    uffd_shared: UffdShared = "uffd-shared" in UFFD, "what userfaultfd can watch in shared memory and in files on tmpfs (in files on a disk, it can watch only stores, with the feature async)",
        source "fs/userfaultfd.c:vma_can_userfault (5.10), include/linux/userfaultfd_k.h (6.1, 6.12), mm/shmem.c:shmem_can_userfault (7.2); minor faults came in 5.14, dirty entries in 5.16, write protection in 5.19" {
        Missing = "missing", "missing pages";
        Minor = "minor", "missing pages, and pages that exist but are not mapped (UFFDIO_CONTINUE, whose entries are clean if they grant no store)";
        All = "all", "missing pages, pages that exist but are not mapped (UFFDIO_CONTINUE), and stores to protected pages";
    }
    /// What happens if userfaultfd watches stores and is registered for other accesses only.
    uffd_mode: UffdMode = "uffd-mode" in UFFD, "what happens when memory that userfaultfd watches for stores is registered for other accesses only",
        source "fs/userfaultfd.c:userfaultfd_register (5.10 to 6.18), mm/userfaultfd.c:userfaultfd_register (7.3.4: stale markers)" {
        Replace = "replace", "userfaultfd watches those accesses instead";
        Busy = "ebusy", "the call fails with EBUSY: the memory has to be unregistered first";
    }
    /// What protects a page that is not there.
    uffd_none: UffdNone = "uffd-none" in UFFD, "which entry protects a page of private memory that does not exist",
        source "mm/mprotect.c:change_pte_range (6.12, 7.2: make_pte_marker); zero-page: the first version of February 2023 (UFFD_FEATURE_WP_ZEROPAGE), which no kernel has" {
        Marker = "marker", "a marker";
        ZeroPage = "zero-page", "an entry that maps the zero page and is protected (a proposal: wp-unpopulated)";
    }
    /// The meaning of the entry's bit of an asynchronous userfaultfd.
    uffd_async: UffdAsync = "uffd-async" in UFFD, "what userfaultfd's bit in an entry means if userfaultfd lets stores go on (features=\"async\")",
        source "mm/memory.c:do_wp_page (6.12, 7.2: pte_clear_uffd_wp); inverted: a version that was discussed in February and March 2023, which no kernel has" {
        Protected = "protected", "the page was not written; a page that does not exist needs a marker for that";
        Inverted = "inverted", "the page was written; a page that does not exist needs nothing to count as not written, and the fault of its first store sets the bit (a proposal: wp-unpopulated)";
    }
    /// How many pages `UFFDIO_MOVE` moves with one flush.
    uffd_move: UffdMove = "uffd-move" in UFFD, "how UFFDIO_MOVE flushes the pages' old place",
        source "mm/userfaultfd.c:move_present_pte (6.12: ptep_clear_flush), move_present_ptes (7.2: flush_tlb_range)" {
        Each = "each", "each page by itself";
        Batched = "batched", "adjacent pages together, if they are present, small, exclusive and in the same page tables";
    }
    /// What happens to protected entries when userfaultfd's watch ends.
    uffd_unregister: UffdUnregister = "uffd-unregister" in UFFD, "what UFFDIO_UNREGISTER does with entries that userfaultfd protects",
        source "fs/userfaultfd.c:userfaultfd_unregister (5.10: nothing; 6.1), mm/userfaultfd.c:userfaultfd_clear_vma (6.12, 7.2)" {
        Keep = "keep", "nothing: they keep the bit, which means nothing until the pages are registered again";
        Unprotect = "unprotect", "it ends their protection";
    }
    /// Whether the part of a mapping that userfaultfd watches from now on, or not any more, merges
    /// with the mapping behind it.
    uffd_merge: UffdMerge = "uffd-merge" in UFFD, "whether the part of a mapping that UFFDIO_REGISTER or UFFDIO_UNREGISTER changes merges with the mapping behind it",
        source "fs/userfaultfd.c:userfaultfd_register, userfaultfd_unregister (6.1: vma_merge is given the offset of the mapping, not of the part), mm/vma.c:vma_modify_flags_uffd (6.12); tests/regressions/uffd-merge.kdl" {
        OwnStart = "own-start", "only if the part begins where its mapping begins";
        Any = "any", "it does";
    }
    /// When a store to a protected page in swap is reported to userfaultfd.
    uffd_swapin: UffdSwapin = "uffd-swapin" in UFFD, "when a store to a protected page that comes back from swap is reported to userfaultfd",
        source "mm/memory.c:do_swap_page (5.10, 6.1: pte_swp_uffd_wp after maybe_mkwrite; 6.12, 7.2: userfaultfd_pte_wp before)" {
        NextFault = "next-fault", "in a fault of its own, if the store would have been granted otherwise";
        SameFault = "same-fault", "in the fault that brings the page back";
    }
    /// The error of a collapse of memory whose missing pages userfaultfd watches.
    uffd_collapse: UffdCollapse = "uffd-collapse" in UFFD, "which error MADV_COLLAPSE returns for memory with missing pages that userfaultfd watches",
        source "mm/khugepaged.c:madvise_collapse_errno: SCAN_EXCEED_NONE_PTE (6.1, 6.12, 7.2)" {
        Invalid = "einval", "EINVAL";
        Busy = "ebusy", "EBUSY";
    }
    /// Which pages become writable when userfaultfd ends their protection.
    uffd_restore: UffdRestore = "uffd-restore" in UFFD, "which pages UFFDIO_WRITEPROTECT makes writable when it ends their protection",
        source "mm/userfaultfd.c:uffd_wp_range, mm/mprotect.c:change_pte_range (5.10, 6.1: none; 6.12, 7.2: MM_CP_TRY_CHANGE_WRITABLE)" {
        ReadOnly = "read-only", "none: the next store faults, even to a page that was never protected";
        AsProtect = "as-mprotect", "the pages that mprotect would make writable";
    }
    /// How many mappings one call can protect.
    uffd_ranges: UffdRanges = "uffd-ranges" in UFFD, "whether UFFDIO_WRITEPROTECT takes a range of several mappings",
        source "mm/userfaultfd.c:mwriteprotect_range (5.10, 6.1: find_dst_vma; 6.12, 7.2: for_each_vma_range)" {
        OneMapping = "one-mapping", "it does not: ENOENT";
        EachMapping = "each-mapping", "it does, up to a mapping that is not watched";
    }
    /// What happens to userfaultfd's protection when pages are moved by `mremap`.
    uffd_remap: UffdRemap = "uffd-remap" in UFFD, "what mremap does with pages that userfaultfd protects, if it does not watch their new mapping",
        source "mm/mremap.c:move_ptes (5.10: nothing; 6.1.192, 6.12.116, 7.2: need_clear_uffd_wp); fs/userfaultfd.c:mremap_userfaultfd_prep" {
        Keep = "keep", "their entries keep the bit, which means nothing there";
        Clear = "clear", "their entries lose the bit, and a marker is removed";
    }
    /// Whether pagemap shows userfaultfd's protection.
    pagemap_uffd: PagemapUffd = "pagemap-uffd" in UFFD, "whether /proc/PID/pagemap shows which pages userfaultfd protects",
        source "fs/proc/task_mmu.c:PM_UFFD_WP (not in 5.10; 6.1, 6.12, 7.2; came in 5.14)" {
        Nothing = "nothing", "it does not";
        Bit = "bit", "it does, by a bit of the page's entry";
    }
    /// Which pages of shared memory `mprotect` makes writable while soft-dirty bits are tracked.
    soft_dirty_protect: SoftDirtyProtect = "soft-dirty-protect" in SOFT_DIRTY, "which dirty pages of shared memory mprotect makes writable although the soft-dirty bit has to record stores",
        source "mm/mprotect.c:change_pte_range (5.10), can_change_pte_writable (6.1, 6.12, 7.2); changed in 6.0" {
        NewMappings = "new-mappings", "all pages, except that in mappings newer than the last clear_refs only pages whose bit is set: a store to tracked memory can stay unrecorded";
        Tracked = "tracked", "only pages whose bit is set";
    }
    /// Whether a mapping counts as new after it was merged with an older one.
    soft_dirty_merge: SoftDirtyMerge = "soft-dirty-merge" in SOFT_DIRTY, "whether a merged mapping counts as newer than the last clear_refs if only one of the two mappings was newer",
        source "mm/mmap.c:vma_merge, mm/mprotect.c:mprotect_fixup (5.10, 6.1), mm/vma.c:vma_modify (6.12); VMA_STICKY_FLAGS (7.2)" {
        Changed = "changed", "it counts as the mapping whose flags change; a mapping that mremap moves counts as its new neighbour";
        Either = "either", "it does";
    }
    /// What a scan for written pages reports for pages without a page table.
    scan_holes: ScanHoles = "scan-holes" in SOFT_DIRTY, "what PAGEMAP_SCAN reports for pages without a page table in memory that userfaultfd watches",
        source "fs/proc/task_mmu.c:pagemap_scan_pte_hole (6.12.116, 7.2.12: PAGE_IS_WRITTEN; before 6.12.103, and from 6.16 to 6.18.15, nothing)" {
        Nothing = "nothing", "nothing, so it does not protect them either";
        Written = "written", "that they were written, as for other pages that are not protected";
    }
    /// What a scan for written pages reports for pages that userfaultfd does not watch.
    scan_unwatched: ScanUnwatched = "scan-unwatched" in SOFT_DIRTY, "what PAGEMAP_SCAN reports for pages in a mapping that userfaultfd does not watch for stores",
        source "fs/proc/task_mmu.c:pagemap_page_category (6.12, 7.2.12); 7.3 by observation: 7.3.4, which reports such pages if a userfaultfd watches the mapping for stores, whatever its features" {
        Written = "written", "that they were written, as for all pages that are not protected";
        Nothing = "nothing", "nothing";
    }
    /// What a scan for written pages flushes.
    scan_flush: ScanFlush = "scan-flush" in SOFT_DIRTY, "what PAGEMAP_SCAN flushes in a page table in which it protected pages",
        source "fs/proc/task_mmu.c:pagemap_scan_pmd_entry, pagemap_scan_thp_entry (6.12, 7.2); the other value is a proposal (docs/findings/pagemap-scan.md)" {
        Scanned = "scanned", "the range from the first page that it protected to where it stopped, whatever rights these pages had";
        Needed = "needed", "the range from the first to the last page whose write permission it removed, if there is any (pte_needs_flush)";
    }
    /// Which flushes are left out, as a test of verdicts.
    skip: Skip = "skip" in FLUSHES, "which flushes are left out, to test verdicts: nothing may break without the needless flushes",
        source "docs/design.md, Verdicts; no kernel can know it" {
        None = "none", "none";
        Needless = "needless", "the flushes that the model judges needless";
    }
    /// What prevents a CPU from reading the old frame of a page that came back and was stored to.
    refault_flush: RefaultFlush = "refault-flush" in COW, "what is flushed before a page whose unmap is not flushed yet can come back in another frame",
        source "mm/memory.c:do_swap_page, do_anonymous_page, mm/vmscan.c:shrink_folio_list (5.10 to 7.3: nothing; the others are proposals: docs/findings/stale-read.md)" {
        Nothing = "nothing", "nothing: until the batch's flush a CPU may read the old frame, whatever was stored to the new one";
        Install = "install", "pending unmaps, before a fault maps a page";
        InstallWritable = "install-writable", "pending unmaps, before a fault maps a page writable that was not mapped (too weak: a later fault can make a page writable, too)";
        Writable = "writable", "pending unmaps, before a fault maps a page writable or makes a mapped page writable";
        BeforeRemoval = "before-removal", "the batch, before each folio leaves the swap cache; a page that MADV_FREE gave up is flushed when it is unmapped";
        RemovedAfter = "removed-after", "no more than today: folios leave the swap cache after the batch's flush; a page that MADV_FREE gave up is flushed when it is unmapped";
    }
    /// A mutant: one deliberate mistake.
    mutant: Mutant = "mutant" in MISTAKES, "which mistake the kernel makes, for the checker to find",
        source "litmus tests (needless check --catalogue)" {
        None = "none", "it makes none";
        UnmapNotFlushed = "unmap-not-flushed", "reclaim unmaps pages and frees them, without a flush (try_to_unmap_flush)";
        DeferWrapped = "defer-wrapped", "generations of deferred flushes have two bits (LUF's have 16): once two lists of pages wait, the flush of the next list counts as done";
        DeferWritable = "defer-writable", "the flush of a page that may be stored to is deferred (defer-flush)";
        DeferUpgraded = "defer-upgraded", "a store to a page that is mapped read-only does not do the deferred flushes (defer-upgrade)";
        DeferReused = "defer-reused", "a frame is used again before its deferred flush (defer-free)";
        DeferChain = "defer-chain", "the second move of a page releases the frame that its first move left (defer-free=kept)";
        SweepUnwaited = "sweep-unwaited", "a batch's flush does not wait until the other CPUs have flushed by themselves (shootdown=latr)";
        AddressReused = "address-reused", "addresses are mapped again before the deferred flush of what was there (defer-zap)";
        RecycledAnywhere = "recycled-anywhere", "a frame that waits for a flush is recycled for any address space (recycle=within-mm)";
        DeferWhileFlushing = "defer-while-flushing", "flushes are deferred while a batched flush is under way, and that flush counts for them (defer-flush)";
        WrittenUnflushed = "written-unflushed", "reclaim writes a page out while a CPU may still store to it (try_to_unmap_flush_dirty)";
        PendingIgnored = "pending-ignored", "a page-table walk does not look for unmaps whose flush was deferred (flush_tlb_batched_pending)";
        NestedIgnored = "nested-ignored", "a gather does not check whether another gather is open (tlb_finish_mmu)";
        MoveUnlocked = "move-unlocked", "mremap flushes after it has released the page-table locks (move_ptes)";
        FreedUnflushed = "freed-unflushed", "a gather frees its pages before it flushes (tlb_flush_mmu)";
        TableUnchecked = "table-unchecked", "an operation that takes a page-table lock does not check whether the table still exists (pte_offset_map_lock)";
        CopyUnreferenced = "copy-unreferenced", "a copy on write takes its reference to the old page after it has released the page-table lock (do_wp_page)";
        CopyUnflushed = "copy-unflushed", "a copy on write replaces the old page without a flush (wp_page_copy)";
        SwapinUnchecked = "swapin-unchecked", "a fault on a swap entry does not check the PTE again under its lock (do_swap_page)";
        LazySpared = "lazy-spared", "a flush that frees page tables does not interrupt lazy CPUs (native_flush_tlb_multi)";
        LazyStays = "lazy-stays", "a lazy CPU that wakes up does not check whether it missed a flush (switch_mm_irqs_off)";
        AsidUnflushed = "asid-unflushed", "an address-space identifier is reused without a flush (choose_new_asid)";
        GenIgnored = "generation-ignored", "a CPU that missed flushes does only the flush that is requested now (flush_tlb_func)";
        PendingClearedEarly = "cleared-early", "with batched-pending=cleared: the mark is cleared before the batch's flush";
        PendingClearedAll = "cleared-all", "with batched-pending=cleared: the mark is cleared also for unmaps that came after the batch's";
        PendingCountedEarly = "counted-early", "an unmap is counted before its PTE is cleared";
        PendingMaskedEarly = "masked-early", "with batched-pending=cleared: a batch records its CPUs before its count";
        BatchMarkedOnce = "marked-once", "only the first unmap of a batch leaves the mark (set_tlb_ubc_flush_pending)";
        NoAccessSkipped = "no-access-skipped", "reclaim assumes that no TLB holds a PTE without access, even while a gather is open (pte_accessible)";
        DirtyDropped = "dirty-dropped", "reclaim forgets the dirty bit of the PTE that it clears (try_to_unmap_one)";
        AddedClean = "added-clean", "a page that gets a swap slot is not marked dirty (add_to_swap)";
        FreeUnflushed = "free-unflushed", "MADV_FREE does not flush the dirty bits that it clears (madvise_free_pte_range)";
        FreeDirtyIgnored = "free-dirty-ignored", "reclaim drops a page that MADV_FREE gave up although it was written again (try_to_unmap_one)";
        AgedUnflushed = "aged-unflushed", "the kernel assumes that no TLB holds a page whose accessed bit is clear (zap_pte_range, move_ptes)";
        TableMovedUnflushed = "table-moved-unflushed", "mremap moves a whole page table without a flush (move_normal_pmd)";
        TouchUnchecked = "touch-unchecked", "a first touch does not check the PTE again under its lock (do_anonymous_page)";
        CopyUnchecked = "copy-unchecked", "a copy on write does not check the PTE again under its lock (wp_page_copy)";
        NoAccessUnflushed = "no-access-unflushed", "mprotect does not flush a page that loses its last right (pte_needs_flush)";
        ReusedReadOnly = "reused-read-only", "a page that is reused stays read-only, so that the store faults again (wp_page_reuse)";
        RacedLocked = "raced-locked", "a first touch that comes too late does not release the page-table lock (do_anonymous_page)";
        ForkUnprotected = "fork-unprotected", "a fork leaves the parent's PTEs writable (copy_present_pte)";
        ForkCleansParent = "fork-cleans-parent", "with fork-shared=copy: a fork also clears the parent's dirty bit (copy_present_pte)";
        CleanUnflushed = "clean-unflushed", "writeback clears a PTE's dirty bit and does not flush what CPUs have cached (page_vma_mkclean_one)";
        ForkUnflushed = "fork-unflushed", "a fork does not flush the write permission that it revokes (dup_mmap)";
        UffdSwapSkipped = "uffd-swap-skipped", "userfaultfd's write protection skips swap entries and migration entries (change_pte_range; before f45ec5ff16a7)";
        UffdSwapinWritable = "uffd-swapin-writable", "a page that comes back from swap becomes writable although userfaultfd protects it (do_swap_page)";
        UnprotectUnflushed = "unprotect-unflushed", "UFFDIO_WRITEPROTECT does not flush when it ends a protection, even if it takes the write permission from pages that were not protected (change_pte_range)";
        SoftDirtyUnflushed = "soft-dirty-unflushed", "clearing soft-dirty bits does not flush the write permission that it revokes (clear_refs_write)";
        ForkKeepsUffdWp = "fork-keeps-uffd-wp", "a fork copies userfaultfd's protection to a child that userfaultfd does not watch (copy_nonpresent_pte; before 8f34f1eac382)";
        UffdMoveUnflushed = "uffd-move-unflushed", "UFFDIO_MOVE does not flush the pages' old place (move_present_pte)";
        UffdZapForgets = "uffd-zap-forgets", "a page of a file loses userfaultfd's protection when its entry is removed (before 1db9dbc2)";
        UffdBitKept = "uffd-bit-kept", "a userfaultfd with an inverted bit treats entries without the bit as not written, and leaves their rights as they are";
        UffdBitDropped = "uffd-bit-dropped", "UFFDIO_WRITEPROTECT clears the bit, as is right for an inverted one, where it should set it (change_pte_range)";
        UffdUnflushed = "uffd-unflushed", "userfaultfd's write protection is not flushed (uffd_wp_range, pagemap_scan_pmd_entry)";
        ForkVmaUnlocked = "fork-vma-unlocked", "a fork does not lock mappings for writing (dup_mmap; 6.4 was released like this)";
        ForkExclusive = "fork-exclusive", "a fork leaves the parent's pages marked exclusive (copy_present_pte)";
        PrivateWritable = "private-writable", "a read fault on a private mapping of a file maps the file's pages writable (set_pte_range)";
        CacheUnchecked = "cache-unchecked", "a fault on shared memory adds its page although another one is there by now (shmem_add_to_page_cache)";
        PinUnguarded = "pin-unguarded", "a lockless pin does not check whether a fork came in between (write_protect_seq)";
        TriedFirst = "tried-first", "a second try of a fault that finds its page mapped ends before it checks whether a store is permitted (handle_pte_fault)";
        TriedFirstKept = "tried-first-kept", "as tried-first, and the flag is kept for the next fault, as get_user_pages keeps it (FOLL_TRIED)";
        TriedSticky = "tried-sticky", "each fault counts as a second try, as if FAULT_FLAG_TRIED had been kept from an earlier one (handle_pte_fault)";
        MkcleanSkipsChild = "mkclean-skips-child", "writeback skips the mappings that a fork created (page_mkclean)";
        SplitUnflushed = "split-unflushed", "a huge page's entry is split into PTEs without a flush in between (__split_huge_pmd_locked)";
        CollapseUnflushed = "collapse-unflushed", "a page table that MADV_COLLAPSE removes is not flushed (pmdp_collapse_flush)";
        WalkPmdUnchecked = "walk-pmd-unchecked", "a lockless walk does not check whether the page table is still there (gup_fast_pte_range)";
        TableGivenBack = "table-given-back", "page tables are freed at once, without waiting for lockless walks (tlb_remove_table)";
        DepositForgotten = "deposit-forgotten", "no page table is deposited for a huge page that a fault maps (pgtable_trans_huge_deposit)";
        ReturnUnflushed = "return-unflushed", "a CPU that returns to an address space does not check whether it missed a flush (switch_mm_irqs_off)";
    }
}
