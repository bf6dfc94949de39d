//! One way through a program, chosen step by step from what the explorer would try.
//!
//! Protocol: [`drive`] shows the offers of each state, which are the explorer's own, and goes on by
//! the one that is chosen, until none is. [`reaches`](crate::reaches) then tells which of the
//! states on that way an exploration reaches.

use crate::access::Way;
use crate::choice::Choice;
use crate::env::Next;
use crate::error::CheckError;
use crate::key::Key;
use crate::schedule::Schedule;
use crate::setting::{Options, Setting, with_setting};
use crate::shadow::CheckWorld;
use crate::state::State;
use needless_model::kernels::KernelRow;
use needless_model::program::Program;

/// Something that can happen next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// How a schedule says it.
    pub choice: Choice,
    /// What the thread is about to do; `None`: the processor acts by itself.
    pub next: Option<Next>,
    /// By which way, if that is a load or store.
    pub way: Option<Way>,
}

/// Where a way led.
pub struct Driven {
    /// The way.
    pub schedule: Schedule,
    /// The world at its end.
    pub world: Box<CheckWorld>,
    /// Whether every thread is done.
    pub is_end: bool,
}

/// Goes from the start by the offers that `choose` takes (their place in the list).
pub fn drive(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
    choose: &mut dyn FnMut(&[Offer]) -> Option<usize>,
) -> Result<Driven, CheckError> {
    with_setting(program, row, options, |setting| {
        let (mut state, mut schedule) = (setting.initial(), Vec::new());
        loop {
            let offers = offers(&setting, &state);
            let taken = choose(&offers).and_then(|taken| offers.get(taken));
            let Some(Offer { choice, .. }) = taken else {
                let is_end = state.is_end();
                return Ok(Driven {
                    schedule: Schedule(schedule),
                    world: Box::new(state.world),
                    is_end,
                });
            };
            schedule.push(*choice);
            state = step(&setting, &state, &schedule)?;
        }
    })
}

fn offers(setting: &Setting<'_>, state: &State) -> Vec<Offer> {
    let offer = |choice| match choice {
        Choice::Go { thread, way } => {
            let (thread, way) = (usize::from(thread), usize::from(way));
            let way = setting.ways(state, thread).get(way).copied();
            Offer { choice, next: Some(state.next(thread)), way }
        }
        Choice::Fill { .. } | Choice::Evict { .. } => Offer { choice, next: None, way: None },
    };
    state.choices.iter().copied().map(offer).collect()
}

/// The last step of `schedule`.
fn step(
    setting: &Setting<'_>,
    state: &State,
    schedule: &[Choice],
) -> Result<Box<State>, CheckError> {
    let Some(choice) = schedule.last() else { return Ok(setting.initial()) };
    let mut after = setting.after(state, *choice);
    match after.world.inconsistency.take() {
        None => Ok(after),
        Some(error) => {
            Err(CheckError::Inconsistent { error, schedule: Schedule(schedule.to_vec()) })
        }
    }
}

/// The keys of the states on the way of `schedule`, the first and the last included.
pub(crate) fn keys(setting: &Setting<'_>, schedule: &Schedule) -> Result<Vec<Key>, CheckError> {
    let mut state = setting.initial();
    let mut keys = vec![state.key()];
    for (index, choice) in schedule.0.iter().enumerate() {
        if !state.choices.contains(choice) {
            return Err(CheckError::Schedule { step: index + 1, word: choice.to_string() });
        }
        state = step(setting, &state, &schedule.0[..=index])?;
        keys.push(state.key());
    }
    Ok(keys)
}
