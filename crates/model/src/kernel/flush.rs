//! TLB flushes: what kernel operations ask for, and which architecture's code does it.
//!
//! A flush takes a right away on every CPU that may have it, whichever operation asks. What else a
//! change of a translation costs is the architecture's rule
//! ([`FlushRules`](crate::arch::FlushRules)). How CPUs are reached is the architecture's code:
//! [`x86`](super::x86), [`arm64`](super::arm64).

use crate::addr::{MmId, PageRange, Vpn};
use crate::arch::{Flushes, TlbCode};
use crate::env::Env;
use crate::kernel::flush_verdict::scope;
use crate::kernel::switch::switch_mm;
use crate::kernel::{arm64, x86};
use crate::machine::cpu::INIT_MM;
use crate::machine::cpuset::CpuSet;
use crate::machine::tlb::{Tlbs, is_stale};
use crate::machine::unmap_batch::Batch;
use crate::machine::world::{At, Mode, World};
use crate::policy::{Arm64Pending, Arm64Unmap, Shootdown};
use crate::pte::PresentPte;
use crate::site::Site;

/// The strongest change that the page-table writes behind a flush made.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// They took nothing away: they only granted more.
    Granted,
    /// They cleared accessed bits.
    Aged,
    /// They removed translations or rights.
    Revoked,
}

impl Change {
    /// [`Change::Revoked`] if a translation made from `old` grants what `new` does not, else
    /// `otherwise`.
    pub fn of(old: PresentPte, new: PresentPte, otherwise: Change) -> Change {
        if is_stale(old, Some(new)) { Change::Revoked } else { otherwise }
    }
}

/// A flush that a kernel operation asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlushRequest {
    /// The function that asks.
    pub site: Site,
    /// The address space to flush.
    pub mm: MmId,
    /// The pages to flush; `None`: the whole address space.
    pub range: Option<PageRange>,
    /// Pages per invalidation, as a shift (0: base pages; the table index bits: 2 MiB).
    pub stride_shift: u32,
    /// The caller's claim that tables were freed. It decides whether lazy CPUs are interrupted. On
    /// x86, `flush_tlb_range()` and `flush_tlb_mm()` always claim it.
    pub freed_tables: bool,
    /// Whether tables were in fact freed.
    pub tables_gone: bool,
    /// The change that the flush is for.
    pub change: Change,
    /// Whether this CPU has just faulted on the entry, and may still hold it in its TLB.
    pub faulted: bool,
    /// Whether other CPUs may flush later, because what they have cached stays as it is until then
    /// ([`leave_others`](super::deferred::leave_others)).
    pub may_wait: bool,
    /// The needless event that caused it, if any.
    pub caused_by: Option<u64>,
}

impl FlushRequest {
    /// `flush_tlb_mm`: all pages of `mm`.
    pub const fn whole(site: Site, mm: MmId) -> FlushRequest {
        FlushRequest {
            site,
            mm,
            range: None,
            stride_shift: 0,
            freed_tables: true,
            tables_gone: false,
            change: Change::Revoked,
            faulted: false,
            may_wait: false,
            caused_by: None,
        }
    }

    /// `flush_tlb_range`: the pages of `range`.
    pub const fn range(site: Site, mm: MmId, range: PageRange) -> FlushRequest {
        FlushRequest { range: Some(range), ..FlushRequest::whole(site, mm) }
    }

    /// `flush_tlb_page`: one page.
    pub const fn page(site: Site, mm: MmId, page: Vpn) -> FlushRequest {
        FlushRequest { freed_tables: false, ..FlushRequest::range(site, mm, PageRange::one(page)) }
    }

    /// This request, for `change` instead of [`Change::Revoked`].
    #[must_use]
    pub const fn of(self, change: Change) -> FlushRequest {
        FlushRequest { change, ..self }
    }

    /// This request, for an access that the page's entry allows. `faulted`: the entry allows it
    /// only by now, and the CPU may still hold the old one.
    #[must_use]
    pub const fn granting(self, faulted: bool) -> FlushRequest {
        FlushRequest { change: Change::Granted, faulted, ..self }
    }
}

/// Flushes part or all of an address space on every CPU that may hold it.
pub fn flush_tlb_mm_range(env: &mut impl Env, request: FlushRequest) {
    match env.arch().tlb_code {
        // The hardware did it when the entries changed (`World::drop_cached`).
        TlbCode::X86 if env.policies().shootdown == Shootdown::Coherent => {}
        TlbCode::X86 => x86::flush::flush_tlb_mm_range(env, request),
        TlbCode::Arm64(_) => arm64::flush::flush_tlb_mm_range(env, request),
    }
}

/// The flush of a gather. `full_mm`: the address space ends.
///
/// Source: arch/arm64/include/asm/tlb.h:tlb_flush (5.10 to 7.3). Nobody can use an address space
/// that ends, and its identifier is given to another one only after everything was flushed. So one
/// flush of all of it is enough: before its tables are freed or, if the scenario had none there, at
/// its end ([`flush_tlb_exit`]).
pub fn tlb_flush(env: &mut impl Env, request: FlushRequest, full_mm: bool) {
    match env.arch().tlb_code {
        TlbCode::Arm64(_) if full_mm => {
            if request.tables_gone {
                let whole = FlushRequest::whole(Site::ExitMmap, request.mm);
                flush_tlb_mm_range(env, FlushRequest { tables_gone: true, ..whole });
                env.step(Site::ExitMmap, |w, _| w.mms[request.mm.index()].flushed_at_exit = true);
            }
        }
        _ => flush_tlb_mm_range(env, request),
    }
}

