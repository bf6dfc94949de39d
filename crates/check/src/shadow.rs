//! What the kernel cannot see: page contents, what each page should hold, locks held, page tables
//! that left the tree.
//!
//! While a system call takes pages away, other CPUs may still use them through translations that it
//! has yet to flush; their accesses count as having come before it. Such translations are *fading*.
//! When the call has returned, nothing that it found may be used any more.

use crate::access::{home_of, stored, writer, written};
use crate::locks::Locks;
use crate::property::{Property, PropertySet, Violation};
use crate::shared::Shared;
use crate::tlb::MaySets;
use needless_model::addr::{
    CpuId, MmId, ObjectId, PageRange, Pfn, PinId, ProcessId, ThreadId, Vpn,
};
use needless_model::call::{Gup, PinAccess, Purpose};
use needless_model::env::Lock;
use needless_model::event::EventKind;
use needless_model::ignored::Ignored;
use needless_model::kernel::rmap::Place;
use needless_model::machine::cpu::Cpu;
use needless_model::machine::frames::ZERO_PAGE;
use needless_model::machine::pins::Pin;
use needless_model::machine::world::{At, Ghost, Log, Mode, World, process_of};
use needless_model::program::Access;
use needless_model::verdict::Verdict;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The checker's representation of the world.
#[derive(Debug)]
pub enum CheckMode {}

impl Mode for CheckMode {
    type Tlbs = MaySets;
    type Ghost = Contents;
    type Log = NoLog;
    type Held<T: Clone> = Shared<T>;
}

/// The checker's world.
pub type CheckWorld = World<CheckMode>;

/// A value that a page holds: 0, or the number of the store that wrote it.
pub type Value = u32;

/// What is looked at: the same in all states of an exploration.
#[derive(Debug, Default)]
pub struct Watch {
    /// Loads (by operation) whose values an observation asks for.
    pub loads: Vec<u32>,
    /// The pages' names, as scenarios write them.
    pub names: BTreeMap<Vpn, String>,
    /// By thread: its process.
    pub processes: Vec<ProcessId>,
    /// What the row asks for beside what is always judged.
    pub asks: PropertySet,
}

/// A translation that was there: of a page to a frame.
pub type Translation = (MmId, Vpn, Pfn);

/// What becomes of stores through a fading translation: they count as stores to the page that the
/// contents moved to, or for nothing.
type Fate = Option<Place>;

/// The ghost state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contents {
    /// What is looked at.
    pub watch: Ignored<Arc<Watch>>,
    /// What pages hold.
    pub pages: Shared<Pages>,
    /// Locks held, by whom.
    pub locks: Locks,
    /// What the watched loads returned.
    pub loaded: Shared<Loaded>,
    /// Frames freed in the current step.
    pub just_freed: Vec<Pfn>,
    /// The first violation found.
    pub violation: Option<Violation>,
    /// The properties whose case occurred in the last step.
    pub exercised: Ignored<PropertySet>,
}

/// What loads returned, by operation.
pub type Loaded = BTreeMap<u32, Value>;

/// Page contents, and what each page should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pages {
    frames: BTreeMap<Pfn, Value>,
    slots: BTreeMap<u32, Value>,
    /// What files have on their disks.
    disk: BTreeMap<Place, Value>,
    /// What frames held when they were written to swap.
    cleaned: BTreeMap<Pfn, Value>,
    /// The last store to each page, in the order of the steps.
    last_store: BTreeMap<Place, Value>,
    /// Translations that are being taken away.
    fading: BTreeMap<Translation, Fate>,
    /// By thread: the translations that its system call found and must have revoked when it
    /// returns.
    revoking: BTreeMap<u16, BTreeSet<Translation>>,
    /// Address spaces whose stores are noted by soft-dirty bits.
    tracked: BTreeSet<MmId>,
    /// Pages that userfaultfd protects.
    protected: BTreeSet<Place>,
    /// By thread: those that its call is to protect.
    protecting: BTreeMap<u16, BTreeSet<Place>>,
    /// Pages that MADV_FREE gave up and nobody stored to since.
    given_up: BTreeSet<Place>,
    /// Translations of the parent that a fork has copied and not flushed yet, and where to: a store
    /// through one of them is a store to both pages. By thread.
    forking: BTreeMap<Translation, (u16, Place)>,
    /// Pages that are held.
    pub held: BTreeMap<PinId, Hold>,
    /// By thread: the pages that it is giving up. Stores may come before or after.
    giving_up: BTreeMap<u16, (MmId, SmallVec<[PageRange; 2]>)>,
    /// Upper-level entries that CPUs may still hold although the table that they name left the
    /// tree: CPU, address space, the table's first page, its level; whether the table was freed.
    structures: BTreeMap<(CpuId, MmId, Vpn, u32), bool>,
    /// By thread: what it has mapped in this try of its fault. Nothing, unless somebody asks for
    /// that.
    mapped: BTreeSet<(u16, Place)>,
}

