//! From a chunk of states to those that follow, in three moves.
//!
//! [`Expansion::find`] takes every choice of every state, in order, and has the states that this
//! leads to. The set of known states then says which of them are new. [`Expansion::keep`] judges
//! those and finds out what can happen next in them. Chunks do not depend on each other, so workers
//! take them side by side. Their results are put together in the chunks' order, as if there were
//! one worker only.

use crate::choice::Choice;
use crate::env::Next;
use crate::footprint::{Footprint, Taken};
use crate::frontier::{Chunk, Shape, Waiting};
use crate::history::Reached;
use crate::judge::{self, IN_EVERY_STATE};
use crate::key::Key;
use crate::memo::{Cache, Memo};
use crate::observe::Watching;
use crate::parts::differing;
use crate::persistent::Futures;
use crate::property::{PropertySet, Violation};
use crate::seen::{PIECES, Seen};
use crate::setting::Setting;
use crate::state::{exercised, forget_the_last_step, ways_in_order};
use crate::symmetry::Renaming;
use needless_model::addr::CpuId;
use needless_model::machine::world::Inconsistency;
use needless_model::site::Site;
use needless_model::wait::Wait;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What an exploration goes by.
pub struct Explored<'a> {
    /// What its states have in common.
    pub setting: &'a Setting<'a>,
    /// What is known of them.
    pub memo: Memo<'a>,
    /// The observations to make.
    pub watching: &'a Watching,
    /// Steps that lead only where earlier ones led are left out.
    pub sleep: bool,
    /// Steps that were taken before from the same parts are not taken again.
    pub recall: bool,
    /// How much is kept of each state.
    pub shape: Shape,
    /// What the scenario's threads may be renamed to.
    pub renamings: Vec<Renaming>,
    /// What each thread may still do, where one may go alone.
    pub futures: Option<Futures>,
    /// A state and one of its mirror images differ in what can happen next.
    pub lopsided: AtomicBool,
}

/// What was found on the way, up to some point.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// States in which every thread was done.
    pub ends: usize,
    /// At how many of them each observation was made.
    pub made: Vec<usize>,
    /// Whose case occurred.
    pub exercised: PropertySet,
    /// Steps that were taken.
    pub steps: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        let Tally { ends, made, exercised, steps } = other;
        self.ends += ends;
        self.made.resize(self.made.len().max(made.len()), 0);
        self.made.iter_mut().zip(made).for_each(|(sum, made)| *sum += made);
        self.exercised.union(*exercised);
        self.steps += steps;
    }
}

/// Something found in a step: from which state of the chunk, and by which choice.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// The state's index in its chunk.
    pub parent: usize,
    /// The choice.
    pub choice: Choice,
    /// What was found.
    pub found: T,
}

/// A state that may be new.
pub struct Candidate {
    parent: u32,
    choice: Choice,
    /// Its key.
    pub key: Key,
    /// Whether it is.
    pub is_new: AtomicBool,
    /// Where its choices asleep end.
    asleep: u32,
}

/// A chunk and what follows.
pub struct Expansion {
    /// The states that are left.
    pub from: Chunk,
    candidates: Vec<Candidate>,
    /// By piece of the set of known states: the candidates that belong there, in order.
    by_piece: Vec<Vec<u32>>,
    rows: Vec<u32>,
    keys: Vec<Key>,
    asleep: Vec<Taken>,
    /// What was found on the way.
    pub tally: Tally,
    /// Whose case occurred in the new states.
    pub judged: PropertySet,
    /// The first violation. Nothing that comes after it counts.
    pub violation: Option<At<Violation>>,
    /// The first contradiction.
    pub inconsistent: Option<At<Inconsistency>>,
    /// The new states.
    pub next: Chunk,
    /// How they were reached.
    pub reached: Vec<Reached>,
}

/// A step, as far as the explorer is concerned.
struct Successor {
    rows: SmallVec<[u32; 32]>,
    keys: SmallVec<[Key; 2]>,
    footprint: Footprint,
    exercised: PropertySet,
    violation: Option<Violation>,
    inconsistency: Option<Inconsistency>,
}

