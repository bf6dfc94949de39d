//! TLBs.
//!
//! Two answers are kept apart. *Would this access hit?* is a matter of capacity: [`Tlb`], per CPU, a
//! two-level set-associative array. *May this CPU hold that translation?* decides safety and
//! verdicts and must not depend on capacity: any walk that could have happened may have
//! happened. [`Tlbs`] is the seam: the simulator keeps [`SimTlbs`] (arrays plus a log of revoked
//! translations), the checker keeps explicit may-cache sets.

use super::cpu::Cpu;
use super::may_cache::MayCache;
use super::mm::Mm;
use crate::addr::{CpuId, MmId, PageRange, Vpn};
use crate::pte::{PresentPte, Pte};
use std::cell::Cell;

/// What a CPU flushes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlushScope {
    /// Everything under the slot's identifier.
    All,
    /// These pages.
    Pages(PageRange),
}

impl FlushScope {
    /// Whether it covers `page`.
    pub fn covers(self, page: Vpn) -> bool {
        match self {
            FlushScope::All => true,
            FlushScope::Pages(range) => range.contains(page),
        }
    }
}

/// A PTE change.
#[derive(Copy, Clone, Debug)]
pub struct PteChange {
    /// The page.
    pub page: Vpn,
    /// What the PTE was.
    pub old: Pte,
    /// What it is.
    pub new: Pte,
    /// The address space's unload count when the old translation was established.
    pub since: u32,
}

/// What all CPUs' TLBs may hold.
pub trait Tlbs {
    /// A PTE of address space `id` changed. Called after every change, with the CPUs as they are.
    fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange);

    /// `cpu` flushes `scope` under slot `asid`, which stands for `mm`.
    fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm);

    /// Slot `asid` of `cpu` is handed to address space `id`, flushed.
    fn assign(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm);

    /// `cpu` loads slot `asid`, which stands for `id` already, without a flush.
    fn load(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm);

    /// `cpu` leaves slot `asid` for another; `unloads` counts such events of the address space.
    fn unload(&mut self, cpu: CpuId, asid: usize, unloads: u32);

    /// `cpu` took a fault on `page`: its own entries for the page are gone.
    fn faulted(&mut self, cpu: CpuId, asid: usize, page: Vpn, mm: &Mm);

    /// Whether slot `asid` of `cpu` may hold a stale translation of `mm` in `scope`.
    fn may_be_stale(&self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm, scope: FlushScope) -> bool;

    /// Whether two ways to answer, where there are two, ever gave different answers.
    fn contradicts_itself(&self) -> bool {
        false
    }
}

/// Whether a TLB entry made from `old` grants what `new` does not, or names another frame.
/// A cached dirty bit counts as a right: it lets a store through that leaves no trace in the PTE.
/// The accessed bit does not.
pub fn is_stale(old: PresentPte, new: Pte) -> bool {
    let Some(new) = new.present().filter(|pte| !pte.protnone()) else { return !old.protnone() };
    !old.protnone()
        && (old.pfn != new.pfn
            || old.writable() && !new.writable()
            || old.writable() && old.dirty() && !new.dirty())
}

/// Geometry of one level.
#[derive(Copy, Clone, Debug)]
pub struct TlbLevel {
    /// Sets; a power of two.
    pub sets: usize,
    /// Ways.
    pub ways: usize,
}

/// A first-level data TLB of 64 entries in 4 ways: Intel since Haswell (optimization manual,
/// "Data TLB", 4-KByte pages). The model's counts do not depend on it.
pub const L1: TlbLevel = TlbLevel { sets: 16, ways: 4 };
/// A second level of 1536 entries in 12 ways: Intel since Skylake.
pub const L2: TlbLevel = TlbLevel { sets: 128, ways: 12 };

const EPOCH_BITS: u32 = 24;

