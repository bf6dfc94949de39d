//! What `madvise` says of huge pages: whether a mapping is to have them.

use crate::addr::{MmId, PageRange};
use crate::env::{Env, Lock};
use crate::kernel::vma_flags::change_flags;
use crate::machine::vma::{HugeAdvice, Vma};
use crate::site::Site;

/// Notes it for each mapping in the ranges, until one has a hole; whether none has. Huge pages that are there stay.
///
/// Source: mm/khugepaged.c:hugepage_madvise (5.10 to 7.3). (That khugepaged may come to them, later, is for a clock to say.)
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