impl Expansion {
    /// Takes the choices of the states of `from`, up to a violation, or up to a choice of one of
    /// them. States that are `known` are left out.
    pub fn find(
        explored: &Explored<'_>,
        from: Chunk,
        limit: Option<(usize, Choice)>,
        known: impl Fn(Key) -> bool,
    ) -> Expansion {
        let mut expansion = Expansion {
            candidates: Vec::with_capacity(2 * from.len()),
            by_piece: vec![Vec::new(); PIECES],
            rows: Vec::new(),
            keys: Vec::new(),
            asleep: Vec::new(),
            tally: Tally::default(),
            judged: PropertySet::default(),
            violation: None,
            inconsistent: None,
            next: Chunk::new(explored.shape),
            reached: Vec::new(),
            from: Chunk::default(),
        };
        let cache = &mut *explored.memo.cache();
        for parent in 0..from.len() {
            let last = limit.filter(|(last, _)| *last == parent).map(|(_, choice)| choice);
            expansion.leave(explored, cache, (parent, from.get(parent)), last, &known);
            if expansion.violation.is_some() || last.is_some() {
                break;
            }
        }
        expansion.from = from;
        expansion
    }

    /// Takes the choices of one state.
    fn leave(
        &mut self,
        explored: &Explored<'_>,
        cache: &mut Cache,
        (parent, state): (usize, Waiting<'_>),
        last: Option<Choice>,
        known: &impl Fn(Key) -> bool,
    ) {
        let mut choices = explored.choices(state);
        let row = &state.rows[..explored.shape.width];
        if explored.is_end(cache, row, choices.is_empty()) {
            self.tally.add(&explored.end(row));
        }
        if let Some(alone) = explored.alone(cache, state, known) {
            choices = ways_in_order(alone, usize::from(state.ways[alone])).collect();
        }
        let mut asleep: SmallVec<[Taken; 8]> = state.asleep.into();
        for choice in choices {
            if asleep.iter().any(|other| other.choice == choice) {
                continue;
            }
            let after = explored.after(cache, state, choice);
            self.tally.steps += 1;
            if let Some(found) = after.inconsistency {
                self.inconsistent.get_or_insert(At { parent, choice, found });
                if after.violation.is_none() {
                    continue;
                }
            }
            self.tally.exercised.union(after.exercised);
            if let Some(found) = after.violation {
                self.violation = Some(At { parent, choice, found });
                return;
            }
            let taken = Taken { choice, footprint: after.footprint };
            if last == Some(choice) {
                return;
            }
            // Of a state and its mirror images one key stands for all.
            let key = after.keys.iter().copied().min().unwrap_or_default();
            if !known(key) {
                self.by_piece[Seen::piece(key)].push(self.candidates.len() as u32);
                self.rows.extend_from_slice(&after.rows);
                self.keys.extend_from_slice(&after.keys);
                let still = asleep.iter().copied().filter(|other| other.commutes(&taken));
                self.asleep.extend(still);
                self.candidates.push(Candidate {
                    parent: parent as u32,
                    choice,
                    key,
                    is_new: AtomicBool::new(false),
                    asleep: self.asleep.len() as u32,
                });
            }
            if explored.sleep {
                asleep.push(taken);
            }
        }
    }

    /// The states that were found and belong into this piece of the set of known ones, in order.
    pub fn candidates(&self, piece: usize) -> impl Iterator<Item = &Candidate> {
        self.by_piece[piece].iter().map(|index| &self.candidates[*index as usize])
    }

    /// Judges the new states, up to a violation, and keeps them.
    pub fn keep(&mut self, explored: &Explored<'_>) {
        let cache = &mut *explored.memo.cache();
        let candidates = std::mem::take(&mut self.candidates);
        let Shape { width, images, .. } = explored.shape;
        let mut asleep = 0;
        for (index, candidate) in candidates.iter().enumerate() {
            let from = std::mem::replace(&mut asleep, candidate.asleep as usize);
            if !candidate.is_new.load(Relaxed) {
                continue;
            }
            let rows = &self.rows[index * width * images..][..width * images];
            let keys = &self.keys[index * images..][..images];
            let (parent, choice) = (candidate.parent as usize, candidate.choice);
            // The first state was not judged.
            let before = (self.from.first + candidate.parent != 0).then(|| self.from.get(parent));
            let mut judged = explored.judged(cache, rows, before);
            let ways = std::mem::take(&mut judged.ways);
            self.judged.union(judged.exercised);
            if let Some(found) = judged.inconsistency {
                self.inconsistent.get_or_insert(At { parent, choice, found });
                if judged.violation.is_none() {
                    continue;
                }
            }
            if let Some(found) = judged.violation {
                self.violation = Some(At { parent, choice, found });
                break;
            }
            let asleep = &self.asleep[from..asleep];
            self.next.push(Waiting { keys, rows, ways: &ways, asleep });
            self.reached.push(Reached { parent: self.from.first + candidate.parent, choice });
        }
        (self.rows, self.keys, self.asleep) = (Vec::new(), Vec::new(), Vec::new());
    }
}

/// What is said of a new state.
#[derive(Default)]
pub struct NewState {
    ways: SmallVec<[u8; 8]>,
    exercised: PropertySet,
    violation: Option<Violation>,
    inconsistency: Option<Inconsistency>,
}

impl Explored<'_> {
    /// Where a step leads that was taken before, which violated nothing: keys and rows.
    pub fn after_again(
        &self,
        cache: &mut Cache,
        state: Waiting<'_>,
        choice: Choice,
    ) -> (SmallVec<[Key; 2]>, SmallVec<[u32; 32]>) {
        let after = self.after(cache, state, choice);
        (after.keys, after.rows)
    }