/// Whether deferring the flush of a page that reclaim unmaps is worthwhile.
///
/// Source: mm/rmap.c:should_defer_flush (5.10, 6.1), arch_tlbbatch_should_defer (6.12, 7.3). On x86
/// it is not if only this CPU can hold the translation. On arm64 it always is, in kernels that
/// defer there at all.
pub fn arch_tlbbatch_should_defer<M: Mode>(w: &World<M>, at: At, mm: MmId) -> bool {
    match w.arch.tlb_code {
        TlbCode::X86 if w.policies.shootdown == Shootdown::Coherent => false,
        TlbCode::X86 => w.mms[mm.index()].cpumask.any_but(at.cpu),
        TlbCode::Arm64(_) => w.policies.arm64_unmap == Arm64Unmap::Unwaited,
    }
}

/// Defers the flush of the PTE of `page` into the batch. `writable`: the PTE was dirty.
pub fn arch_tlbbatch_add_pending(
    env: &mut impl Env,
    batch: Batch,
    mm: MmId,
    page: Vpn,
    writable: bool,
) {
    match env.arch().tlb_code {
        TlbCode::X86 => x86::flush::arch_tlbbatch_add_pending(env, batch, mm, writable),
        TlbCode::Arm64(_) => {
            arm64::flush::arch_tlbbatch_add_pending(env, batch, (mm, page), writable)
        }
    }
}

/// Does the flush that a batched unmap deferred: on x86 on the CPUs that the batch collected, on
/// arm64 of its pages.
pub fn arch_tlbbatch_flush(env: &mut impl Env, site: Site, cpus: CpuSet, pages: &[(MmId, Vpn)]) {
    match env.arch().tlb_code {
        TlbCode::X86 => x86::flush::arch_tlbbatch_flush(env, site, cpus),
        TlbCode::Arm64(_) => arm64::flush::arch_tlbbatch_flush(env, site, pages),
    }
}

/// A walk has found the mark of an unmap whose batch is not flushed yet.
///
/// Source: mm/rmap.c:flush_tlb_batched_pending (5.10), arch_flush_tlb_batched_pending (6.12 to
/// 7.3).
pub fn arch_flush_tlb_batched_pending(env: &mut impl Env, mm: MmId) {
    let site = Site::FlushTlbBatchedPending;
    match (env.arch().tlb_code, env.policies().arm64_pending) {
        (TlbCode::Arm64(_), Arm64Pending::Dsb) => arm64::flush::wait_for_own(env, site),
        _ => flush_tlb_mm_range(env, FlushRequest::whole(site, mm)),
    }
}

/// The last flush of an address space that has ended, before its tables are freed. The CPU that ran
/// it leaves it.
///
/// Source: mm/mmap.c:exit_mmap, with tlb_gather_mmu_fullmm; arch/arm64/include/asm/tlb.h:tlb_flush
/// (5.10 to 7.3). On x86 the flush makes a lazy CPU leave. On arm64 it is the only flush of the
/// address space's end, and no CPU has to leave.
pub fn flush_tlb_exit(env: &mut impl Env, mm: MmId) {
    let arm64 = matches!(env.arch().tlb_code, TlbCode::Arm64(_));
    let (loaded, flushed) = env.step(Site::ExitMmap, |w, at| {
        (w.has_loaded(at.cpu, mm), w.mms[mm.index()].flushed_at_exit)
    });
    if arm64 && !flushed || !arm64 && loaded {
        let whole = FlushRequest::whole(Site::ExitMmap, mm);
        flush_tlb_mm_range(env, FlushRequest { tables_gone: true, ..whole });
    }
    // Where nobody is interrupted, the flush makes no CPU leave.
    let stays = matches!(env.policies().shootdown, Shootdown::InvlpgbAll | Shootdown::Coherent);
    if (arm64 || stays) && loaded {
        env.step(Site::ExitMmap, |w, at| switch_mm(w, at, at.cpu, INIT_MM));
    }
}

/// Flushes as the architecture's rule says after a fault that changed a page's translation in
/// place, or found it correct already.
#[inline(always)]
pub fn flush_by_rule(env: &mut impl Env, request: FlushRequest, who: Flushes) {
    match (who, env.arch().tlb_code) {
        (Flushes::Nobody, _) => {}
        (Flushes::Local, TlbCode::X86) if env.policies().shootdown == Shootdown::Coherent => {}
        (Flushes::Local, TlbCode::X86) => env.step(request.site, |w, at| {
            let asid = w.cpus[at.cpu.index()].asid;
            let scope = scope(request.range, request.stride_shift);
            w.tlbs.flush(at.cpu, asid, scope, &w.mms[request.mm.index()]);
        }),
        (Flushes::Local, TlbCode::Arm64(_)) => arm64::flush::flush_tlb_page_local(env, request),
        (Flushes::BroadcastUnwaited, TlbCode::Arm64(_)) => {
            arm64::flush::flush_tlb_page_nosync(env, request)
        }
        (Flushes::Broadcast, _) | (Flushes::BroadcastUnwaited, TlbCode::X86) => {
            flush_tlb_mm_range(env, request);
        }
    }
}