/// One CPU's TLB. An entry's tag holds the page and the epoch of its slot; flushing a whole slot
/// gives it a new epoch, in constant time. Reads and writes have tags of their own: a page is in
/// the write tags if a store to it needs no page walk (writable and dirty already).
/// Replacement is first-in first-out, so that a hit changes nothing.
#[derive(Clone, Debug)]
pub struct Tlb {
    l1_read: [[u64; L1.ways]; L1.sets],
    l1_write: [[u64; L1.ways]; L1.sets],
    l2_read: Box<[u64]>,
    l2_write: Box<[u64]>,
    l1_next: [u8; L1.sets],
    l2_next: Box<[u8]>,
    slots: Vec<TlbSlot>,
    last_epoch: u64,
}

/// A slot of a TLB.
#[derive(Copy, Clone, Debug, Default)]
struct TlbSlot {
    epoch: u64,
    /// Something was entered in this epoch: there is something to flush.
    filled: bool,
}

impl Tlb {
    /// An empty TLB for `asids` slots.
    pub fn new(asids: usize) -> Tlb {
        let mut tlb = Tlb {
            l1_read: [[0; L1.ways]; L1.sets],
            l1_write: [[0; L1.ways]; L1.sets],
            l2_read: vec![0; L2.sets * L2.ways].into(),
            l2_write: vec![0; L2.sets * L2.ways].into(),
            l1_next: [0; L1.sets],
            l2_next: vec![0; L2.sets].into(),
            slots: vec![TlbSlot::default(); asids],
            last_epoch: 0,
        };
        (0..asids).for_each(|asid| tlb.renew(asid));
        tlb
    }

    /// The epoch of a slot, for [`Tlb::hit`].
    #[inline]
    pub fn epoch(&self, asid: usize) -> u64 {
        self.slots[asid].epoch
    }

    /// Whether the access needs no walk, for accesses in no order. The hit path: no branch on
    /// policy, no allocation.
    #[inline(always)]
    pub fn hit<const WRITE: bool>(&mut self, page: Vpn, epoch: u64) -> bool {
        let tag = page.0 << EPOCH_BITS | epoch;
        // Which way it is in cannot be predicted, so no branch may ask: the least difference does.
        let [a, b, c, d] = self.l1_set::<WRITE>(page).map(|entry| entry ^ tag);
        a.min(b).min(c.min(d)) == 0 || self.hit_l2(page, tag, WRITE)
    }

    /// The same for ascending accesses: neighbours mostly lie in the same way of their sets, which
    /// `way` remembers from one to the next.
    #[inline(always)]
    pub fn hit_next<const WRITE: bool>(&mut self, page: Vpn, epoch: u64, way: &mut usize) -> bool {
        let tag = page.0 << EPOCH_BITS | epoch;
        let set = self.l1_set::<WRITE>(page);
        if set[*way % L1.ways] == tag {
            return true;
        }
        match set.iter().position(|entry| *entry == tag) {
            Some(found) => {
                *way = found;
                true
            }
            None => self.hit_l2(page, tag, WRITE),
        }
    }

    #[inline(always)]
    fn l1_set<const WRITE: bool>(&self, page: Vpn) -> &[u64; L1.ways] {
        let tags = if WRITE { &self.l1_write } else { &self.l1_read };
        &tags[page.0 as usize % L1.sets]
    }

    /// Whether some level has an entry for reads.
    fn holds(&self, page: Vpn, epoch: u64) -> bool {
        let tag = page.0 << EPOCH_BITS | epoch;
        let base = (page.0 as usize % L2.sets) * L2.ways;
        self.l1_read[page.0 as usize % L1.sets].contains(&tag)
            || self.l2_read[base..base + L2.ways].contains(&tag)
    }

