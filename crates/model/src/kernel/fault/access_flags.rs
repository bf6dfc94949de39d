//! A fault on a page whose PTE allows the access: spurious, or there to set the accessed or the dirty bit.

use super::outcome::{Attempt, Fault, Served};
use crate::arch::{AccessedDirty, Flushes};
use crate::env::Env;
use crate::kernel::flush::{Change, FlushRequest, flush_by_rule};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::policy::DirtyRetry;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// The PTE, `seen` before it was locked, allows the access already. A store marks it accessed and dirty, a
/// load accessed where the processor does not; who has to know is told.
///
/// Source: mm/memory.c:handle_pte_fault (5.10 to 7.3); arch/x86/mm/pgtable.c:ptep_set_access_flags,
/// arch/arm64/mm/fault.c:ptep_set_access_flags (a flush for a store only).
pub fn set_access_flags(env: &mut impl Env, fault: Fault, seen: PresentPte) -> Served {
    let Fault { mm, page, write, .. } = fault;
    let (by_fault, rules) = (env.arch().accessed_dirty == AccessedDirty::Fault, env.arch().flushes);
    let asks = by_fault || rules.spurious != Flushes::Nobody;
    let used = seen.with(PteFlags::ACCESSED, true).with(PteFlags::DIRTY, write);
    let locked = pte_offset_map_lock(env, Site::HandlePteFault, mm, page, |w, at| {
        let current = w.pte(mm, page) == Pte::Present(seen);
        if current && (write || by_fault) {
            w.set_pte(at, mm, page, Pte::Present(used));
        }
        current && asks
    });
    let changed = by_fault && used != seen && locked == Some(true);
    // What was tried again has found its own work (FAULT_FLAG_TRIED).
    let found = fault.attempt == Attempt::Tried
        && !changed
        && env.policies().dirty_retry != DirtyRetry::RetryFlush;
    if write && locked == Some(true) && !found {
        let who = if changed { rules.granted } else { rules.spurious };
        let request = FlushRequest::page(Site::HandlePteFault, mm, page).of(Change::Granted);
        flush_by_rule(env, request, who);
    }
    if locked.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    if changed { Served::access_flag() } else { Served::spurious() }
}
