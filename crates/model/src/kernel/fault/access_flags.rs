//! A fault on a page whose PTE already allows the access. The fault is spurious, or it sets the
//! accessed or the dirty bit.

use super::outcome::{Attempt, Fault, Served};
use crate::arch::{AccessedDirty, Flushes};
use crate::env::Env;
use crate::kernel::flush::{FlushRequest, flush_by_rule};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::world::Ghost;
use crate::policy::{DirtyRetry, Mutant, Policies, RetryFault};
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Whether the fault has `FAULT_FLAG_TRIED`. Two mutants keep the flag set on every fault.
pub fn counts_as_tried(env: &impl Env, fault: Fault) -> bool {
    let kept = matches!(env.policies().mutant, Mutant::TriedSticky | Mutant::TriedFirstKept);
    fault.attempt == Attempt::Tried || kept
}

/// Serves a fault whose PTE already allows the access. `seen` is the PTE before its table was
/// locked. A store marks the PTE accessed and dirty. A load marks it accessed where the processor
/// does not. A store then flushes where the architecture has a rule for that. A second try may find
/// the work of the first. It then flushes nothing for bits that were already set, except where
/// `dirty-retry` is `retry-flush`. By the proposal of July 2020 (`retry-fault`) it sets no bits
/// either.
///
/// Source: mm/memory.c:handle_pte_fault (5.10 to 7.3); arch/x86/mm/pgtable.c:ptep_set_access_flags,
/// arch/arm64/mm/fault.c:ptep_set_access_flags (a flush for a store only).
pub fn set_access_flags(env: &mut impl Env, fault: Fault, seen: PresentPte) -> Served {
    let Fault { mm, page, write, .. } = fault;
    let (by_fault, rules) = (env.arch().accessed_dirty == AccessedDirty::Fault, env.arch().flushes);
    let tried = counts_as_tried(env, fault);
    let Policies { retry_fault, dirty_retry, mutant, .. } = *env.policies();
    let first = matches!(mutant, Mutant::TriedFirst | Mutant::TriedFirstKept);
    let skips = match first {
        true => RetryFault::SkipUpdate,
        false => retry_fault,
    };
    let marked = marked(seen, write, tried.then_some(skips));
    let (used, updates) = (marked.unwrap_or(seen), marked.is_some());
    let asks = updates && (by_fault || rules.spurious != Flushes::Nobody);
    let locked = pte_offset_map_lock(env, Site::HandlePteFault, mm, page, |w, at| {
        let current = w.pte(mm, page) == Pte::Present(seen);
        if current && write && fault.attempt == Attempt::Tried {
            w.ghost.found_again(page, seen.dirty());
        }
        if current && updates && (write || by_fault) {
            w.set_pte(at, mm, page, Pte::Present(used));
        }
        current && asks
    });
    let changed = by_fault && used != seen && locked == Some(true);
    let found = tried && !changed && dirty_retry != DirtyRetry::RetryFlush;
    if write && locked == Some(true) && !found {
        let who = if changed { rules.granted } else { rules.spurious };
        let request = FlushRequest::page(Site::HandlePteFault, mm, page);
        let request = request.granting(changed || fault.attempt != Attempt::Tried);
        flush_by_rule(env, request, who);
    }
    if locked.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    if changed { Served::access_flag() } else { Served::spurious() }
}

/// Returns the entry with the bits that this try sets, or `None` if the try ends before it sets the
/// entry. `second` is the rule for a second try.
///
/// The three places at which a second try could end differ only in the try's own copy of the entry,
/// which nobody else sees.
fn marked(seen: PresentPte, write: bool, second: Option<RetryFault>) -> Option<PresentPte> {
    let mut entry = seen;
    if second == Some(RetryFault::SkipBeforeDirty) {
        return None;
    }
    if write {
        entry = entry.with(PteFlags::DIRTY, true);
    }
    if second == Some(RetryFault::SkipAfterWrite) {
        return None;
    }
    entry = entry.with(PteFlags::ACCESSED, true);
    // The RFC leaves out only the step that sets the entry.
    (second != Some(RetryFault::SkipUpdate)).then_some(entry)
}
