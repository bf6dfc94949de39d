//! LATR: CPUs are not interrupted. Each flushes by itself what others have recorded for it, at its
//! next scheduler tick, and when it switches to another address space. No kernel does this.
//!
//! A flush whose frames and addresses are left alone until then is not waited for
//! ([`leave_others`](crate::kernel::deferred::leave_others)). A batch's flush is: what follows it
//! copies the pages, writes them out or frees them. It ends once each CPU of the batch has had its
//! tick. All other flushes interrupt.
//!
//! The model has no clock, so ticks come where somebody waits for them. A tick at any other time
//! would show nothing new. It only makes a CPU forget translations, which a processor may do at any
//! time. And it may free frames that wait, which matters only to an allocation that finds no other
//! memory; that one waits for ticks. In the simulator a tick comes as soon as it is waited for.
//!
//! Four things differ from the code for 4.10. Instead of up to 256 records for each CPU there is
//! one batch for the machine, so that a frame also waits for CPUs that were recorded after it. A
//! CPU that sweeps flushes all of the address space that it has loaded, if it missed a flush of it.
//! A CPU that goes idle does not sweep, and waits for its tick. And the code interrupts after two
//! passes of a thread of its own, and frees pages after two seconds, where the model asks each CPU.
//!
//! Source: LATR, ASPLOS 2018 (doi 10.1145/3173162.3173198; its abstract was read), and its code for
//! 4.10 (github.com/sslab-gatech/latr): arch/x86/mm/tlb.c:native_flush_save_state,
//! native_flush_saved_states, called by kernel/sched/core.c:scheduler_tick, __schedule; read, not
//! run. (There batches of reclaim and migration still interrupt; the abstract names migration,
//! too.)

use crate::addr::CpuId;
use crate::env::{Env, Reach};
use crate::event::{EventKind, FlushReason};
use crate::kernel::deferred::swept;
use crate::machine::cpu::{Cpu, INIT_MM};
use crate::machine::cpuset::CpuSet;
use crate::machine::tlb::{FlushScope, Tlbs};
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{Mutant, Policies, Shootdown};
use crate::site::Site;
use crate::verdict::{Judgement, Reason, Verdict};

/// Whether CPUs flush by themselves.
#[inline(always)]
pub(in crate::kernel) fn sweeps(policies: &Policies) -> bool {
    policies.shootdown == Shootdown::Latr
}

/// Flushes on this CPU, and waits until each of the others has had its tick.
pub(super) fn wait_for_sweeps(env: &mut impl Env, mut cpus: CpuSet) {
    let (site, here) = (Site::FlushSavedStates, env.context().cpu);
    if cpus.contains(here) {
        env.step(site, |w, at| sweep(w, at, here));
        cpus.remove(here);
    }
    if env.policies().mutant != Mutant::SweepUnwaited {
        env.each(Reach::Interrupt, site, cpus, sweep);
    }
}

/// The CPU flushes what it has missed of the address space that it has loaded. Part of a step.
pub(super) fn sweep<M: Mode>(w: &mut World<M>, at: At, cpu: CpuId) {
    let c = &w.cpus[cpu.index()];
    let missed = c.local_gen() < w.mms[c.loaded.index()].tlb_gen;
    let Cpu { loaded, lazy, asid, running, .. } = *c;
    // A lazy CPU looks for what it has missed when it wakes up.
    if missed && loaded != INIT_MM && !lazy {
        let mm = &w.mms[loaded.index()];
        let verdict = match w.tlbs.may_be_stale(cpu, asid, loaded, mm, FlushScope::All) {
            true => Verdict::new(Judgement::Needed, Reason::StaleTranslations),
            false => Verdict::new(Judgement::Needless, Reason::NothingStale),
        };
        w.tlbs.flush(cpu, asid, FlushScope::All, mm);
        let tlb_gen = mm.tlb_gen;
        w.cpus[cpu.index()].slots[asid].tlb_gen = tlb_gen;
        w.ghost.structures_flushed(cpu, loaded);
        let at = At { cpu, running, site: Site::FlushSavedStates, ..at };
        let kind = EventKind::Flush { reason: FlushReason::LocalMm, pages: None, asked: None };
        w.emit_judged(at, kind, verdict);
    }
    swept(w, at, cpu);
}
