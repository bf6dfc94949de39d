//! The rehearsal: the program runs in the model for a moment before it runs anywhere else.
//!
//! So anything that no kernel does is an error of the text, with its place, on every target: an
//! access to unmapped memory, a second `map` in the same place, threads that wait for each other
//! forever. The rehearsal does not see what happens after that moment.

use crate::compile::Compiled;
use crate::error::Problem;
use miette::SourceSpan;
use needless_model::kernel::Errno;
use needless_model::kernels::KernelRow;
use needless_model::program::Advice;
use needless_model::run::Round;
use needless_model::sim::{self, Look, SimError, SimOptions, Watch};

/// The moment lasts this many looks (see [`Watch::look`]).
const LOOKS: u32 = 2;

/// The memory that the rehearsal may take, in bytes.
const MEMORY: u64 = 48 << 20;

/// Ends the run after the given number of looks.
struct Moment(u32);

impl Watch for Moment {
    fn round(&mut self, _: &Round) {}

    fn look(&mut self, _: Look) -> Result<(), String> {
        self.0 -= 1;
        if self.0 == 0 { Err("enough is seen".to_owned()) } else { Ok(()) }
    }
}

/// The problems that the program has on the newest kernel, which has every operation.
pub(crate) fn rehearse(compiled: &Compiled) -> Result<(), Vec<Problem>> {
    let Some(row) = KernelRow::all().pop() else { return Ok(()) };
    let options = SimOptions { memory: MEMORY, ..SimOptions::default() };
    match sim::run_with(&compiled.program, &row, &options, &mut Moment(LOOKS)) {
        // Threads of a litmus test may come too late to memory that another thread unmaps.
        Err(SimError::Signal { .. } | SimError::BehindEnd { .. } | SimError::Poisoned { .. })
            if compiled.litmus.is_some() =>
        {
            Ok(())
        }
        // A litmus test is written for the checker's machine, whose huge pages are smaller.
        Err(SimError::Call { .. })
            if compiled.litmus.is_some() && compiled.program.advises(&[Advice::Collapse]) =>
        {
            Ok(())
        }
        Err(error) if error.is_the_programs() => Err(problems(&error, &compiled.places)),
        _ => Ok(()),
    }
}

fn problems(error: &SimError, places: &[SourceSpan]) -> Vec<Problem> {
    let place = |op: u32| places.get(op as usize).copied().unwrap_or((0..0).into());
    let (op, label, help) = match error {
        SimError::Deadlock { waiting } => {
            let one = |waiting: &sim::Waiting| {
                let (label, help) = match waiting.for_process {
                    _ if waiting.for_answer => (
                        "nobody answers",
                        "add a thread that answers: thread \"handler\" cpu=1 { uffd-serve by=\"copy\" }; or features=\"async\"",
                    ),
                    true => (
                        "it does not end",
                        "a process ends after its last operation; it never ends if that is spin or sleep",
                    ),
                    false => (
                        "the others do not come",
                        "every thread that names a barrier has to reach it as often as the others",
                    ),
                };
                Problem::new(place(waiting.op), format!("{waiting} forever"), label).help(help)
            };
            return waiting.iter().map(one).collect();
        }
        SimError::Signal { op, .. } => {
            (op, "not allowed", "map the pages first, with a protection that allows the access")
        }
        SimError::BehindEnd { op, .. } => (
            op,
            "beyond the end",
            "stay before the file's end, or make the file longer first: ftruncate \"FILE\" pages=N",
        ),
        SimError::Poisoned { op, .. } => {
            (op, "poisoned", "remove the poison first: madvise \"RANGE\" advice=\"dontneed\"")
        }
        SimError::Refused { op, help, .. } => (op, "no kernel does this", *help),
        SimError::Call { op, errno: Errno::Eexist, .. } if op.text.starts_with("map ") => (
            op,
            "again",
            "map it before `rounds`, or unmap it before the next round: munmap \"AREA\"",
        ),
        SimError::Call { op, errno: Errno::Eagain, .. } => {
            (op, "fails here", "wait for the process before it is forked again: wait \"PROCESS\"")
        }
        SimError::Call { op, .. } => {
            (op, "fails here", "check what is mapped when the operation runs")
        }
        SimError::Expr { op, .. } => {
            (op, "here", "loop variables have to stay where the expression has a value")
        }
        _ => return Vec::new(),
    };
    vec![Problem::new(place(op.id), error.to_string(), label).help(help)]
}
