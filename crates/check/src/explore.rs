//! The explorer: breadth-first over all schedules, so that the first violation found is one of the
//! shortest.
//!
//! Two states are the same if their worlds are equal and every thread stands at the same step with
//! the same past. Only the states of the frontier are kept whole, as rows of numbers
//! ([`crate::parts`]); of the others, the key and how they were reached.
//!
//! A level is worked on in blocks of chunks. The chunks of a block are left side by side
//! ([`crate::expand`]). Then each piece of the set of known states ([`crate::seen`]) takes in the
//! keys that belong to it, chunk by chunk in their order, and marks which were new. Then the new
//! states are judged, side by side again. So all states are numbered as one worker would number
//! them, nothing that is done for every state is done by one thread, and the result does not depend
//! on how many workers there are.
//!
//! A choice sleeps in states where it leads only where others lead, too (sleep sets;
//! docs/checker.md has the argument): what it is known to do, it did before a step that it commutes
//! with. A thread whose next step nobody will ever notice goes alone (persistent sets;
//! [`crate::persistent`]), if that is asked for.

use crate::checkpoint::{Saved, Writer};
use crate::choice::Choice;
use crate::drive::keys;
use crate::error::CheckError;
use crate::expand::{At, Expansion, Explored, Tally};
use crate::frontier::{CHUNK, Chunk, Frontier, Shape, Waiting};
use crate::history::{History, Reached};
use crate::memo::Memo;
use crate::persistent::Futures;
use crate::property::Violation;
use crate::report::{Bound, Counterexample, Report};
use crate::schedule::Schedule;
use crate::seen::{Piece, Seen};
use crate::setting::{Options, Progress, Setting, with_setting};
use crate::symmetry::renamings;
use crate::trace::{StepTaken, trace};
use needless_model::kernels::KernelRow;
use needless_model::machine::world::Inconsistency;
use needless_model::program::Program;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Explores every interleaving of `program` on the kernel of `row`. Where threads that do the same
/// turn out to be told apart, it starts again and explores each.
pub fn check(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
) -> Result<Report, CheckError> {
    with_setting(program, row, options, |setting| match options.persistent {
        true => with_persistent_sets(&setting, options),
        false => with_all_orders(&setting, options),
    })
}

fn with_all_orders(setting: &Setting<'_>, options: &Options<'_>) -> Result<Report, CheckError> {
    match Explorer::new(setting, options, None).run() {
        Err(CheckError::Lopsided) => {
            // What was saved rests on it, too.
            let saved = options.checkpoint.iter();
            saved.for_each(|checkpoint| _ = std::fs::remove_file(&checkpoint.file));
            let each = Options { symmetry: false, ..options.clone() };
            Explorer::new(setting, &each, None).run()
        }
        explored => explored,
    }
}

/// Lets a thread go alone where nobody notices. What is violated is violated; but the shortest way
/// there may have been left out, so it is looked for among all.
fn with_persistent_sets(
    setting: &Setting<'_>,
    options: &Options<'_>,
) -> Result<Report, CheckError> {
    let start = Instant::now();
    let mut futures = Some(Futures::new(setting.acts.iter().map(Vec::len)));
    loop {
        let mut explorer = Explorer::new(setting, options, futures);
        explorer.start = start;
        match explorer.run() {
            Err(CheckError::Outgrown) => futures = explorer.explored.futures.map(Futures::grown),
            Ok(report) if report.counterexample.is_none() => return Ok(report),
            _ => return with_all_orders(setting, options),
        }
    }
}

/// Explores, and tells which states on the way of `schedule` are among those reached: one for the
/// start, and one for each step.
pub fn reaches(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
    schedule: &Schedule,
) -> Result<(Report, Vec<bool>), CheckError> {
    with_setting(program, row, options, |setting| {
        let keys = keys(&setting, schedule)?;
        // Each state under its own name.
        let options = Options { symmetry: false, ..options.clone() };
        let mut explorer = Explorer::new(&setting, &options, None);
        let report = explorer.run()?;
        Ok((report, keys.iter().map(|key| explorer.seen.contains(*key)).collect()))
    })
}

/// Follows one schedule; `None` if it violates nothing.
pub fn replay(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
    schedule: &Schedule,
) -> Result<(Vec<StepTaken>, Option<Violation>), CheckError> {
    with_setting(program, row, options, |setting| trace(&setting, &schedule.0))
}

