//! Judges a state, or the end of a system call or of a run, by the properties.
//!
//! P1 and P2 are judged where an access is performed ([`crate::access`]), P11 where it faults, P12
//! where a page table is freed ([`crate::shadow`]).

use crate::property::{Property, Violation};
use crate::shadow::{CheckWorld, Entry};
use needless_model::addr::{CpuId, PageRange, Pfn, Vpn};
use needless_model::env::Lock;
use needless_model::machine::cpu::INIT_MM;
use needless_model::machine::frames::{FrameFlags, ZERO_PAGE};
use needless_model::machine::world::{At, USER_MM};
use needless_model::program::Prot;
use needless_model::pte::Pte;

/// Takes down a violation, unless there was one before.
pub fn violate(
    w: &mut CheckWorld,
    cpu: Option<CpuId>,
    property: Property,
    page: Vpn,
    what: String,
) {
    w.ghost.violation.get_or_insert(Violation { property, what, cpu, page });
}

/// After every step: what must hold in every state.
pub fn state(w: &mut CheckWorld) {
    if let Some((frame, page)) = lost_dirty(w) {
        let what = format!(
            "frame {} differs from its copy on swap, but neither it nor its PTE is dirty, and no CPU can still set that",
            frame.0
        );
        violate(w, None, Property::NoLostDirty, page, what);
    }
    if let Some((cpu, page)) = foreign_entry(w) {
        let what =
            format!("{cpu} may use a translation of page {page} that is another address space's");
        violate(w, Some(cpu), Property::AsidIsolation, page, what);
    }
}

/// P4. While somebody holds the folio's lock or the lock of its page table, the dirty bit may be
/// on its way from one place to the other.
fn lost_dirty(w: &mut CheckWorld) -> Option<(Pfn, Vpn)> {
    let modified: Vec<Pfn> = w.ghost.modified().collect();
    if !modified.is_empty() {
        w.ghost.exercised.add(Property::NoLostDirty);
    }
    modified.into_iter().map(|pfn| (pfn, w.frames.get(pfn))).find_map(|(pfn, frame)| {
        let table = frame.page.0 / w.arch.table_pages(1) * w.arch.table_pages(1);
        let locks = [Lock::Folio(pfn), Lock::PageTable(frame.mm, Vpn(table))];
        let moving = locks.iter().any(|lock| w.ghost.locks.contains_key(lock));
        let mapped_dirty =
            matches!(w.pte(USER_MM, frame.page), Pte::Present(pte) if pte.pfn == pfn && pte.dirty);
        let known = frame.flags.has(FrameFlags::DIRTY) || mapped_dirty || w.tlbs.may_dirty(pfn);
        (!moving && !known).then_some((pfn, frame.page))
    })
}

/// P10.
fn foreign_entry(w: &CheckWorld) -> Option<(CpuId, Vpn)> {
    (0..w.cpus.len()).map(|index| CpuId(index as u16)).find_map(|cpu| {
        let c = &w.cpus[cpu.index()];
        let foreign =
            c.loaded != INIT_MM && w.tlbs.owner(cpu, c.asid).is_some_and(|mm| mm != c.loaded);
        let entry: Option<Entry> = w.tlbs.all(cpu, c.asid).next().filter(|_| foreign);
        entry.map(|entry| (cpu, entry.page))
    })
}

/// P5, when a system call that left `range` with `prot` returned. `None`: it is unmapped. What was
/// granted again since may be used.
pub fn revoked(w: &mut CheckWorld, at: At, range: PageRange, prot: Option<Prot>) {
    let right = |prot: Option<Prot>| match prot {
        None | Some(Prot::None) => 0,
        Some(Prot::Read) => 1,
        Some(Prot::ReadWrite) => 2,
    };
    let loaded = (0..w.cpus.len()).filter(|index| w.cpus[*index].loaded == at.mm);
    let cpus: Vec<CpuId> = loaded.map(|index| CpuId(index as u16)).collect();
    if cpus.iter().any(|cpu| *cpu != at.cpu) {
        w.ghost.exercised.add(Property::Revoked);
    }
    for (cpu, page) in cpus.iter().flat_map(|cpu| range.iter().map(|page| (*cpu, page))) {
        let now = w.mms[at.mm.index()].vma(page).map(|vma| vma.prot);
        let allowed = right(prot).max(right(now));
        let entries = w.tlbs.entries(cpu, w.cpus[cpu.index()].asid, page);
        if entries.iter().any(|entry| 1 + u32::from(entry.writable) > allowed) {
            let what = format!(
                "the call has returned, but {cpu} may still use the old translation of page {page}"
            );
            return violate(w, Some(cpu), Property::Revoked, page, what);
        }
    }
}

/// P3, when every thread is done: what each page holds, in memory or in swap, is what was stored
/// last.
pub fn end(w: &mut CheckWorld) {
    let vmas = w.mms[USER_MM.index()].vmas().iter();
    let pages: Vec<Vpn> = vmas.flat_map(|vma| vma.range.iter()).collect();
    for page in pages {
        let found = match w.pte(USER_MM, page) {
            Pte::Present(pte) if pte.pfn == ZERO_PAGE => 0,
            Pte::Present(pte) => w.ghost.load(pte.pfn),
            Pte::Swap(swap) => match w.swap.get(swap.slot).cached {
                Some(frame) => w.ghost.load(frame),
                None => w.ghost.slot(swap.slot),
            },
            Pte::None => 0,
        };
        let expected = w.ghost.expected(page);
        if found != expected {
            let what = format!("at the end {page} holds {found}; the last store wrote {expected}");
            violate(w, None, Property::NoLostWrite, page, what);
        }
    }
}
