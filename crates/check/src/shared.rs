//! A part of a world that is shared with the worlds that it was copied from until it is changed.

use needless_model::machine::world::Held;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Copied when it is changed, if anybody else has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shared<T>(Arc<T>);

impl<T: Clone> Held<T> for Shared<T> {
    fn new(part: T) -> Shared<T> {
        Shared(Arc::new(part))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}