/// Chunks that are worked on before the results are taken in.
const BLOCK: usize = 32;

/// States that are new after one, at most as a rule.
const SUCCESSORS: usize = 4;

/// States have numbers of 32 bits, and a block finds less than this leaves.
const MAX_STATES: usize = u32::MAX as usize / 2;

struct Explorer<'a> {
    explored: Explored<'a>,
    options: &'a Options<'a>,
    start: Instant,
    seen: Seen,
    history: History,
    states: usize,
    tally: Tally,
    /// How many states there were when a thread was first seen to do more than was known.
    outgrown_at: Option<usize>,
    /// The first contradiction. A rule that is known to be wrong may lead to one as well as to a
    /// violation, which says more.
    inconsistent: Option<CheckError>,
}

impl<'a> Explorer<'a> {
    fn new(
        setting: &'a Setting<'a>,
        options: &'a Options<'a>,
        futures: Option<Futures>,
    ) -> Explorer<'a> {
        let Options { sleep, recall, symmetry, workers, .. } = *options;
        // What a step looks at is looked up, too; and sleep needs every other order.
        let futures = futures.filter(|_| recall && !setting.explicit);
        let sleep = sleep && futures.is_none();
        let memo = Memo::new(setting, workers);
        // Mirror images are followed by looking their steps up.
        let renamings = match symmetry && recall && !setting.explicit {
            true => renamings(setting.program, setting.acts, setting.row, &options.watching),
            false => Vec::new(),
        };
        let threads = setting.program.threads.len();
        let shape = Shape { width: memo.parts + threads, threads, images: 1 + renamings.len() };
        let (watching, lopsided) = (&options.watching, AtomicBool::new(false));
        #[rustfmt::skip]
        let explored = Explored {
            setting, memo, watching, sleep, recall, shape, renamings, futures, lopsided,
        };
        Explorer {
            explored,
            options,
            start: Instant::now(),
            seen: Seen::new(options.key_bits),
            history: History::default(),
            states: 0,
            tally: Tally::default(),
            outgrown_at: None,
            inconsistent: None,
        }
    }

    /// With as many workers as asked for.
    fn run(&mut self) -> Result<Report, CheckError> {
        let workers = self.options.workers;
        if workers == 1 {
            return self.explore();
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        let pool = pool.map_err(|error| CheckError::Workers(error.to_string()))?;
        pool.install(|| self.explore())
    }

    fn explore(&mut self) -> Result<Report, CheckError> {
        let (asked, observed) = (self.explored.setting.watch.asks, self.options.watching.start());
        let mut report = Report { asked, observed, ..Report::default() };
        let saves = self.explored.recalls() && self.explored.futures.is_none();
        let checkpoint = self.options.checkpoint.as_ref().filter(|_| saves);
        let setting = self.explored.setting;
        let mut writer = checkpoint.map(|to| Writer::new(to, setting, self.options));
        let saved = writer.as_ref().map_or(Ok(None), Writer::saved)?;
        let mut frontier = match saved {
            Some(saved) => {
                report.depth = saved.depth;
                self.go_on(saved)
            }
            None => self.start(),
        };
        'levels: while !frontier.is_empty() {
            let mut next = Frontier::default();
            while !frontier.is_empty() {
                // Not many more states than are asked for.
                let left = self.options.max_states.saturating_sub(self.states);
                let block = frontier.take(BLOCK.min(1 + left / CHUNK));
                if let Some(counterexample) = self.leave(block, &mut next)? {
                    report.counterexample = Some(counterexample);
                    break 'levels;
                }
                report.bound = self.bound(report.depth, next.len() + frontier.len());
                if report.bound.is_some() {
                    break 'levels;
                }
                if self.starts_again(false) {
                    return Err(CheckError::Outgrown);
                }
            }
            report.depth += usize::from(!next.is_empty());
            frontier = next;
            if let Some(writer) = writer.as_mut().filter(|writer| writer.is_due()) {
                self.save(writer, &frontier, report.depth)?;
            }
        }
        if report.holds() && self.starts_again(true) {
            return Err(CheckError::Outgrown);
        }
        writer.iter().filter(|_| report.bound.is_none()).for_each(Writer::remove);
        let Tally { ends, made, exercised, steps } = &self.tally;
        (report.states, report.ends, report.exercised) = (self.states, *ends, *exercised);
        (report.steps, report.key_bits) = (*steps, self.options.key_bits);
        let made = made.iter().copied().chain(std::iter::repeat(0));
        report.observed.iter_mut().zip(made).for_each(|(of, made)| of.count(made, *ends));
        match self.inconsistent.take() {
            Some(error) if report.counterexample.is_none() => Err(error),
            _ => Ok(report),
        }
    }

    /// Whether to start again with what threads were seen to do. Not at once: more is seen soon.
    fn starts_again(&mut self, is_over: bool) -> bool {
        let outgrown = self.explored.futures.as_ref().is_some_and(Futures::is_outgrown);
        let first = outgrown.then(|| *self.outgrown_at.get_or_insert(self.states));
        first.is_some_and(|first| is_over || self.states >= 2 * first)
    }

    /// The first state.
    fn start(&mut self) -> Frontier {
        let setting = self.explored.setting;
        let initial = *setting.initial();
        let key = initial.key();
        let row = self.explored.memo.row(initial);
        let Shape { images, .. } = self.explored.shape;
        let mut first = Chunk::new(self.explored.shape);
        let ways = self.explored.ways(&row);
        let (keys, rows) = (vec![key; images], row.repeat(images));
        first.push(Waiting { keys: &keys, rows: &rows, ways: &ways, asleep: &[] });
        self.seen.pieces()[Seen::piece(key)].insert(key);
        self.history.push(vec![Reached { parent: 0, choice: Choice::Go { thread: 0, way: 0 } }]);
        self.states = 1;
        let mut frontier = Frontier::default();
        frontier.push(first);
        frontier
    }

    /// Writes a checkpoint. After a contradiction there is none: the run will end with that.
    fn save(
        &mut self,
        writer: &mut Writer<'_>,
        frontier: &Frontier,
        depth: usize,
    ) -> Result<(), CheckError> {
        if self.inconsistent.is_some() {
            return Ok(());
        }
        let choices = |state: Waiting<'_>| state.asleep.iter().map(|taken| taken.choice).collect();
        let mut saved = Saved {
            depth,
            frontier: (self.states - frontier.len()) as u32,
            history: std::mem::take(&mut self.history),
            tally: self.tally.clone(),
            asleep: frontier.iter().map(choices).collect(),
        };
        let written = writer.write(&saved);
        self.history = std::mem::take(&mut saved.history);
        written
    }

    /// Goes on from a checkpoint: takes each step that led to a new state once more, level by
    /// level.
    fn go_on(&mut self, saved: Saved) -> Frontier {
        let start = self.start().take(1);
        let Explorer { explored, seen, .. } = self;
        let cache = &mut *explored.memo.cache();
        let mut frontier = Frontier::default();
        let empty = || Chunk::new(explored.shape);
        let (mut level, mut next) = (start.into_iter().next().unwrap_or_default(), empty());
        for (number, Reached { parent, choice }) in saved.history.iter().enumerate().skip(1) {
            if parent >= level.first + level.len() as u32 {
                let first = level.first + level.len() as u32;
                level = std::mem::replace(&mut next, empty());
                level.first = first;
            }
            let from = level.get((parent - level.first) as usize);
            let (keys, rows) = explored.after_again(cache, from, choice);
            let key = keys.iter().copied().min().unwrap_or_default();
            seen.pieces()[Seen::piece(key)].insert(key);
            let sleeping = number.checked_sub(saved.frontier as usize);
            let Some(sleeping) = sleeping.and_then(|index| saved.asleep.get(index)) else {
                let ways = vec![0; explored.shape.threads];
                next.push(Waiting { keys: &keys, rows: &rows, ways: &ways, asleep: &[] });
                continue;
            };
            // What judges look at is known of it again.
            _ = explored.judged(cache, &rows, None);
            let asleep = explored.asleep_again(cache, &rows, sleeping);
            let ways = explored.ways_in(cache, &rows[..explored.shape.width]);
            let mut one = empty();
            one.first = number as u32;
            one.push(Waiting { keys: &keys, rows: &rows, ways: &ways, asleep: &asleep });
            frontier.push(one);
        }
        (self.states, self.tally) = (saved.history.len(), saved.tally);
        self.history = saved.history;
        frontier
    }

    /// Leaves the states of a block; what follows goes to `next`. Returns a counterexample if there
    /// is one.
    fn leave(
        &mut self,
        block: Vec<Chunk>,
        next: &mut Frontier,
    ) -> Result<Option<Counterexample>, CheckError> {
        let Explorer { explored, seen, .. } = &*self;
        let find = |from| Expansion::find(explored, from, None, |key| seen.contains(key));
        let mut block: Vec<Expansion> = self.side_by_side(block, find);
        self.mark(&block);
        let explored = &self.explored;
        let keep = |mut expansion: Expansion| {
            expansion.keep(explored);
            expansion
        };
        block = self.side_by_side(block, keep);
        for mut expansion in block {
            let from = expansion.from.first;
            if let Some(At { parent, choice, found }) = expansion.inconsistent.take()
                && self.inconsistent.is_none()
            {
                self.inconsistent = Some(self.contradiction(from + parent as u32, choice, found));
            }
            if let Some(violation) = expansion.violation.take() {
                return self.stop(expansion, violation).map(Some);
            }
            self.tally.add(&expansion.tally);
            self.tally.exercised.union(expansion.judged);
            let mut new = expansion.next;
            new.first = self.states as u32;
            self.states += new.len();
            self.history.push(expansion.reached);
            next.push(new);
        }
        if self.explored.lopsided.load(Relaxed) {
            return Err(CheckError::Lopsided);
        }
        Ok(None)
    }

    fn side_by_side<T: Send, U: Send>(
        &self,
        work: Vec<T>,
        f: impl Fn(T) -> U + Sync + Send,
    ) -> Vec<U> {
        match self.options.workers {
            1 => work.into_iter().map(f).collect(),
            _ => work.into_par_iter().map(f).collect(),
        }
    }

    /// Marks the states that were not known before. Of two ways to one state the first one counts.
    fn mark(&mut self, block: &[Expansion]) {
        let pieces = self.seen.pieces();
        let take_in = |(piece, keys): (usize, &mut Piece)| {
            for candidate in block.iter().flat_map(|expansion| expansion.candidates(piece)) {
                if keys.insert(candidate.key) {
                    candidate.is_new.store(true, Relaxed);
                }
            }
        };
        match self.options.workers {
            1 => pieces.iter_mut().enumerate().for_each(take_in),
            _ => pieces.par_iter_mut().enumerate().for_each(take_in),
        }
    }

    /// A property is violated: what came later in this expansion does not count.
    fn stop(
        &mut self,
        expansion: Expansion,
        At { parent, choice, found }: At<Violation>,
    ) -> Result<Counterexample, CheckError> {
        self.states += expansion.next.len();
        self.tally.exercised.union(expansion.judged);
        let number = expansion.from.first + parent as u32;
        let limit = Some((parent, choice));
        let again = Expansion::find(&self.explored, expansion.from, limit, |_| true);
        self.tally.add(&again.tally);
        self.counterexample(number, choice, found)
    }

    /// Looks at the bounds after each block.
    fn bound(&self, depth: usize, frontier: usize) -> Option<Bound> {
        let (states, elapsed, memory) = (self.states, self.start.elapsed(), resident());
        (self.options.progress)(Progress { states, frontier, depth, memory, elapsed });
        let Options { max_states, max_memory, deadline, .. } = *self.options;
        let max_states = max_states.min(MAX_STATES);
        if states > max_states {
            return Some(Bound::States(max_states));
        }
        if let (Some(memory), Some(limit)) = (memory, max_memory)
            && memory + self.seen.soon(SUCCESSORS * CHUNK * BLOCK) > limit
        {
            return Some(Bound::Memory(limit));
        }
        deadline.filter(|limit| elapsed > *limit).map(Bound::Time)
    }

    fn contradiction(&self, number: u32, choice: Choice, error: Inconsistency) -> CheckError {
        CheckError::Inconsistent { error, schedule: self.history.schedule(number, choice) }
    }

    fn counterexample(
        &self,
        number: u32,
        last: Choice,
        violation: Violation,
    ) -> Result<Counterexample, CheckError> {
        let schedule = self.history.schedule(number, last);
        let setting = self.explored.setting;
        let (steps, _) = trace(setting, &schedule.0)?;
        Ok(Counterexample { violation, steps, schedule, cpus: setting.cpus() })
    }
}

/// The process's resident memory in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kib << 10)
}