    #[cold]
    #[inline(never)]
    fn hit_l2(&mut self, page: Vpn, tag: u64, write: bool) -> bool {
        let base = (page.0 as usize % L2.sets) * L2.ways;
        let read = &self.l2_read[base..base + L2.ways];
        let Some(way) = read.iter().position(|entry| *entry == tag) else { return false };
        let writable = self.l2_write[base + way] == tag;
        if write && !writable {
            return false;
        }
        self.fill_l1(page, tag, writable);
        true
    }

    fn fill_l1(&mut self, page: Vpn, tag: u64, writable: bool) {
        let set = page.0 as usize % L1.sets;
        let way = match self.l1_read[set].iter().position(|entry| *entry == tag) {
            Some(way) => way,
            None => {
                self.l1_next[set] = (self.l1_next[set] + 1) % L1.ways as u8;
                self.l1_next[set] as usize
            }
        };
        self.l1_read[set][way] = tag;
        self.l1_write[set][way] = if writable { tag } else { 0 };
    }

    /// Enters the translation that a walk found; `writable`: stores need no further walk.
    #[inline(always)]
    pub fn fill(&mut self, page: Vpn, asid: usize, writable: bool) {
        let slot = &mut self.slots[asid];
        slot.filled = true;
        let tag = page.0 << EPOCH_BITS | slot.epoch;
        let set = page.0 as usize % L2.sets;
        let base = set * L2.ways;
        let way = match self.l2_read[base..base + L2.ways].iter().position(|entry| *entry == tag) {
            Some(way) => way,
            None => {
                self.l2_next[set] = (self.l2_next[set] + 1) % L2.ways as u8;
                self.l2_next[set] as usize
            }
        };
        self.l2_read[base + way] = tag;
        self.l2_write[base + way] = if writable { tag } else { 0 };
        self.fill_l1(page, tag, writable);
    }

    /// Drops one page of a slot.
    #[inline]
    pub fn flush_page(&mut self, page: Vpn, asid: usize) {
        let TlbSlot { epoch, filled } = self.slots[asid];
        if filled {
            self.drop_page(page, page.0 << EPOCH_BITS | epoch);
        }
    }

    #[inline(always)]
    fn drop_page(&mut self, page: Vpn, tag: u64) {
        let drop = |read: &mut [u64], write: &mut [u64]| {
            for (read, write) in read.iter_mut().zip(write) {
                if *read == tag {
                    (*read, *write) = (0, 0);
                }
            }
        };
        let set = page.0 as usize % L1.sets;
        drop(&mut self.l1_read[set], &mut self.l1_write[set]);
        let base = (page.0 as usize % L2.sets) * L2.ways;
        drop(&mut self.l2_read[base..base + L2.ways], &mut self.l2_write[base..base + L2.ways]);
    }

    /// The next store to the page walks.
    pub fn forget_store(&mut self, page: Vpn, asid: usize) {
        let tag = page.0 << EPOCH_BITS | self.slots[asid].epoch;
        let base = (page.0 as usize % L2.sets) * L2.ways;
        let (l1, l2) = (&mut self.l1_write[page.0 as usize % L1.sets], &mut self.l2_write);
        for write in l1.iter_mut().chain(&mut l2[base..base + L2.ways]) {
            *write = if *write == tag { 0 } else { *write };
        }
    }

    /// Drops everything under a slot.
    #[inline]
    pub fn flush_slot(&mut self, asid: usize) {
        if self.slots[asid].filled {
            self.renew(asid);
        }
    }

    /// Gives the slot an epoch of which nothing is cached; when there is none left, all slots.
    fn renew(&mut self, asid: usize) {
        self.last_epoch += 1;
        if self.last_epoch >> EPOCH_BITS != 0 {
            *self = Tlb::new(self.slots.len());
        } else {
            self.slots[asid] = TlbSlot { epoch: self.last_epoch, filled: false };
        }
    }
}

/// A translation that was taken away.
#[derive(Copy, Clone, Debug)]
struct Revoked {
    page: Vpn,
    old: PresentPte,
    /// The address space's unload count when the translation was established.
    since: u32,
}

