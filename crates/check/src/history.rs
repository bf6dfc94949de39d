//! How each state was reached.

use crate::choice::Choice;
use crate::schedule::Schedule;

/// How a state was reached.
#[derive(Copy, Clone, Debug)]
pub struct Reached {
    /// From which state.
    pub parent: u32,
    /// By what.
    pub choice: Choice,
}

/// How each state was reached, by its number.
#[derive(Debug, Default)]
pub struct History {
    /// In pieces: the number of the first state of each, and those that follow it.
    pieces: Vec<(u32, Vec<Reached>)>,
}

impl History {
    /// How the next states were reached.
    pub fn push(&mut self, reached: Vec<Reached>) {
        if !reached.is_empty() {
            let next = self.pieces.last().map_or(0, |(first, last)| first + last.len() as u32);
            self.pieces.push((next, reached));
        }
    }

    /// How many states there are.
    pub fn len(&self) -> usize {
        self.pieces.last().map_or(0, |(first, last)| *first as usize + last.len())
    }

    /// How each was reached, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = Reached> + '_ {
        self.pieces.iter().flat_map(|(_, reached)| reached).copied()
    }

    fn get(&self, number: u32) -> Reached {
        let piece = self.pieces.partition_point(|(first, _)| *first <= number) - 1;
        let (first, reached) = &self.pieces[piece];
        reached[(number - first) as usize]
    }

    /// The way to state `number`, and `last`.
    pub fn schedule(&self, mut number: u32, last: Choice) -> Schedule {
        let mut choices = vec![last];
        while number != 0 {
            let Reached { parent, choice } = self.get(number);
            choices.push(choice);
            number = parent;
        }
        choices.reverse();
        Schedule(choices)
    }
}
