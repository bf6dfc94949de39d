//! What is mapped, and how: the part of a scenario's state that decides whether an operation is
//! permitted.

use super::operations::{Drawn, Effect, Needs, Of, Operation};
use super::{AreaPlan, Memory, Place};
use needless_model::program::Prot;
use needless_model::userfaultfd::Features;
use std::collections::BTreeMap;
use std::ops::Range;

/// The number of pages of a huge page.
pub(super) const HUGE: usize = 512;

/// How areas are mapped unless a step says otherwise.
pub(super) const MAP: Effect = Effect::Map(Prot::ReadWrite);

/// A run of pages of one area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The area's number.
    pub area: usize,
    /// The pages of the run.
    pub range: Range<usize>,
}

/// A mapped page.
#[derive(Copy, Clone, Debug)]
struct Mapped {
    prot: Prot,
    /// Whether a guard replaces the page.
    guard: bool,
    /// Whether userfaultfd watches stores to the page.
    watched: bool,
    /// Whether the page is locked in memory.
    locked: bool,
    /// Pages with the same number certainly belong to one mapping.
    mapping: u32,
}

/// All pages of all areas.
#[derive(Clone, Debug, Default)]
pub struct State {
    areas: Vec<Vec<Option<Mapped>>>,
    /// What each area maps.
    memory: Vec<Memory>,
    /// Whether each area begins where a huge page may begin.
    aligned: Vec<bool>,
    mappings: u32,
    /// Whether pages of one mapping must be in one mapping again in the next round. An operation
    /// asks for it.
    keeps_mappings: bool,
    /// Whether several mappings stay several when a part of them changes.
    keeps_apart: bool,
    /// How userfaultfd is used and answered.
    uffd: Uffd,
    /// Whether this is the state of a forked process.
    child: bool,
}

/// The userfaultfd of a case.
#[derive(Copy, Clone, Debug, Default)]
pub struct Uffd {
    /// Whether the case has a userfaultfd.
    pub drawn: bool,
    /// The userfaultfd's features.
    pub features: Features,
    /// Whether a thread answers faults.
    pub handled: bool,
    /// Whether a fault on a missing page of the first area is answered by moving a page of the
    /// second.
    pub moves: bool,
    /// Whether the kernel refuses to watch other accesses where userfaultfd watches stores.
    pub busy: bool,
}

