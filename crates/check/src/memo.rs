//! What was found out about steps and states, to be looked up where it would be found out again.
//!
//! What a step does depends on where its thread stands, and on the parts of the world that it looks
//! at ([`crate::shared`]): nothing else reaches it. So a step that was taken once is known in every
//! state that agrees with that one in those parts. The same holds of the ways that are open to a
//! thread, and of what is judged in a state. Few answers are found out, most are looked up.
//!
//! Each worker has its own [`Cache`]. What it does not know it asks the [`Memo`], which all have in
//! common, before it finds out.

use crate::env::{Next, reachable};
use crate::footprint::Footprint;
use crate::judge::IN_EVERY_STATE;
use crate::key::{Key, key_of};
use crate::parts::{CPUS, Difference, LAST, LOADED, Places, Store, bit, count};
use crate::property::{PropertySet, Violation};
use crate::setting::Setting;
use crate::shadow::{CheckWorld, Loaded};
use crate::shared::{Shared, held};
use crate::state::{State, Step, exercised, forget_the_last_step};
use needless_model::machine::world::Inconsistency;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a step does to the row of a state.
pub struct Outcome {
    /// The places that change, and their new numbers; the thread's own is among them.
    pub changed: SmallVec<[(u16, u32); 4]>,
    /// What that adds to the state's key.
    pub key: Key,
    /// What the step looked at and changed.
    pub footprint: Footprint,
    /// The properties whose case occurred.
    pub exercised: PropertySet,
    /// What it violates.
    pub violation: Option<Violation>,
    /// How the model contradicts itself.
    pub inconsistency: Option<Inconsistency>,
}

/// What one judge says of a state.
pub struct Judged {
    /// The properties whose case occurred.
    pub exercised: PropertySet,
    /// What is violated.
    pub violation: Option<Violation>,
}

/// How a thread can go on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// By how many ways.
    pub count: u8,
    /// If each way is a CPU's: which CPUs, a bit each, in the order of the ways.
    pub cpus: u64,
}

/// What is asked: of whom, and where he stands.
type Question = [u32; 2];

/// A question, the places that were looked at for the answer, and the numbers there.
type Asked = SmallVec<[u32; 24]>;

/// Answers, by question and by what was looked at.
struct Table<V> {
    looked_at: HashMap<Question, SmallVec<[Places; 2]>, FxBuildHasher>,
    numbers: HashMap<Box<[u32]>, usize, FxBuildHasher>,
    answers: Vec<(Places, V)>,
}

impl<V> Default for Table<V> {
    fn default() -> Table<V> {
        let (looked_at, numbers) = (HashMap::default(), HashMap::default());
        Table { looked_at, numbers, answers: Vec::new() }
    }
}

impl<V> Table<V> {
    /// The number of the answer, if it is known.
    fn find(&self, question: Question, row: &[u32]) -> Option<usize> {
        let mut looked_at = self.looked_at.get(&question)?.iter();
        looked_at.find_map(|places| self.numbers.get(&*asked(question, *places, row)).copied())
    }

    fn insert(&mut self, question: Question, row: &[u32], (places, answer): (Places, V)) -> usize {
        let looked_at = self.looked_at.entry(question).or_default();
        if !looked_at.contains(&places) {
            looked_at.push(places);
        }
        let number = self.answers.len();
        self.numbers.insert(asked(question, places, row).into_boxed_slice(), number);
        self.answers.push((places, answer));
        number
    }
}

fn asked(question: Question, places: Places, row: &[u32]) -> Asked {
    let mut asked: Asked = SmallVec::new();
    asked.extend(question);
    asked.extend([places as u32, (places >> 32) as u32]);
    let mut rest = places & !bit(LAST);
    while rest != 0 {
        asked.push(row[rest.trailing_zeros() as usize]);
        rest &= rest - 1;
    }
    if places & bit(LAST) != 0 {
        asked.extend_from_slice(&row[LAST..]);
    }
    asked
}

/// What all workers have found out, cut into pieces so that they rarely wait for each other.
struct Common<V>(Vec<Mutex<Table<V>>>);

impl<V: Clone> Common<V> {
    /// None where there is a single worker, who knows everything himself.
    fn new(workers: usize) -> Common<V> {
        let pieces = if workers == 1 { 0 } else { 4 * workers };
        Common((0..pieces).map(|_| Mutex::default()).collect())
    }

