//! NUMA balancing samples pages: it takes their translations away, so that the next access to each
//! faults and shows which node uses it ([`super::fault::hint`]).
//!
//! A thread makes a pass when the scheduler's tick finds it running. The scenario chooses when that
//! is (`numa-scan`). This file decides which pages the pass leaves out.
//!
//! Source: kernel/sched/fair.c:task_numa_work, mm/mempolicy.c:change_prot_numa,
//! mm/mprotect.c:change_pte_range with MM_CP_PROT_NUMA (5.10: prot_numa; 6.1, 6.12).

use crate::addr::{MmId, PageRange};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::protect::{To, change_protection_alone};
use crate::machine::vma::Vma;
use crate::machine::world::{Mode, World};
use crate::numa::Balancing;
use crate::policy::{HintWrite, NumaShared};
use crate::program::Prot;
use crate::pte::{PresentPte, PteFlags};
use crate::site::Site;

/// Samples the pages of the range, mapping by mapping. Fails if there was no page to sample.
pub fn task_numa_work(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<(), Errno> {
    env.lock(Lock::MmapRead(mm));
    let (mut rest, mut sampled) = (range, false);
    while let Some(part) = env.step(Site::TaskNumaWork, |w, _| next_mapping(w, mm, rest)) {
        sampled |= change_protection_alone(env, mm, part, To::Sampled);
        rest.start = part.end;
    }
    env.unlock(Lock::MmapRead(mm));
    if sampled { Ok(()) } else { Err(Errno::NoneSampled) }
}

/// The first mapping in `rest` that permits any access.
fn next_mapping<M: Mode>(w: &World<M>, mm: MmId, rest: PageRange) -> Option<PageRange> {
    let accessible = |vma: &Vma| vma.prot != Prot::None && !vma.range.is_empty();
    let found = w.mms[mm.index()].vmas_in(rest).find(accessible);
    found.map(|vma| vma.range)
}

/// The PTE that samples the page; `None`: the page is left out.
///
/// The model's processes count as having more than one thread (`mm_users`). So pages on the node of
/// the sampling thread are sampled as well.
pub fn sampled<M: Mode>(w: &mut World<M>, old: PresentPte) -> Option<PresentPte> {
    if old.protnone() || old.special() {
        return None;
    }
    let folio = w.frames.folio(old.pfn).0;
    // Pages that several processes may copy are left out: their future node is unknown.
    let shared = match w.policies.numa_shared {
        NumaShared::References => w.frames.get(folio).refs != 1,
        NumaShared::Mappings => w.frames.folio_maps(folio) > 1,
    };
    let fast = w.nodes.is_top_tier(w.nodes.of_frame(folio));
    if shared || fast && w.config.balancing != Balancing::On {
        return None;
    }
    if !fast && let Some(tiers) = &mut w.tiers {
        tiers.sample(folio);
    }
    let keeps = w.policies.hint_write == HintWrite::Saved;
    let sampled = old.with(PteFlags::PROTNONE, true);
    Some(if keeps { sampled } else { sampled.without(PteFlags::WRITABLE) })
}