impl State {
    /// The state of these areas before any is mapped, for these operations.
    pub fn new<'o>(
        plans: &[AreaPlan],
        operations: impl IntoIterator<Item = &'o Operation>,
    ) -> State {
        let areas = plans.iter().map(|plan| vec![None; plan.pages]).collect();
        let memory = plans.iter().map(|plan| plan.memory).collect();
        let aligned = plans.iter().map(|plan| matches!(plan.place, Place::Alone)).collect();
        let operations: Vec<&Operation> = operations.into_iter().collect();
        let any = |asks: fn(&Operation) -> bool| operations.iter().any(|op| asks(op));
        let watched = any(|op| op.effect == Effect::Watch(true));
        let keeps_mappings = any(|op| op.needs == Needs::OneMapping)
            || any(|op| op.needs == Needs::RoomWatched)
            || watched
                && any(|op| {
                    let one = [Needs::WatchedOne, Needs::WatchedWritable, Needs::Room];
                    one.contains(&op.needs)
                });
        let apart = [Drawn::WithMlock, Drawn::WithNodes];
        let keeps_apart = operations.iter().any(|op| apart.contains(&op.drawn));
        let (uffd, child) = (Uffd::default(), false);
        State { areas, memory, aligned, mappings: 0, keeps_mappings, keeps_apart, uffd, child }
    }

    /// The state for cases in which huge pages are collapsed only within one mapping. The state
    /// does not know which of several mappings merged again.
    #[must_use]
    pub fn collapses_one_mapping(self) -> State {
        State { keeps_mappings: true, keeps_apart: true, ..self }
    }

    /// The state with this userfaultfd.
    #[must_use]
    pub fn with(self, uffd: Uffd) -> State {
        State { uffd, keeps_apart: self.keeps_apart || uffd.drawn, ..self }
    }

    /// The features of the case's userfaultfd.
    pub fn features(&self) -> Features {
        self.uffd.features
    }

    /// The state of a process that is forked now.
    #[must_use]
    pub fn of_child(&self) -> State {
        let mut child = State { child: true, ..self.clone() };
        child.areas.iter_mut().flatten().flatten().for_each(|page| page.locked = false);
        child
    }

    /// The number of areas.
    pub fn areas(&self) -> usize {
        self.areas.len()
    }

    /// Every page of an area.
    pub fn whole(&self, area: usize) -> Pages {
        Pages { area, range: 0..self.areas[area].len() }
    }

    /// The page of the file with which an area begins, if the area maps the file.
    pub fn first(&self, area: usize) -> Option<usize> {
        match self.memory.get(area)? {
            Memory::File { first, .. } => Some(*first),
            Memory::Private | Memory::Shared => None,
        }
    }

    /// The number of pages of the file: as many as the areas need.
    pub fn file_pages(&self) -> usize {
        let end = |area: usize| Some(self.first(area)? + self.areas[area].len());
        (0..self.areas.len()).filter_map(end).max().unwrap_or(0)
    }

    /// The area that pages of `area` move to.
    pub fn other(&self, area: usize) -> Option<usize> {
        (0..self.areas.len()).find(|other| *other != area)
    }

    /// Whether the operation is permitted on `pages`.
    pub fn permits(&self, operation: &Operation, pages: &Pages) -> bool {
        let moves_to = self.other(pages.area).filter(|_| operation.effect == Effect::Move);
        let mut areas = std::iter::once(pages.area).chain(moves_to);
        let fits = |area: usize| match (operation.of, self.memory.get(area)) {
            (Of::All, _) | (Of::Private | Of::InMemory, None | Some(Memory::Private)) => true,
            (Of::InMemory | Of::FileInMemory, Some(memory)) => match memory {
                Memory::Shared => true,
                Memory::File { disk, .. } => !disk,
                Memory::Private => false,
            },
            (Of::OnDisk, Some(memory)) => matches!(memory, Memory::File { disk: true, .. }),
            (Of::SharedInMemory, Some(memory)) => match memory {
                Memory::Shared => true,
                Memory::File { shared, disk, .. } => *shared && !disk,
                Memory::Private => false,
            },
            (Of::SharedOnDisk, Some(memory)) => {
                matches!(memory, Memory::File { shared: true, disk: true, .. })
            }
            (Of::File, Some(memory)) => matches!(memory, Memory::File { .. }),
            (Of::Private, Some(_))
            | (
                Of::FileInMemory | Of::SharedInMemory | Of::SharedOnDisk | Of::OnDisk | Of::File,
                None,
            ) => false,
        };
        let firsts = [Drawn::WithUserfaultfd, Drawn::WithWatchedFiles, Drawn::WithMovedIn];
        let firsts = firsts.contains(&operation.drawn);
        let there = !(self.child && firsts);
        // The effect of a `MovedIn` operation ends the watching, but the operation begins by
        // watching missing pages.
        let others = operation.effect == Effect::WatchOthers || operation.needs == Needs::MovedIn;
        let busy = self.uffd.busy && others && self.any(pages, |page| page.watched);
        let unwatched = operation.effect == Effect::Watch(false)
            && matches!(self.memory.get(pages.area), Some(Memory::File { disk: true, .. }))
            && !self.allows(Needs::Watched, pages);
        let lets_go = operation.lets_go() || operation.effect == Effect::Protect(Prot::None);
        let stays = lets_go && self.any(pages, |page| page.locked);
        there
            && !stays
            && !busy
            && !unwatched
            && areas.all(fits)
            && self.allows(operation.needs, pages)
    }

    /// Whether `so` holds for some of the pages.
    fn any(&self, pages: &Pages, so: fn(&Mapped) -> bool) -> bool {
        let part = self.areas.get(pages.area).and_then(|area| area.get(pages.range.clone()));
        part.is_some_and(|part| part.iter().flatten().any(so))
    }

    /// Whether `pages` are what an operation with these needs requires.
    pub fn allows(&self, needs: Needs, pages: &Pages) -> bool {
        let Some(area) = self.areas.get(pages.area) else { return false };
        let Some(part) = area.get(pages.range.clone()).filter(|part| !part.is_empty()) else {
            return false;
        };
        let all = |good: fn(Mapped) -> bool| part.iter().all(|page| page.is_some_and(good));
        match needs {
            Needs::Mapped => all(|_| true),
            Needs::Readable => all(|page| page.prot != Prot::None && !page.guard),
            Needs::Writable => all(|page| page.prot == Prot::ReadWrite && !page.guard),
            Needs::WholeHuge => {
                let Range { start, end } = pages.range;
                let whole = start % HUGE == 0 && end % HUGE == 0 && self.aligned[pages.area];
                // Pages that userfaultfd protects are not collapsed (EINVAL), nor pages of several
                // mappings.
                let first = part[0].map(|page| page.mapping);
                let one = part.iter().all(|page| page.map(|page| page.mapping) == first);
                let in_one = self.uffd.drawn || self.keeps_apart;
                let fits = !in_one || one && all(|page| !page.watched);
                whole && fits && self.allows(Needs::Writable, pages)
            }
            // Where answers move pages in, the other operations that need an answer are left out:
            // they would find no page to move.
            Needs::Handled => self.uffd.handled && !self.uffd.moves && all(|_| true),
            Needs::MovedIn => {
                self.uffd.moves && pages.area == 0 && {
                    let private = |area: usize| self.memory.get(area) == Some(&Memory::Private);
                    let from = Pages { area: 1, range: pages.range.clone() };
                    let both = [pages, &from];
                    (0..2).all(private)
                        && both.iter().all(|pages| self.allows(Needs::Writable, pages))
                }
            }
            Needs::Watched => all(|page| page.watched),
            Needs::WatchedAsync => self.uffd.features.asynchronous && all(|page| page.watched),
            Needs::WatchedOne => {
                let first = part[0].map(|page| page.mapping);
                all(|page| page.watched) && part.iter().all(|p| p.map(|p| p.mapping) == first)
            }
            Needs::Async => self.uffd.features.asynchronous && all(|_| true),
            Needs::WatchedWritable => {
                self.allows(Needs::WatchedOne, pages) && self.allows(Needs::Writable, pages)
            }
            Needs::RoomWatched => self.other(pages.area).is_some_and(|other| {
                self.allows(Needs::OneMapping, pages)
                    && self.allows(Needs::Writable, pages)
                    && self.allows(Needs::WatchedWritable, &self.whole(other))
                    && self.memory.get(other).is_none_or(|memory| *memory == Memory::Private)
            }),
            Needs::SomeMapped => part.iter().any(Option::is_some),
            Needs::WholeUnmapped => part.len() == area.len() && part.iter().all(Option::is_none),
            Needs::OneMapping => {
                let first = part[0].map(|page| page.mapping);
                self.allows(Needs::Room, pages)
                    && part.iter().all(|page| page.map(|page| page.mapping) == first)
            }
            Needs::Room => {
                // Pages that userfaultfd watches move only as one mapping.
                let first = part[0].map(|page| page.mapping);
                let one = part.iter().all(|page| page.map(|page| page.mapping) == first);
                if !one && !all(|page| !page.watched) {
                    return false;
                }
                let room = self.other(pages.area).map_or(0, |other| self.areas[other].len());
                part.len() <= room && all(|_| true)
            }
        }
    }

    /// Applies an operation's effect to the pages.
    pub fn apply(&mut self, effect: Effect, pages: &Pages) {
        let range = pages.range.clone();
        match effect {
            Effect::None => {}
            Effect::Map(prot) => {
                let mapping = self.next_mapping();
                let (guard, watched, locked) = (false, false, false);
                let page = Some(Mapped { prot, guard, watched, locked, mapping });
                self.areas[pages.area][range].fill(page);
            }
            Effect::Unmap => self.areas[pages.area][range].fill(None),
            Effect::Split => {
                if *pages != self.whole(pages.area) {
                    self.split(pages);
                }
            }
            Effect::Protect(prot) => {
                if *pages != self.whole(pages.area) {
                    self.split(pages);
                }
                self.areas[pages.area][range].iter_mut().flatten().for_each(|p| p.prot = prot);
            }
            Effect::Watch(_) | Effect::WatchOthers => {
                let watched = effect == Effect::Watch(true);
                if *pages != self.whole(pages.area) {
                    self.split(pages);
                }
                self.areas[pages.area][range]
                    .iter_mut()
                    .flatten()
                    .for_each(|p| p.watched = watched);
            }
            Effect::Lock(locked) => {
                if *pages != self.whole(pages.area) {
                    self.split(pages);
                }
                self.areas[pages.area][range].iter_mut().flatten().for_each(|p| p.locked = locked);
            }
            Effect::Guard(guard) => {
                self.areas[pages.area][range].iter_mut().flatten().for_each(|p| p.guard = guard);
            }
            Effect::Move => self.move_away(pages),
        }
    }

    fn move_away(&mut self, pages: &Pages) {
        let Some(to) = self.other(pages.area) else { return };
        let mapping = self.next_mapping();
        let moved: Vec<_> = self.areas[pages.area][pages.range.clone()]
            .iter_mut()
            .map(|page| page.take().map(|page| Mapped { mapping, watched: false, ..page }))
            .collect();
        self.areas[to][..moved.len()].copy_from_slice(&moved);
    }

    /// The range, and the pages behind it, may be mappings of their own from now on. Several
    /// mappings stay several, except in cases that are older than userfaultfd and locked memory.
    /// (Mappings with equal protections merge again, unless their first faults gave them different
    /// anon_vmas.)
    fn split(&mut self, pages: &Pages) {
        let keeps_apart = self.keeps_apart;
        let (Range { start, end }, area) = (pages.range.clone(), pages.area);
        let size = self.areas[area].len();
        for part in [start..end, end..size] {
            let (mut last, mut new) = (None, self.next_mapping());
            for at in part {
                let old = self.areas[area][at].map(|page| page.mapping);
                if keeps_apart && old != last {
                    (last, new) = (old, self.next_mapping());
                }
                self.areas[area][at].iter_mut().for_each(|page| page.mapping = new);
            }
        }
    }

    fn next_mapping(&mut self) -> u32 {
        self.mappings += 1;
        self.mappings
    }

    /// The protection that all of the pages have; `None` if they differ.
    pub fn protection(&self, pages: &Pages) -> Option<Prot> {
        let part = self.areas.get(pages.area)?.get(pages.range.clone())?;
        let first = part.first()?.as_ref()?.prot;
        part.iter().all(|page| page.is_some_and(|page| page.prot == first)).then_some(first)
    }

    /// The effects that bring every page back to its mapping and protection in `before`. Pages that
    /// were one mapping become one again if that matters.
    pub fn way_back(&self, before: &State) -> Vec<(Effect, Pages)> {
        let mut now = self.clone();
        let mut way = Vec::new();
        for area in 0..now.areas.len() {
            let whole = now.whole(area);
            let (old, new) = (&before.areas[area], &now.areas[area]);
            let gone = old.iter().zip(new).any(|(old, new)| old.is_some() && new.is_none());
            if gone || self.keeps_mappings && split(old, new) {
                let some = now.allows(Needs::SomeMapped, &whole);
                let unmap = some.then_some((Effect::Unmap, whole.clone()));
                way.extend(unmap.into_iter().chain([(MAP, whole.clone())]));
                now.apply(MAP, &whole);
            }
            let new = &now.areas[area];
            let runs = corrections(old, new, mapping_or_protection);
            let guards = corrections(old, new, guard);
            // What a forked process watches is its own and is not undone.
            let watches = if now.child { Vec::new() } else { corrections(old, new, watched) };
            // Locked pages have no guards and may be loaded from. So pages are unlocked before the
            // other changes and locked after them.
            let locking = corrections(old, new, locked);
            let (locks, unlocks): (Vec<_>, Vec<_>) =
                locking.into_iter().partition(|(effect, _)| *effect == Effect::Lock(true));
            let first = unlocks.into_iter().chain(runs);
            for (effect, range) in first.chain(guards).chain(watches).chain(locks) {
                way.push((effect, Pages { area, range }));
            }
        }
        way
    }
}

