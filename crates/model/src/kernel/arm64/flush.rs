//! TLB flushes on arm64: `TLBI` instructions, which all CPUs obey in their own time, and the `DSB`
//! that waits for them.
//!
//! No CPU is interrupted, and the kernel does not track which CPUs have the address space. A `DSB`
//! before the invalidations makes the changes visible to walks.
//!
//! Source: arch/arm64/include/asm/tlbflush.h, tlb.h of 5.10, 6.1, 6.12, 7.2 and 7.3.

use super::barrier::dsb;
use crate::addr::{CpuId, MmId, PageRange, Vpn};
use crate::arch::{Arch, Invalidation, TlbCode};
use crate::env::{Env, Reach};
use crate::event::{Dsb, EventKind, Tlbi};
use crate::kernel::flush::FlushRequest;
use crate::kernel::flush_verdict::{judge, left_out, scope};
use crate::machine::cpuset::CpuSet;
use crate::machine::tlb::{FlushScope, Tlbs};
use crate::machine::unmap_batch::{Batch, Invalidated};
use crate::machine::world::{Ghost, Mode, World};
use crate::policy::{Arm64Limit, Arm64Ranges, Arm64Whole};
use crate::site::Site;

/// The largest number of pages that ranges invalidate, as a power of two (`MAX_TLBI_RANGE_PAGES`).
const RANGE_ORDER: u32 = 21;
/// The alignment of a range's start if addresses have 52 bits, in pages (64 KiB).
const WIDE_BORDER: u64 = 16;
/// The number of scales. A range has `number << (5 * scale + 1)` pages, with a number up to 32.
const SCALES: u32 = 4;

/// Invalidates part or all of an address space on every CPU, and waits.
pub fn flush_tlb_mm_range(env: &mut impl Env, request: FlushRequest) {
    if let Some(what) = invalidate(env, &request) {
        let mm = request.mm;
        let holders = env.step(Site::FlushTlbMmRange, |w, _| holders(w, mm));
        env.each(Reach::Broadcast, Site::TlbiBroadcast, holders, |w, _, cpu| {
            obey(w, cpu, mm, what)
        });
        let whole = what.0 == FlushScope::All && request.range.is_some();
        let twice = whole && env.policies().arm64_whole == Arm64Whole::Twice;
        env.step(request.site, |w, at| dsb(w, at, Dsb::Ish, 1 + u32::from(twice)));
    }
}

/// Invalidates without waiting (`flush_tlb_page_nosync`): a CPU that still holds an old accessed
/// bit does no harm.
pub fn flush_tlb_page_nosync(env: &mut impl Env, request: FlushRequest) {
    if let Some(what) = invalidate(env, &request) {
        let mm = request.mm;
        env.step(request.site, |w, _| {
            holders(w, mm).iter().for_each(|cpu| obey(w, cpu, mm, what));
        });
    }
}

/// Invalidates a page on this CPU only (TLBF_NOBROADCAST).
pub fn flush_tlb_page_local(env: &mut impl Env, request: FlushRequest) {
    let invalidation = invalidation(env.arch());
    env.step(request.site, |w, at| {
        let mm = request.mm;
        let here = holders(w, mm);
        let here = here.iter().filter(|cpu| *cpu == at.cpu);
        let verdict = judge(w, &request, request.range, here);
        if left_out(w, at, verdict) {
            return;
        }
        dsb(w, at, Dsb::Nshst, 1);
        let single = times(1, invalidation);
        let kind = EventKind::Tlbi { operation: Tlbi::Vale1, pages: Some(1), single, ranged: 0 };
        w.emit_judged(at, kind, verdict);
        obey(w, at.cpu, mm, (scope(request.range, 0), false));
        dsb(w, at, Dsb::Nsh, 1);
    });
}

/// Invalidates a page that reclaim unmaps, after its PTE was cleared. The batch waits for that
/// later.
pub fn arch_tlbbatch_add_pending(
    env: &mut impl Env,
    batch: Batch,
    (mm, page): (MmId, Vpn),
    writable: bool,
) {
    let request = FlushRequest::page(Site::ArchTlbbatchAddPending, mm, page);
    let issued = invalidate(env, &request).is_some();
    env.step(Site::ArchTlbbatchAddPending, |w, at| {
        let batch = w.unmap_batch_mut(batch, at.thread);
        batch.pages.extend(issued.then_some((mm, page)));
        batch.issuer = Some(at.cpu);
        batch.put_off(writable);
    });
}

