//! Before a page table is taken away, waits for walks that may be reading it without a lock.
//!
//! Such walks run with interrupts off ([`crate::machine::lockless`]), so one interrupt to each of
//! their CPUs is enough. Where flushes are interrupts, the flush before may have done that already.
//! The policy `table-sync` says whether the kernel relies on it.

use crate::addr::MmId;
use crate::env::{Env, Reach};
use crate::event::EventKind;
use crate::machine::cpuset::CpuSet;
use crate::machine::world::{At, Mode, World};
use crate::policy::TableSync;
use crate::site::Site;

/// Waits until no CPU is in a walk that began before this call.
///
/// Source: mm/mmu_gather.c:tlb_remove_table_sync_one (6.1 to 7.3: smp_call_function),
/// tlb_remove_table_sync_rcu (7.2, 7.3).
pub fn tlb_remove_table_sync_one(env: &mut impl Env, mm: MmId) {
    let rule = env.policies().table_sync;
    if rule == TableSync::Implied {
        return;
    }
    let interrupts = rule != TableSync::Rcu;
    let others = env.step(Site::TlbRemoveTableSyncOne, |w, at| {
        let others = others(w, at, mm, rule);
        if interrupts {
            others.iter().for_each(|to| _ = w.emit(at, EventKind::TableSync { to }));
        }
        others
    });
    let site = if interrupts { Site::TlbRemoveTableSmpSync } else { Site::SynchronizeRcu };
    env.each(Reach::Interrupt, site, others, |_, _, _| ());
}

/// The CPUs to wait for.
fn others<M: Mode>(w: &World<M>, at: At, mm: MmId, rule: TableSync) -> CpuSet {
    let mut others = match rule {
        TableSync::Targeted => w.mms[mm.index()].cpumask.clone(),
        TableSync::Implied | TableSync::Broadcast | TableSync::Rcu => w.all_cpus(),
    };
    others.remove(at.cpu);
    others
}
