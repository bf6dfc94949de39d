//! A write to a read-only private page: reuse the page or copy it (`do_wp_page`, `wp_page_copy`).
//!
//! A page of a file is always copied, because it belongs to the file.
//!
//! Reuse costs nothing but the fault. A copy costs the copy and one flush, because other CPUs may
//! still read the old page. Copying while nobody else can see the old page is never wrong, only
//! needless.

use super::anon::vmf_anon_prepare;
use super::new_page::{allocate_zeroed, map_new_page, new_pte};
use super::outcome::{Fault, Served, Unserved};
use super::refault::flush_before_reuse;
use crate::addr::{MmId, ObjectId, Pfn};
use crate::arch::Flushes;
use crate::env::{Env, Learnt, Lock};
use crate::event::{EventKind, FaultClass};
use crate::kernel::alloc::{Door, Request, with_frames};
use crate::kernel::deferred::{Before, flush_owed_before};
use crate::kernel::flush::{FlushRequest, flush_by_rule, flush_tlb_mm_range};
use crate::kernel::huge::run::is_shared;
use crate::kernel::lru::lru_add_drain;
use crate::kernel::mlock_batch::{folio_remove_rmap, munlock_vma_page};
use crate::kernel::swap_cache::{free_swap_cache, leave_swap_cache, swap_users};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::uffd::fault::{
    Watched, flush_deferred, handle_userfault, store_begins, store_to_protected,
};
use crate::machine::frames::{Frame, FrameFlags};
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{AnonExclusive, LargeReuse, MlockPages, Mutant, Reuse};
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::userfaultfd::Told;
use crate::verdict::{Judgement, Reason, Verdict};

/// What the reuse rule decides.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Decision {
    /// The PTE has changed since it was read.
    Raced,
    /// The store must be reported to userfaultfd first.
    Asks,
    Reuse,
    Copy,
    /// An LRU batch may hold the extra reference: drain this CPU's batch and look again.
    DrainFirst,
}

impl Learnt for Decision {
    fn nothing() -> Decision {
        Decision::Raced
    }
}

/// Serves a write to a page whose PTE is `old` and read-only. With `FAULT_FLAG_UNSHARE` (6.0 and
/// later) it makes the page the process's own without a write.
///
/// Source: mm/memory.c:do_wp_page, wp_can_reuse_anon_folio (5.10, 6.1, 6.12, 7.3).
pub fn do_wp_page(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    old: PresentPte,
) -> Result<Served, Unserved> {
    if old.special() {
        let goes_on = store_begins(env, fault, vma, old)?;
        let Some(old) = goes_on else { return Ok(Served::spurious()) };
        vmf_anon_prepare(env, fault, vma)?;
        return wp_page_copy(env, fault, old, Served::needed(FaultClass::ZeroUpgrade));
    }
    let Fault { mm, page, .. } = fault;
    let looked = pte_offset_map_lock(env, Site::DoWpPage, mm, page, |w, at| {
        let spurious = (Served::spurious().verdict, old);
        let (old, told) = match store_to_protected(w, at, fault, vma, old) {
            Watched::Raced => return (Decision::Raced, spurious, old.pfn),
            Watched::Asks => return (Decision::Asks, spurious, old.pfn),
            Watched::GoesOn(pte) => (pte, pte != old),
        };
        let (folio, frame) = (w.frames.folio(old.pfn).0, w.frames.get(old.pfn));
        if vma.file.is_some() && w.objects.is_file(frame.object) {
            let needed = Verdict::new(Judgement::Needed, Reason::WriteWasClaimed);
            return (Decision::Copy, (needed, old), folio);
        }
        let verdict = match told {
            true => Verdict::new(Judgement::Needed, Reason::UserfaultfdTold),
            false => judge_fault(w, old.pfn, frame).of_store(vma.notes_store(old.soft_dirty())),
        };
        (decide(w, mm, old.pfn, frame, false), (verdict, old), folio)
    });
    let Some((mut decision, (verdict, old), folio)) = looked else {
        return Ok(Served::spurious());
    };
    if !matches!(decision, Decision::Raced | Decision::Asks) {
        flush_owed_before(env, Before::WriteFault);
        flush_deferred(env, fault, vma);
    }
    if decision == Decision::DrainFirst {
        lru_add_drain(env);
        decision =
            env.step(Site::DoWpPage, |w, _| decide(w, mm, old.pfn, w.frames.get(old.pfn), true));
    }
    // The folio's lock is only tried: its holder may be looking at the counts.
    if decision == Decision::Reuse && env.try_lock(Site::FolioTryLock, Lock::Folio(folio)) {
        flush_before_reuse(env, mm);
        env.step(Site::WpPageReuse, |w, at| wp_page_reuse(w, at, fault, vma, old));
        let granted = if fault.unshare { Flushes::Nobody } else { env.arch().flushes.granted };
        let request = FlushRequest::page(Site::WpPageReuse, mm, page).granting(true);
        flush_by_rule(env, request, granted);
        env.unlock(Lock::Folio(folio));
    } else if decision == Decision::Reuse {
        decision = Decision::Copy;
    }
    let copies = matches!(decision, Decision::Copy | Decision::DrainFirst);
    // Once the table's lock is given back, only a reference keeps the old page.
    if copies && env.policies().mutant != Mutant::CopyUnreferenced {
        env.step(Site::DoWpPage, |w, at| w.get_frame(at, old.pfn));
    }
    pte_unmap_unlock(env, mm, page);
    match decision {
        Decision::Raced => Ok(Served::spurious()),
        Decision::Asks => Err(handle_userfault(env, fault, Told::Protected)),
        Decision::Reuse => Ok(Served::judged(FaultClass::Reuse, verdict)),
        Decision::Copy | Decision::DrainFirst => {
            // A private mapping of a file may have no `anon_vma` yet.
            if vma.file.is_some()
                && let Err(unserved) = vmf_anon_prepare(env, fault, vma)
            {
                if env.policies().mutant != Mutant::CopyUnreferenced {
                    env.step(Site::FolioPut, |w, at| w.put_frame(at, old.pfn));
                }
                return Err(unserved);
            }
            let served = Served::judged(FaultClass::CowCopy, verdict);
            wp_page_copy(env, fault, old, served)
        }
    }
}

