//! What stable releases changed within a series.

use crate::policy::{
    Arm64Pending, GuardRegions, HugeCold, HugeUnprotect, LazyfreeHuge, Policies, ScanHoles, TableSync,
};
use std::collections::BTreeSet;

/// A commit that stable releases took in, so that a series' kernels differ.
struct Fix {
    /// Of each series the last release that is known to be without it, and the first that is known to have it. Series that are
    /// not here never had it, or always.
    since: &'static [(Series, u32, u32)],
    apply: fn(&mut Policies),
}

type Series = (u32, u32);

/// The releases are those of Debian's changelogs of linux 5.10.223-1, 6.12.118-1 and 7.3.4-1; of 6.18 it is known that 6.18.15 has none
/// (guest; of the first two its source, too) and 6.18.44 has all (live).
const FIXES: [Fix; 7] = [
    // "mm/madvise: atomically clear the young bit on THP MADV_COLD"
    Fix {
        since: &[((6, 12), 116, 117), ((6, 18), 15, 44), ((7, 3), 3, 4)],
        apply: |policies| policies.huge_cold = HugeCold::Clear,
    },
    // "mm/rmap: don't discard lazyfree THPs at PMD level"
    Fix {
        since: &[((6, 12), 116, 117), ((6, 18), 15, 44), ((7, 3), 1, 2)],
        apply: |policies| policies.lazyfree_huge = LazyfreeHuge::Split,
    },
    // "fs/proc/task_mmu: fix PAGEMAP_SCAN written state for PMD holes" and "... for unpopulated ptes"
    Fix {
        since: &[((6, 12), 102, 103), ((6, 18), 15, 44)],
        apply: |policies| policies.scan_holes = ScanHoles::Written,
    },
    // Mappings with guards bear a flag, as in 7.2: 6.18.44 by what it does (tests/regressions/guard-merge.kdl).
    Fix {
        since: &[((6, 18), 15, 44)],
        apply: |policies| policies.guard_regions = GuardRegions::Flag,
    },
    // By what these kernels do (tests/regressions/uffd-huge-unprotect.kdl).
    Fix {
        since: &[((6, 12), 107, 111), ((6, 18), 15, 44)],
        apply: |policies| policies.huge_unprotect = HugeUnprotect::IfChanged,
    },
    // "arm64/mm: Close theoretical race where stale TLB entry remains valid" (reviewed for stable on 23 June 2025)
    Fix {
        since: &[((6, 12), 34, 35)],
        apply: |policies| policies.arm64_pending = Arm64Pending::Flush,
    },
    // "mm/khugepaged: fix GUP-fast interaction by sending IPI", which 6.1 had from the start
    Fix {
        since: &[((5, 10), 158, 162)],
        apply: |policies| policies.table_sync = TableSync::Broadcast,
    },
];

impl Fix {
    fn since(&self, series: Series) -> Option<u32> {
        self.since.iter().find(|(of, ..)| *of == series).map(|(.., since)| *since)
    }
}

/// Applies what a series' stable release `patch` has; all that is known, if it is `None`.
pub(super) fn apply(policies: &mut Policies, series: Series, patch: Option<u32>) {
    for fix in &FIXES {
        let since = fix.since(series);
        if since.is_some_and(|since| patch.is_none_or(|patch| since <= patch)) {
            (fix.apply)(policies);
        }
    }
}

/// Whether the release has all that is known of its series, so that the series' name says enough.
pub(super) fn is_newest(series: Series, patch: u32) -> bool {
    FIXES.iter().filter_map(|fix| fix.since(series)).all(|since| since <= patch)
}

/// The last releases of each series that are known to be without something that it has now.
pub(super) fn older(series: Series) -> BTreeSet<u32> {
    let of = |fix: &Fix| fix.since.iter().find(|(of, ..)| *of == series).map(|(_, last, _)| *last);
    FIXES.iter().filter_map(of).collect()
}
