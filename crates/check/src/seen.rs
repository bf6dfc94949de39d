//! The keys of all states that were found, in pieces that are filled side by side.

use crate::key::Key;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Keys are spread as they are, but for the bits that all keys of a piece have in common.
#[derive(Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = self.0.rotate_left(u64::BITS / 2) ^ n;
    }

    fn finish(&self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        (self.0 >> PIECES.ilog2()).wrapping_mul(ODD)
    }
}

type Set<K> = HashSet<K, BuildHasherDefault<Spread>>;

/// Some of the keys.
pub enum Piece {
    /// As they are.
    Whole(Set<Key>),
    /// Only so many bits of each.
    Cut(u32, Set<u64>),
}

impl Piece {
    /// Takes a key in; whether it is new.
    pub fn insert(&mut self, key: Key) -> bool {
        match self {
            Piece::Whole(keys) => keys.insert(key),
            Piece::Cut(bits, keys) => keys.insert(cut(key, *bits)),
        }
    }

    fn contains(&self, key: Key) -> bool {
        match self {
            Piece::Whole(keys) => keys.contains(&key),
            Piece::Cut(bits, keys) => keys.contains(&cut(key, *bits)),
        }
    }
}

/// The lowest bits.
const fn cut(key: Key, bits: u32) -> u64 {
    key.low() & (u64::MAX >> (u64::BITS - bits))
}

/// Pieces. More than there are processors, so that none waits for the fullest one.
pub const PIECES: usize = 64;

/// The keys of all states that were found.
pub struct Seen(Vec<Piece>);

impl Seen {
    /// None. Of each key so many bits are kept; all, if those are more than 64.
    pub fn new(bits: u32) -> Seen {
        let piece = |_| match bits {
            0..=64 => Piece::Cut(bits.max(1), Set::default()),
            _ => Piece::Whole(Set::default()),
        };
        Seen((0..PIECES).map(piece).collect())
    }

    /// In which piece a key belongs. It follows from the bits that are kept.
    pub const fn piece(key: Key) -> usize {
        key.low() as usize % PIECES
    }

    /// Whether the state was found.
    pub fn contains(&self, key: Key) -> bool {
        self.0[Seen::piece(key)].contains(key)
    }

    /// Bytes that the pieces will take, beside what they have, when they take in so many more
    /// keys: a piece that is full is copied to one twice as large.
    pub fn soon(&self, more: usize) -> u64 {
        let grows = |(had, used, size): (usize, usize, usize)| match had - used < more / PIECES {
            true => 2 * had * size,
            false => 0,
        };
        let of = |piece: &Piece| match piece {
            Piece::Whole(keys) => (keys.capacity(), keys.len(), size_of::<Key>() + 1),
            Piece::Cut(_, keys) => (keys.capacity(), keys.len(), size_of::<u64>() + 1),
        };
        self.0.iter().map(|piece| grows(of(piece)) as u64).sum()
    }

    /// Its pieces.
    pub fn pieces(&mut self) -> &mut [Piece] {
        &mut self.0
    }
}

/// The probability, at most, that a state was missed because its key was taken for another one's:
/// each of so many steps led to a state that was looked up among so many, of each of which so many
/// bits were kept. (Keys are taken for random: one that is looked up equals a given other one with
/// a probability of 1 in 2 to the number of bits.)
pub fn missed(states: usize, steps: u64, bits: u32) -> f64 {
    (states as f64 * steps as f64 * 2f64.powi(-(bits as i32))).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::key_of;

    #[test]
    fn keys_that_differ_in_the_bits_kept_differ() {
        for bits in [8, 32, 64, 128] {
            let mut seen = Seen::new(bits);
            let keys: Vec<Key> = (0..40).map(|n: u32| key_of(&n)).collect();
            let new = keys.iter().filter(|key| seen.pieces()[Seen::piece(**key)].insert(**key));
            let new = new.count();
            assert!(keys.iter().all(|key| seen.contains(*key)));
            assert!(if bits == 8 { new < 40 } else { new == 40 }, "{bits} bits: {new}");
        }
    }

    #[test]
    fn fewer_bits_miss_more() {
        assert_eq!(missed(1 << 10, 1 << 10, 20), 1.0);
        assert!((missed(1 << 10, 1 << 10, 24) - 1.0 / 16.0).abs() < 1e-9);
        assert!(missed(1 << 30, 1 << 31, 128) < 1e-19);
    }
}