/// Waits for the invalidations of a batch. Before this, CPUs may not have obeyed.
pub fn arch_tlbbatch_flush(env: &mut impl Env, site: Site, pages: &[(MmId, Vpn)]) {
    for &(mm, page) in pages {
        let holders = env.step(Site::ArchTlbbatchFlush, |w, _| holders(w, mm));
        let what = (FlushScope::Pages(PageRange::one(page), 0), false);
        env.each(Reach::Broadcast, Site::TlbiBroadcast, holders, |w, _, cpu| {
            obey(w, cpu, mm, what)
        });
    }
    env.step(site, |w, at| dsb(w, at, Dsb::Ish, 1));
}

/// Waits for what this CPU has issued (`arch_flush_tlb_batched_pending` before 6.12.35 and 6.16). A
/// DSB completes the TLBIs of the CPU that executes it, and no others (Arm ARM, D8.17, "Completion
/// of TLB maintenance").
pub fn wait_for_own(env: &mut impl Env, site: Site) {
    let own = env.step(site, |w, at| {
        let batches = w.tasks.iter().map(|task| &task.unmap_batch);
        let own = batches.filter(|batch| batch.issuer == Some(at.cpu));
        own.flat_map(|batch| batch.pages.iter().copied()).collect::<Invalidated>()
    });
    arch_tlbbatch_flush(env, site, &own);
}

/// Issues the invalidations of a flush. Returns their scope, and whether they also invalidate
/// entries of upper tables. `None`: the flush is left out.
fn invalidate(env: &mut impl Env, request: &FlushRequest) -> Option<(FlushScope, bool)> {
    let (arch, order) = (*env.arch(), env.policies().arm64_ranges);
    let limit = env.policies().arm64_limit;
    let part = request.range.filter(|range| !is_too_much(&arch, (order, limit), request, *range));
    env.step(Site::FlushTlbMmRange, |w, at| {
        let verdict = judge(w, request, part, holders(w, request.mm).iter());
        if left_out(w, at, verdict) {
            return None;
        }
        let at = at.site(request.site);
        dsb(w, at, Dsb::Ishst, 1);
        w.emit_judged(at, instructions(&arch, order, request, part), verdict);
        let pages = part.map(|range| whole_strides(request, range));
        Some((scope(pages, request.stride_shift), pages.is_none() || request.freed_tables))
    })
}

/// Makes one CPU obey. `tables`: entries of the tables above the pages go as well.
fn obey<M: Mode>(w: &mut World<M>, cpu: CpuId, mm: MmId, (scope, tables): (FlushScope, bool)) {
    let asid = mm.index();
    w.tlbs.flush(cpu, asid, scope, &w.mms[mm.index()]);
    if tables {
        w.ghost.structures_flushed(cpu, mm);
    }
}

/// The CPUs that have ever loaded the address space. Other CPUs cannot hold any of its
/// translations.
fn holders<M: Mode>(w: &World<M>, mm: MmId) -> CpuSet {
    let mut all = CpuSet::default();
    let has = |cpu: &CpuId| w.cpus[cpu.index()].slots[mm.index()].mm == Some(mm);
    let cpus = (0..w.cpus.len()).map(|cpu| CpuId(cpu as u16));
    cpus.filter(has).for_each(|cpu| all.insert(cpu));
    all
}

fn invalidation(arch: &Arch) -> Invalidation {
    match arch.tlb_code {
        TlbCode::Arm64(invalidation) => invalidation,
        TlbCode::X86 => Invalidation { ranges: false, wide: false, twice: false },
    }
}

/// Whether the range is too large, so that the whole address space is invalidated instead.
fn is_too_much(
    arch: &Arch,
    (order, limit): (Arm64Ranges, Arm64Limit),
    request: &FlushRequest,
    range: PageRange,
) -> bool {
    let pages = whole_strides(request, range).pages();
    let for_ranges = match order {
        Arm64Ranges::Ascending => pages >= 1 << RANGE_ORDER,
        Arm64Ranges::Descending => pages > 1 << RANGE_ORDER,
    };
    match invalidation(arch).ranges {
        true => for_ranges,
        false => {
            let one_by_one = pages >> request.stride_shift > arch.flush_ceiling;
            one_by_one || limit == Arm64Limit::OnAll && for_ranges
        }
    }
}

