//! Runs the loop of will-it-scale's page_fault3 in several tasks at once, and measures their speed.
//!
//! Each task maps a file of its own shared, stores to each of its pages and unmaps it, again and
//! again. Processes have an address space each, threads have one together. A round takes the faults
//! of a round of `page_fault3_process` ([`crate::files`]).
//!
//! A task reports over a pipe of its own. It starts when it can read a byte from a pipe that all
//! tasks share, so all start together. It gives up if that pipe ends.

use crate::area::{Area, RW};
use crate::files::temporary_by;
use crate::forked::Forked;
use crate::rounds::{WARM_UP, missing};
use crate::sys::{self, check};
use crate::table::Need;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// The pages that the page tables between two areas of neighbouring numbers map.
const APART: usize = 1024;

/// What is asked for.
#[derive(Copy, Clone, Debug, clap::Args)]
#[command(before_help = "Examples:
  needless-workload page-fault3 --tasks 2 --processes
  needless-workload page-fault3 --tasks 2 --threads --pages 32768 --seconds 10
  needless stat -- needless-workload page-fault3 --tasks 2 --threads --rounds 100")]
pub struct Arguments {
    /// How many tasks, pinned to this process's CPUs in turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    tasks: u32,
    /// Threads of one process
    #[arg(long, conflicts_with = "processes")]
    threads: bool,
    /// Processes: they are, unless `--threads` is given
    #[arg(long)]
    processes: bool,
    /// Pages of each task's file: 32768 are those of will-it-scale, 128 MiB
    #[arg(long, value_name = "P", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=32768))]
    pages: u32,
    /// How long each task goes on
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// How many rounds each task does, however long that takes
    #[arg(long, value_name = "R", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a task did after its warm-up, or what all tasks did.
#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
struct Counts {
    rounds: u64,
    minor_faults: u64,
    major_faults: u64,
    /// The time of the task, or of the slowest task, in seconds.
    seconds: f64,
    faults_per_second: u64,
}

impl Counts {
    fn new(rounds: u64, [minor_faults, major_faults]: [u64; 2], seconds: f64) -> Counts {
        let faults_per_second = ((minor_faults + major_faults) as f64 / seconds) as u64;
        Counts { rounds, minor_faults, major_faults, seconds, faults_per_second }
    }

    fn total(tasks: &[Counted]) -> Counts {
        let sum = |of: fn(&Counts) -> u64| tasks.iter().map(|task| of(&task.counts)).sum::<u64>();
        let faults = [sum(|counts| counts.minor_faults), sum(|counts| counts.major_faults)];
        let seconds = tasks.iter().map(|task| task.counts.seconds).fold(0.0, f64::max);
        Counts::new(sum(|counts| counts.rounds), faults, seconds)
    }

    fn line(&self) -> String {
        let Counts { rounds, minor_faults, major_faults, seconds, faults_per_second } = self;
        format!(
            "{rounds} rounds, {minor_faults} minor and {major_faults} major faults in {seconds:.6} s: \
             {faults_per_second} faults a second"
        )
    }
}

/// A task, and what it did.
#[derive(Debug, Serialize)]
struct Counted {
    cpu: usize,
    #[serde(flatten)]
    counts: Counts,
}

/// Everything that is printed.
#[derive(Debug, Serialize)]
struct Report {
    kernel: String,
    tasks_are: &'static str,
    pages: u32,
    tasks: Vec<Counted>,
    total: Counts,
}

impl Report {
    fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            serde_json::to_writer_pretty(&mut out, self)?;
            return writeln!(out);
        }
        let Report { kernel, tasks_are, pages, tasks, total } = self;
        writeln!(out, "Linux {kernel}, {tasks_are}: {}, pages of each: {pages}", tasks.len())?;
        for (index, Counted { cpu, counts }) in tasks.iter().enumerate() {
            writeln!(out, "task {index} on CPU {cpu}: {}", counts.line())?;
        }
        writeln!(out, "total: {}", total.line())
    }
}

