//! Judges a state, or the end of a system call or of a run, by the properties.
//!
//! P1 and P2 are judged where an access is performed ([`crate::access`]), P11 where it faults, P12
//! where a page table is freed ([`crate::shadow`]).

use crate::access::{home, written};
use crate::property::{Property, Violation};
use crate::shadow::{CheckWorld, Value, end_giving_up, end_revoking};
use crate::tlb::Entry;
use needless_model::addr::{CpuId, MmId, ObjectId, PageRange, Pfn, Vpn};
use needless_model::env::Lock;
use needless_model::kernel::rmap::{Place, places};
use needless_model::machine::cpu::{Cpu, INIT_MM};
use needless_model::machine::frames::{FrameFlags, ZERO_PAGE};
use needless_model::machine::world::{At, process_of};
use needless_model::program::Prot;
use needless_model::pte::Pte;
use needless_model::wait::Cause;

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

/// What must hold in every state. Each looks at its own parts of the world.
pub const IN_EVERY_STATE: [fn(&mut CheckWorld); 5] = [
    no_lost_dirty,
    no_pinned_page_exchanged,
    no_foreign_entry,
    no_two_translations_at_once,
    no_freed_table_named,
];

/// After every step.
pub fn state(w: &mut CheckWorld) {
    IN_EVERY_STATE.iter().for_each(|judge| judge(w));
}

fn no_lost_dirty(w: &mut CheckWorld) {
    if let Some((frame, page)) = lost_dirty(w) {
        let what = format!(
            "frame {} differs from what was written of it, but {} is dirty",
            frame.0,
            if is_told(w, frame) { "it is not known that it" } else { "neither it nor its PTE" }
        );
        violate(w, None, Property::NoLostDirty, page, what);
    }
}

fn no_pinned_page_exchanged(w: &mut CheckWorld) {
    if let Some((frame, (_, page))) = exchanged(w) {
        let what = format!(
            "frame {} is pinned as {}, but another one is mapped there",
            frame.0,
            w.ghost.name(page)
        );
        violate(w, None, Property::PinConsistency, page, what);
    }
}

fn no_foreign_entry(w: &mut CheckWorld) {
    if let Some((cpu, page)) = foreign_entry(w) {
        let name = w.ghost.name(page);
        let what = format!("{cpu} may use a translation of {name} that is another address space's");
        violate(w, Some(cpu), Property::AsidIsolation, page, what);
    }
}

fn no_two_translations_at_once(w: &mut CheckWorld) {
    if let Some((cpu, page)) = both_at_once(w) {
        let name = w.ghost.name(page);
        let what = format!(
            "{cpu} may hold two translations of {name} that differ in their frame or their size"
        );
        violate(w, Some(cpu), Property::BreakBeforeMake, page, what);
    }
}

fn no_freed_table_named(w: &mut CheckWorld) {
    if let Some((cpu, page, level)) = w.ghost.freed_table(&w.cpus) {
        let name = w.ghost.name(page);
        let what = format!(
            "the page table of level {level} that begins at {name} is freed while {cpu} may still have it in its paging-structure caches"
        );
        violate(w, Some(cpu), Property::TableReuse, page, what);
    }
}

/// Faults that one access may take before it counts as no progress, unless the row says otherwise
/// (`most-faults`).
pub const MAX_FAULTS: u32 = 6;

/// P11: so many faults have not let an access through.
pub fn no_progress(w: &mut CheckWorld, at: At, page: Vpn, faults: u32) {
    let what = format!("the access to {} still faults after {faults} tries", w.ghost.name(page));
    violate(w, Some(at.cpu), Property::Progress, page, what);
}

/// No thread can take a step although some are not done.
pub fn stuck(w: &mut CheckWorld, waiting: &str) {
    let what = format!("nobody can go on: {waiting}");
    violate(w, None, Property::Progress, Vpn(0), what);
}