    /// Choices that sleep in a state, with what they look at and change. (That is what they did
    /// before they went to sleep.)
    pub fn asleep_again(&self, cache: &mut Cache, rows: &[u32], choices: &[Choice]) -> Vec<Taken> {
        let row = &rows[..self.shape.width];
        let taken = |choice: &Choice| match *choice {
            Choice::Go { thread, way } => {
                let step = self.memo.step(cache, row, usize::from(thread), usize::from(way));
                Taken { choice: *choice, footprint: step.footprint }
            }
            choice => Taken { choice, footprint: Footprint::EVERYTHING },
        };
        choices.iter().map(taken).collect()
    }

    /// Whether what happens is looked up where it is known.
    pub const fn recalls(&self) -> bool {
        self.recall && !self.setting.explicit
    }

    fn choices(&self, state: Waiting<'_>) -> SmallVec<[Choice; 8]> {
        if !self.recalls() {
            return self.setting.choices(&self.memo.state(state.rows));
        }
        let ways = state.ways.iter().enumerate();
        ways.flat_map(|(thread, ways)| ways_in_order(thread, usize::from(*ways))).collect()
    }

    /// A thread that may go alone: no other one and no judge will ever notice its next step. If it
    /// comes to a known state, it may not, or others could be kept waiting for ever.
    fn alone(
        &self,
        cache: &mut Cache,
        state: Waiting<'_>,
        known: &impl Fn(Key) -> bool,
    ) -> Option<usize> {
        let futures = self.futures.as_ref()?;
        let threads = 0..self.shape.threads;
        let going: SmallVec<[usize; 8]> =
            threads.filter(|thread| state.ways[*thread] > 0).collect();
        if going.len() < 2 {
            return None;
        }
        going.into_iter().find(|thread| {
            self.goes_unnoticed(cache, state, futures, *thread)
                && ways_in_order(*thread, usize::from(state.ways[*thread])).all(|choice| {
                    let keys = self.after(cache, state, choice).keys;
                    !known(keys.into_iter().min().unwrap_or_default())
                })
        })
    }

    /// Whether no other thread and no judge will ever notice this one's next step, whichever way it
    /// goes.
    fn goes_unnoticed(
        &self,
        cache: &mut Cache,
        state: Waiting<'_>,
        futures: &Futures,
        thread: usize,
    ) -> bool {
        let row = &state.rows[..self.shape.width];
        if matches!(self.memo.next(cache, row[self.memo.parts + thread]), Next::Barrier(_)) {
            return false;
        }
        let mut others = Footprint::default();
        for other in (0..self.shape.threads).filter(|other| *other != thread) {
            others = others.with(self.future(cache, row, futures, other));
        }
        (0..usize::from(state.ways[thread])).all(|way| {
            let step = self.memo.step(cache, row, thread, way);
            step.violation.is_none()
                && step.inconsistency.is_none()
                && step.footprint.is_quiet()
                && step.footprint.commutes(others)
        })
    }

