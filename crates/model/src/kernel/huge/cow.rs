//! A fault on a mapped huge page: it sets the access flags, reuses the huge page, or has it mapped
//! page by page.

use super::anon::map_anon_folio_pmd;
use super::split::split_huge_pmd;
use super::{pmd_trans_huge_lock, pmd_unlock};
use crate::addr::Pfn;
use crate::arch::{AccessedDirty, Flushes};
use crate::env::{Env, Learnt, Lock};
use crate::event::FaultClass;
use crate::kernel::alloc::with_frames;
use crate::kernel::fault::cow::reuse;
use crate::kernel::fault::new_page::{allocate_zeroed_folio, zeroed};
use crate::kernel::fault::outcome::{Fault, Served, Unserved};
use crate::kernel::flush::{FlushRequest, flush_by_rule, flush_tlb_mm_range};
use crate::kernel::swap_cache::swap_users;
use crate::kernel::uffd::fault::handle_userfault;
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{Mode, World};
use crate::policy::{HugeZeroWrite, Mutant, Reuse};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::userfaultfd::Told;
use crate::verdict::{Judgement, Reason, Verdict};

/// Serves a fault whose entry already allows the access: marks the entry accessed, and for a store
/// dirty.
///
/// Source: mm/huge_memory.c:huge_pmd_set_accessed, touch_pmd (5.10 to 7.3);
/// arch/x86/mm/pgtable.c:pmdp_set_access_flags (no flush, and nothing for a load).
pub fn huge_pmd_set_accessed(env: &mut impl Env, fault: Fault, seen: PresentPte) -> Served {
    let Fault { mm, page, write, .. } = fault;
    let used = seen.with(PteFlags::ACCESSED, true).with(PteFlags::DIRTY, write);
    let (by_fault, rules) = (env.arch().accessed_dirty == AccessedDirty::Fault, env.arch().flushes);
    let set = pmd_trans_huge_lock(env, Site::HugePmdSetAccessed, mm, page, |w, at, pmd| {
        let current = pmd == seen;
        if current && used != seen && (write || w.arch.marks_loads()) {
            w.set_pmd(at, mm, page, Pte::Present(used));
        }
        current
    });
    let changed = set == Some(true) && used != seen;
    if write && set == Some(true) {
        let who = if changed && by_fault { rules.granted } else { rules.spurious };
        let request = FlushRequest::page(Site::HugePmdSetAccessed, mm, page).granting(true);
        flush_by_rule(env, request, who);
    }
    if set.is_some() {
        pmd_unlock(env, mm, page);
    }
    if changed && by_fault { Served::access_flag() } else { Served::spurious() }
}

/// What the reuse rule decides.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Decision {
    /// The entry has changed since it was read.
    Raced,
    Reuse,
    /// The huge page is mapped page by page, and the rule is applied to each page.
    Split,
}

impl Learnt for Decision {
    fn nothing() -> Decision {
        Decision::Raced
    }
}

/// Serves a write to a huge page that is mapped read-only, or a fault that unshares it. If
/// userfaultfd write-protects the huge page, a write is reported to it. If userfaultfd lets stores
/// go on (async), the huge page is mapped page by page instead, so that the written page is noted.
///
/// Source: mm/memory.c:wp_huge_pmd (5.10 to 7.3; 6.7 and later: userfaultfd_wp_async).
pub fn wp_huge_pmd(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    old: PresentPte,
) -> Result<Option<Served>, Unserved> {
    let Fault { mm, page, unshare, .. } = fault;
    if unshare || !vma.protects(old.uffd_wp()) {
        return do_huge_pmd_wp_page(env, fault, vma, old);
    }
    if !env.step(Site::WpHugePmd, |w, _| w.mms[mm.index()].uffd.features.asynchronous) {
        return Err(handle_userfault(env, fault, Told::Protected));
    }
    split_huge_pmd(env, Site::WpHugePmd, mm, page);
    Ok(None)
}