impl Pages {
    /// userfaultfd protects the page no more, nor will a call that is under way.
    fn let_go(&mut self, place: Place) {
        self.protected.remove(&place);
        self.protecting.values_mut().for_each(|places| _ = places.remove(&place));
    }
}

/// A page that is held without a mapping.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The pin.
    pub pin: Pin,
    /// What the page held when the process gave it up.
    pub left: Option<Value>,
    /// Whether whoever pins knows that it has the page.
    pub done: bool,
}

impl Hold {
    /// Whether it has to be the page that is mapped, still.
    pub fn binds(&self) -> bool {
        let given_up = self.left.is_some();
        self.done && self.pin.gup == Gup::Pin && !given_up && self.pin.frame != ZERO_PAGE
    }
}

impl Contents {
    /// Nothing is anywhere yet.
    pub fn new(watch: Arc<Watch>) -> Contents {
        let locks = Locks::new(watch.processes.len());
        Contents { watch: Ignored(watch), locks, ..Contents::default() }
    }

    /// What a load from `frame` returns.
    pub fn load(&self, frame: Pfn) -> Value {
        self.pages.frames.get(&frame).copied().unwrap_or(0)
    }

    /// What the swap slot holds.
    pub fn slot(&self, slot: u32) -> Value {
        self.pages.slots.get(&slot).copied().unwrap_or(0)
    }

    /// What a file's page holds on its disk.
    pub fn on_disk(&self, of: (ObjectId, u64)) -> Value {
        self.pages.disk.get(&home_of(of)).copied().unwrap_or(0)
    }

    /// Whether the thread has mapped the page in this try of its fault.
    pub fn has_mapped(&self, thread: ThreadId, place: Place) -> bool {
        self.pages.mapped.contains(&(thread.0, place))
    }

    /// What a load from the page should return.
    pub fn expected(&self, place: Place) -> Value {
        self.pages.last_store.get(&place).copied().unwrap_or(0)
    }

    /// Whether the property is judged on this row, of those that are not on every one.
    pub fn is_asked(&self, property: Property) -> bool {
        self.watch.asks.has(property)
    }

    /// Whether each store in the address space is to be noted.
    pub fn is_tracked(&self, mm: MmId) -> bool {
        self.pages.tracked.contains(&mm)
    }

    /// Whether userfaultfd protects the page.
    pub fn is_protected(&self, place: Place) -> bool {
        self.pages.protected.contains(&place)
    }

    /// Whether a private mapping of a file has a copy of its own there.
    pub fn has_own(&self, place: Place) -> bool {
        self.pages.last_store.contains_key(&place)
    }

    /// Whether the translation is being taken away.
    pub fn is_fading(&self, translation: Translation) -> bool {
        self.pages.fading.contains_key(&translation)
    }

