//! A file from which an exploration that was killed goes on.
//!
//! It is written between two levels. It does not have the parts of worlds, but says how each state
//! was reached. A run that goes on takes each of these steps once more, which takes less time than
//! it took to find them. Then it has the states of the frontier again, and the keys of all states.
//! The file keeps what cannot be found out so: what was counted, and which choices sleep.

use crate::choice::Choice;
use crate::error::CheckError;
use crate::expand::Tally;
use crate::history::{History, Reached};
use crate::key::key_of;
use crate::property::PropertySet;
use crate::setting::{Options, Setting};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"needless";
/// Raised with every change of the format, or of what a state is.
const VERSION: u32 = 1;

/// Where checkpoints are written, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The file. If there is one, the exploration goes on from it; at its end it is removed.
    pub file: PathBuf,
    /// How long to wait at least from one to the next.
    pub every: Duration,
}

/// An exploration between two levels.
#[derive(Default)]
pub struct Saved {
    /// How deep it is.
    pub depth: usize,
    /// The number of the first state of the frontier. All later ones are in it, too.
    pub frontier: u32,
    /// How each state was reached.
    pub history: History,
    /// What was counted.
    pub tally: Tally,
    /// The choices that sleep, by state of the frontier.
    pub asleep: Vec<Vec<Choice>>,
}

/// Writes checkpoints now and then.
pub struct Writer<'a> {
    checkpoint: &'a Checkpoint,
    identity: u64,
    last: Instant,
    took: Duration,
}

/// A checkpoint is written only if that takes less than this part of the time since the last one.
const PART: u32 = 20;

impl<'a> Writer<'a> {
    /// For this exploration.
    pub fn new(
        checkpoint: &'a Checkpoint,
        setting: &Setting<'_>,
        options: &Options<'_>,
    ) -> Writer<'a> {
        let identity = identity(setting, options);
        Writer { checkpoint, identity, last: Instant::now(), took: Duration::ZERO }
    }

    /// What the file has, if there is one.
    pub fn saved(&self) -> Result<Option<Saved>, CheckError> {
        let file = &self.checkpoint.file;
        match fs::read(file) {
            Ok(bytes) => {
                let refused = |why: &str| refused(file, why);
                decoded(&bytes, self.identity).map(Some).map_err(refused)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(refused(file, &error.to_string())),
        }
    }

    /// Whether it is time for one.
    pub fn is_due(&self) -> bool {
        self.last.elapsed() >= self.checkpoint.every.max(PART * self.took)
    }

    /// Writes one. The one before is there until this one is whole.
    pub fn write(&mut self, saved: &Saved) -> Result<(), CheckError> {
        let start = Instant::now();
        let file = &self.checkpoint.file;
        let mut name = file.clone().into_os_string();
        name.push(".new");
        let written = fs::write(&name, encoded(saved, self.identity));
        let renamed = written.and_then(|()| fs::rename(&name, file));
        renamed.map_err(|error| refused(file, &error.to_string()))?;
        (self.last, self.took) = (Instant::now(), start.elapsed());
        Ok(())
    }

    /// The exploration is over.
    pub fn remove(&self) {
        // That there is none is as good.
        _ = fs::remove_file(&self.checkpoint.file);
    }
}

fn refused(file: &Path, why: &str) -> CheckError {
    CheckError::Checkpoint { file: file.to_owned(), why: why.to_owned() }
}

/// Stands for what is explored, and how.
fn identity(setting: &Setting<'_>, options: &Options<'_>) -> u64 {
    let Options { checkpoints, sleep, symmetry, key_bits, .. } = options;
    let how = (checkpoints, sleep, symmetry, key_bits, VERSION, env!("CARGO_PKG_VERSION"));
    let what = format!("{:?} {:?} {:?}", setting.program, setting.row, setting.arch);
    key_of(&(what, format!("{:?}", options.watching), how)).low()
}

fn encoded(saved: &Saved, identity: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    let mut put = |n: u64| bytes.extend(n.to_le_bytes());
    let Tally { ends, made, exercised, steps } = &saved.tally;
    [identity, saved.depth as u64, u64::from(saved.frontier)].into_iter().for_each(&mut put);
    [*ends as u64, u64::from(exercised.bits()), *steps].into_iter().for_each(&mut put);
    put(made.len() as u64);
    made.iter().for_each(|made| put(*made as u64));
    put(saved.history.len() as u64);
    for Reached { parent, choice } in saved.history.iter() {
        bytes.extend(parent.to_le_bytes());
        bytes.extend(pair(choice));
    }
    for asleep in &saved.asleep {
        bytes.push(asleep.len() as u8);
        asleep.iter().for_each(|choice| bytes.extend(pair(*choice)));
    }
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes
}

/// Fills and evictions are choices in tests only, which write no checkpoints.
fn pair(choice: Choice) -> [u8; 2] {
    match choice {
        Choice::Go { thread, way } => [thread, way],
        Choice::Fill { .. } | Choice::Evict { .. } => [u8::MAX; 2],
    }
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (first, rest) = self.0.split_first_chunk().ok_or("it ends too soon")?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        self.take().map(u64::from_le_bytes)
    }

    fn choice(&mut self) -> Result<Choice, &'static str> {
        let [thread, way] = self.take()?;
        Ok(Choice::Go { thread, way })
    }
}

fn decoded(bytes: &[u8], identity: u64) -> Result<Saved, &'static str> {
    let Some((body, sum)) = bytes.split_last_chunk() else { return Err("it ends too soon") };
    let mut bytes = Bytes(body);
    if bytes.take()? != *MAGIC {
        return Err("it is no checkpoint");
    }
    if xxh3_64(body) != u64::from_le_bytes(*sum) {
        return Err("it is damaged");
    }
    if bytes.number()? != identity {
        return Err("it is of another scenario, kernel row, version or set of reductions");
    }
    let (depth, frontier) = (bytes.number()? as usize, bytes.number()? as u32);
    let (ends, exercised) = (bytes.number()? as usize, bytes.number()? as u16);
    let steps = bytes.number()?;
    let made = (0..bytes.number()?).map(|_| bytes.number().map(|made| made as usize));
    let made = made.collect::<Result<Vec<usize>, _>>()?;
    let states = bytes.number()? as u32;
    let reached = (0..states).map(|_| {
        let parent = u32::from_le_bytes(bytes.take()?);
        Ok(Reached { parent, choice: bytes.choice()? })
    });
    let mut history = History::default();
    history.push(reached.collect::<Result<Vec<Reached>, &str>>()?);
    let asleep = (frontier..states).map(|_| {
        let [count] = bytes.take()?;
        (0..count).map(|_| bytes.choice()).collect::<Result<Vec<Choice>, &str>>()
    });
    let asleep = asleep.collect::<Result<Vec<_>, &str>>()?;
    let exercised = PropertySet::of_bits(exercised);
    let tally = Tally { ends, made, exercised, steps };
    Ok(Saved { depth, frontier, history, tally, asleep })
}
