//! What `madvise` says of huge pages: whether a mapping is to have them.

use super::split::split_at_borders;
use crate::addr::{MmId, PageRange};
use crate::env::{Env, Lock};
use crate::kernel::vma_lock::new_vma_start_write;
use crate::machine::mm::Mm;
use crate::machine::vma::{HugeAdvice, Vma};
use crate::site::Site;

/// Notes it for each mapping in `range`; whether there is no hole between them. Huge pages that are there stay.
///
/// Source: mm/khugepaged.c:hugepage_madvise, mm/madvise.c:madvise_update_vma (5.10 to 7.3). (That khugepaged may come to them, later, is for a clock to say.)
pub fn hugepage_madvise(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    advice: HugeAdvice,
) -> bool {
    env.lock(Lock::MmapWrite(mm));
    let mut rest = range;
    let mut covered = true;
    while let Some((found, changes)) = env.step(Site::MadviseUpdateVma, |w, at| {
        w.mmap_assert_locked(at, mm);
        next(&w.mms[mm.index()], rest, advice)
    }) {
        covered &= found.start == rest.start;
        if changes {
            update(env, mm, found, advice);
        }
        rest.start = found.end;
    }
    env.unlock(Lock::MmapWrite(mm));
    covered && rest.is_empty()
}

/// The first mapping's part in `rest`, and whether that is news for it.
fn next(space: &Mm, rest: PageRange, advice: HugeAdvice) -> Option<(PageRange, bool)> {
    let vma = space.vmas_in(rest).next().filter(|_| !rest.is_empty())?;
    Some((vma.range, vma.huge != advice))
}

/// The mapping's part `part` is as advised from now on.
fn update(env: &mut impl Env, mm: MmId, part: PageRange, advice: HugeAdvice) {
    let advised = |space: &Mm| {
        let vma = space.vma(part.start)?.cut(part);
        Some(Vma { huge: advice, ..vma })
    };
    new_vma_start_write(env, mm, advised);
    let whole = env.step(Site::MadviseUpdateVma, |w, _| {
        w.mms[mm.index()].vma(part.start).map(|vma| vma.range)
    });
    split_at_borders(env, mm, whole.unwrap_or(part), part);
    env.step(Site::MadviseUpdateVma, |w, at| {
        w.vma_assert_write_locked(at, mm, part);
        if let Some(vma) = advised(&w.mms[mm.index()]) {
            w.insert_vma(mm, vma);
        }
    });
}
