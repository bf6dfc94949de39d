//! Changes the flags of a part of a mapping. The part becomes a mapping of its own, or merges with
//! its neighbours.

use crate::addr::{MmId, PageRange};
use crate::env::Env;
use crate::kernel::huge::split::split_at_borders;
use crate::kernel::vma_lock::new_vma_start_write;
use crate::machine::mm::Mm;
use crate::machine::vma::{MergeRule, Vma};
use crate::site::Site;

/// Changes those mappings in `range` that do not have the wanted flags yet, on behalf of the
/// function `site`. They merge as usual. Returns whether the mappings cover the range without a
/// hole. The caller holds `mmap_lock` for writing.
///
/// Source: mm/madvise.c:madvise_walk_vmas, madvise_update_vma (5.10 to 7.3),
/// mm/vma.c:vma_modify_flags (6.12, 7.3).
pub fn change_flags(
    env: &mut impl Env,
    site: Site,
    mm: MmId,
    range: PageRange,
    changed: impl Fn(&Vma) -> Vma,
) -> bool {
    let rule = MergeRule::from(env.policies());
    change_flags_by(env, site, mm, (range, rule), changed)
}

/// Changes those mappings in `range` that do not have the wanted flags yet. They merge by this
/// rule. Returns whether the mappings cover the range without a hole.
///
/// Source: fs/userfaultfd.c:userfaultfd_register (5.10, 6.1), mm/vma.c:vma_modify_flags_uffd
/// (6.12).
pub fn change_flags_by(
    env: &mut impl Env,
    site: Site,
    mm: MmId,
    (range, rule): (PageRange, MergeRule),
    changed: impl Fn(&Vma) -> Vma,
) -> bool {
    let (mut rest, mut covered) = (range, true);
    while let Some((found, changes)) = env.step(site, |w, at| {
        w.mmap_assert_locked(at, mm);
        let vma = w.mms[mm.index()].vmas_in(rest).next().filter(|_| !rest.is_empty())?;
        Some((vma.range, changed(&vma) != vma))
    }) {
        covered &= found.start == rest.start;
        if changes {
            update_by(env, site, mm, (found, rule), &changed);
        }
        rest.start = found.end;
    }
    covered && rest.is_empty()
}

/// Changes the part `part` of its mapping, which merges as usual.
pub fn update(
    env: &mut impl Env,
    site: Site,
    mm: MmId,
    part: PageRange,
    changed: impl Fn(&Vma) -> Vma,
) {
    let rule = MergeRule::from(env.policies());
    update_by(env, site, mm, (part, rule), changed);
}

fn update_by(
    env: &mut impl Env,
    site: Site,
    mm: MmId,
    (part, rule): (PageRange, MergeRule),
    changed: impl Fn(&Vma) -> Vma,
) {
    let new = |space: &Mm| Some(changed(&space.vma(part.start)?.cut(part)));
    new_vma_start_write(env, mm, new);
    if env.config().huge_pages {
        let whole = env.step(site, |w, _| w.mms[mm.index()].vma(part.start).map(|vma| vma.range));
        split_at_borders(env, mm, whole.unwrap_or(part), part);
    }
    env.step(site, |w, at| {
        w.vma_assert_write_locked(at, mm, part);
        if let Some(vma) = new(&w.mms[mm.index()]) {
            w.insert_vma_by(mm, vma, rule);
        }
    });
}
