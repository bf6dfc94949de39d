//! A schedule as a string: which thread went on, and how, step by step.
//!
//! `0x3.1b.0` is: thread 0 takes three steps, thread 1 one by its second way, thread 0 one. `f1:4`
//! and `e1:0` are a fill of page 4 and an eviction of the first entry on CPU 1 (explicit mode).

use crate::choice::Choice;
use std::fmt;
use std::str::FromStr;

/// The most steps that a schedule may have.
const MAX_STEPS: usize = 100_000;

/// A schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(pub Vec<Choice>);

/// A string that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{word}`, word {number} of the schedule, is not understood; a schedule looks like `0x3.1b.0`"
)]
pub struct BadSchedule {
    /// The word.
    pub word: String,
    /// Which it is, from 1.
    pub number: usize,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Choice::Go { thread, way: 0 } => write!(f, "{thread}"),
            Choice::Go { thread, way } if way < 26 => {
                write!(f, "{thread}{}", char::from(b'a' + way))
            }
            Choice::Go { thread, way } => write!(f, "{thread}w{way}"),
            Choice::Fill { cpu, page } => write!(f, "f{cpu}:{page}"),
            Choice::Evict { cpu, entry } => write!(f, "e{cpu}:{entry}"),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| a == b).map(|run| match run.len() {
            1 => run[0].to_string(),
            n => format!("{}x{n}", run[0]),
        });
        f.write_str(&runs.collect::<Vec<_>>().join("."))
    }
}

impl FromStr for Schedule {
    type Err = BadSchedule;

    fn from_str(text: &str) -> Result<Schedule, BadSchedule> {
        let mut choices = Vec::new();
        for (index, word) in text.trim().split('.').enumerate() {
            let bad = || BadSchedule { word: word.to_owned(), number: index + 1 };
            let (what, times) = match word.split_once('x') {
                Some((what, times)) => (what, times.parse().map_err(|_| bad())?),
                None => (word, 1),
            };
            let choice = parse(what).ok_or_else(bad)?;
            if times == 0 || times > MAX_STEPS - choices.len() {
                return Err(bad());
            }
            choices.resize(choices.len() + times, choice);
        }
        Ok(Schedule(choices))
    }
}

fn parse(word: &str) -> Option<Choice> {
    let pair = |text: &str| {
        let (cpu, what) = text.split_once(':')?;
        Some((cpu.parse().ok()?, what.parse().ok()?))
    };
    if let Some(rest) = word.strip_prefix('f') {
        return pair(rest).map(|(cpu, page)| Choice::Fill { cpu, page });
    }
    if let Some(rest) = word.strip_prefix('e') {
        return pair(rest).map(|(cpu, entry)| Choice::Evict { cpu, entry });
    }
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let thread = word[..digits].parse().ok()?;
    let way = match &word.as_bytes()[digits..] {
        [] => 0,
        [b'w', ..] if word.len() > digits + 1 => word[digits + 1..].parse().ok()?,
        [letter @ b'b'..=b'z'] => letter - b'a',
        _ => return None,
    };
    Some(Choice::Go { thread, way })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn there_and_back() {
        let go = |thread, way| Choice::Go { thread, way };
        let fill = Choice::Fill { cpu: 1, page: 4 };
        let evict = Choice::Evict { cpu: 0, entry: 2 };
        let schedule =
            Schedule(vec![go(0, 0), go(0, 0), go(1, 1), fill, evict, go(2, 30), go(0, 22)]);
        assert_eq!(schedule.to_string(), "0x2.1b.f1:4.e0:2.2w30.0w");
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
    }

    #[test]
    fn bad_words_are_named() {
        for (text, number) in
            [("", 1), ("0.", 2), ("0x0", 1), ("0.1?", 2), ("0x999999", 1), ("a", 1), ("0é", 1)]
        {
            let error = text.parse::<Schedule>().unwrap_err();
            assert_eq!(error.number, number, "{text}");
        }
    }
}
