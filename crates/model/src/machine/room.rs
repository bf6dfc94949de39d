//! The memory that the model may take: the one place that counts its growth.
//!
//! Everything that grows with the memory that a program touches asks here before it grows: page
//! tables, frames, swap slots, the logs of revoked translations, the events of a round. A list that
//! grows is copied, so for a moment there are two copies; that moment is counted as well. Nothing
//! asks unless it grows, so a run that has what it needs asks no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A memory budget. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Room(Option<Arc<Bound>>);

#[derive(Debug)]
struct Bound {
    /// The budget in bytes.
    most: u64,
    left: AtomicU64,
    refused: AtomicBool,
}

impl Room {
    /// A budget without a bound.
    pub const UNBOUNDED: Room = Room(None);

    /// A budget of `most` bytes.
    pub fn of(most: u64) -> Room {
        let (left, refused) = (AtomicU64::new(most), AtomicBool::new(false));
        Room(Some(Arc::new(Bound { most, left, refused })))
    }

    /// The bound in bytes, if there is one.
    pub fn most(&self) -> Option<u64> {
        Some(self.0.as_ref()?.most)
    }

    /// Whether a request was refused. The run then ends, whatever the result of that request was.
    pub fn was_refused(&self) -> bool {
        self.0.as_ref().is_some_and(|bound| bound.refused.load(Relaxed))
    }

    /// Takes this many bytes. Returns false, and takes none, if fewer are left.
    #[cold]
    pub fn take(&self, bytes: u64) -> bool {
        let Some(bound) = &self.0 else { return true };
        match bound.left.load(Relaxed).checked_sub(bytes) {
            Some(left) => bound.left.store(left, Relaxed),
            None => bound.refused.store(true, Relaxed),
        }
        !bound.refused.load(Relaxed)
    }

    /// Gives this many bytes back.
    pub fn give_back(&self, bytes: u64) {
        if let Some(bound) = &self.0 {
            bound.left.store(bound.left.load(Relaxed) + bytes, Relaxed);
        }
    }

    /// Makes space in `list` for `more` entries. Returns the number of bytes that this took; `None`
    /// if there is no memory.
    #[cold]
    pub fn make<T>(&self, list: &mut Vec<T>, more: usize) -> Option<u64> {
        let (had, size) = (list.capacity(), size_of::<T>() as u64);
        if had - list.len() >= more {
            return Some(0);
        }
        let bytes = |entries: usize| (entries as u64).saturating_mul(size);
        // The list grows by half, so that a long list is not copied too often; only by what is
        // needed, if there is no memory for more.
        let fits = |more: &usize| {
            let new = bytes(list.len().saturating_add(*more));
            self.0.as_ref().is_none_or(|bound| bound.left.load(Relaxed) >= new)
        };
        let more = [more.max(list.len() / 2).max(4), more].into_iter().find(fits);
        let grown = more.is_some_and(|more| list.try_reserve_exact(more).is_ok());
        let new = bytes(list.capacity() - had);
        if grown && self.take(new) {
            return Some(new);
        }
        self.refuse();
        None
    }

    /// Records that a request was refused.
    fn refuse(&self) {
        if let Some(bound) = &self.0 {
            bound.refused.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_grows_as_long_as_both_fit() {
        let (room, mut list) = (Room::of(1000), Vec::<u64>::new());
        while room.make(&mut list, 1).is_some() {
            list.push(0);
        }
        // One more entry did not fit beside those: 8 * (len + 1) > 1000 - 8 * len.
        assert!(room.was_refused() && (55..=63).contains(&list.len()), "{}", list.len());
        assert!(!room.take(1), "refused once, the run is over");
    }

    #[test]
    fn what_is_given_back_is_there_again() {
        let room = Room::of(100);
        assert!(room.clone().take(100));
        room.give_back(60);
        assert!(room.take(60) && !room.was_refused());
        assert!(!room.take(1) && room.was_refused());
        assert_eq!((room.most(), Room::UNBOUNDED.most()), (Some(100), None));
        assert!(Room::UNBOUNDED.take(u64::MAX) && !Room::UNBOUNDED.was_refused());
    }
}
