//! Flushes without interrupts on x86: `INVLPGB`, an instruction of AMD processors that all CPUs
//! obey, and `TLBSYNC`, which waits until they have.
//!
//! Invalidations name an identifier (ASID) that all CPUs must have for the same address space.
//! There are few, so that only address spaces get one that many CPUs were found to use
//! ([`consider_global_asid`]). A CPU that comes back to such an address space flushes nothing.
//!
//! Three things are simplified. The kernel looks for such address spaces in one timer tick of 32;
//! here it looks after each flush that interrupted others. CPUs take up the new identifier at once,
//! where the kernel interrupts them one more time. And a CPU keeps one of its own slots for such an
//! address space, which another one may take over later.
//!
//! Source: arch/x86/mm/tlb.c:consider_global_asid, broadcast_tlb_flush, arch_tlbbatch_flush (6.15),
//! arch/x86/include/asm/tlb.h; AMD64 Architecture Programmer's Manual, volume 3, INVLPGB.

use super::flush::Info;
use crate::addr::{CpuId, MmId};
use crate::env::{Env, Reach};
use crate::event::{EventKind, Tlbi};
use crate::kernel::flush_verdict::scope;
use crate::machine::cpuset::CpuSet;
use crate::machine::tlb::{FlushScope, Tlbs};
use crate::machine::world::{Ghost, Mode, World};
use crate::policy::{Policies, Shootdown};
use crate::site::Site;

/// An address space that more CPUs than these use at once gets an identifier of its own.
const FEW_CPUS: usize = 3;

/// Whether flushes of the address space are instructions.
pub(super) fn reaches(env: &mut impl Env, mm: MmId) -> bool {
    match env.policies().shootdown {
        Shootdown::Interrupts | Shootdown::Latr | Shootdown::Coherent => false,
        Shootdown::Invlpgb | Shootdown::InvlpgbAll => {
            env.step(Site::FlushTlbMmRange, |w, _| is_global(w, mm))
        }
    }
}

/// Whether all CPUs have the address space under one identifier.
#[inline(always)]
pub(in crate::kernel) fn is_global<M: Mode>(w: &World<M>, mm: MmId) -> bool {
    match w.policies.shootdown {
        Shootdown::Interrupts | Shootdown::Latr | Shootdown::Coherent => false,
        Shootdown::Invlpgb => w.mms[mm.index()].global_since.is_some(),
        Shootdown::InvlpgbAll => true,
    }
}

/// The generation that a CPU's slot must have reached for the CPU to come back to the address space
/// without a flush. If all CPUs have one identifier for it, that is the generation at which they
/// got it: instructions have invalidated all that was revoked since.
#[inline(always)]
pub(in crate::kernel) fn wanted_gen<M: Mode>(w: &World<M>, mm: MmId) -> u64 {
    let mm = &w.mms[mm.index()];
    match w.policies.shootdown {
        Shootdown::Interrupts | Shootdown::Latr | Shootdown::Coherent => mm.tlb_gen,
        Shootdown::Invlpgb => mm.global_since.unwrap_or(mm.tlb_gen),
        Shootdown::InvlpgbAll => 0,
    }
}

/// The CPUs that have an identifier for the address space; others have nothing of it cached.
pub(super) fn holders<M: Mode>(w: &World<M>, mm: MmId) -> impl Iterator<Item = CpuId> + Clone {
    let cpus = w.cpus.iter().enumerate();
    let holds = cpus.filter(move |(_, cpu)| cpu.slot_of(mm).is_some());
    holds.map(|(index, _)| CpuId(index as u16))
}

/// Invalidates the flush's pages on every CPU, and waits.
pub(super) fn broadcast_tlb_flush(env: &mut impl Env, info: &Info, mm: MmId) {
    let holders = env.step(Site::BroadcastTlbFlush, |w, at| {
        let pages = info.range.map(|range| (range.pages() >> info.stride_shift) as u32);
        let kind = EventKind::Tlbi { operation: Tlbi::Invlpgb, pages, single: 1, ranged: 0 };
        w.emit_judged(at.site(info.site), kind, info.verdict);
        cpus(holders(w, mm))
    });
    env.each(Reach::Broadcast, Site::TlbiBroadcast, holders, |w, _, cpu| {
        let what = scope(info.range, info.stride_shift);
        obey(w, cpu, mm, what);
    });
}

/// Invalidates everything on every CPU, whatever its identifier, and waits: the flush of a batch.
pub(super) fn flush_all_nonglobals(env: &mut impl Env, info: &Info) {
    let all = env.step(Site::BroadcastTlbFlush, |w, at| {
        let kind = EventKind::Tlbi { operation: Tlbi::Invlpgb, pages: None, single: 1, ranged: 0 };
        w.emit_judged(at.site(info.site), kind, info.verdict);
        cpus((0..w.cpus.len()).map(|cpu| CpuId(cpu as u16)))
    });
    env.each(Reach::Broadcast, Site::TlbiBroadcast, all, |w, _, cpu| {
        let spaces = (0..w.mms.len()).map(|index| MmId(index as u16));
        spaces.for_each(|mm| obey(w, cpu, mm, FlushScope::All));
    });
}

/// Whether a batch is flushed by an instruction.
pub(super) fn flushes_batches(policies: &Policies) -> bool {
    matches!(policies.shootdown, Shootdown::Invlpgb | Shootdown::InvlpgbAll)
}

/// An address space that many CPUs use gets an identifier for all of them. Its flush has
/// interrupted some of them just now.
pub(super) fn consider_global_asid(env: &mut impl Env, mm: MmId) {
    if env.policies().shootdown == Shootdown::Invlpgb {
        env.step(Site::ConsiderGlobalAsid, |w, _| {
            let active = w.cpus.iter().filter(|cpu| cpu.loaded == mm && !cpu.lazy).count();
            let mm = &mut *w.mms[mm.index()];
            if active > FEW_CPUS && mm.global_since.is_none() {
                mm.global_since = Some(mm.tlb_gen);
            }
        });
    }
}

/// One CPU carries out an invalidation.
fn obey<M: Mode>(w: &mut World<M>, cpu: CpuId, mm: MmId, what: FlushScope) {
    if let Some(asid) = w.cpus[cpu.index()].slot_of(mm) {
        w.tlbs.flush(cpu, asid, what, &w.mms[mm.index()]);
        w.ghost.structures_flushed(cpu, mm);
    }
}

fn cpus(of: impl Iterator<Item = CpuId>) -> CpuSet {
    let mut set = CpuSet::default();
    of.for_each(|cpu| set.insert(cpu));
    set
}
