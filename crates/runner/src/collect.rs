//! The receiving side of a run: reads the runner's answer, from a pipe or from a guest, and makes a
//! result of it.
//!
//! A run may take several starts of the runner. Rounds that were marked and could not be repeated
//! are missing, and another start supplies them ([`gather`]).

use crate::wire::{self, Failure, Message, PROTOCOL_VERSION, Summary};
use crate::witness::EVENTS_LOST;
use needless_model::program::{Op, OpKind, Program, all_ops};
use needless_model::run::{Round, RunRequest, TargetRun, Witness};
use std::collections::BTreeMap;
use std::io::Read;
use thiserror::Error;

/// The answer of one or several starts of the runner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collected {
    /// The kernel's release.
    pub release: String,
    /// The rounds that count, by index.
    pub rounds: BTreeMap<u32, Round>,
    /// The totals: final pages, page tables, the witness, and what could not be seen.
    pub summary: Summary,
}

/// How often the rings grow after lost events, each time by the factor [`GROWTH`].
const GROWTHS: u32 = 2;
const GROWTH: u32 = 4;

/// Starts the runner for `request` until all its rounds are there, the runner gave up, or it was
/// started `most` times. After lost events the rings grow. `progress` is called after each start
/// with the number of rounds.
pub fn gather<E>(
    request: &RunRequest,
    most: u32,
    mut start: impl FnMut(&RunRequest) -> Result<Collected, E>,
    progress: impl Fn(u32),
) -> Result<Collected, E> {
    let asked = rounds_asked(&request.program);
    let mut request = request.clone();
    let mut all = start(&request)?;
    let mut growths = 0;
    for _ in 1..most {
        progress(all.rounds.len() as u32);
        if all.rounds.len() >= asked as usize {
            break;
        }
        if all.summary.witness.marked.contains_key(EVENTS_LOST) && growths < GROWTHS {
            growths += 1;
            request.ring_pages *= GROWTH;
            // The runner may have given up because its rings were too small.
            all = start(&request)?;
        } else if all.summary.gave_up.is_some() {
            break;
        } else {
            all.add(start(&request)?);
        }
    }
    Ok(all)
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// The runner reported a failure.
    #[error(transparent)]
    Failed(Failure),
    /// The stream cannot be read to the end of the answer.
    #[error("the answer cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// The stream ended before the answer did.
    #[error("stopped in the middle")]
    Ended,
    /// The runner broke the protocol.
    #[error("{0}")]
    Confused(String),
}

impl Collected {
    /// Reads one answer: `Hello`, rounds, and `Done` or `Failed`.
    pub fn read(answers: &mut impl Read) -> Result<Collected, AnswerError> {
        let mut collected = Collected::default();
        let mut greeted = false;
        loop {
            let message = wire::read_message(answers).map_err(AnswerError::Unreadable)?;
            match message {
                Some(Message::Hello { version: PROTOCOL_VERSION, release }) if !greeted => {
                    (collected.release, greeted) = (release, true);
                }
                Some(Message::Hello { version, .. }) if !greeted => {
                    let what = format!("speaks version {version}, not {PROTOCOL_VERSION}");
                    return Err(AnswerError::Confused(what));
                }
                Some(Message::Failed(failure)) => return Err(AnswerError::Failed(failure)),
                Some(Message::Round(round)) if greeted => {
                    collected.rounds.insert(round.index, round);
                }
                Some(Message::Done(summary)) if greeted => {
                    collected.summary = summary;
                    return Ok(collected);
                }
                Some(_) => return Err(AnswerError::Confused("sent messages out of order".into())),
                None => return Err(AnswerError::Ended),
            }
        }
    }

