//! The TLBs of the simulator's CPUs: one [`Tlb`] per CPU, and exact answers about what it may have
//! cached, from logs of revoked translations.

use super::cpu::Cpu;
use super::may_cache::MayCache;
use super::mm::Mm;
use super::room::Room;
use super::tlb::{FlushScope, PteChange, Tlbs, is_stale, is_stale_now};
use super::tlb_array::Tlb;
use super::upgraded::Upgraded;
use crate::addr::{CpuId, MmId, PageRange, Span, Vpn};
use crate::arch::AccessedDirty;
use crate::pte::PresentPte;
use std::cell::Cell;

/// A translation that was revoked.
#[derive(Copy, Clone, Debug)]
struct Revoked {
    pages: Span,
    old: PresentPte,
    /// The address space's unload count from when the translation was established.
    since: u32,
}

/// The revoked translations that a slot may still hold.
#[derive(Clone, Debug, Default)]
struct SlotView {
    /// The position in the address space's log up to which entries were processed (counted from the
    /// run's start).
    seen: u64,
    /// Translations from before `seen` that were not flushed.
    left: Vec<Revoked>,
    /// The unload count at which the CPU left the slot; `None` while the slot is loaded.
    left_at: Option<u32>,
    mm: Option<MmId>,
}

impl Revoked {
    /// Whether it is stale and within `scope`.
    #[inline(always)]
    fn is_stale(&self, scope: FlushScope, mm: &Mm) -> bool {
        scope.covers(self.pages) && is_stale_now(self.pages, self.old, &mm.table)
    }
}

impl SlotView {
    /// Whether the CPU can have cached it: it was established before the CPU left.
    #[inline]
    fn cached(&self, entry: &Revoked) -> bool {
        self.left_at.is_none_or(|at| entry.since < at)
    }
}

/// The log of one address space.
#[derive(Clone, Debug, Default)]
struct RevokedLog {
    entries: Vec<Revoked>,
    /// The number of entries dropped before `entries[0]`.
    dropped: u64,
    /// The length at which the log is pruned.
    prune_at: usize,
}

impl RevokedLog {
    /// A log shorter than this is not worth pruning.
    const SHORT: usize = 64;

    fn end(&self) -> u64 {
        self.dropped + self.entries.len() as u64
    }

    fn from(&self, seen: u64) -> &[Revoked] {
        &self.entries[(seen - self.dropped) as usize..]
    }
}

/// The log of the address space.
fn log_of(logs: &mut Vec<RevokedLog>, id: MmId) -> &mut RevokedLog {
    if logs.len() <= id.index() {
        logs.resize_with(id.index() + 1, RevokedLog::default);
    }
    &mut logs[id.index()]
}

/// The simulator's TLBs: one [`Tlb`] per CPU, and exact may-cache answers from logs.
#[derive(Clone, Debug)]
pub struct SimTlbs {
    /// The TLB of each CPU.
    pub cpus: Vec<Tlb>,
    /// One view per slot; the views of a CPU are side by side.
    views: Vec<SlotView>,
    asids: usize,
    /// The log of each address space.
    logs: Vec<RevokedLog>,
    /// The memory that logs and views may take.
    room: Room,
    /// Pages that became writable, if they are tracked.
    upgraded: Option<Upgraded>,
    /// The second answer, and whether it ever differed, if the simulator checks itself.
    checked: Option<Box<(MayCache, Cell<bool>)>>,
}

impl SimTlbs {
    /// TLBs of `cpus` CPUs with `asids` slots each.
    pub fn new(cpus: usize, asids: usize) -> SimTlbs {
        SimTlbs {
            cpus: vec![Tlb::new(asids); cpus],
            views: vec![SlotView::default(); cpus * asids],
            asids,
            logs: Vec::new(),
            room: Room::UNBOUNDED,
            upgraded: None,
            checked: None,
        }
    }

    /// These TLBs, with logs that take their memory from `room`.
    #[must_use]
    pub fn within(self, room: Room) -> SimTlbs {
        SimTlbs { room, ..self }
    }

    /// These TLBs, with every answer checked against the sets of everything that may be cached.
    /// This is slow, and meant for tests.
    #[must_use]
    pub fn checked(self, rule: AccessedDirty) -> SimTlbs {
        let sets = (MayCache::new(rule), Cell::new(false));
        SimTlbs { checked: Some(Box::new(sets)), ..self }
    }

    /// This is kept apart from the changes that revoke nothing, which are the most frequent.
    #[inline(never)]
    fn revoked(&mut self, id: MmId, revoked: Revoked) {
        let SimTlbs { logs, room, .. } = self;
        let entries = &mut log_of(logs, id).entries;
        // An entry that there is no memory for is left out, because the run is about to end.
        if entries.len() < entries.capacity() || room.make(entries, 1).is_some() {
            entries.push(revoked);
        }
    }

