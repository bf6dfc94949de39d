//! A part of a world that is shared with the worlds that it was copied from until it is changed.

use crate::key::{Key, key_of};
use needless_model::machine::world::Held;
use rustc_hash::FxBuildHasher;
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
}

impl<T> Part<T> {
    const fn new(value: T) -> Part<T> {
        Part { value, key: OnceLock::new() }
    }
}

// A copy is made in order to be changed.
impl<T: Clone> Clone for Part<T> {
    fn clone(&self) -> Part<T> {
        Part::new(self.value.clone())
    }
}

/// The different values that a part takes in an exploration, numbered in the order in which they
/// were found. A state names its parts by these numbers.
#[derive(Debug)]
pub struct Pool<T>(Mutex<Numbered<T>>);

#[derive(Debug)]
struct Numbered<T> {
    parts: Vec<Arc<Part<T>>>,
    numbers: HashMap<Key, u32, FxBuildHasher>,
}

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool(Mutex::new(Numbered { parts: Vec::new(), numbers: HashMap::default() }))
    }
}

impl<T: Hash> Pool<T> {
    /// The number of this value.
    pub fn number(&self, part: &Shared<T>) -> u32 {
        let key = part.key();
        let Numbered { parts, numbers } = &mut *held(&self.0);
        *numbers.entry(key).or_insert_with(|| {
            parts.push(Arc::clone(&part.part));
            parts.len() as u32 - 1
        })
    }
}

impl<T> Pool<T> {
    /// The value of that number. Nobody has looked at it yet.
    pub fn get(&self, number: u32) -> Shared<T> {
        let part = Arc::clone(&held(&self.0).parts[number as usize]);
        Shared { part, looked_at: Cell::new(false) }
    }
}

/// Who panicked while he held it did so between two complete changes.
pub fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Shared<T> {
    /// Whether anybody looked at it since it was copied.
    pub const fn was_looked_at(&self) -> bool {
        self.looked_at.get()
    }
}

impl<T: Clone> Shared<T> {
    /// A copy of its value.
    pub fn clone_value(&self) -> T {
        self.part.value.clone()
    }
}

impl<T: Hash> Shared<T> {
    /// Stands for its value.
    pub fn key(&self) -> Key {
        *self.part.key.get_or_init(|| key_of(&self.part.value))
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