/// The range, extended to whole strides.
fn whole_strides(request: &FlushRequest, range: PageRange) -> PageRange {
    let stride = 1 << request.stride_shift;
    let (start, end) = (range.start.0 / stride * stride, range.end.0.next_multiple_of(stride));
    PageRange { start: Vpn(start), end: Vpn(end) }
}

/// The instructions that a flush executes. If tables were freed, or may have been, the instructions
/// also invalidate entries of upper tables.
fn instructions(
    arch: &Arch,
    order: Arm64Ranges,
    request: &FlushRequest,
    part: Option<PageRange>,
) -> EventKind {
    let invalidation = invalidation(arch);
    let Some(range) = part else {
        let (operation, single) = (Tlbi::Aside1is, times(1, invalidation));
        return EventKind::Tlbi { operation, pages: None, single, ranged: 0 };
    };
    let range = whole_strides(request, range);
    let operation = if request.freed_tables { Tlbi::Vae1is } else { Tlbi::Vale1is };
    let (single, ranged) = match order {
        Arm64Ranges::Ascending => ascending(invalidation, range, request.stride_shift),
        Arm64Ranges::Descending => descending(invalidation, range, request.stride_shift),
    };
    EventKind::Tlbi {
        operation,
        pages: Some(range.pages() as u32),
        single: times(single, invalidation),
        ranged: times(ranged, invalidation),
    }
}

const fn times(invalidations: u32, how: Invalidation) -> u32 {
    if how.twice { 2 * invalidations } else { invalidations }
}

/// The number of invalidations of single addresses and of ranges: an odd page first, then ranges
/// from small to large. Each range is a multiple of its scale's pages.
fn ascending(how: Invalidation, range: PageRange, stride_shift: u32) -> (u32, u32) {
    let pages = range.pages();
    if !how.ranges {
        return ((pages >> stride_shift) as u32, 0);
    }
    let odd = (pages & 1) as u32;
    let part = |scale: &u32| (pages - u64::from(odd)) >> (5 * scale + 1) & 31 > 0;
    (odd, (0..SCALES).filter(part).count() as u32)
}

/// The numbers for ranges from large to small, with the rest of an odd number last. Pages before a
/// border at which a range may begin are invalidated one by one.
fn descending(how: Invalidation, range: PageRange, stride_shift: u32) -> (u32, u32) {
    let (mut at, mut scale) = (range.start.0, SCALES);
    let (mut single, mut ranged) = (0, 0);
    while at < range.end.0 {
        let left = range.end.0 - at;
        let misplaced = how.wide && at % WIDE_BORDER != 0;
        if !how.ranges || left == 1 || misplaced || scale == 0 {
            single += 1;
            at += 1 << stride_shift;
            continue;
        }
        scale -= 1;
        let unit = 5 * scale + 1;
        let number = (left >> unit).min(32);
        ranged += u32::from(number > 0);
        at += number << unit;
    }
    (single, ranged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out by hand from the loops of 6.1 and 6.12.
    #[test]
    fn a_range_is_divided_as_kernels_do() {
        let how = |ranges, wide| Invalidation { ranges, wide, twice: false };
        let range = |start, pages| PageRange::new(Vpn(start), pages);
        for (pages, both) in [
            (1, (1, 0)),
            (2, (0, 1)),
            (3, (1, 1)),
            (62, (0, 1)),
            // 64 is 1 << 6, or 32 << 1.
            (64, (0, 1)),
            (66, (0, 2)),
            (512, (0, 1)),
            (1023, (1, 2)),
            // 2112 is 1 << 11 and 1 << 6; a scale covers at most 32 of its units.
            (2112, (0, 2)),
        ] {
            assert_eq!(ascending(how(true, false), range(5, pages), 0), both, "{pages}");
            assert_eq!(descending(how(true, false), range(5, pages), 0), both, "{pages}");
            assert_eq!(descending(how(true, true), range(16, pages), 0), both, "{pages}");
        }
        // Page by page up to the border of 16 pages, and ranges from there.
        assert_eq!(descending(how(true, true), range(14, 2), 0), (2, 0));
        assert_eq!(descending(how(true, true), range(14, 34), 0), (2, 1));
        // There is no border behind a range of 62 pages.
        assert_eq!(descending(how(true, true), range(16, 63), 0), (1, 1));
        assert_eq!(ascending(how(false, false), range(5, 64), 0), (64, 0));
        assert_eq!(descending(how(false, false), range(512, 1024), 9), (2, 0));
    }
}
