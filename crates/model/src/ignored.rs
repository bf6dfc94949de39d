//! A wrapper for data that is kept beside a value without being part of it.

use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// Data that equality and hashing ignore.
#[derive(Copy, Clone, Debug, Default)]
pub struct Ignored<T>(pub T);

impl<T> Deref for Ignored<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Ignored<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> PartialEq for Ignored<T> {
    fn eq(&self, _: &Ignored<T>) -> bool {
        true
    }
}

impl<T> Eq for Ignored<T> {}

impl<T> Hash for Ignored<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
