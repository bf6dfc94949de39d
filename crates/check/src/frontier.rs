//! The states that were reached and not left yet, in the order of their numbers.

use crate::footprint::Taken;
use crate::key::Key;
use std::collections::VecDeque;

/// States with numbers that follow each other.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The number of the first one.
    pub first: u32,
    /// How much of what is kept belongs to one state.
    shape: Shape,
    keys: Vec<Key>,
    rows: Vec<u32>,
    /// By how many ways each thread can go on.
    ways: Vec<u8>,
    /// Choices that lead only where earlier ones led, too; where each state's end.
    asleep: Vec<Taken>,
    ends: Vec<u32>,
}

/// How much is kept of each state.
#[derive(Copy, Clone, Debug, Default)]
pub struct Shape {
    /// How long a row is.
    pub width: usize,
    /// How many threads there are.
    pub threads: usize,
    /// How many mirror images there are, the state itself included ([`crate::symmetry`]).
    pub images: usize,
}

/// One of them.
#[derive(Copy, Clone, Debug)]
pub struct Waiting<'a> {
    /// Its key, and those of its mirror images.
    pub keys: &'a [Key],
    /// Its row, and those of its mirror images.
    pub rows: &'a [u32],
    /// By how many ways each thread can go on.
    pub ways: &'a [u8],
    /// Choices that lead only where earlier ones led, too.
    pub asleep: &'a [Taken],
}

impl Chunk {
    /// No states.
    pub fn new(shape: Shape) -> Chunk {
        Chunk { shape, ..Chunk::default() }
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One of them.
    pub fn get(&self, index: usize) -> Waiting<'_> {
        let from = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let Shape { width, threads, images } = self.shape;
        Waiting {
            keys: &self.keys[index * images..][..images],
            rows: &self.rows[index * width * images..][..width * images],
            ways: &self.ways[index * threads..][..threads],
            asleep: &self.asleep[from as usize..self.ends[index] as usize],
        }
    }

    /// The states of another chunk, which come next.
    fn append(&mut self, other: &Chunk) {
        (0..other.len()).for_each(|index| self.push(other.get(index)));
    }

    /// One more.
    pub fn push(&mut self, state: Waiting<'_>) {
        self.keys.extend_from_slice(state.keys);
        self.rows.extend_from_slice(state.rows);
        self.ways.extend_from_slice(state.ways);
        self.asleep.extend_from_slice(state.asleep);
        self.ends.push(self.asleep.len() as u32);
    }
}

/// How many states are worked on by one worker, if there are enough.
pub const CHUNK: usize = 512;

/// All states that were reached and not left yet.
#[derive(Debug, Default)]
pub struct Frontier {
    chunks: VecDeque<Chunk>,
    states: usize,
}

impl Frontier {
    /// How many states there are.
    pub const fn len(&self) -> usize {
        self.states
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.states == 0
    }

    /// The states, in order.
    pub fn iter(&self) -> impl Iterator<Item = Waiting<'_>> {
        let chunks = self.chunks.iter();
        chunks.flat_map(|chunk| (0..chunk.len()).map(|index| chunk.get(index)))
    }

    /// States with the next numbers.
    pub fn push(&mut self, chunk: Chunk) {
        self.states += chunk.len();
        match self.chunks.back_mut() {
            Some(last) if last.len() + chunk.len() <= CHUNK => last.append(&chunk),
            _ if chunk.is_empty() => {}
            _ => self.chunks.push_back(chunk),
        }
    }

    /// So many chunks of those with the lowest numbers.
    pub fn take(&mut self, chunks: usize) -> Vec<Chunk> {
        let taken: Vec<Chunk> = self.chunks.drain(..chunks.min(self.chunks.len())).collect();
        self.states -= taken.iter().map(Chunk::len).sum::<usize>();
        taken
    }
}
