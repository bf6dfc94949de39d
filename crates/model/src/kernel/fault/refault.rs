//! A page comes back while its unmap still waits for a flush.
//!
//! Reclaim clears a PTE, defers the flush and lets the folio go. A fault then maps the page in
//! another frame. Until the flush, another CPU may read the old frame, whatever is stored to the
//! new one. Kernels do nothing about it. This file has what a fault could do. What reclaim could do
//! is in `reclaim.rs` and `unmap.rs`.
//!
//! Source: mm/memory.c:do_swap_page, do_anonymous_page, wp_page_reuse (5.10 to 7.3); the rules are
//! proposals (docs/findings/stale-read.md).

use crate::addr::{MmId, Vpn};
use crate::env::{Env, Learnt};
use crate::kernel::table::pte_offset_map_lock;
use crate::kernel::unmap_batch::flush_tlb_batched_pending;
use crate::machine::world::{At, World};
use crate::policy::RefaultFlush;
use crate::site::Site;

/// Locks the page table of `page` and maps the page by `map`. Unmaps of the page are counted under
/// the same lock. Before it maps, it flushes what is pending, if the kernel has such a rule.
/// `writable` says whether the page may then be stored to without another fault. If the table is
/// gone, nothing happens and no lock is held.
pub fn lock_and_map<E: Env, R: Learnt>(
    env: &mut E,
    site: Site,
    mm: MmId,
    page: Vpn,
    writable: impl FnOnce(&World<E::Mode>) -> bool,
    map: impl FnOnce(&mut World<E::Mode>, At) -> R,
) -> Option<R> {
    let any = match env.policies().refault_flush {
        RefaultFlush::Install => true,
        RefaultFlush::InstallWritable | RefaultFlush::Writable => false,
        RefaultFlush::Nothing | RefaultFlush::BeforeRemoval | RefaultFlush::RemovedAfter => {
            return pte_offset_map_lock(env, site, mm, page, map);
        }
    };
    if pte_offset_map_lock(env, site, mm, page, |w, _| any || writable(w))? {
        flush_tlb_batched_pending(env, mm);
    }
    Some(env.step(site, map))
}

/// Flushes what is pending before a mapped page becomes writable in place, if the kernel has such a
/// rule. The page-table lock is held. (A fault that copies flushes the page in any case:
/// `wp_page_copy`.)
pub fn flush_before_reuse(env: &mut impl Env, mm: MmId) {
    if env.policies().refault_flush == RefaultFlush::Writable {
        flush_tlb_batched_pending(env, mm);
    }
}
