//! `MADV_HUGEPAGE` and `MADV_NOHUGEPAGE`: whether a mapping is to have huge pages.

use crate::addr::{MmId, PageRange};
use crate::env::{Env, Lock};
use crate::kernel::vma_flags::change_flags;
use crate::machine::vma::{HugeAdvice, Vma};
use crate::site::Site;

/// Notes the advice in each mapping of the ranges, until a range has a hole. Returns whether no
/// range had one. Huge pages that are there stay. (When khugepaged comes to the mappings is up to a
/// clock, which the model does not have.)
///
/// Source: mm/khugepaged.c:hugepage_madvise (5.10 to 7.3).
pub fn hugepage_madvise(
    env: &mut impl Env,
    mm: MmId,
    mut ranges: impl Iterator<Item = PageRange>,
    advice: HugeAdvice,
) -> bool {
    env.lock(Lock::MmapWrite(mm));
    let covered = ranges.all(|range| {
        change_flags(env, Site::MadviseUpdateVma, mm, range, |vma| Vma { huge: advice, ..*vma })
    });
    env.unlock(Lock::MmapWrite(mm));
    covered
}