    /// Frames that differ from their copies on swap.
    pub fn modified(&self) -> impl Iterator<Item = Pfn> + '_ {
        let modified =
            self.pages.cleaned.iter().filter(|(frame, value)| self.load(**frame) != **value);
        modified.map(|(frame, _)| *frame)
    }

    /// A store through a translation.
    pub fn store(&mut self, translation: Translation, value: Value) {
        let (mm, page, frame) = translation;
        let pages = &mut *self.pages;
        pages.frames.insert(frame, value);
        let stored_to = pages.fading.get(&translation).copied().unwrap_or(Some((mm, page)));
        if let Some((_, copy)) = pages.forking.get(&translation) {
            pages.last_store.insert(*copy, value);
        }
        if let Some((mm, page)) = stored_to {
            pages.last_store.insert((mm, page), value);
            if pages.last_store.keys().any(|(other, of)| *of == page && *other != mm) {
                self.exercised.add(Property::ForkIsolation);
            }
            if pages.given_up.remove(&(mm, page)) {
                self.exercised.add(Property::NoLostWrite);
            }
            for hold in pages.held.values().filter(|hold| hold.pin.place.1 == page) {
                if hold.pin.place.0 != mm {
                    self.exercised.add(Property::ForkIsolation);
                } else if hold.binds() {
                    self.exercised.add(Property::PinConsistency);
                }
            }
        }
    }

    /// A device stores by a pin: to the page as well, as long as that is what the pin holds. Who
    /// stores by force stores for the process.
    fn device_stores(&mut self, pin: Pin, hold: Hold, value: Value) {
        let pages = &mut *self.pages;
        if pin.frame != ZERO_PAGE {
            pages.frames.insert(pin.frame, value);
        }
        let counts = pin.gup == Gup::Pin || pin.access == PinAccess::Force;
        if hold.left.is_none() && counts {
            pages.last_store.insert(hold.pin.place, value);
        }
    }

    /// A device loads by a pin. What another process stored it must never find (P6), and by one of
    /// FOLL_PIN what the page holds (P7). A mere reference stays with the page of then.
    fn device_loads(&mut self, at: At, pin: Pin, hold: Hold) {
        let (found, place) = (self.load(pin.frame), hold.pin.place);
        if self.watch.loads.contains(&at.op) {
            self.loaded.insert(at.op, found);
        }
        let expected = hold.left.unwrap_or_else(|| self.expected(place));
        let own = self.wrong_value(found, process_of(place.0), Property::PinConsistency);
        if found == expected || own == Property::PinConsistency && !hold.binds() {
            return;
        }
        let what = format!(
            "a device that holds {} (frame {}) loads {}; the page holds {}",
            self.name(place.1),
            pin.frame.0,
            written(found),
            written(expected)
        );
        let violation = Violation { property: own, what, cpu: None, page: place.1 };
        self.violation.get_or_insert(violation);
    }

    /// What it is that a page of that process holds this value and not the one that it should.
    pub fn wrong_value(&self, found: Value, process: ProcessId, otherwise: Property) -> Property {
        let writer = writer(found).and_then(|thread| self.watch.processes.get(usize::from(thread)));
        if writer.is_some_and(|writer| *writer != process) {
            Property::ForkIsolation
        } else {
            otherwise
        }
    }

    /// The name of `page`.
    pub fn name(&self, page: Vpn) -> String {
        self.watch.names.get(&page).cloned().unwrap_or_else(|| format!("page {page}"))
    }

    /// A page table that was freed while a CPU that has its address space loaded may still name it.
    pub fn freed_table(&self, cpus: &[Cpu]) -> Option<(CpuId, Vpn, u32)> {
        let named = |(cpu, mm, ..): &(CpuId, MmId, Vpn, u32)| cpus[cpu.index()].loaded == *mm;
        let mut freed = self.pages.structures.iter().filter(|(_, freed)| **freed);
        freed
            .find(|(entry, _)| named(entry))
            .map(|((cpu, _, page, level), _)| (*cpu, *page, *level))
    }

    /// A frame was copied.
    fn copy_frame(&mut self, from: Pfn, to: Pfn) {
        let value = self.load(from);
        self.note_move(value);
        self.exercised.add(Property::BreakBeforeMake);
        self.pages.frames.insert(to, value);
    }

    /// Contents went from one place to another.
    fn note_move(&mut self, value: Value) {
        if value != 0 {
            self.exercised.add(Property::NoLostWrite);
        }
    }
}

/// A system call of `at`'s thread begins.
pub fn begin_call(w: &mut CheckWorld, at: At, mm: MmId, purpose: &Purpose) {
    if !purpose.revokes.is_empty() {
        begin_revoking(w, at, mm, &purpose.revokes);
    }
    if !purpose.gives_up.is_empty() {
        w.ghost.pages.giving_up.insert(at.thread.0, (mm, purpose.gives_up.clone()));
    }
}

/// A system call of `at`'s thread returned: what it gave up may go, unless it is stored to from
/// now.
pub fn end_giving_up(w: &mut CheckWorld, at: At) {
    if w.ghost.pages.giving_up.contains_key(&at.thread.0) {
        let pages = &mut *w.ghost.pages;
        if let Some((mm, ranges)) = pages.giving_up.remove(&at.thread.0) {
            let given_up = ranges.iter().flat_map(|range| range.iter());
            pages.given_up.extend(given_up.map(|page| (mm, page)));
        }
    }
}

