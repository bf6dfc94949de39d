//! A state as a row of numbers: one for each part of its world and one for each thread.
//!
//! Most states of an exploration differ in few parts, and each part takes few values. So every
//! value is kept once, in the [`Store`], and a state names them by their numbers (collapse
//! compression, as in Spin). A whole world is put together only where a step is taken that was not
//! taken before ([`crate::memo`]).
//!
//! Whatever may decide what happens next is a part, or follows from the rest. [`each_part`] is the
//! one list of them.

use crate::key::Key;
use crate::locks::{HeldLocks, Locks};
use crate::shadow::{CheckWorld, Contents, Loaded, Pages};
use crate::shared::{Pool, Shared};
use crate::state::Member;
use crate::tlb::{MaySets, Slots};
use needless_model::machine::cpu::Cpu;
use needless_model::machine::frames::Frames;
use needless_model::machine::lru::Lru;
use needless_model::machine::mm::Mm;
use needless_model::machine::objects::Objects;
use needless_model::machine::pins::Pins;
use needless_model::machine::swap::Swap;
use needless_model::machine::unmap_batch::Deferred;
use needless_model::machine::world::{Held, Task, World};
use std::hash::Hash;

/// Every value that a part of a world, or a thread, was found to have.
#[derive(Default)]
pub struct Store {
    cpus: Pool<Vec<Cpu>>,
    frames: Pool<Frames>,
    objects: Pool<Objects>,
    swap: Pool<Swap>,
    pins: Pool<Pins>,
    slots: Pool<Slots>,
    pages: Pool<Pages>,
    deferred: Pool<Deferred>,
    lru: Pool<Lru>,
    loaded: Pool<Loaded>,
    mms: Pool<Mm>,
    tasks: Pool<Task>,
    locks: Pool<HeldLocks>,
    members: Pool<Member>,
}

/// What is done with each part of a world.
pub trait Visitor {
    /// Comes to a part, and to where its values are kept.
    fn part<T: Clone + Hash>(&mut self, pool: fn(&Store) -> &Pool<T>, part: &mut Shared<T>);
}

/// The place of the CPUs' state in a row, and of what loads returned.
pub const CPUS: usize = 0;
/// See [`CPUS`].
pub const LOADED: usize = 9;

/// Visits the parts of a world in the order of their places. What is left out is named: it is the
/// same in all states of an exploration, or it is empty between two steps.
pub fn each_part(world: &mut CheckWorld, visitor: &mut impl Visitor) {
    #[rustfmt::skip]
    let World {
        mms, cpus, tasks, deferred, frames, lru, objects, swap, pins, tlbs, ghost, tiers: _,
        policies: _, config: _, arch: _, nodes: _, processes: _, log: _, room: _,
        inconsistency: _,
    } = world;
    let MaySets { slots, explicit: _, rule: _, exercised: _ } = tlbs;
    let Contents { pages, locks, loaded, watch: _, just_freed: _, violation: _, exercised: _ } =
        ghost;
    let Locks { by_thread } = locks;
    visitor.part(|store| &store.cpus, cpus);
    visitor.part(|store| &store.frames, frames);
    visitor.part(|store| &store.objects, objects);
    visitor.part(|store| &store.swap, swap);
    visitor.part(|store| &store.pins, pins);
    visitor.part(|store| &store.slots, slots);
    visitor.part(|store| &store.pages, pages);
    visitor.part(|store| &store.deferred, deferred);
    visitor.part(|store| &store.lru, lru);
    visitor.part(|store| &store.loaded, loaded);
    mms.iter_mut().for_each(|mm| visitor.part(|store| &store.mms, mm));
    tasks.iter_mut().for_each(|task| visitor.part(|store| &store.tasks, task));
    by_thread.iter_mut().for_each(|held| visitor.part(|store| &store.locks, held));
}

/// How many parts a world has; its threads come after them.
pub fn count(world: &CheckWorld) -> usize {
    LOADED + 1 + world.mms.len() + world.tasks.len() + world.ghost.locks.by_thread.len()
}

