//! The runner's process: found, started, listened to.

use crate::error::LiveError;
use crate::machine::Machine;
use needless_model::run::{Round, RunRequest};
use needless_runner::wire::{self, Message, PROTOCOL_VERSION, Summary};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NAME: &str = "needless-runner";

/// The runner's binary.
pub struct Runner {
    path: PathBuf,
}

/// What one or several starts of the runner gave.
pub struct Collected {
    /// The kernel's release.
    pub release: String,
    /// The rounds that count, by index.
    pub rounds: BTreeMap<u32, Round>,
    /// Everything else.
    pub summary: Summary,
}

impl Collected {
    /// Adds what another start gave: rounds that are missing, and the totals.
    pub fn add(&mut self, more: Collected) {
        for (index, round) in more.rounds {
            self.rounds.entry(index).or_insert(round);
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
    }
}

impl Runner {
    /// Finds the binary: `$NEEDLESS_RUNNER`, else beside this program, else one directory up.
    pub fn find() -> Result<Runner, LiveError> {
        if let Some(path) = std::env::var_os("NEEDLESS_RUNNER") {
            let path = PathBuf::from(path);
            return match path.is_file() {
                true => Ok(Runner { path }),
                false => Err(LiveError::RunnerMissing {
                    places: format!("$NEEDLESS_RUNNER ({})", path.display()),
                }),
            };
        }
        let program = std::env::current_exe().unwrap_or_default();
        let places: Vec<&Path> = program.ancestors().skip(1).take(2).collect();
        match places.iter().map(|place| place.join(NAME)).find(|path| path.is_file()) {
            Some(path) => Ok(Runner { path }),
            None => Err(LiveError::RunnerMissing {
                places: places
                    .iter()
                    .map(|place| place.display().to_string())
                    .collect::<Vec<_>>()
                    .join(" and "),
            }),
        }
    }

    /// Starts the binary with `arguments`, both pipes connected.
    pub fn start(&self, arguments: &[&str]) -> Result<Child, LiveError> {
        Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| self.unusable(error))
    }

    /// Runs one request.
    pub fn run(&self, machine: &mut Machine, request: &RunRequest) -> Result<Collected, LiveError> {
        let mut child = self.start(&[])?;
        machine.kill_at_end(&child)?;
        let outcome = self.converse(&mut child, request);
        if outcome.is_err() {
            let _ = child.kill();
        }
        let status = child.wait();
        match (outcome, status) {
            (Err(LiveError::RunnerConfused { what }), Ok(status)) if !status.success() => {
                Err(LiveError::RunnerConfused { what: format!("{what} ({status})") })
            }
            (outcome, _) => outcome,
        }
    }

    fn converse(&self, child: &mut Child, request: &RunRequest) -> Result<Collected, LiveError> {
        let confused = |what: &str| LiveError::RunnerConfused { what: what.to_owned() };
        let (Some(mut requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(confused("has no pipes"));
        };
        // If the runner refuses early it says so on its output, which is read below.
        let _ = wire::write_message(&mut requests, request);
        drop(requests);
        let mut answers = BufReader::with_capacity(1 << 20, answers);
        let mut next = || {
            wire::read_message::<Message>(&mut answers)
                .map_err(|error| confused(&format!("cannot be understood: {error}")))
        };
        let release = match next()? {
            Some(Message::Hello { version: PROTOCOL_VERSION, release }) => release,
            Some(Message::Hello { version, .. }) => {
                return Err(confused(&format!("speaks version {version}, not {PROTOCOL_VERSION}")));
            }
            Some(Message::Failed(failure)) => return Err(failure.into()),
            _ => return Err(confused("does not say hello")),
        };
        let mut rounds = BTreeMap::new();
        loop {
            match next()? {
                Some(Message::Round(round)) => {
                    rounds.insert(round.index, round);
                }
                Some(Message::Done(summary)) => return Ok(Collected { release, rounds, summary }),
                Some(Message::Failed(failure)) => return Err(failure.into()),
                Some(Message::Hello { .. }) => return Err(confused("says hello twice")),
                None => return Err(confused("stopped in the middle")),
            }
        }
    }

    fn unusable(&self, error: std::io::Error) -> LiveError {
        LiveError::RunnerUnusable { path: self.path.display().to_string(), error }
    }
}
