//! What a step looked at and what it changed, part by part: two steps commute if neither changed
//! what the other looked at.

use crate::choice::Choice;
use crate::shadow::CheckWorld;
use crate::shared::Shared;
use needless_model::addr::{PageRange, Vpn};
use needless_model::env::Lock;
use needless_model::machine::world::World;
use std::hash::Hash;

const CPUS: u128 = 1;
const SLOTS: u128 = 1 << 1;
const FRAMES: u128 = 1 << 2;
const SWAP: u128 = 1 << 3;
const PAGES: u128 = 1 << 4;
const OBJECTS: u128 = 1 << 5;
const PINS: u128 = 1 << 6;
const DEFERRED: u128 = 1 << 7;
/// Of what there are several: the first bit, and how many there are. The last stands for all
/// further ones.
const MMS: (u32, usize) = (8, 8);
const TASKS: (u32, usize) = (16, 16);
/// Bits 33 to 39 are free.
const LRU: u128 = 1 << 32;
const LOCKS: (u32, usize) = (40, 88);
/// What no judge of states looks at ([`crate::judge::IN_EVERY_STATE`]), but for some locks.
const NOT_JUDGED: u128 = all(TASKS) | all(LOCKS);

/// A bit for each part of the world.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    looked_at: u128,
    changed: u128,
    /// It is about a lock that judges ask for.
    judged_lock: bool,
}

const fn all((first, count): (u32, usize)) -> u128 {
    (u128::MAX >> (u128::BITS as usize - count)) << first
}

const fn bit((first, count): (u32, usize), index: usize) -> u128 {
    1 << (first + if index < count { index } else { count - 1 } as u32)
}

impl Footprint {
    /// Commutes with nothing.
    pub const EVERYTHING: Footprint =
        Footprint { looked_at: u128::MAX, changed: u128::MAX, judged_lock: true };

    /// Whether neither changes what the other one looks at.
    pub const fn commutes(self, other: Footprint) -> bool {
        self.changed & other.looked_at == 0 && other.changed & self.looked_at == 0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Footprint) -> Footprint {
        Footprint {
            looked_at: self.looked_at | other.looked_at,
            changed: self.changed | other.changed,
            judged_lock: self.judged_lock | other.judged_lock,
        }
    }

    /// Whether the other one looks at nothing and changes nothing beside.
    pub const fn covers(self, other: Footprint) -> bool {
        other.looked_at & !self.looked_at == 0 && other.changed & !self.changed == 0
    }

    /// Whether what is judged in every state is the same before and after the step.
    pub const fn is_quiet(self) -> bool {
        self.changed & !NOT_JUDGED == 0 && !self.judged_lock
    }

    /// A step takes a lock, gives it back, or looks whether it is free. Readers do not keep each
    /// other out.
    pub fn lock(&mut self, lock: Lock) {
        let (number, reads) = match lock {
            Lock::MmapRead(mm) => (mm.index(), true),
            Lock::MmapWrite(mm) => (mm.index(), false),
            // All mappings of an address space: whose locks keep each other out is a matter of
            // their pages.
            Lock::VmaRead(mm, _) | Lock::VmaOf(mm, _) => (80 + mm.index() % 8, true),
            Lock::VmaWrite(mm, _) => (80 + mm.index() % 8, false),
            Lock::RmapRead(object) => (8 + object.index(), true),
            Lock::RmapWrite(object) => (8 + object.index(), false),
            // It is resolved before it is taken.
            Lock::RmapOf(_) => (LOCKS.1 - 1, false),
            Lock::Pmd(mm, page) => (24 + mm.index() + page.0 as usize / 16, false),
            Lock::PageTable(mm, page) => (32 + mm.index() + page.0 as usize, false),
            Lock::Folio(frame) => (64 + frame.0 as usize, false),
            Lock::Inode(object) => (16 + object.index(), false),
            Lock::InvalidateRead(object) => (20 + object.index(), true),
            Lock::InvalidateWrite(object) => (20 + object.index(), false),
        };
        self.judged_lock |= matches!(lock, Lock::Pmd(..) | Lock::PageTable(..) | Lock::Folio(_));
        // Locks with the same bit are taken for the same.
        let bit = bit(LOCKS, number % LOCKS.1);
        self.looked_at |= bit;
        self.changed |= if reads { 0 } else { bit };
        // Who gives `mmap_lock` back after writing gives the mappings' locks back, too.
        if let Lock::MmapWrite(mm) = lock {
            self.lock(Lock::VmaWrite(mm, PageRange::one(Vpn(0))));
        }
    }

    /// Whether the step can be taken depends on what its CPU does.
    #[must_use]
    pub fn looking_at_cpus(mut self) -> Footprint {
        self.looked_at |= CPUS;
        self
    }

    fn part<T: Hash>(&mut self, bit: u128, before: &Shared<T>, after: &Shared<T>) {
        if after.was_looked_at() {
            self.looked_at |= bit;
            if !after.is_same(before) {
                self.changed |= bit;
            }
        }
    }

    /// This, and what a step that led from one world to a copy of it looked at and changed there.
    #[must_use]
    pub fn and(mut self, before: &CheckWorld, after: &CheckWorld) -> Footprint {
        // Locks are noted where they are taken. What else the ghost state has is a step's own.
        #[rustfmt::skip]
        let World {
            mms, cpus, tasks, deferred, frames, lru, objects, swap, pins, tlbs, ghost, tiers: _,
            policies: _, config: _, arch: _, nodes: _, processes: _, log: _, room: _,
            inconsistency: _,
        } = before;
        for (index, (a, b)) in mms.iter().zip(&after.mms).enumerate() {
            self.part(bit(MMS, index), a, b);
        }
        for (index, (a, b)) in tasks.iter().zip(&after.tasks).enumerate() {
            self.part(bit(TASKS, index), a, b);
        }
        self.part(CPUS, cpus, &after.cpus);
        self.part(SLOTS, &tlbs.slots, &after.tlbs.slots);
        self.part(DEFERRED, deferred, &after.deferred);
        self.part(FRAMES, frames, &after.frames);
        self.part(LRU, lru, &after.lru);
        self.part(OBJECTS, objects, &after.objects);
        self.part(SWAP, swap, &after.swap);
        self.part(PINS, pins, &after.pins);
        self.part(PAGES, &ghost.pages, &after.ghost.pages);
        self
    }
}

/// A choice that was taken, and what it looked at and changed.
#[derive(Copy, Clone, Debug)]
pub struct Taken {
    /// The choice.
    pub choice: Choice,
    /// What it looked at and changed.
    pub footprint: Footprint,
}

impl Taken {
    /// Whether both can be taken in either order, with the same result.
    pub fn commutes(&self, other: &Taken) -> bool {
        let of_two = match (self.choice, other.choice) {
            (Choice::Go { thread: a, .. }, Choice::Go { thread: b, .. }) => a != b,
            _ => false,
        };
        of_two && self.footprint.commutes(other.footprint)
    }
}