    /// These TLBs, which also track pages that became writable while CPUs may hold older
    /// translations of them. CPUs may hold a huge page, of order `huge`, in `pieces`.
    pub fn with_upgrades(self, huge: u8, pieces: bool) -> SimTlbs {
        SimTlbs { upgraded: Some(Upgraded::new(huge, pieces)), ..self }
    }

    /// Whether a store that walks may meet a translation from before its page became writable. The
    /// answer is given once: afterwards the CPU has no such translation.
    #[inline(always)]
    pub fn take_upgraded(&mut self, cpu: CpuId, asid: usize, page: Vpn) -> bool {
        self.upgraded.as_mut().is_some_and(|upgraded| upgraded.take(cpu, asid, page))
    }

    /// Records that the slot of the CPU holds nothing of `scope` any more.
    #[inline(always)]
    fn flush_upgraded(&mut self, cpu: CpuId, asid: usize, scope: FlushScope) {
        if let Some(upgraded) = &mut self.upgraded {
            upgraded.flush(cpu, asid, scope);
        }
    }

    #[inline]
    fn view(&self, cpu: CpuId, asid: usize) -> &SlotView {
        &self.views[cpu.index() * self.asids + asid]
    }

    /// Whether the slot may still hold any revoked translation.
    #[inline]
    fn holds_any(&self, view: &SlotView, id: MmId) -> bool {
        !view.left.is_empty() || self.logs.get(id.index()).is_some_and(|log| log.end() != view.seen)
    }

    /// The translations that were revoked since the slot was last settled.
    #[inline]
    fn fresh(&self, view: &SlotView, id: MmId) -> &[Revoked] {
        self.logs.get(id.index()).map_or(&[][..], |log| log.from(view.seen))
    }

    /// Processes the slot's list and its address space's log, up to the log's end. Afterwards the
    /// slot holds what `keep` selects. Does nothing if the slot belongs to no address space.
    #[inline]
    fn settle(&mut self, cpu: CpuId, asid: usize, keep: impl Fn(&Revoked) -> bool) {
        let view = &mut self.views[cpu.index() * self.asids + asid];
        let Some(id) = view.mm else { return };
        let Some(log) = self.logs.get(id.index()) else { return };
        if !view.left.is_empty() {
            view.left.retain(&keep);
        }
        if log.end() == view.seen {
            return;
        }
        let left_at = view.left_at;
        for entry in log.from(view.seen) {
            if left_at.is_none_or(|at| entry.since < at)
                && keep(entry)
                && (view.left.len() < view.left.capacity()
                    || self.room.make(&mut view.left, 1).is_some())
            {
                view.left.push(*entry);
            }
        }
        view.seen = log.end();
        if log.entries.len() >= log.prune_at {
            self.prune(id);
        }
    }

    /// The first page of `range` whose translation, cached in slot `asid` of `cpu`, is stale: an
    /// access would use it. This costs nothing while the slot may hold no revoked translation.
    #[inline]
    pub fn stale_hit(
        &self,
        cpu: CpuId,
        asid: usize,
        id: MmId,
        mm: &Mm,
        range: PageRange,
    ) -> Option<Vpn> {
        let view = self.view(cpu, asid);
        if self.holds_any(view, id) { self.find_hit(cpu, asid, id, mm, range) } else { None }
    }

    fn find_hit(
        &self,
        cpu: CpuId,
        asid: usize,
        id: MmId,
        mm: &Mm,
        range: PageRange,
    ) -> Option<Vpn> {
        let view = self.view(cpu, asid);
        let tlb = &self.cpus[cpu.index()];
        let epoch = tlb.epoch(asid);
        let fresh = self.fresh(view, id).iter().filter(|entry| view.cached(entry));
        let held = view.left.iter().chain(fresh);
        held.filter(|entry| is_stale_now(entry.pages, entry.old, &mm.table))
            .flat_map(|entry| range.intersect(entry.pages.range()).iter())
            .find(|page| tlb.holds(*page, epoch))
    }

    #[inline(never)]
    fn holds_stale(&self, view: &SlotView, id: MmId, mm: &Mm, scope: FlushScope) -> bool {
        let fresh = || self.fresh(view, id).iter();
        view.left.iter().any(|entry| entry.is_stale(scope, mm))
            || fresh().any(|entry| view.cached(entry) && entry.is_stale(scope, mm))
    }

    #[cold]
    fn leaves_stale(&self, view: &SlotView, id: MmId, mm: &Mm, scope: FlushScope) -> bool {
        let fresh = self.fresh(view, id).iter().filter(|entry| view.cached(entry));
        let mut left = view.left.iter().chain(fresh).filter(|entry| !scope.covers(entry.pages));
        left.any(|entry| entry.is_stale(FlushScope::All, mm))
    }

    /// Compares `stale` with the second answer, if there is one, and notes a difference.
    #[inline]
    fn hold_against(&self, stale: bool, other: impl FnOnce(&MayCache) -> bool) -> bool {
        if let Some(checked) = &self.checked
            && other(&checked.0) != stale
        {
            checked.1.set(true);
        }
        stale
    }