/// The sum of what the parts of a world add to the key of a state.
pub fn key_of_parts(world: &CheckWorld) -> Key {
    struct Sum(Key, usize);
    impl Visitor for Sum {
        fn part<T: Clone + Hash>(&mut self, _: fn(&Store) -> &Pool<T>, part: &mut Shared<T>) {
            self.0 = self.0.plus(part.key().in_place(self.1));
            self.1 += 1;
        }
    }
    let mut sum = Sum(Key::default(), 0);
    each_part(&mut world.clone(), &mut sum);
    sum.0
}

/// A set of places, a bit each.
pub type Places = u64;

/// The place whose bit stands for all further ones, too.
pub const LAST: usize = Places::BITS as usize - 1;

/// The bit of a place.
pub const fn bit(place: usize) -> Places {
    1 << if place < LAST { place } else { LAST }
}

/// The places in which two rows differ.
pub fn differing(one: &[u32], other: &[u32]) -> Places {
    let differ = one.iter().zip(other).enumerate().filter(|(_, (a, b))| a != b);
    differ.fold(0, |places, (place, _)| places | bit(place))
}

/// What became of the parts of a world.
#[derive(Debug, Default)]
pub struct Difference {
    /// The places of the parts that somebody looked at.
    pub looked_at: Places,
    /// Those that changed: place, new number.
    pub changed: Vec<(u16, u32)>,
    /// What this adds to the key of the state.
    pub key: Key,
}

impl Store {
    /// The numbers of all parts.
    pub fn row(&self, world: &mut CheckWorld) -> Vec<u32> {
        struct Numbers<'a>(&'a Store, Vec<u32>);
        impl Visitor for Numbers<'_> {
            fn part<T: Clone + Hash>(
                &mut self,
                pool: fn(&Store) -> &Pool<T>,
                part: &mut Shared<T>,
            ) {
                self.1.push(pool(self.0).number(part));
            }
        }
        let mut numbers = Numbers(self, Vec::new());
        each_part(world, &mut numbers);
        numbers.1
    }

    /// Puts the parts of `row` into a world. Nobody has looked at them yet.
    pub fn put(&self, world: &mut CheckWorld, row: &[u32]) {
        struct Put<'a>(&'a Store, std::slice::Iter<'a, u32>);
        impl Visitor for Put<'_> {
            fn part<T: Clone + Hash>(
                &mut self,
                pool: fn(&Store) -> &Pool<T>,
                part: &mut Shared<T>,
            ) {
                if let Some(number) = self.1.next() {
                    *part = pool(self.0).get(*number);
                }
            }
        }
        each_part(world, &mut Put(self, row.iter()));
    }

    /// What was looked at and changed in a world that `row` was put into.
    pub fn difference(&self, world: &mut CheckWorld, row: &[u32]) -> Difference {
        struct Compare<'a>(&'a Store, &'a [u32], usize, Difference);
        impl Visitor for Compare<'_> {
            fn part<T: Clone + Hash>(
                &mut self,
                pool: fn(&Store) -> &Pool<T>,
                part: &mut Shared<T>,
            ) {
                let Compare(store, row, place, difference) = self;
                if part.was_looked_at() {
                    difference.looked_at |= bit(*place);
                    let (before, after) = (row[*place], pool(store).number(part));
                    if before != after {
                        difference.changed.push((*place as u16, after));
                        let old = pool(store).get(before).key().in_place(*place);
                        let new = part.key().in_place(*place);
                        difference.key = difference.key.plus(new).minus(old);
                    }
                }
                *place += 1;
            }
        }
        let mut compare = Compare(self, row, 0, Difference::default());
        each_part(world, &mut compare);
        compare.3
    }

    /// The number of where a thread stands.
    pub fn member(&self, member: Member) -> u32 {
        self.members.number(&Shared::new(member))
    }

    /// Where a thread stands.
    pub fn member_of(&self, number: u32) -> Member {
        self.members.get(number).clone_value()
    }

    /// What loads returned.
    pub fn loaded(&self, number: u32) -> Shared<Loaded> {
        self.loaded.get(number)
    }

    /// Whether a CPU walks page tables without a lock.
    pub fn walks(&self, cpus: u32) -> bool {
        self.cpus.get(cpus).iter().any(|cpu| cpu.walk.is_some())
    }
}