/// Whether pages that were one mapping may now be several.
fn split(old: &[Option<Mapped>], new: &[Option<Mapped>]) -> bool {
    let mut now: BTreeMap<u32, u32> = BTreeMap::new();
    let pairs = old.iter().zip(new).filter_map(|(old, new)| Some(((*old)?, (*new)?)));
    pairs
        .into_iter()
        .any(|(old, new)| *now.entry(old.mapping).or_insert(new.mapping) != new.mapping)
}

/// The effect that corrects a page that is mapped now; `None` if nothing has to change.
type Correction = fn(Option<Mapped>, Mapped) -> Option<Effect>;

fn mapping_or_protection(old: Option<Mapped>, new: Mapped) -> Option<Effect> {
    match old {
        None => Some(Effect::Unmap),
        Some(old) if old.prot != new.prot => Some(Effect::Protect(old.prot)),
        Some(_) => None,
    }
}

fn guard(old: Option<Mapped>, new: Mapped) -> Option<Effect> {
    match old {
        Some(old) if old.guard != new.guard => Some(Effect::Guard(old.guard)),
        _ => None,
    }
}

fn locked(old: Option<Mapped>, new: Mapped) -> Option<Effect> {
    match old {
        Some(old) if old.locked != new.locked => Some(Effect::Lock(old.locked)),
        _ => None,
    }
}

fn watched(old: Option<Mapped>, new: Mapped) -> Option<Effect> {
    match old {
        Some(old) if old.watched != new.watched => Some(Effect::Watch(old.watched)),
        _ => None,
    }
}

/// Runs of pages that need the same correction.
fn corrections(
    old: &[Option<Mapped>],
    new: &[Option<Mapped>],
    correction: Correction,
) -> Vec<(Effect, Range<usize>)> {
    let mut runs: Vec<(Effect, Range<usize>)> = Vec::new();
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        let Some(effect) = new.and_then(|new| correction(*old, new)) else { continue };
        match runs.last_mut() {
            Some((last, range)) if *last == effect && range.end == at => range.end += 1,
            _ => runs.push((effect, at..at + 1)),
        }
    }
    runs
}