    /// Adds the answer of another start: rounds that are missing, and the totals.
    fn add(&mut self, more: Collected) {
        for (index, round) in more.rounds {
            self.rounds.entry(index).or_insert(round);
        }
        for (sender, count) in more.summary.witness.others_sent {
            *self.summary.witness.others_sent.entry(sender).or_default() += count;
        }
        for (reason, count) in more.summary.witness.marked {
            *self.summary.witness.marked.entry(reason).or_default() += count;
        }
        self.summary.witness.attempted += more.summary.witness.attempted;
        self.summary.witness.events_lost += more.summary.witness.events_lost;
        for (name, value) in more.summary.drift {
            *self.summary.drift.entry(name).or_default() += value;
        }
        self.summary.gave_up = self.summary.gave_up.take().or(more.summary.gave_up);
        self.summary.final_pages = more.summary.final_pages;
        self.summary.page_tables = more.summary.page_tables;
    }

    /// Puts everything into `result`, and says there whether the run is valid.
    pub fn fill(self, result: &mut TargetRun, asked: u32) {
        let Summary { final_pages, page_tables, witness, unseen, drift, gave_up } = self.summary;
        result.release = Some(self.release);
        result.rounds = self.rounds.into_values().collect();
        result.final_pages = final_pages;
        result.witness = witness;
        result.unseen.extend(unseen);
        for (name, value) in drift {
            result.environment.insert(format!("during the run: {name}"), value.to_string());
        }
        result.page_tables = page_tables;
        result.invalid = undecided(&result.witness, result.rounds.len(), asked, gave_up);
    }
}

/// The number of reasons that are listed for a run that lacks rounds.
const MOST_REASONS: usize = 3;

/// Why a run is invalid: it lacks rounds that were asked for, because something disturbed them. The
/// most frequent reasons come first.
pub fn undecided(
    witness: &Witness,
    had: usize,
    asked: u32,
    gave_up: Option<String>,
) -> Option<String> {
    let missing = (asked as usize).saturating_sub(had);
    if missing == 0 && gave_up.is_none() {
        return None;
    }
    let attempts = witness.attempted;
    let gave_up = gave_up.map_or_else(String::new, |why| format!(" ({why})"));
    let mut why = format!(
        "{missing} of {asked} rounds could not be had undisturbed in {attempts} attempts{gave_up}"
    );
    let mut reasons: Vec<(&String, &u32)> = witness.marked.iter().collect();
    reasons.sort_by_key(|(reason, times)| (std::cmp::Reverse(**times), *reason));
    for (reason, times) in reasons.iter().take(MOST_REASONS) {
        why += &format!("; {times} × {reason}");
    }
    let others: u32 = reasons.iter().skip(MOST_REASONS).map(|(_, times)| **times).sum();
    if others > 0 {
        why += &format!("; {others} × other reasons");
    }
    Some(why)
}

