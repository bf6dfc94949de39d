//! 128-bit keys that stand for states.

use std::hash::{Hash, Hasher};
use xxhash_rust::xxh3::xxh3_128;

/// Stands for a state or a past. (Two halves: a `u128` asks the allocator for more alignment.)
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key([u64; 2]);

impl From<u128> for Key {
    fn from(hash: u128) -> Key {
        Key([hash as u64, (hash >> 64) as u64])
    }
}

/// Takes down what is hashed, byte by byte.
#[derive(Default)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// The key of everything taken down; the room is used again.
    pub fn key(&mut self) -> Key {
        let key = xxh3_128(&self.0).into();
        self.0.clear();
        key
    }
}

impl Hasher for Bytes {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        xxh3_128(&self.0) as u64
    }
}

/// `key`, and `value` after it.
pub fn extend(key: Key, value: &impl Hash) -> Key {
    let mut bytes = Bytes(Vec::with_capacity(64));
    key.hash(&mut bytes);
    value.hash(&mut bytes);
    bytes.key()
}