    /// What a thread may still look at and change.
    fn future(
        &self,
        cache: &mut Cache,
        row: &[u32],
        futures: &Futures,
        thread: usize,
    ) -> Footprint {
        let member = row[self.memo.parts + thread];
        match self.memo.next(cache, member) {
            Next::Done => Footprint::default(),
            _ => futures.of(thread, self.memo.act(cache, member)),
        }
    }

    /// The state after `choice`.
    fn after(&self, cache: &mut Cache, state: Waiting<'_>, choice: Choice) -> Successor {
        match choice {
            Choice::Go { thread, way } if self.recalls() => {
                self.recalled(cache, state, usize::from(thread), usize::from(way))
            }
            _ => self.computed(state, choice),
        }
    }

    fn recalled(
        &self,
        cache: &mut Cache,
        state: Waiting<'_>,
        thread: usize,
        way: usize,
    ) -> Successor {
        let mut after = Successor {
            rows: state.rows.into(),
            keys: state.keys.into(),
            footprint: Footprint::EVERYTHING,
            exercised: PropertySet::default(),
            violation: None,
            inconsistency: None,
        };
        match self.memo.next(cache, state.rows[self.memo.parts + thread]) {
            // Everybody has arrived: all pass in one step.
            Next::Barrier(barrier) => {
                let members = &self.setting.program.barriers[usize::from(barrier)].threads;
                for (id, image) in
                    members.iter().flat_map(|id| (0..self.shape.images).map(move |i| (id, i)))
                {
                    _ = after.apply(self, cache, image, (id.index(), 0));
                }
            }
            next => {
                // It goes through the CPUs in the order of their numbers: those are not names only.
                if next == Next::Step(Site::LruAddDrainAll) && !self.renamings.is_empty() {
                    self.lopsided.store(true, Relaxed);
                }
                for image in self.renamings.iter().zip(1..) {
                    let way = match next {
                        Next::Each(..) => {
                            self.way_of_image(cache, state.rows, image, (thread, way))
                        }
                        _ => way,
                    };
                    let (renaming, image) = image;
                    _ = after.apply(self, cache, image, (renaming.thread(thread), way));
                }
                after.footprint = after.apply(self, cache, 0, (thread, way));
            }
        }
        after
    }

    /// The way of a mirror image that has the renamed CPU act.
    fn way_of_image(
        &self,
        cache: &mut Cache,
        rows: &[u32],
        (renaming, image): (&Renaming, usize),
        (thread, way): (usize, usize),
    ) -> usize {
        let width = self.shape.width;
        let ways = self.memo.ways(cache, &rows[..width], thread).cpus;
        let row = &rows[image * width..][..width];
        let of_image = self.memo.ways(cache, row, renaming.thread(thread)).cpus;
        let cpu = bits(ways).nth(way).map_or(0, |cpu| renaming.cpu(CpuId(cpu)).0);
        if of_image >> cpu & 1 == 0 {
            self.lopsided.store(true, Relaxed);
        }
        (of_image & ((1 << cpu) - 1)).count_ones() as usize
    }

    /// Takes the step anew, without looking anything up.
    fn computed(&self, state: Waiting<'_>, choice: Choice) -> Successor {
        let before = self.memo.state(state.rows);
        let mut after = self.setting.after(&before, choice);
        let (exercised, violation) = (exercised(&after.world), after.world.ghost.violation.take());
        let inconsistency = after.world.inconsistency.take();
        let (key, footprint) = (after.key(), after.footprint);
        let rows = self.memo.row(*after).into();
        let keys = [key].into_iter().collect();
        Successor { rows, keys, footprint, exercised, violation, inconsistency }
    }

    /// Whether every thread is done, or would answer if userfaultfd told of something.
    fn is_end(&self, cache: &mut Cache, row: &[u32], nobody_goes_on: bool) -> bool {
        if !self.recalls() {
            return self.memo.state(row).is_end();
        }
        nobody_goes_on
            && row[self.memo.parts..].iter().all(|member| {
                let next = self.memo.next(cache, *member);
                matches!(next, Next::Done | Next::Wait(Wait::UffdEvent(_)))
            })
    }

    /// What an end adds.
    fn end(&self, row: &[u32]) -> Tally {
        let made = self.watching.made(&self.memo.loaded(row));
        Tally { ends: 1, made: made.into_iter().map(usize::from).collect(), ..Tally::default() }
    }