/// Runs the tasks and prints what they did.
pub fn page_fault3(arguments: Arguments) -> io::Result<ExitCode> {
    if let Some(what) = missing(Need::DiskFile) {
        return Err(io::Error::other(format!("this needs {what}")));
    }
    let Arguments { tasks, threads, processes, pages, json, .. } = arguments;
    let threads = threads && !processes;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let cpus = allowed_cpus()?;
    let cpus = || cpus.iter().copied().cycle().take(tasks as usize);
    let (start, mut go) = io::pipe()?;
    let (mut children, mut told) = (Vec::new(), Vec::new());
    for (index, cpu) in cpus().enumerate() {
        let task = Task::new(index, cpu, &arguments)?;
        let (of_task, tell) = io::pipe()?;
        let start = start.try_clone()?;
        if threads {
            thread::Builder::new().spawn(move || task.run(&start, &tell))?;
        } else {
            children.push(Forked::begin(|| task.run(&start, &tell))?);
        }
        told.push(serde_json::Deserializer::from_reader(BufReader::new(of_task)).into_iter());
    }
    let mut hear = || -> io::Result<Vec<Option<Counts>>> {
        let heard = told.iter_mut().map(Iterator::next).enumerate();
        heard.map(|(index, told)| what_was_told(index, told)).collect()
    };
    hear()?;
    go.write_all(&vec![1; tasks as usize])?;
    let counts = hear()?.into_iter().flatten();
    let tasks: Vec<Counted> =
        cpus().zip(counts).map(|(cpu, counts)| Counted { cpu, counts }).collect();
    // The end of a task's pipe shows that it ends. So no child is killed that would end by itself.
    told.iter_mut().for_each(|told| drop(told.next()));
    let tasks_are = if threads { "threads" } else { "processes" };
    Report { kernel, tasks_are, pages, total: Counts::total(&tasks), tasks }.print(json)?;
    Ok(ExitCode::SUCCESS)
}

/// What a task reports: that it is ready, what it counted, or what went wrong.
type Told = Result<Option<Counts>, String>;

fn what_was_told(
    index: usize,
    told: Option<serde_json::Result<Told>>,
) -> io::Result<Option<Counts>> {
    let why = match told {
        Some(Ok(Ok(told))) => return Ok(told),
        Some(Ok(Err(why))) => why,
        Some(Err(_)) | None => "it ended early".to_owned(),
    };
    Err(io::Error::other(format!("task {index}: {why}")))
}

fn tell(mut pipe: &PipeWriter, told: &Told) -> io::Result<()> {
    pipe.write_all(&serde_json::to_vec(told)?)
}

fn allowed_cpus() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// When a task ends.
#[derive(Copy, Clone)]
enum Until {
    Rounds(u64),
    Time(Duration),
}

/// What a task has to do.
struct Task {
    index: usize,
    cpu: usize,
    file: File,
    pages: usize,
    until: Until,
}

impl Task {
    /// Writes the task's file a page at a time: on 6.18, one fault maps all pages of a larger
    /// folio.
    fn new(index: usize, cpu: usize, arguments: &Arguments) -> io::Result<Task> {
        let pages = arguments.pages as usize;
        let time = Duration::from_secs(arguments.seconds.into());
        let until = arguments.rounds.map_or(Until::Time(time), Until::Rounds);
        let file = temporary_by(pages, 1).map_err(|error| {
            io::Error::other(format!(
                "a file in {}: {error}",
                std::env::temp_dir().to_string_lossy()
            ))
        })?;
        Ok(Task { index, cpu, file, pages, until })
    }

    /// Runs the task, and reports.
    fn run(&self, start: &PipeReader, pipe: &PipeWriter) {
        let told = self.rounds(start, pipe).map(Some).map_err(|error| error.to_string());
        // A reader that has gone has already said why.
        let _ = tell(pipe, &told);
    }

    fn rounds(&self, mut start: &PipeReader, pipe: &PipeWriter) -> io::Result<Counts> {
        sys::pin(self.cpu)?;
        // A child has to map again the pages that are not written to.
        sys::prefault_program()?;
        let area = Area::place(self.index * (self.pages + 1).div_ceil(APART), self.pages)?;
        for _ in 0..WARM_UP {
            self.round(area)?;
        }
        tell(pipe, &Ok(None))?;
        start.read_exact(&mut [0])?;
        let begin = Instant::now();
        let before = faults()?;
        let mut rounds = 0;
        while match self.until {
            Until::Rounds(all) => rounds < all,
            Until::Time(time) => begin.elapsed() < time,
        } {
            self.round(area)?;
            rounds += 1;
        }
        let after = faults()?;
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Counts::new(rounds, [0, 1].map(|kind| after[kind] - before[kind]), seconds))
    }

    fn round(&self, area: Area) -> io::Result<()> {
        area.map(RW, libc::MAP_SHARED, self.file.as_raw_fd())?;
        area.write_all();
        area.unmap()
    }
}

/// Minor and major faults of the calling thread.
fn faults() -> io::Result<[u64; 2]> {
    // SAFETY: rusage is plain numbers, for which 0 is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing.
    check(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) })?;
    Ok([usage.ru_minflt as u64, usage.ru_majflt as u64])
}
