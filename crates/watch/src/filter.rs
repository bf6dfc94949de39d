//! Tracing filters that let chosen numbers through.
//!
//! The kernel evaluates a filter for every event, here for every system call of a watched task, one
//! comparison after another until the result is known (kernel/trace/trace_events_filter.c). So the
//! numbers are made ranges, and the ranges are halved: a handful of comparisons instead of one for
//! each number.

use std::fmt;

/// A filter on one field.
pub struct Filter<'a> {
    field: &'a str,
    tree: Tree,
}

enum Tree {
    /// Numbers from the first to the last.
    Range(u64, u64),
    /// Below a number the one, from it on the other.
    Split(u64, Box<Tree>, Box<Tree>),
}

impl Filter<'_> {
    /// Lets these numbers through; `None` if there are none.
    pub fn among<'a>(field: &'a str, numbers: impl IntoIterator<Item = u64>) -> Option<Filter<'a>> {
        let mut numbers: Vec<u64> = numbers.into_iter().collect();
        numbers.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if number <= *last + 1 => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        Tree::of(&ranges).map(|tree| Filter { field, tree })
    }
}

impl Tree {
    fn of(ranges: &[(u64, u64)]) -> Option<Tree> {
        if let [(first, last)] = ranges {
            return Some(Tree::Range(*first, *last));
        }
        let (below, above) = ranges.split_at(ranges.len() / 2);
        let pivot = above.first()?.0;
        Some(Tree::Split(pivot, Box::new(Tree::of(below)?), Box::new(Tree::of(above)?)))
    }

    /// `least`: no number below it comes here.
    fn write(&self, field: &str, least: u64, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Range(first, last) if first == last => write!(out, "{field} == {first}"),
            Tree::Range(first, last) if *first == least => write!(out, "{field} <= {last}"),
            Tree::Range(first, last) => write!(out, "{field} >= {first} && {field} <= {last}"),
            Tree::Split(pivot, below, above) => {
                write!(out, "({field} < {pivot} && (")?;
                below.write(field, least, out)?;
                write!(out, ")) || ({field} >= {pivot} && (")?;
                above.write(field, *pivot, out)?;
                out.write_str("))")
            }
        }
    }
}

impl fmt::Display for Filter<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tree.write(self.field, 0, out)
    }
}

/// Lets those of all others through.
pub fn function_is_not(field: &str, name: &str) -> String {
    format!("{field}.function != {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Words<'a> = std::iter::Peekable<std::vec::IntoIter<&'a str>>;

    /// What the kernel would make of a filter, with the number of comparisons.
    fn passes(filter: &str, value: u64) -> (bool, u32) {
        /// Parts that `sign` joins; one that is `decided` decides them all.
        fn joined(
            (sign, decided): (&str, bool),
            part: fn(&mut Words<'_>, u64) -> (bool, u32),
            words: &mut Words<'_>,
            value: u64,
        ) -> (bool, u32) {
            let (mut result, mut cost) = part(words, value);
            while words.next_if(|word| *word == sign).is_some() {
                let (next, more) = part(words, value);
                if result != decided {
                    (result, cost) = (next, cost + more);
                }
            }
            (result, cost)
        }
        fn any(words: &mut Words<'_>, value: u64) -> (bool, u32) {
            joined(("||", true), all, words, value)
        }
        fn all(words: &mut Words<'_>, value: u64) -> (bool, u32) {
            joined(("&&", false), one, words, value)
        }
        fn one(words: &mut Words<'_>, value: u64) -> (bool, u32) {
            if words.next_if_eq(&"(").is_some() {
                let inner = any(words, value);
                assert_eq!(words.next(), Some(")"));
                return inner;
            }
            let (Some("id"), Some(sign), Some(number)) = (words.next(), words.next(), words.next())
            else {
                panic!("no comparison");
            };
            let number: u64 = number.parse().unwrap();
            let result = match sign {
                "==" => value == number,
                "<" => value < number,
                "<=" => value <= number,
                ">=" => value >= number,
                _ => panic!("{sign}"),
            };
            (result, 1)
        }
        let text = filter.replace('(', "( ").replace(')', " )");
        let words: Vec<&str> = text.split_whitespace().collect();
        any(&mut words.into_iter().peekable(), value)
    }

    #[test]
    fn only_the_numbers_pass_and_it_takes_few_comparisons() {
        let numbers = [0, 9, 10, 11, 12, 25, 26, 28, 56, 57, 58, 59, 60, 231, 237, 329, 435, 440];
        let filter = Filter::among("id", numbers).unwrap().to_string();
        for value in 0..500 {
            let (passed, comparisons) = passes(&filter, value);
            assert_eq!(passed, numbers.contains(&value), "{value}: {filter}");
            assert!(comparisons <= 9, "{value}: {comparisons}: {filter}");
        }
        assert_eq!(Filter::among("id", [7]).unwrap().to_string(), "id == 7");
        assert!(Filter::among("id", []).is_none());
    }
}
