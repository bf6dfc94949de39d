//! TLB flushes: what kernel operations ask for, and whose code does it.
//!
//! A flush takes a right away on every CPU that may have it, whoever asks. What a change of a
//! translation costs beyond that is the architecture's rule ([`FlushRules`](crate::arch::FlushRules)), and how CPUs
//! are reached its code: [`x86`](super::x86).

use crate::addr::{MmId, PageRange, Vpn};
use crate::arch::{Flushes, TlbCode};
use crate::env::Env;
use crate::kernel::x86;
use crate::machine::cpuset::CpuSet;
use crate::machine::tlb::{FlushScope, Tlbs, is_stale};
use crate::pte::PresentPte;
use crate::site::Site;

/// The most that a flush's page-table changes took away.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Nothing: they grant more than before.
    Granted,
    /// Accessed bits.
    Aged,
    /// Translations or rights.
    Revoked,
}

impl Change {
    /// [`Change::Revoked`] if a translation made of `old` grants what `new` does not, else `otherwise`.
    pub fn of(old: PresentPte, new: PresentPte, otherwise: Change) -> Change {
        if is_stale(old, Some(new)) { Change::Revoked } else { otherwise }
    }
}

/// A flush that a kernel operation asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlushRequest {
    /// The function that asks.
    pub site: Site,
    /// The address space.
    pub mm: MmId,
    /// The pages; `None`: the whole address space.
    pub range: Option<PageRange>,
    /// Pages per invalidation, as a shift (0: base pages; the table index bits: 2 MiB).
    pub stride_shift: u32,
    /// What the caller says about freed tables, which decides whether lazy CPUs are asked.
    /// `flush_tlb_range()` and `flush_tlb_mm()` always say yes on x86.
    pub freed_tables: bool,
    /// Whether tables were in fact freed.
    pub tables_gone: bool,
    /// What it is for.
    pub change: Change,
    /// The needless event behind it, if any.
    pub caused_by: Option<u64>,
}

impl FlushRequest {
    /// `flush_tlb_mm`.
    pub const fn whole(site: Site, mm: MmId) -> FlushRequest {
        FlushRequest {
            site,
            mm,
            range: None,
            stride_shift: 0,
            freed_tables: true,
            tables_gone: false,
            change: Change::Revoked,
            caused_by: None,
        }
    }

    /// `flush_tlb_range`.
    pub const fn range(site: Site, mm: MmId, range: PageRange) -> FlushRequest {
        FlushRequest { range: Some(range), ..FlushRequest::whole(site, mm) }
    }

    /// `flush_tlb_page`.
    pub const fn page(site: Site, mm: MmId, page: Vpn) -> FlushRequest {
        FlushRequest { freed_tables: false, ..FlushRequest::range(site, mm, PageRange::one(page)) }
    }
}

/// Flushes part or all of an address space on every CPU that may hold it.
pub fn flush_tlb_mm_range(env: &mut impl Env, request: FlushRequest) {
    match env.arch().tlb_code {
        TlbCode::X86 => x86::flush::flush_tlb_mm_range(env, request),
    }
}

/// Flushes what a batched unmap put off, on the CPUs that it collected.
pub fn arch_tlbbatch_flush(env: &mut impl Env, site: Site, cpus: CpuSet) {
    match env.arch().tlb_code {
        TlbCode::X86 => x86::flush::arch_tlbbatch_flush(env, site, cpus),
    }
}

/// A fault changed the translation of a page in place, or found it as it should be: whoever has to
/// flush it by the architecture's rule does.
#[inline(always)]
pub fn flush_by_rule(env: &mut impl Env, site: Site, mm: MmId, page: Vpn, who: Flushes) {
    match who {
        Flushes::Nobody => {}
        Flushes::Local => env.step(site, |w, at| {
            let asid = w.cpus[at.cpu.index()].asid;
            let scope = FlushScope::Pages(PageRange::one(page), 0);
            w.tlbs.flush(at.cpu, asid, scope, &w.mms[mm.index()]);
        }),
        Flushes::Broadcast => flush_tlb_mm_range(env, FlushRequest::page(site, mm, page)),
    }
}