fn begin_revoking(w: &mut CheckWorld, at: At, mm: MmId, ranges: &[PageRange]) {
    // What is not mapped any more is another call's, which has not returned.
    let mapped = |page: Vpn| w.mms[mm.index()].vma(page).is_some();
    let taken = |page: Vpn| ranges.iter().any(|range| range.contains(page)) && mapped(page);
    let fading = w.ghost.pages.fading.keys();
    let mut found: BTreeSet<Translation> =
        fading.filter(|(space, page, _)| *space == mm && taken(*page)).copied().collect();
    for page in ranges.iter().flat_map(|range| range.iter()).filter(|page| mapped(*page)) {
        let frame = w.frame_behind(w.page_entry(mm, page));
        found.extend(frame.map(|frame| (mm, page, frame)));
    }
    w.ghost.pages.revoking.insert(at.thread.0, found);
}

/// The system call returned: what it found fades no longer. Returns what it found.
pub fn end_revoking(w: &mut CheckWorld, at: At) -> BTreeSet<Translation> {
    if !w.ghost.pages.revoking.contains_key(&at.thread.0) {
        return BTreeSet::new();
    }
    let found = w.ghost.pages.revoking.remove(&at.thread.0).unwrap_or_default();
    w.ghost.pages.fading.retain(|key, _| !found.contains(key));
    found
}

impl Ghost for Contents {
    fn try_begins(&mut self, thread: ThreadId) {
        if self.is_asked(Property::InstalledAtRetry) {
            self.pages.mapped.retain(|(of, _)| *of != thread.0);
        }
    }

    fn found_again(&mut self, page: Vpn, dirty: bool) {
        let property = Property::DirtyAtRetry;
        if !self.is_asked(property) {
            return;
        }
        if dirty {
            return self.exercised.add(property);
        }
        let what = format!("a second try of a store finds {} clean", self.name(page));
        self.violation.get_or_insert(Violation { property, what, cpu: None, page });
    }

    fn mapped(&mut self, thread: ThreadId, mm: MmId, page: Vpn) {
        if self.is_asked(Property::InstalledAtRetry) {
            self.pages.mapped.insert((thread.0, (mm, page)));
        }
    }

    fn holds(&self, thread: ThreadId, lock: Lock) -> bool {
        self.locks.held_by(lock, thread.0)
    }

    fn writes_vma(&self, thread: ThreadId, mm: MmId, pages: PageRange) -> bool {
        self.locks.writes_vma(thread.0, mm, pages)
    }

    fn is_locked(&self, lock: Lock) -> bool {
        self.locks.has(&lock)
    }

    fn freed(&mut self, frame: Pfn) {
        let pages = &mut *self.pages;
        pages.cleaned.remove(&frame);
        self.just_freed.push(frame);
        // Nobody changes a free frame. What it holds, and who may still use it, is of no account
        // unless the row allows its use.
        if !self.is_asked(Property::NoUseAfterFree) {
            return;
        }
        let pages = &mut *self.pages;
        pages.frames.remove(&frame);
        pages.fading.retain(|(.., fading), _| *fading != frame);
        for found in pages.revoking.values_mut() {
            found.retain(|(.., found)| *found != frame);
        }
    }

    fn zeroed(&mut self, frame: Pfn) {
        self.pages.frames.insert(frame, 0);
    }

    /// A frame in use holds something.
    fn copied(&mut self, _: MmId, page: Vpn, from: Pfn, to: Pfn) {
        if !self.pages.frames.contains_key(&from) {
            let what = format!(
                "frame {}, which is copied for {}, was freed meanwhile",
                from.0,
                self.name(page)
            );
            let property = Property::NoUseAfterFree;
            self.violation.get_or_insert(Violation { property, what, cpu: None, page });
        }
        self.copy_frame(from, to);
    }

    fn migrated(&mut self, from: Pfn, to: Pfn) {
        self.copy_frame(from, to);
        // The copy differs from what swap or a disk has if the original did.
        if let Some(clean) = self.pages.cleaned.get(&from).copied() {
            self.pages.cleaned.insert(to, clean);
        }
    }

    fn swapped_out(&mut self, frame: Pfn, slot: u32) {
        let value = self.load(frame);
        self.pages.slots.insert(slot, value);
        self.pages.cleaned.insert(frame, value);
    }