/// The number of rounds that a program asks for.
pub fn rounds_asked(program: &Program) -> u32 {
    let first = program.threads.first().map_or(&[][..], |thread| &thread.body[..]);
    let count = |op: &Op| match op.kind {
        OpKind::Rounds { count, .. } => Some(count),
        _ => None,
    };
    all_ops(first).find_map(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FailureKind;
    use needless_model::addr::CpuId;
    use needless_model::program::Thread;

    fn stream(messages: &[Message]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            wire::write_message(&mut bytes, message).unwrap();
        }
        bytes
    }

    fn hello() -> Message {
        Message::Hello { version: PROTOCOL_VERSION, release: "6.12.1".into() }
    }

    #[test]
    fn an_answer_ends_with_done_and_leaves_the_next_one_alone() {
        let round = Round { index: 3, ..Round::default() };
        let done = Message::Done(Summary::default());
        let bytes = stream(&[hello(), Message::Round(round), done, hello()]);
        let mut from = bytes.as_slice();
        let collected = Collected::read(&mut from).unwrap();
        assert_eq!(collected.rounds.keys().collect::<Vec<_>>(), [&3]);
        assert!(!from.is_empty());
        assert!(matches!(Collected::read(&mut from), Err(AnswerError::Ended)));
    }

    #[test]
    fn what_is_not_an_answer_is_an_error() {
        let read = |messages: &[Message]| Collected::read(&mut stream(messages).as_slice());
        let failure = Failure::new(FailureKind::Operation, "munmap");
        assert!(matches!(read(&[Message::Failed(failure)]), Err(AnswerError::Failed(_))));
        assert!(matches!(read(&[]), Err(AnswerError::Ended)));
        assert!(matches!(read(&[hello()]), Err(AnswerError::Ended)));
        assert!(matches!(read(&[hello(), hello()]), Err(AnswerError::Confused(_))));
        assert!(matches!(
            read(&[Message::Done(Summary::default())]),
            Err(AnswerError::Confused(_))
        ));
        let other = Message::Hello { version: PROTOCOL_VERSION + 1, release: String::new() };
        assert!(matches!(read(&[other]), Err(AnswerError::Confused(_))));
    }

    #[test]
    fn what_disturbed_most_is_told() {
        let marked = [("a", 1), ("b", 9), ("c", 5), ("d", 2), ("e", 2)];
        let marked = marked.map(|(reason, times)| (reason.to_owned(), times)).into();
        let witness = Witness { marked, attempted: 25, ..Witness::default() };
        assert_eq!(undecided(&witness, 6, 6, None), None, "repeated rounds do no harm");
        let why = undecided(&witness, 5, 6, Some("gave up".into())).unwrap();
        assert_eq!(
            why,
            "1 of 6 rounds could not be had undisturbed in 25 attempts (gave up); 9 × b; 5 × c; \
             2 × d; 3 × other reasons"
        );
    }

    /// Rounds of one start, which lost events if `lost`.
    fn start_of(rounds: &[u32], lost: bool) -> Collected {
        let round = |index: &u32| (*index, Round { index: *index, ..Round::default() });
        let rounds = rounds.iter().map(round).collect();
        let mut collected = Collected { rounds, ..Collected::default() };
        if lost {
            collected.summary.witness.marked.insert(EVENTS_LOST.to_owned(), 1);
            collected.summary.gave_up = Some("gave up".to_owned());
        }
        collected
    }

    /// The result of [`gather`] for these starts, and the ring size in pages of each.
    fn gathered(starts: Vec<Collected>) -> (Collected, Vec<u32>) {
        let kind = OpKind::Rounds { slot: 0, warmup: 0, count: 2, body: vec![] };
        let body = vec![Op { id: 0, kind }];
        let threads = vec![Thread::new("main", CpuId(0), body)];
        let program = Program { threads, ..Program::default() };
        let (ring_pages, events, cpus) = (4, true, Vec::new());
        let request = RunRequest { program, events, ring_pages, cpus, disk: None, alike_from: 0 };
        let (mut starts, mut pages) = (starts.into_iter(), Vec::new());
        let start = |request: &RunRequest| {
            pages.push(request.ring_pages);
            starts.next().ok_or(())
        };
        let collected = gather(&request, 10, start, |_| {}).expect("there is a start for each");
        assert_eq!(starts.next(), None, "all were needed");
        (collected, pages)
    }

    #[test]
    fn missing_rounds_make_a_run_invalid_and_another_start_helps() {
        let first = start_of(&[0], false);
        let mut result = TargetRun::default();
        first.clone().fill(&mut result, 2);
        assert!(result.invalid.as_deref().is_some_and(|why| why.contains("1 of 2")));
        let (all, pages) = gathered(vec![first, start_of(&[0, 1], false)]);
        assert_eq!(pages, [4, 4]);
        all.fill(&mut result, 2);
        assert_eq!(result.invalid, None);
    }

    #[test]
    fn rings_that_lose_events_are_made_larger_twice() {
        let (all, pages) = gathered(vec![start_of(&[], true), start_of(&[0, 1], false)]);
        assert_eq!((all.rounds.len(), all.summary.gave_up), (2, None));
        assert_eq!(pages, [4, 16]);
        let (all, pages) = gathered(vec![start_of(&[], true); 3]);
        assert!(all.summary.gave_up.is_some());
        assert_eq!(pages, [4, 16, 64]);
    }
}