/// Applies the reuse rule. Everything that it reads is stable under the page-table lock, except the
/// reference count.
#[inline(always)]
fn decide<M: Mode>(w: &World<M>, mm: MmId, pfn: Pfn, frame: Frame, drained: bool) -> Decision {
    let swap_cache = u32::from(frame.flags.has(FrameFlags::SWAP_CACHE));
    let on_lru = frame.flags.on_lru();
    let reuse_if = |yes: bool| if yes { Decision::Reuse } else { Decision::Copy };
    match w.policies.reuse {
        Reuse::MapCount => reuse_if(frame.maps + swap_users(w, pfn) == 1),
        Reuse::PageCount => reuse_if(frame.refs == 1 && frame.maps == 1),
        Reuse::ExclusiveAfterDrain | Reuse::ExclusiveCountingBatch => {
            let allowance = match w.policies.reuse {
                Reuse::ExclusiveCountingBatch => 1 + u32::from(!on_lru) + swap_cache,
                _ => 3,
            };
            if frame.flags.has(FrameFlags::EXCLUSIVE) {
                Decision::Reuse
            } else if frame.flags.has(FrameFlags::LARGE)
                && w.policies.large_reuse != LargeReuse::Alone
            {
                reuse_if(may_reuse_large(w, mm, pfn))
            } else if frame.refs > allowance {
                Decision::Copy
            } else if !on_lru && !drained {
                Decision::DrainFirst
            } else {
                reuse_if(frame.refs <= 1 + swap_cache && swap_users(w, pfn) == 0)
            }
        }
    }
}

/// Whether a page of a large folio may be reused. A page that is the folio's last mapped one is
/// copied, so that the folio can be freed.
///
/// Source: mm/memory.c:__wp_can_reuse_large_anon_folio (6.18, 7.3).
fn may_reuse_large<M: Mode>(w: &World<M>, mm: MmId, pfn: Pfn) -> bool {
    let frame = w.frames.get(pfn);
    let maps = w.frames.folio_maps(pfn);
    w.policies.large_reuse == LargeReuse::Known
        && maps > 1
        && !is_shared(w, pfn, mm)
        && !frame.flags.has(FrameFlags::SWAP_CACHE)
        && maps == frame.refs
}