/// P4. While somebody holds the folio's lock or the lock of its page table, the dirty bit may be on
/// its way from one place to the other. A translation that was cached dirty is no such place: x86
/// sets the PTE's bit before it caches it, and never again (Intel SDM volume 3, 4.8). A file system
/// that is told of stores looks for pages that it knows to be dirty (PAGECACHE_TAG_DIRTY): there a
/// PTE alone says nothing. Who holds a page for stores knows it, and marks it when he lets go
/// (mm/gup.c:unpin_user_pages_dirty_lock).
fn lost_dirty(w: &mut CheckWorld) -> Option<(Pfn, Vpn)> {
    let modified: Vec<Pfn> = w.ghost.modified().collect();
    if !modified.is_empty() {
        w.ghost.exercised.add(Property::NoLostDirty);
    }
    modified.into_iter().map(|pfn| (pfn, w.frames.get(pfn))).find_map(|(pfn, frame)| {
        let places = places(w, pfn);
        let held = |lock: Lock| w.ghost.locks.has(&lock);
        let locked = |(mm, page): &Place| {
            held(Lock::page_table(&w.arch, *mm, *page))
                || w.config.huge_pages && held(Lock::pmd(&w.arch, *mm, *page))
        };
        let moving = held(Lock::Folio(pfn)) || places.iter().any(locked);
        let dirty = |(mm, page): &Place| {
            matches!(w.page_entry(*mm, *page), Pte::Present(pte) if pte.pfn == pfn && pte.dirty())
        };
        let mut pins = w.ghost.pages.held.values().map(|hold| hold.pin);
        let known = frame.flags.has(FrameFlags::DIRTY)
            || !is_told(w, pfn) && places.iter().any(dirty)
            || pins.any(|pin| pin.frame == pfn && pin.access.is_write());
        let page = places.first().map_or(Vpn(0), |(_, page)| *page);
        (!moving && !known).then_some((pfn, page))
    })
}

/// Whether the frame is of a file whose file system is told of stores.
fn is_told(w: &CheckWorld, frame: Pfn) -> bool {
    w.is_of_file(frame) && !w.frames.flags(frame).has(FrameFlags::SWAP_BACKED)
}

/// P7: a frame that is pinned, and its page, where another one is mapped.
fn exchanged(w: &CheckWorld) -> Option<(Pfn, Place)> {
    let holds = w.ghost.pages.held.values().filter(|hold| hold.binds());
    holds.map(|hold| (hold.pin.frame, hold.pin.place)).find(|(frame, (mm, page))| {
        matches!(w.page_entry(*mm, *page), Pte::Present(pte) if pte.pfn != *frame)
    })
}

/// Whether a CPU holds an entry of another address space (P10).
fn foreign_entry(w: &CheckWorld) -> Option<(CpuId, Vpn)> {
    (0..w.cpus.len()).map(|index| CpuId(index as u16)).find_map(|cpu| {
        let c = &w.cpus[cpu.index()];
        let foreign =
            c.loaded != INIT_MM && w.tlbs.owner(cpu, c.asid).is_some_and(|mm| mm != c.loaded);
        let entry: Option<Entry> = w.tlbs.all(cpu, c.asid).next().filter(|_| foreign);
        entry.map(|entry| (cpu, entry.pages.start))
    })
}

/// P9, where the architecture asks for it: an address with two translations that are not the same
/// but for their rights. That its entry was invalid in between makes no difference, as in Arm's
/// rule: what ends the old one is its invalidation, waited for.
fn both_at_once(w: &CheckWorld) -> Option<(CpuId, Vpn)> {
    if !w.ghost.is_asked(Property::BreakBeforeMake) {
        return None;
    }
    w.tlbs.slots.iter().find_map(|((cpu, _), (_, set))| {
        let differ = |one: &Entry, other: &Entry| {
            let page = one.pages.start.max(other.pages.start);
            let same =
                one.pages.order == other.pages.order && one.frame_of(page) == other.frame_of(page);
            (one.pages.range().overlaps(other.pages.range()) && !same).then_some(page)
        };
        let mut later = set.iter();
        std::iter::from_fn(|| Some((later.next()?, later.clone())))
            .find_map(|(one, mut others)| others.find_map(|other| differ(one, other)))
            .map(|page| (*cpu, page))
    })
}

/// The CPUs that run in the address space. (A lazy one uses it only after it has looked for flushes
/// that it missed.)
fn cpus_with(w: &CheckWorld, mm: MmId) -> Vec<CpuId> {
    let uses = |cpu: &Cpu| cpu.loaded == mm && !cpu.lazy;
    let loaded = (0..w.cpus.len()).filter(|index| uses(&w.cpus[*index]));
    loaded.map(|index| CpuId(index as u16)).collect()
}

fn not_revoked(w: &mut CheckWorld, cpu: CpuId, page: Vpn) {
    if !w.ghost.is_asked(Property::Revoked) {
        return;
    }
    let what = format!(
        "the system call has returned, but {cpu} may still use the old translation of {}",
        w.ghost.name(page)
    );
    violate(w, Some(cpu), Property::Revoked, page, what);
}

