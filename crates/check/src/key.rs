//! 128-bit keys that stand for states.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use xxhash_rust::xxh3::xxh3_128;

/// Stands for a state or a past. (Two halves: a `u128` asks the allocator for more alignment.)
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key([u64; 2]);

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|word| state.write_u64(*word));
    }
}

impl From<u128> for Key {
    fn from(hash: u128) -> Key {
        Key([hash as u64, (hash >> 64) as u64])
    }
}

impl Key {
    const fn number(self) -> u128 {
        self.0[0] as u128 | (self.0[1] as u128) << 64
    }

    /// What the part in this place, which has this key, adds to the key of its state. The key of a
    /// state is the sum over its parts, so that a step changes it by what its parts differ by.
    pub fn in_place(self, place: usize) -> Key {
        let [low, high] = self.0;
        let mut bytes = [0; 24];
        let words = [low, high, place as u64];
        bytes
            .chunks_exact_mut(8)
            .zip(words)
            .for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        xxh3_128(&bytes).into()
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Key) -> Key {
        self.number().wrapping_add(other.number()).into()
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Key) -> Key {
        self.number().wrapping_sub(other.number()).into()
    }

    /// Its upper half.
    pub const fn high(self) -> u64 {
        self.0[1]
    }

    /// Its lower half.
    pub const fn low(self) -> u64 {
        self.0[0]
    }
}

/// Takes down what is hashed, byte by byte.
struct Bytes(Vec<u8>);

thread_local! {
    /// Room that is used again.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The key of `value`.
pub fn key_of(value: &impl Hash) -> Key {
    // What is hashed on the way, a part for its own key, finds no room and makes some.
    let mut bytes = Bytes(ROOM.take());
    bytes.0.clear();
    value.hash(&mut bytes);
    let key = xxh3_128(&bytes.0).into();
    ROOM.set(bytes.0);
    key
}

impl Hasher for Bytes {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    // Fixed sizes need no call to copy them.
    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.0.push(n);
    }

    #[inline]
    fn write_u16(&mut self, n: u16) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    #[inline]
    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }

    fn finish(&self) -> u64 {
        xxh3_128(&self.0) as u64
    }
}

/// `key`, and `value` after it.
pub fn extend(key: Key, value: &impl Hash) -> Key {
    key_of(&(key, value))
}