/// Reuses the huge page, or has it mapped page by page. Its entry is `old` and read-only. `None` if
/// the huge page is now mapped page by page and the fault goes on with its page. A huge page waits
/// in no LRU batch, so nothing is drained.
///
/// Source: mm/huge_memory.c:do_huge_pmd_wp_page (5.10 to 7.3).
fn do_huge_pmd_wp_page(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    old: PresentPte,
) -> Result<Option<Served>, Unserved> {
    let Fault { mm, page, .. } = fault;
    if old.special() {
        if env.policies().huge_zero_write == HugeZeroWrite::Huge
            && let Some(served) = do_huge_zero_wp_pmd(env, fault, vma, old)
        {
            return Ok(Some(served));
        }
        split_huge_pmd(env, Site::DoHugePmdWpPage, mm, page);
        return Ok(None);
    }
    let site = Site::DoHugePmdWpPage;
    let looked = pmd_trans_huge_lock(env, site, mm, page, |w, _, pmd| {
        let decision = if pmd == old { decide(w, old.pfn) } else { Decision::Raced };
        (decision, judge_fault(w, old.pfn).of_store(vma.notes_store(old.soft_dirty())))
    });
    let Some((mut decision, verdict)) = looked else { return Ok(Some(Served::spurious())) };
    let folio = Lock::Folio(old.pfn);
    if decision == Decision::Reuse && env.try_lock(Site::FolioTryLock, folio) {
        env.step(site, |w, at| {
            let place = vma.place(w.huge_span(page).start);
            if let Some(pmd) = reuse(w, at, fault, old, Some(place)) {
                w.set_pmd(at, mm, page, Pte::Present(pmd));
            }
        });
        let granted = if fault.unshare { Flushes::Nobody } else { env.arch().flushes.granted };
        flush_by_rule(env, FlushRequest::page(site, mm, page).granting(true), granted);
        env.unlock(folio);
    } else if decision == Decision::Reuse {
        decision = Decision::Split;
    }
    pmd_unlock(env, mm, page);
    match decision {
        Decision::Raced => Ok(Some(Served::spurious())),
        Decision::Reuse => Ok(Some(Served::judged(FaultClass::Reuse, verdict))),
        Decision::Split => {
            split_huge_pmd(env, site, mm, page);
            Ok(None)
        }
    }
}

/// Applies the reuse rule to a huge page.
///
/// Source: mm/swapfile.c:reuse_swap_page, page_trans_huge_map_swapcount (5.10: nobody else may map
/// it); mm/huge_memory.c:do_huge_pmd_wp_page (6.1 to 7.3: exclusive, or nobody else has a
/// reference).
fn decide<M: Mode>(w: &World<M>, folio: Pfn) -> Decision {
    let frame = w.frames.get(folio);
    let alone = match w.policies.reuse {
        Reuse::MapCount | Reuse::PageCount => {
            w.frames.folio_maps(folio) + swap_users(w, folio) == 1
        }
        Reuse::ExclusiveAfterDrain | Reuse::ExclusiveCountingBatch => {
            frame.flags.has(FrameFlags::EXCLUSIVE) || frame.refs == 1
        }
    };
    if alone { Decision::Reuse } else { Decision::Split }
}

/// Replaces the huge zero page by a zeroed huge page. `None` if no huge page is available.
///
/// Source: mm/huge_memory.c:do_huge_zero_wp_pmd (6.18, 7.3), with pmdp_huge_clear_flush, which
/// flushes by base pages.
fn do_huge_zero_wp_pmd(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    old: PresentPte,
) -> Option<Served> {
    let (site, Fault { mm, page, .. }) = (Site::DoHugeZeroWpPmd, fault);
    let request = zeroed(mm, page).of_order(env.arch().order(2));
    let folio = with_frames(env, site, request, |w, at, door| {
        allocate_zeroed_folio(w, at, w.huge_span(page), &door)
    })?;
    let locked = pmd_trans_huge_lock(env, site, mm, page, |w, at, pmd| {
        let current = pmd == old;
        if current {
            w.set_pmd(at, mm, page, Pte::None);
        }
        current
    });
    let current = locked == Some(true);
    if current {
        if env.policies().mutant != Mutant::CopyUnflushed {
            let pages = env.arch().huge_pages(page);
            flush_tlb_mm_range(env, FlushRequest::range(site, mm, pages));
        }
        let writable = vma.prot == Prot::ReadWrite;
        env.step(site, |w, at| map_anon_folio_pmd(w, at, mm, page, (folio, writable)));
    }
    if locked.is_some() {
        pmd_unlock(env, mm, page);
    }
    if current {
        let verdict = Verdict::new(Judgement::Needed, Reason::HugeZeroMapped);
        return Some(Served::judged(FaultClass::ZeroUpgrade, verdict));
    }
    env.step(Site::FolioPut, |w, at| w.put_frame(at, folio));
    Some(Served::spurious())
}

/// Judges a write fault: it is needless if write permission could have been granted when the entry
/// was last written.
fn judge_fault<M: Mode>(w: &World<M>, folio: Pfn) -> Verdict {
    let claimed = w.frames.flags(folio).has(FrameFlags::CLAIMED);
    if w.frames.folio_maps(folio) == 1 && swap_users(w, folio) == 0 && !claimed {
        Verdict::new(Judgement::Needless, Reason::CouldHaveBeenWritable)
    } else {
        Verdict::new(Judgement::Needed, Reason::WriteWasClaimed)
    }
}