    /// The number that the answer has in the worker's own table.
    fn ask(
        &self,
        own: &mut Table<V>,
        question: Question,
        row: &[u32],
        find_out: impl FnOnce() -> (Places, V),
    ) -> usize {
        if let Some(number) = own.find(question, row) {
            return number;
        }
        let Some(piece) = question[1].checked_rem(self.0.len() as u32) else {
            return own.insert(question, row, find_out());
        };
        let common = &self.0[piece as usize];
        let known = |table: &Table<V>| Some(table.answers[table.find(question, row)?].clone());
        let answer = known(&held(common));
        let answer = answer.unwrap_or_else(|| {
            let found = find_out();
            let table = &mut *held(common);
            // Somebody else may have found it out meanwhile.
            known(table).unwrap_or_else(|| {
                table.insert(question, row, found.clone());
                found
            })
        });
        own.insert(question, row, answer)
    }
}

/// What a worker knows.
#[derive(Default)]
pub struct Cache {
    steps: Table<Arc<Outcome>>,
    ways: Table<Ways>,
    judged: Table<Arc<Judged>>,
    /// By number of where a thread stands: what it will do next.
    next: Vec<Option<Next>>,
    /// By number of where a thread stands: the action that it is in.
    acts: Vec<Option<u32>>,
    /// By number of the CPUs' state: whether one of them walks page tables without a lock.
    walks: Vec<Option<bool>>,
}

/// What is known of the steps and states of an exploration.
pub struct Memo<'a> {
    setting: &'a Setting<'a>,
    /// The parts that rows name.
    pub store: Store,
    /// Worlds are made from this one.
    template: Mutex<CheckWorld>,
    /// How many parts a world has.
    pub parts: usize,
    steps: Common<Arc<Outcome>>,
    ways: Common<Ways>,
    judged: Common<Arc<Judged>>,
    /// By judge: all places that it was ever seen to look at.
    judges_look_at: [AtomicU64; IN_EVERY_STATE.len()],
    /// By worker.
    caches: Vec<Mutex<Cache>>,
}