    fn swapped_in(&mut self, slot: u32, frame: Pfn) {
        let value = self.slot(slot);
        self.note_move(value);
        self.exercised.add(Property::BreakBeforeMake);
        self.pages.frames.insert(frame, value);
    }

    fn discarded(&mut self, mm: MmId, page: Vpn, frame: Option<Pfn>) {
        let pages = &mut *self.pages;
        let last = pages.last_store.remove(&(mm, page)).unwrap_or(0);
        for hold in pages.held.values_mut().filter(|hold| hold.pin.place == (mm, page)) {
            hold.left.get_or_insert(last);
        }
        pages.given_up.remove(&(mm, page));
        pages.let_go((mm, page));
        pages.fading.extend(frame.map(|frame| ((mm, page, frame), None)));
    }

    fn tracks(&mut self, mm: MmId, on: bool) {
        match on {
            true => _ = self.pages.tracked.insert(mm),
            false => _ = self.pages.tracked.remove(&mm),
        }
    }

    /// What is stored to them before the call returns comes before it.
    fn protecting(&mut self, thread: ThreadId, mm: MmId, pages: PageRange) {
        let places: BTreeSet<Place> = pages.iter().map(|page| (mm, page)).collect();
        self.pages.protected.retain(|place| !places.contains(place));
        self.pages.protecting.insert(thread.0, places);
    }

    fn protected(&mut self, thread: ThreadId, done: bool) {
        let places = self.pages.protecting.remove(&thread.0).unwrap_or_default();
        if done {
            self.pages.protected.extend(places);
        }
    }

    fn let_go(&mut self, mm: MmId, pages: PageRange) {
        pages.iter().for_each(|page| self.pages.let_go((mm, page)));
    }

    fn told(&mut self) {
        self.exercised.add(Property::ToldOf);
    }

    /// Only what was stored before the advice may go.
    fn dropped(&mut self, mm: MmId, page: Vpn, frame: Pfn) {
        let gives_up = |(space, ranges): &(MmId, SmallVec<[PageRange; 2]>)| {
            *space == mm && ranges.iter().any(|range| range.contains(page))
        };
        let giving_up = self.pages.giving_up.values().any(gives_up);
        if giving_up || self.pages.given_up.contains(&(mm, page)) {
            self.discarded(mm, page, Some(frame));
        }
    }

    fn forked_page(
        &mut self,
        thread: ThreadId,
        parent: MmId,
        child: MmId,
        page: Vpn,
        frame: Option<Pfn>,
    ) {
        let pages = &mut *self.pages;
        if let Some(value) = pages.last_store.get(&(parent, page)).copied() {
            pages.last_store.insert((child, page), value);
        }
        if pages.given_up.contains(&(parent, page)) {
            pages.given_up.insert((child, page));
        }
        let copied = frame.map(|frame| ((parent, page, frame), (thread.0, (child, page))));
        pages.forking.extend(copied);
    }

    fn copied_from_file(&mut self, mm: MmId, page: Vpn, frame: Pfn) {
        let value = self.load(frame);
        self.pages.last_store.insert((mm, page), value);
    }

    fn unmapped_shared(&mut self, mm: MmId, page: Vpn, frame: Pfn, of: (ObjectId, u64)) {
        self.pages.fading.insert((mm, page, frame), Some(home_of(of)));
    }

    fn written_back(&mut self, frame: Pfn, of: (ObjectId, u64)) {
        let value = self.load(frame);
        self.pages.cleaned.insert(frame, value);
        self.pages.disk.insert(home_of(of), value);
    }

    fn filled(&mut self, frame: Pfn, of: (ObjectId, u64)) {
        let value = self.on_disk(of);
        self.note_move(value);
        self.pages.frames.insert(frame, value);
    }

    fn file_written(&mut self, at: At, frame: Pfn, of: (ObjectId, u64)) {
        let value = stored(Access::Write, at.thread.0, at.op);
        let pages = &mut *self.pages;
        pages.frames.insert(frame, value);
        pages.last_store.insert(home_of(of), value);
    }

    fn punched(&mut self, of: (ObjectId, u64)) {
        let home = home_of(of);
        let pages = &mut *self.pages;
        pages.last_store.remove(&home);
        pages.disk.remove(&home);
        pages.fading.values_mut().for_each(|fate| *fate = fate.filter(|fate| *fate != home));
    }

