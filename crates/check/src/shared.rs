//! A part of a world that is shared with the worlds that it was copied from until it is changed.

use crate::key::{Key, key_of};
use needless_model::machine::world::Held;
use rustc_hash::FxBuildHasher;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Copied when it is changed, if anybody else has it. It is hashed once, until it is changed.
#[derive(Debug, Default)]
pub struct Shared<T> {
    part: Arc<Part<T>>,
    /// Whether anybody looked at it since it was copied.
    looked_at: Cell<bool>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        // Whoever has a copy need not look here any more.
        self.looked_at.set(true);
        Shared { part: Arc::clone(&self.part), looked_at: Cell::new(false) }
    }
}

/// What is shared.
#[derive(Debug, Default)]
pub struct Part<T> {
    value: T,
    key: OnceLock<Key>,
    /// It is in a pool.
    kept: AtomicBool,
}

impl<T> Part<T> {
    const fn new(value: T) -> Part<T> {
        Part { value, key: OnceLock::new(), kept: AtomicBool::new(false) }
    }
}

// A copy is made in order to be changed.
impl<T: Clone> Clone for Part<T> {
    fn clone(&self) -> Part<T> {
        Part::new(self.value.clone())
    }
}

/// Parts that states have in common: each different one is kept once, so that what a frontier of many
/// states touches stays small.
#[derive(Debug)]
pub struct Pool<T>(HashMap<Key, Arc<Part<T>>, FxBuildHasher>);

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool(HashMap::default())
    }
}

impl<T: Clone + Hash> Pool<T> {
    /// Puts the kept part in the place of one that equals it.
    pub fn intern(&mut self, part: &mut Shared<T>) {
        if part.part.kept.load(Relaxed) {
            return;
        }
        match self.0.entry(part.key()) {
            Entry::Occupied(kept) => part.part = Arc::clone(kept.get()),
            Entry::Vacant(free) => {
                part.part.kept.store(true, Relaxed);
                free.insert(Arc::clone(&part.part));
            }
        }
    }
}

impl<T: Hash> Shared<T> {
    fn key(&self) -> Key {
        *self.part.key.get_or_init(|| key_of(&self.part.value))
    }

    /// Whether anybody looked at it since it was copied.
    pub const fn was_looked_at(&self) -> bool {
        self.looked_at.get()
    }

    /// Whether both are the same, or equal.
    pub fn is_same(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.part, &other.part) || self.key() == other.key()
    }
}

impl<T: Clone> Held<T> for Shared<T> {
    fn new(value: T) -> Shared<T> {
        let part = Arc::new(Part::new(value));
        Shared { part, looked_at: Cell::new(false) }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.looked_at.set(true);
        &self.part.value
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.looked_at.set(true);
        let part = Arc::make_mut(&mut self.part);
        part.key.take();
        &mut part.value
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        self.part.value == other.part.value
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