/// Makes the page writable in place, or with `FAULT_FLAG_UNSHARE` only makes it the process's own.
/// A CPU with the old, read-only entry faults once and walks again, so x86 needs no flush. A page
/// that is marked exclusive keeps its place in the swap cache.
///
/// Source: mm/memory.c:do_wp_page, wp_can_reuse_anon_folio (6.1, 6.12, 7.3).
fn wp_page_reuse<M: Mode>(w: &mut World<M>, at: At, fault: Fault, vma: &Vma, old: PresentPte) {
    // Reusing one page of a large folio that others may map leaves the folio's object as it is.
    let flags = w.frames.flags(old.pfn);
    let alone = !flags.has(FrameFlags::EXCLUSIVE) && w.policies.large_reuse == LargeReuse::Alone;
    let moves = !flags.has(FrameFlags::LARGE) || alone;
    if let Some(pte) = reuse(w, at, fault, old, moves.then(|| vma.place(fault.page))) {
        w.set_pte(at, fault.mm, fault.page, Pte::Present(pte));
    }
}

/// Makes the page, or the huge page, that `old` maps the process's own, and moves it to the object
/// and index in `place` (`folio_move_anon_rmap`). Returns the entry that is to map it, or `None` if
/// the fault only unshares.
pub(in crate::kernel) fn reuse<M: Mode>(
    w: &mut World<M>,
    at: At,
    fault: Fault,
    old: PresentPte,
    place: Option<(ObjectId, u64)>,
) -> Option<PresentPte> {
    let flags = w.frames.flags(old.pfn);
    if flags.has(FrameFlags::SWAP_CACHE) && !flags.has(FrameFlags::EXCLUSIVE) {
        leave_swap_cache(w, at, old.pfn);
    }
    let exclusive = w.policies.anon_exclusive == AnonExclusive::Yes;
    w.frames.update(old.pfn, |f| {
        if exclusive && let Some(place) = place {
            (f.object, f.index) = place;
        }
        f.flags.set(FrameFlags::EXCLUSIVE, exclusive);
        f.flags.set(FrameFlags::CLAIMED, false);
    });
    let pte = old
        .with(PteFlags::WRITABLE, w.policies.mutant != Mutant::ReusedReadOnly && !fault.forced)
        .with(PteFlags::ACCESSED, true)
        .with(PteFlags::DIRTY, true)
        .with(PteFlags::SOFT_DIRTY, w.config.soft_dirty);
    (!fault.unshare).then_some(pte)
}

/// Copies the page and drops the caller's reference to it. A zeroed frame replaces the zero page.
///
/// Source: mm/memory.c:wp_page_copy (5.10 to 7.3).
fn wp_page_copy(
    env: &mut impl Env,
    fault: Fault,
    old: PresentPte,
    served: Served,
) -> Result<Served, Unserved> {
    let Fault { mm, page, .. } = fault;
    // 1. The new page, outside the page-table lock.
    let new = with_frames(env, Site::WpPageCopy, copied(fault), |w, at, door| {
        if old.special() {
            let door = door.with(FrameFlags::ZERO_FILLED);
            return allocate_zeroed(w, at, page, &door).map(|new| (new, None));
        }
        if w.policies.mutant == Mutant::CopyUnreferenced {
            w.get_frame(at, old.pfn);
        }
        copy_page(w, at, fault, old.pfn, &door).map(|(new, seq)| (new, Some(seq)))
    });
    let (new, copy) = new.ok_or(Unserved::OutOfMemory)?;

    // 2. Under the lock, take the old translation away everywhere, then install the new one.
    let locked = pte_offset_map_lock(env, Site::PtepClearFlush, mm, page, |w, at| {
        let looks = w.policies.mutant != Mutant::CopyUnchecked;
        let current = !looks || w.pte(mm, page) == Pte::Present(old);
        if current {
            w.set_pte(at, mm, page, Pte::None);
        }
        current
    });
    let current = locked == Some(true);
    if current && env.policies().mutant != Mutant::CopyUnflushed {
        let caused_by = copy.and_then(|(seq, needless): (u64, bool)| needless.then_some(seq));
        flush_tlb_mm_range(
            env,
            FlushRequest { caused_by, ..FlushRequest::page(Site::PtepClearFlush, mm, page) },
        );
    }
    if current {
        env.step(Site::WpPageCopy, |w, at| {
            map_new_page(w, at, mm, page, new);
            let stores = !fault.unshare;
            let pte = new_pte(w, new, stores && !fault.forced, stores);
            let soft_dirty = if stores { pte.soft_dirty() } else { old.soft_dirty() };
            // A page that is only unshared stays write-protected by userfaultfd.
            let pte = pte.with(PteFlags::UFFD_WP, !stores && old.uffd_wp());
            w.set_pte(at, mm, page, Pte::Present(pte.with(PteFlags::SOFT_DIRTY, soft_dirty)));
            if w.is_of_file(old.pfn) {
                w.ghost.copied_from_file(mm, page, new);
            }
            if !old.special() {
                let locked = w.locks(mm, page);
                folio_remove_rmap(w, at, old.pfn, locked);
            }
        });
    }
    if locked.is_some() {
        pte_unmap_unlock(env, mm, page);
    }

    if current && !old.special() {
        left_locked(env, fault, old.pfn);
    }

    // 3. The references: the mapping's and ours to the old page, or the one to an unused new page.
    env.step(Site::FolioPut, |w, at| {
        if !current {
            w.put_frame(at, new);
        }
        if !old.special() {
            if current {
                w.put_frame(at, old.pfn);
                free_swap_cache(w, at, old.pfn);
            }
            w.put_frame(at, old.pfn);
        }
    });
    Ok(if current { served } else { Served::spurious() })
}