    fn shared_gone(&mut self, object: ObjectId) {
        let (gone, _) = home_of((object, 0));
        let pages = &mut *self.pages;
        pages.last_store.retain(|(of, _), _| *of != gone);
        pages.disk.retain(|(of, _), _| *of != gone);
        pages.fading.values_mut().for_each(|fate| *fate = fate.filter(|(of, _)| *of != gone));
    }

    fn pinning(&mut self, id: PinId, pin: Pin) {
        self.pages.held.insert(id, Hold { pin, left: None, done: false });
    }

    fn pinned(&mut self, id: PinId, pin: Pin) {
        self.pages.held.entry(id).or_insert(Hold { pin, left: None, done: true }).done = true;
    }

    fn unpinned(&mut self, id: PinId) {
        self.pages.held.remove(&id);
    }

    fn dma(&mut self, at: At, id: PinId, pin: Pin, write: bool) {
        let Some(hold) = self.pages.held.get(&id).copied() else { return };
        if hold.binds() {
            self.exercised.add(Property::PinConsistency);
        }
        if write {
            self.device_stores(pin, hold, stored(Access::Write, at.thread.0, at.op));
        } else {
            self.device_loads(at, pin, hold);
        }
    }

    fn forked(&mut self, thread: ThreadId) {
        self.pages.forking.retain(|_, (of, _)| *of != thread.0);
    }

    fn retired(&mut self, mm: MmId) {
        let pages = &mut *self.pages;
        pages.last_store.retain(|(of, _), _| *of != mm);
        pages.fading.retain(|(of, ..), _| *of != mm);
        pages.given_up.retain(|(of, _)| *of != mm);
        pages.structures.retain(|(_, of, ..), _| *of != mm);
    }

    fn moved(&mut self, mm: MmId, from: Vpn, to: Vpn, frame: Option<Pfn>) {
        if let Some(value) = self.pages.last_store.remove(&(mm, from)) {
            self.pages.last_store.insert((mm, to), value);
        }
        for hold in self.pages.held.values_mut().filter(|hold| hold.pin.place == (mm, from)) {
            hold.pin.place = (mm, to);
        }
        self.pages.let_go((mm, from));
        if self.pages.given_up.contains(&(mm, from)) {
            self.pages.given_up.remove(&(mm, from));
            self.pages.given_up.insert((mm, to));
        }
        self.pages.fading.extend(frame.map(|frame| ((mm, from, frame), Some((mm, to)))));
    }

    fn table_unlinked(&mut self, cpus: &[Cpu], mm: MmId, page: Vpn, level: u32) {
        let may_name = |cpu: &Cpu| cpu.slot_of(mm).is_some();
        let cpus = cpus.iter().enumerate().filter(|(_, cpu)| may_name(cpu));
        let mut count = 0;
        for (index, _) in cpus {
            self.pages.structures.insert((CpuId(index as u16), mm, page, level), false);
            count += 1;
        }
        if count > 1 {
            self.exercised.add(Property::TableReuse);
        }
    }

    fn table_freed(&mut self, mm: MmId, page: Vpn, level: u32) {
        let entries = self.pages.structures.iter_mut();
        for (_, freed) in entries.filter(|((_, m, p, l), _)| (*m, *p, *l) == (mm, page, level)) {
            *freed = true;
        }
    }

    fn table_missed(&mut self, cpu: CpuId, _: MmId, page: Vpn) {
        let what =
            format!("{cpu} sets the PTE of {} in a page table that was freed", self.name(page));
        let property = Property::TableReuse;
        self.violation.get_or_insert(Violation { property, what, cpu: Some(cpu), page });
    }

    fn given_back_read(&mut self, cpu: CpuId, _: MmId, page: Vpn) {
        let what = format!(
            "{cpu}, which walks without a lock, reads the PTE of {} in a page table that was given back",
            self.name(page)
        );
        let property = Property::TableReuse;
        self.violation.get_or_insert(Violation { property, what, cpu: Some(cpu), page });
    }

    fn structures_flushed(&mut self, cpu: CpuId, mm: MmId) {
        if self.pages.structures.is_empty() {
            return;
        }
        self.pages.structures.retain(|entry, _| (entry.0, entry.1) != (cpu, mm));
    }
}

/// Events are of no interest to the checker.
#[derive(Copy, Clone, Debug)]
pub struct NoLog;

impl Log for NoLog {
    fn emit(&mut self, _: At, _: EventKind, _: Option<Verdict>) -> u64 {
        0
    }

    fn wants_ptes(&self) -> bool {
        false
    }
}
