//! Changes that stable releases made within a series.

use crate::policy::{
    Arm64Pending, GuardRegions, HugeCold, HugeUnprotect, LazyfreeHuge, Policies, ScanHoles,
    TableSync,
};
use std::collections::BTreeSet;

/// A commit that stable releases took over, so that kernels of one series differ.
struct Fix {
    /// For each series, the last release known to lack the commit and the first release known to
    /// have it. A series that is not listed never had the commit, or always.
    since: &'static [(Series, u32, u32)],
    apply: fn(&mut Policies),
}

type Series = (u32, u32);

/// The releases are those in Debian's changelogs of linux 5.10.223-1, 6.12.118-1 and 7.3.4-1. In
/// 6.18, it is known that 6.18.15 has none of the commits (seen in a guest; for the first two also
/// from its source), and that 6.18.44 has all (seen live).
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
    // "fs/proc/task_mmu: fix PAGEMAP_SCAN written state for PMD holes" and "... for unpopulated
    // ptes".
    Fix {
        since: &[((6, 12), 102, 103), ((6, 18), 15, 44)],
        apply: |policies| policies.scan_holes = ScanHoles::Written,
    },
    // Mappings with guards have a flag, as in 7.2. 6.18.44 has it according to its behaviour
    // (tests/regressions/guard-merge.kdl).
    Fix {
        since: &[((6, 18), 15, 44)],
        apply: |policies| policies.guard_regions = GuardRegions::Flag,
    },
    // The releases follow from the kernels' behaviour (tests/regressions/uffd-huge-unprotect.kdl).
    Fix {
        since: &[((6, 12), 107, 111), ((6, 18), 15, 44)],
        apply: |policies| policies.huge_unprotect = HugeUnprotect::IfChanged,
    },
    // "arm64/mm: Close theoretical race where stale TLB entry remains valid" (reviewed for stable
    // on 23 June 2025)
    Fix {
        since: &[((6, 12), 34, 35)],
        apply: |policies| policies.arm64_pending = Arm64Pending::Flush,
    },
    // "mm/khugepaged: fix GUP-fast interaction by sending IPI", which 6.1 had from the start.
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

/// Applies the changes that a series' stable release `patch` has; all known changes if it is
/// `None`.
pub(super) fn apply(policies: &mut Policies, series: Series, patch: Option<u32>) {
    for fix in &FIXES {
        let since = fix.since(series);
        if since.is_some_and(|since| patch.is_none_or(|patch| since <= patch)) {
            (fix.apply)(policies);
        }
    }
}

/// Whether the release has all known changes of its series, so that the series' name describes it.
pub(super) fn is_newest(series: Series, patch: u32) -> bool {
    FIXES.iter().filter_map(|fix| fix.since(series)).all(|since| since <= patch)
}

/// The last releases of the series that are known to lack one of its changes.
pub(super) fn older(series: Series) -> BTreeSet<u32> {
    let of = |fix: &Fix| fix.since.iter().find(|(of, ..)| *of == series).map(|(_, last, _)| *last);
    FIXES.iter().filter_map(of).collect()
}