/// Which revoked translations a slot may still hold.
#[derive(Clone, Debug, Default)]
struct SlotView {
    /// The address space's log has been dealt with up to here (counted from the run's start).
    seen: u64,
    /// Unflushed translations from before `seen`.
    left: Vec<Revoked>,
    /// The unload count at which the CPU left the slot; `None` while it is loaded.
    left_at: Option<u32>,
    mm: Option<MmId>,
}

/// The log of one address space.
#[derive(Clone, Debug, Default)]
struct RevokedLog {
    entries: Vec<Revoked>,
    /// Number of entries dropped before `entries[0]`.
    dropped: u64,
    /// At this length the log is pruned.
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

/// The simulator's TLBs: one [`Tlb`] per CPU and exact may-cache answers from logs.
#[derive(Clone, Debug)]
pub struct SimTlbs {
    /// The arrays.
    pub cpus: Vec<Tlb>,
    /// One view per slot, those of a CPU side by side.
    views: Vec<SlotView>,
    asids: usize,
    /// By address space.
    logs: Vec<RevokedLog>,
    /// The second answer, and whether it was ever another one, where the simulator checks itself.
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
            checked: None,
        }
    }

    /// The same, with every answer checked against sets of all that may be cached. Slow; for tests.
    #[must_use]
    pub fn checked(self) -> SimTlbs {
        SimTlbs { checked: Some(Box::default()), ..self }
    }

    fn log(&mut self, id: MmId) -> &mut RevokedLog {
        if self.logs.len() <= id.index() {
            self.logs.resize_with(id.index() + 1, RevokedLog::default);
        }
        &mut self.logs[id.index()]
    }

    #[inline]
    fn view(&self, cpu: CpuId, asid: usize) -> &SlotView {
        &self.views[cpu.index() * self.asids + asid]
    }

    /// Whether anything was revoked that the slot may still hold.
    #[inline]
    fn holds_any(&self, view: &SlotView, id: MmId) -> bool {
        !view.left.is_empty() || self.logs.get(id.index()).is_some_and(|log| log.end() != view.seen)
    }

    /// What the slot may still hold, revoked.
    #[inline]
    fn held<'a>(&'a self, view: &'a SlotView, id: MmId) -> impl Iterator<Item = &'a Revoked> {
        let fresh = self.logs.get(id.index()).map_or(&[][..], |log| log.from(view.seen));
        let left_at = view.left_at;
        let cached = move |entry: &&Revoked| left_at.is_none_or(|at| entry.since < at);
        view.left.iter().chain(fresh.iter().filter(cached))
    }

    /// Goes through what the slot holds and through its address space's log, up to the log's end:
    /// from now on it holds what `keep` says. Does nothing for a slot that stands for no address
    /// space.
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
            if left_at.is_none_or(|at| entry.since < at) && keep(entry) {
                view.left.push(*entry);
            }
        }
        view.seen = log.end();
        if log.entries.len() >= log.prune_at {
            self.prune(id);
        }
    }

    /// The first page of `range` whose cached translation in slot `asid` of `cpu` is stale: an
    /// access would use it. Free of cost while nothing revoked is outstanding.
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
        self.held(view, id)
            .filter(|entry| range.contains(entry.page))
            .filter(|entry| is_stale(entry.old, mm.table.get(entry.page)))
            .map(|entry| entry.page)
            .find(|page| tlb.holds(*page, epoch))
    }

    #[inline(never)]
    fn holds_stale(&self, view: &SlotView, id: MmId, mm: &Mm, scope: FlushScope) -> bool {
        self.held(view, id)
            .any(|entry| scope.covers(entry.page) && is_stale(entry.old, mm.table.get(entry.page)))
    }

    /// Forgets log entries that no slot has left to look at.
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
    #[inline]
    fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange) {
        if let Some(checked) = &mut self.checked {
            checked.0.pte_changed(cpus, id, change);
        }
        let PteChange { page, old, new, since } = change;
        if let Pte::Present(old) = old
            && is_stale(old, new)
        {
            self.log(id).entries.push(Revoked { page, old, since });
        }
    }

    #[inline]
    fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm) {
        if let Some(checked) = &mut self.checked {
            checked.0.flush(cpu, asid, scope, mm);
        }
        let tlb = &mut self.cpus[cpu.index()];
        match scope {
            FlushScope::All => {
                tlb.flush_slot(asid);
                self.settle(cpu, asid, |_| false);
            }
            FlushScope::Pages(range) => {
                range.iter().for_each(|page| tlb.flush_page(page, asid));
                self.settle(cpu, asid, |entry| !range.contains(entry.page));
            }
        }
    }

    fn assign(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm) {
        if let Some(checked) = &mut self.checked {
            checked.0.assign(cpu, asid, id, mm);
        }
        self.cpus[cpu.index()].flush_slot(asid);
        let seen = self.log(id).end();
        self.views[cpu.index() * self.asids + asid] =
            SlotView { seen, left: Vec::new(), left_at: None, mm: Some(id) };
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

    fn faulted(&mut self, cpu: CpuId, asid: usize, page: Vpn, mm: &Mm) {
        if let Some(checked) = &mut self.checked {
            checked.0.flush(cpu, asid, FlushScope::Pages(PageRange::one(page)), mm);
        }
        self.cpus[cpu.index()].flush_page(page, asid);
        self.settle(cpu, asid, |entry| entry.page != page);
    }

    #[inline]
    fn may_be_stale(&self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm, scope: FlushScope) -> bool {
        let view = self.view(cpu, asid);
        let stale = view.mm == Some(id)
            && self.holds_any(view, id)
            && self.holds_stale(view, id, mm, scope);
        if let Some(checked) = &self.checked
            && checked.0.may_be_stale(cpu, asid, id, mm, scope) != stale
        {
            checked.1.set(true);
        }
        stale
    }

    fn contradicts_itself(&self) -> bool {
        self.checked.as_ref().is_some_and(|checked| checked.1.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_hits_until_flushed() {
        let mut tlb = Tlb::new(2);
        let epoch = tlb.epoch(1);
        assert!(!tlb.hit::<false>(Vpn(5), epoch));
        tlb.fill(Vpn(5), 1, false);
        assert!(tlb.hit::<false>(Vpn(5), epoch) && !tlb.hit::<true>(Vpn(5), epoch));
        tlb.fill(Vpn(5), 1, true);
        assert!(tlb.hit::<true>(Vpn(5), epoch));
        tlb.flush_page(Vpn(5), 1);
        assert!(!tlb.hit::<false>(Vpn(5), epoch) && !tlb.hit::<true>(Vpn(5), epoch));
        tlb.fill(Vpn(6), 1, true);
        tlb.flush_slot(1);
        assert!(!tlb.hit::<false>(Vpn(6), tlb.epoch(1)));
    }

    #[test]
    fn epochs_wrap_without_old_hits() {
        let mut tlb = Tlb::new(1);
        let first = tlb.epoch(0);
        tlb.fill(Vpn(9), 0, true);
        for _ in 0..1 << EPOCH_BITS {
            tlb.flush_slot(0);
            tlb.fill(Vpn(8), 0, false);
        }
        for epoch in [first, tlb.epoch(0)] {
            assert!(!tlb.hit::<false>(Vpn(9), epoch));
        }
    }

    #[test]
    fn the_second_level_backs_the_first() {
        let mut tlb = Tlb::new(1);
        let epoch = tlb.epoch(0);
        for page in 0..1024 {
            tlb.fill(Vpn(page), 0, false);
        }
        assert!((0..1024).all(|page| tlb.hit::<false>(Vpn(page), epoch)));
    }
}