/// Munlocks the old page of a mapping that locks its pages, because its other mappings may not lock
/// it (5.10). Later kernels do this where the page loses its mapping.
///
/// Source: mm/memory.c:wp_page_copy (5.10).
fn left_locked(env: &mut impl Env, fault: Fault, old: Pfn) {
    let Fault { mm, page, .. } = fault;
    if !env.config().locks_memory || env.policies().mlock_pages == MlockPages::Batched {
        return;
    }
    env.lock(Lock::Folio(old));
    if env.step(Site::WpPageCopy, |w, _| w.locks(mm, page) && w.frames.mlocked(old).mlocked) {
        munlock_vma_page(env, old, None);
    }
    env.unlock(Lock::Folio(old));
}

/// A request for the frame of a copy of the page.
pub(super) const fn copied(fault: Fault) -> Request {
    Request::page(fault.mm, fault.page, FrameFlags::SWAP_BACKED)
}

/// Copies the old page into a new frame. Returns the frame, the number of the copy event, and
/// whether the copy was needless.
pub(super) fn copy_page<M: Mode>(
    w: &mut World<M>,
    at: At,
    fault: Fault,
    from: Pfn,
    door: &Door,
) -> Option<(Pfn, (u64, bool))> {
    let zeros = w.frames.flags(from).has(FrameFlags::ZERO_FILLED);
    let to = door.take(w, at)?;
    w.frames.set_flags(to, FrameFlags::ZERO_FILLED, zeros);
    w.ghost.copied(fault.mm, fault.page, from, to);
    let verdict = judge_copy(w, from);
    let seq = w.emit_judged(at, EventKind::Copy { page: fault.page, from, to }, verdict);
    Some((to, (seq, verdict.is_needless())))
}

/// Judges a copy: it is needed if anybody but the faulting mapping could ever observe the old page.
/// LRU batches do not count.
fn judge_copy<M: Mode>(w: &World<M>, old: Pfn) -> Verdict {
    let frame = w.frames.get(old);
    let batches = w.cpus.iter().flat_map(|cpu| cpu.batched()).filter(|pfn| *pfn == old).count();
    let swap_cache = u32::from(frame.flags.has(FrameFlags::SWAP_CACHE));
    let own = 1 + frame.maps + swap_cache;
    if frame.maps == 1 && swap_users(w, old) == 0 && frame.refs - own == batches as u32 {
        Verdict::new(Judgement::Needless, Reason::OnlyTransientReference)
    } else {
        Verdict::new(Judgement::Needed, Reason::OldPageShared)
    }
}

/// Judges a write fault: it is needless if write permission could have been granted when the PTE
/// was last written.
fn judge_fault<M: Mode>(w: &World<M>, pfn: Pfn, frame: Frame) -> Verdict {
    if frame.maps == 1 && swap_users(w, pfn) == 0 && !frame.flags.has(FrameFlags::CLAIMED) {
        Verdict::new(Judgement::Needless, Reason::CouldHaveBeenWritable)
    } else {
        Verdict::new(Judgement::Needed, Reason::WriteWasClaimed)
    }
}