/// P5, when an `mprotect` that left `range` with `prot` returned (`None`: it failed). What was
/// granted again since may be used.
pub fn protected(w: &mut CheckWorld, at: At, mm: MmId, range: PageRange, prot: Option<Prot>) {
    let found = end_revoking(w, at);
    let Some(prot) = prot else { return };
    if !found.is_empty() {
        w.ghost.exercised.add(Property::Revoked);
    }
    let right = |prot: Prot| match prot {
        Prot::None => 0,
        Prot::Read => 1,
        Prot::ReadWrite => 2,
    };
    for (cpu, page) in cpus_with(w, mm).iter().flat_map(|cpu| range.iter().map(|page| (*cpu, page)))
    {
        let now = w.mms[mm.index()].vma(page).map_or(0, |vma| right(vma.prot));
        let entries = w.tlbs.entries(cpu, w.cpus[cpu.index()].asid, page);
        if entries.iter().any(|entry| 1 + u32::from(entry.writable) > now.max(right(prot))) {
            return not_revoked(w, cpu, page);
        }
    }
}

/// P5, when a system call that took pages away returned: no CPU may use a translation that it
/// found. It may be granted again by then; a PTE whose lock somebody holds is being changed, and
/// whoever does so has to flush (page_vma_mkclean_one clears it for a moment).
pub fn taken_away(w: &mut CheckWorld, at: At) {
    end_giving_up(w, at);
    let found = end_revoking(w, at);
    if found.is_empty() {
        return;
    }
    w.ghost.exercised.add(Property::Revoked);
    for (mm, page, frame) in found {
        let mapped = matches!(w.page_entry(mm, page), Pte::Present(pte) if pte.pfn == frame);
        let changing = w.ghost.locks.has(&Lock::page_table(&w.arch, mm, page));
        let names = |cpu: &CpuId| {
            let entries = w.tlbs.entries(*cpu, w.cpus[cpu.index()].asid, page);
            entries.iter().any(|entry| entry.frame_of(page) == frame)
        };
        let user = cpus_with(w, mm).into_iter().find(names).filter(|_| !mapped && !changing);
        if let Some(cpu) = user {
            return not_revoked(w, cpu, page);
        }
    }
}

/// R, where a row asks for it: a fault of `at`'s thread is about to be tried again.
pub fn retried(w: &mut CheckWorld, at: At, (mm, page): Place, cause: Cause) {
    if !w.ghost.watch.asks.has(Property::InstalledAtRetry) {
        return;
    }
    w.ghost.exercised.add(Property::InstalledAtRetry);
    if !w.ghost.has_mapped(at.thread, (mm, page)) {
        let what = format!(
            "the fault on {} waits for {cause} and will be tried again, and has not mapped the page",
            w.ghost.name(page)
        );
        violate(w, Some(at.cpu), Property::InstalledAtRetry, page, what);
    }
}

/// What the file has there: in memory, in swap or on its disk.
fn in_file(w: &CheckWorld, (object, index): (ObjectId, u64)) -> Value {
    let slot = w.objects.slot(object, index);
    let cached = slot.and_then(|slot| w.swap.get(slot).cached);
    match (w.objects.page(object, index).or(cached), slot) {
        (Some(frame), _) => w.ghost.load(frame),
        (None, Some(slot)) => w.ghost.slot(slot),
        (None, None) => w.ghost.on_disk((object, index)),
    }
}

/// P3, when every thread is done: what each page holds, in memory or in swap, is what was stored
/// last.
pub fn end(w: &mut CheckWorld) {
    let pages = w.spaces().flat_map(|mm| {
        let vmas = w.mms[mm.index()].vmas().iter();
        vmas.flat_map(move |vma| vma.range.iter().map(move |page| (mm, page)))
    });
    for (mm, page) in pages.collect::<Vec<Place>>() {
        let found = match w.page_entry(mm, page) {
            Pte::Present(pte) if pte.pfn == ZERO_PAGE => 0,
            Pte::Present(pte) => w.ghost.load(pte.pfn),
            Pte::Swap(swap) => match w.swap.get(swap.slot).cached {
                Some(frame) => w.ghost.load(frame),
                None => w.ghost.slot(swap.slot),
            },
            Pte::Migration(migration) => w.ghost.load(migration.pfn),
            Pte::None | Pte::Table(_) | Pte::Marker(_) => {
                let of = w.file_of(mm, page);
                of.map_or(0, |of| in_file(w, of))
            }
        };
        let home = home(w, (mm, page), ZERO_PAGE);
        let expected = w.ghost.expected(home);
        if found != expected {
            let what = format!(
                "at the end {} holds {}, not {}",
                w.ghost.name(page),
                written(found),
                written(expected)
            );
            let property = match home.0 == mm {
                true => w.ghost.wrong_value(found, process_of(mm), Property::NoLostWrite),
                false => Property::NoLostWrite,
            };
            violate(w, None, property, page, what);
        }
    }
}