    /// Replaces the slot's view. The new view reuses the memory of its list.
    fn replace_view(&mut self, cpu: CpuId, asid: usize, new: SlotView) {
        let view = &mut self.views[cpu.index() * self.asids + asid];
        let mut left = std::mem::take(&mut view.left);
        left.clear();
        *view = SlotView { left, ..new };
    }

    /// Drops log entries that no slot has left to look at.
    #[cold]
    fn prune(&mut self, id: MmId) {
        let views = self.views.iter().filter(|view| view.mm == Some(id));
        let least = views.map(|view| view.seen).min().unwrap_or(u64::MAX);
        let log = &mut self.logs[id.index()];
        let gone = least.min(log.end()) - log.dropped;
        log.entries.drain(..gone as usize);
        log.dropped += gone;
        log.prune_at = RevokedLog::SHORT.max(2 * log.entries.len());
    }
}

impl Tlbs for SimTlbs {
    #[inline(always)]
    fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange) {
        if let Some(checked) = &mut self.checked {
            checked.0.pte_changed(cpus, id, change);
        }
        let PteChange { pages, old, new, since } = change;
        if let Some(old) = old
            && is_stale(old, new)
        {
            self.revoked(id, Revoked { pages, old, since });
        } else if let Some(upgraded) = &mut self.upgraded
            && let (Some(old), Some(new)) = (old, new)
            && new.writable()
            && !old.writable()
        {
            upgraded.note(cpus, id, pages);
        }
    }

    #[inline(always)]
    fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm) {
        if let Some(checked) = &mut self.checked {
            checked.0.flush(cpu, asid, scope, mm);
        }
        self.flush_upgraded(cpu, asid, scope);
        let tlb = &mut self.cpus[cpu.index()];
        match scope {
            FlushScope::All => {
                tlb.flush_slot(asid);
                self.settle(cpu, asid, |_| false);
            }
            FlushScope::Pages(range, stride) => {
                let pages = range.iter().step_by(1 << stride);
                pages.for_each(|page| tlb.flush_page(page, asid));
                self.settle(cpu, asid, |entry| !scope.covers(entry.pages));
            }
        }
    }

    fn assign(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm) {
        if let Some(checked) = &mut self.checked {
            checked.0.assign(cpu, asid, id, mm);
        }
        self.flush_upgraded(cpu, asid, FlushScope::All);
        self.cpus[cpu.index()].flush_slot(asid);
        let seen = log_of(&mut self.logs, id).end();
        self.replace_view(cpu, asid, SlotView { seen, mm: Some(id), ..SlotView::default() });
    }

    fn load(&mut self, cpu: CpuId, asid: usize, _: MmId, mm: &Mm) {
        if let Some(checked) = &mut self.checked {
            checked.0.walk_all(cpu, asid, mm);
        }
        self.settle(cpu, asid, |_| true);
        self.views[cpu.index() * self.asids + asid].left_at = None;
    }

    fn unload(&mut self, cpu: CpuId, asid: usize, unloads: u32) {
        self.settle(cpu, asid, |_| true);
        self.views[cpu.index() * self.asids + asid].left_at = Some(unloads);
    }

    fn forget(&mut self, cpu: CpuId, asid: usize) {
        self.flush_upgraded(cpu, asid, FlushScope::All);
        self.cpus[cpu.index()].flush_slot(asid);
        self.replace_view(cpu, asid, SlotView::default());
        if let Some(checked) = &mut self.checked {
            checked.0.forget(cpu, asid);
        }
    }

    fn faulted(&mut self, cpu: CpuId, asid: usize, page: Vpn, mm: &Mm) {
        if let Some(checked) = &mut self.checked {
            checked.0.flush(cpu, asid, FlushScope::Pages(PageRange::one(page), 0), mm);
        }
        self.take_upgraded(cpu, asid, page);
        self.cpus[cpu.index()].flush_page(page, asid);
        self.settle(cpu, asid, |entry| !entry.pages.contains(page));
    }

    #[inline]
    fn may_be_stale(&self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm, scope: FlushScope) -> bool {
        let view = self.view(cpu, asid);
        let stale = view.mm == Some(id)
            && self.holds_any(view, id)
            && self.holds_stale(view, id, mm, scope);
        self.hold_against(stale, |sets| {
            sets.may_hold(cpu, asid, id, mm, |pages| scope.covers(pages))
        })
    }

    fn may_leave_stale(
        &self,
        cpu: CpuId,
        asid: usize,
        id: MmId,
        mm: &Mm,
        scope: FlushScope,
    ) -> bool {
        let view = self.view(cpu, asid);
        let stale = view.mm == Some(id) && self.leaves_stale(view, id, mm, scope);
        self.hold_against(stale, |sets| {
            sets.may_hold(cpu, asid, id, mm, |pages| !scope.covers(pages))
        })
    }

    fn contradicts_itself(&self) -> bool {
        self.checked.as_ref().is_some_and(|checked| checked.1.get())
    }
}