    /// By how many ways each thread of the first state can go on.
    pub fn ways(&self, row: &[u32]) -> SmallVec<[u8; 8]> {
        let cache = &mut *self.memo.cache();
        self.ways_in(cache, row)
    }

    /// By how many ways each thread can go on.
    pub fn ways_in(&self, cache: &mut Cache, row: &[u32]) -> SmallVec<[u8; 8]> {
        let threads = 0..self.shape.threads;
        threads.map(|thread| self.memo.ways(cache, row, thread).count).collect()
    }

    /// Judges a state. Judges say what they said of the one before it if they look at nothing in
    /// which both differ: then it was counted there.
    pub fn judged(&self, cache: &mut Cache, rows: &[u32], before: Option<Waiting<'_>>) -> NewState {
        let mut new = NewState::default();
        let row = &rows[..self.shape.width];
        if !self.recalls() {
            // It was judged when the step was taken, and what can happen next is found out again.
            new.ways.resize(self.shape.threads, 0);
            return new;
        }
        new.ways = self.ways_in(cache, row);
        let images = rows.chunks_exact(self.shape.width).skip(1);
        for (renaming, image) in self.renamings.iter().zip(images) {
            let of_image = self.ways_in(cache, image);
            for (thread, ways) in new.ways.iter().enumerate() {
                // Who is first at a barrier has its step, in every image.
                let next = self.memo.next(cache, row[self.memo.parts + thread]);
                let at_barrier = matches!(next, Next::Barrier(_));
                if !at_barrier && of_image[renaming.thread(thread)] != *ways {
                    self.lopsided.store(true, Relaxed);
                }
            }
        }
        let parts = ..self.memo.parts;
        let changed = before.map(|before| differing(&before.rows[parts], &row[parts]));
        for judge in 0..IN_EVERY_STATE.len() {
            if changed.is_some_and(|places| self.memo.is_judged_alike(judge, places)) {
                continue;
            }
            let judged = self.memo.judged(cache, row, judge);
            new.exercised.union(judged.exercised);
            if new.violation.is_none() {
                new.violation.clone_from(&judged.violation);
            }
        }
        if new.ways.iter().all(|ways| *ways == 0) {
            self.judge_last(cache, row, &mut new);
        }
        new
    }

    /// Nobody can go on.
    fn judge_last(&self, cache: &mut Cache, row: &[u32], new: &mut NewState) {
        let mut state = self.memo.state(row);
        forget_the_last_step(&mut state.world);
        if self.is_end(cache, row, true) {
            self.setting.judge_end(&mut state.world);
        } else {
            let waiting = self.setting.waiting(&state);
            judge::stuck(&mut state.world, &waiting);
        }
        new.exercised.union(exercised(&state.world));
        new.violation = new.violation.take().or(state.world.ghost.violation.take());
        new.inconsistency = state.world.inconsistency.take();
    }
}

impl Successor {
    /// A thread takes a step, by this way, in the state or one of its mirror images. Returns the
    /// step's footprint.
    fn apply(
        &mut self,
        explored: &Explored<'_>,
        cache: &mut Cache,
        image: usize,
        (thread, way): (usize, usize),
    ) -> Footprint {
        let row = &mut self.rows[image * explored.shape.width..][..explored.shape.width];
        let member = row[explored.memo.parts + thread];
        let futures = explored.futures.as_ref();
        let noting = futures.map(|futures| (futures, explored.memo.act(cache, member)));
        let outcome = explored.memo.step(cache, row, thread, way);
        if let Some((futures, act)) = noting {
            futures.note(thread, act, outcome.footprint);
        }
        for (place, number) in &outcome.changed {
            row[usize::from(*place)] = *number;
        }
        self.keys[image] = self.keys[image].plus(outcome.key);
        // What is true of the state is true of its mirror images, under other names.
        if image == 0 {
            self.exercised.union(outcome.exercised);
            if self.violation.is_none() {
                self.violation.clone_from(&outcome.violation);
            }
            if self.inconsistency.is_none() {
                self.inconsistency.clone_from(&outcome.inconsistency);
            }
        }
        outcome.footprint
    }
}

/// The bits that are set.
fn bits(cpus: u64) -> impl Iterator<Item = u16> {
    (0..u64::BITS as u16).filter(move |cpu| cpus >> cpu & 1 == 1)
}