impl<'a> Memo<'a> {
    /// Nothing is known yet.
    pub fn new(setting: &'a Setting<'a>, workers: usize) -> Memo<'a> {
        let template = setting.initial_world();
        Memo {
            setting,
            store: Store::default(),
            parts: count(&template),
            template: Mutex::new(template),
            steps: Common::new(workers),
            ways: Common::new(workers),
            judged: Common::new(workers),
            judges_look_at: Default::default(),
            caches: (0..workers).map(|_| Mutex::default()).collect(),
        }
    }

    /// What this worker knows.
    pub fn cache(&self) -> MutexGuard<'_, Cache> {
        let worker = rayon::current_thread_index().unwrap_or(0);
        held(&self.caches[worker % self.caches.len()])
    }

    /// A state's row.
    pub fn row(&self, mut state: State) -> Vec<u32> {
        let mut row = self.store.row(&mut state.world);
        row.extend(state.threads.into_iter().map(|member| self.store.member(member)));
        row
    }

    /// The world of a row.
    pub fn world(&self, row: &[u32]) -> CheckWorld {
        let mut world = held(&self.template).clone();
        self.store.put(&mut world, row);
        world
    }

    /// The state of a row. Its choices are left out.
    pub fn state(&self, row: &[u32]) -> State {
        let threads = row[self.parts..].iter().map(|member| self.store.member_of(*member));
        State::new(self.world(row), threads.collect())
    }

    /// What loads have returned.
    pub fn loaded(&self, row: &[u32]) -> Shared<Loaded> {
        self.store.loaded(row[LOADED])
    }

    /// What a thread will do next that stands there.
    pub fn next(&self, cache: &mut Cache, member: u32) -> Next {
        let find = || self.store.member_of(member).standing.next;
        *known(&mut cache.next, member).get_or_insert_with(find)
    }

    /// The action that a thread is in that stands there.
    pub fn act(&self, cache: &mut Cache, member: u32) -> usize {
        let find = || self.store.member_of(member).standing.act;
        *known(&mut cache.acts, member).get_or_insert_with(find) as usize
    }

    /// What `thread` does by this way.
    pub fn step<'c>(
        &self,
        cache: &'c mut Cache,
        row: &[u32],
        thread: usize,
        way: usize,
    ) -> &'c Outcome {
        let question = [(thread << 8 | way) as u32, row[self.parts + thread]];
        let find_out = || self.take_step(row, thread, way);
        let number = self.steps.ask(&mut cache.steps, question, row, find_out);
        &cache.steps.answers[number].1
    }

    fn take_step(&self, row: &[u32], thread: usize, way: usize) -> (Places, Arc<Outcome>) {
        let before = self.world(row);
        let mut world = before.clone();
        forget_the_last_step(&mut world);
        let (place, old) = (self.parts + thread, row[self.parts + thread]);
        let standing = self.store.member_of(old);
        let Step { member, footprint } =
            self.setting.resume(&mut world, thread, &standing, Some(way));
        let footprint = self.setting.footprint(thread, footprint, &before, &world);
        let Difference { looked_at, changed, key } = self.store.difference(&mut world, row);
        let moved = key_of(&member).in_place(place).minus(key_of(&standing).in_place(place));
        let mut changed: SmallVec<[(u16, u32); 4]> = changed.into_iter().collect();
        changed.push((place as u16, self.store.member(member)));
        let outcome = Outcome {
            changed,
            key: key.plus(moved),
            footprint,
            exercised: exercised(&world),
            violation: world.ghost.violation.take(),
            inconsistency: world.inconsistency.take(),
        };
        (looked_at, Arc::new(outcome))
    }

    /// How `thread` can go on.
    pub fn ways(&self, cache: &mut Cache, row: &[u32], thread: usize) -> Ways {
        let member = row[self.parts + thread];
        let next = self.next(cache, member);
        let cpus = row[CPUS];
        let walks = *known(&mut cache.walks, cpus).get_or_insert_with(|| self.store.walks(cpus));
        let one = |possible: bool| Ways { count: u8::from(possible), cpus: 0 };
        match next {
            Next::Done => one(false),
            Next::Step(_) if !walks => one(true),
            Next::Barrier(barrier) => {
                let here = |thread: usize| self.next(cache, row[self.parts + thread]);
                let passes = self.setting.passes(here, thread, barrier);
                one(passes && !(walks && self.is_kept_off(row, thread)))
            }
            _ => {
                let question = [thread as u32, member];
                let find_out = || self.find_ways(row, thread, next);
                let number = self.ways.ask(&mut cache.ways, question, row, find_out);
                cache.ways.answers[number].1
            }
        }
    }

    fn find_ways(&self, row: &[u32], thread: usize, next: Next) -> (Places, Ways) {
        let mut world = self.world(row);
        let mut ways = Ways::default();
        if !self.setting.is_kept_off(&world, thread) {
            ways.count = self.setting.ways_of(&world, thread, next) as u8;
            if let Next::Each(reach, _, cpus) = next {
                let reachable = reachable(&world, reach, cpus);
                ways.cpus = reachable.fold(0, |cpus, cpu| cpus | 1 << cpu.0);
            }
        }
        (self.store.difference(&mut world, row).looked_at, ways)
    }

    fn is_kept_off(&self, row: &[u32], thread: usize) -> bool {
        self.setting.is_kept_off(&self.world(row), thread)
    }

    /// Whether that judge would say of a state what it said of another one, from which it differs
    /// in these places.
    pub fn is_judged_alike(&self, judge: usize, places: Places) -> bool {
        places & self.judges_look_at[judge].load(Relaxed) == 0
    }

    /// What judge number `judge` says of the state.
    pub fn judged<'c>(&self, cache: &'c mut Cache, row: &[u32], judge: usize) -> &'c Judged {
        let find_out = || self.judge(row, judge);
        let number = self.judged.ask(&mut cache.judged, [0, judge as u32], row, find_out);
        &cache.judged.answers[number].1
    }

    fn judge(&self, row: &[u32], judge: usize) -> (Places, Arc<Judged>) {
        let mut world = self.world(row);
        forget_the_last_step(&mut world);
        IN_EVERY_STATE[judge](&mut world);
        let (exercised, violation) = (exercised(&world), world.ghost.violation.take());
        let looked_at = self.store.difference(&mut world, row).looked_at;
        self.judges_look_at[judge].fetch_or(looked_at, Relaxed);
        (looked_at, Arc::new(Judged { exercised, violation }))
    }
}

/// The entry of that number.
fn known<T>(all: &mut Vec<Option<T>>, number: u32) -> &mut Option<T> {
    let number = number as usize;
    if all.len() <= number {
        all.resize_with(number + 1, || None);
    }
    &mut all[number]
}
