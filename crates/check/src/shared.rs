//! A part of a world that is shared with the worlds that it was copied from until it is changed.

use crate::key::{Bytes, Key};
use needless_model::machine::world::Held;
use rustc_hash::FxBuildHasher;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// Copied when it is changed, if anybody else has it. It is hashed once, until it is changed.
#[derive(Clone, Debug, Default)]
pub struct Shared<T>(Arc<Part<T>>);

#[derive(Debug, Default)]
struct Part<T> {
    value: T,
    key: OnceLock<Key>,
}

// A copy is made in order to be changed.
impl<T: Clone> Clone for Part<T> {
    fn clone(&self) -> Part<T> {
        Part { value: self.value.clone(), key: OnceLock::new() }
    }
}

/// Parts that states have in common: each different one is kept once, so that what a frontier of many
/// states touches stays small.
#[derive(Debug)]
pub struct Pool<T>(HashMap<Key, Shared<T>, FxBuildHasher>);

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool(HashMap::default())
    }
}

impl<T: Clone + Hash> Pool<T> {
    /// Puts the kept part in the place of one that equals it.
    pub fn intern(&mut self, part: &mut Shared<T>) {
        match self.0.entry(part.key()) {
            Entry::Occupied(kept) => part.0 = Arc::clone(&kept.get().0),
            Entry::Vacant(free) => _ = free.insert(part.clone()),
        }
    }
}

impl<T: Hash> Shared<T> {
    fn key(&self) -> Key {
        *self.0.key.get_or_init(|| {
            let mut bytes = Bytes::with_room();
            self.0.value.hash(&mut bytes);
            bytes.key()
        })
    }
}

impl<T: Clone> Held<T> for Shared<T> {
    fn new(value: T) -> Shared<T> {
        Shared(Arc::new(Part { value, key: OnceLock::new() }))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let part = Arc::make_mut(&mut self.0);
        part.key.take();
        &mut part.value
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        self.0.value == other.0.value
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
