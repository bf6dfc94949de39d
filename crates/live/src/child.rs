//! The runner's process: finds it, starts it, and reads its answers.

use crate::error::LiveError;
use crate::machine::Machine;
use needless_model::foreign;
use needless_model::kernels::HUGE_TLB;
use needless_model::run::RunRequest;
use needless_runner::collect::AnswerError;
pub use needless_runner::collect::Collected;
use needless_runner::environment::environment;
use needless_runner::interrupt::{self, Interrupted};
use needless_runner::{huge_tlb, limits, locate, perf, wire};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Reads the runner's answers, as long as the keeper lives and no signal asks for an end.
struct Kept<'a> {
    answers: ChildStdout,
    keeper: BorrowedFd<'a>,
}

impl Read for Kept<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut events = vec![
                PollFd::new(&self.answers, PollFlags::IN),
                PollFd::new(&self.keeper, PollFlags::empty()),
            ];
            let signal = interrupt::descriptor();
            events.extend(signal.map(|came| PollFd::from_borrowed_fd(came, PollFlags::IN)));
            match poll(&mut events, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                // The keeper sends nothing unasked, so its end of the pipe was closed.
                Ok(_) if !events[1].revents().is_empty() => {
                    return Err(io::Error::other("the keeper is gone"));
                }
                Ok(_) if interrupt::asked().is_some() => return Err(io::Error::other(Interrupted)),
                Ok(_) => return self.answers.read(room),
            }
        }
    }
}

/// The runner's binary.
pub struct Runner {
    path: PathBuf,
}

impl Runner {
    /// Finds the binary with [`locate::find`].
    pub fn find() -> Result<Runner, LiveError> {
        if !limits::has_proc() {
            return Err(LiveError::NoProc);
        }
        let path = locate::find().map_err(|places| LiveError::RunnerMissing { places })?;
        Ok(Runner { path })
    }

    /// Starts the binary with `arguments` and with pipes to it.
    pub fn start(&self, arguments: &[&str]) -> Result<Child, LiveError> {
        Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| self.unusable(error))
    }

    /// The machine's environment. It includes how the processor's TLB holds huge pages, if that can
    /// be found out.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let mut found = environment();
        let asked = Command::new(&self.path).arg(huge_tlb::VERB).output();
        let held = asked.ok().filter(|answer| answer.status.success());
        let held = held.and_then(|answer| String::from_utf8(answer.stdout).ok());
        if let Some(held) = held.filter(|held| !held.is_empty()) {
            found.insert(HUGE_TLB.to_owned(), held);
        }
        found
    }

    /// Whether the runner itself can open event rings of the size that a run needs, or why it
    /// cannot.
    pub fn rings(&self) -> Result<String, String> {
        let answer = Command::new(&self.path).arg(perf::VERB).stdin(Stdio::null()).output();
        let answer = answer.map_err(|error| self.unusable(error).to_string())?;
        let said = foreign::lossy(answer.stdout.trim_ascii());
        if answer.status.success() { Ok(said) } else { Err(said) }
    }

    /// Runs one request.
    pub fn run(&self, machine: &mut Machine, request: &RunRequest) -> Result<Collected, LiveError> {
        let mut child = self.start(&[])?;
        machine.kill_at_end(&child)?;
        let outcome = self.converse(&mut child, machine.keepers_end(), request);
        if outcome.is_err() {
            let _ = child.kill();
        }
        let status = child.wait();
        match (outcome, status) {
            // The signal may have reached the runner as well.
            (Err(_), _) if interrupt::asked().is_some() => Err(Interrupted.into()),
            (Err(LiveError::RunnerEnded { .. }), Ok(status)) => {
                Err(LiveError::RunnerEnded { how: status.to_string() })
            }
            (Err(LiveError::RunnerConfused { what }), Ok(status)) if !status.success() => {
                Err(LiveError::RunnerConfused { what: format!("{what} ({status})") })
            }
            (outcome, _) => outcome,
        }
    }

    fn converse(
        &self,
        child: &mut Child,
        keeper: BorrowedFd<'_>,
        request: &RunRequest,
    ) -> Result<Collected, LiveError> {
        let confused = |what: &str| LiveError::RunnerConfused { what: what.to_owned() };
        let (Some(mut requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(confused("has no pipes"));
        };
        // If the runner refuses early, it says so in its answer, which is read below.
        let _ = wire::write_message(&mut requests, request);
        drop(requests);
        let mut answers = BufReader::with_capacity(1 << 20, Kept { answers, keeper });
        Collected::read(&mut answers).map_err(|error| match error {
            AnswerError::Failed(failure) => failure.into(),
            AnswerError::Unreadable(error) => confused(&format!("cannot be understood: {error}")),
            AnswerError::Ended => LiveError::RunnerEnded { how: error.to_string() },
            AnswerError::Confused(what) => confused(&what),
        })
    }

    fn unusable(&self, error: io::Error) -> LiveError {
        LiveError::RunnerUnusable { path: foreign::path(&self.path), error }
    }
}
