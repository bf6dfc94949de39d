//! Finds out what khugepaged makes huge pages of.
//!
//! Each case has a process of its own, with as many pages as a huge page has. The process touches
//! the pages, gives them up or shares them; then it asks for huge pages there. When khugepaged has
//! scanned everything twice, `AnonHugePages` of /proc/self/smaps says whether it made one. Each
//! case also exists as a scenario that ends with the operation `khugepaged`.

use crate::area::{Area, TABLE};
use crate::forked::Forked;
use crate::rounds::missing;
use crate::sys::PAGE;
use crate::table::Need;
use procfs::process::Process;
use rustix::process::{Pid, WaitOptions, setsid, waitpid};
use serde::Serialize;
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// The number of pages of a huge page.
const PAGES: usize = TABLE / PAGE;
/// The folder of khugepaged's settings and counters.
const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";
/// The settings that make khugepaged scan without a pause.
const HURRIED: [(&str, &str); 2] = [("scan_sleep_millisecs", "0"), ("pages_to_scan", "65536")];
/// The longest time to wait for two scans.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is asked for.
#[derive(Copy, Clone, Debug, clap::Args)]
#[command(before_help = "Example:
  needless-workload khugepaged --hurry")]
pub struct Arguments {
    /// Have khugepaged scan without a pause (needs root); without it, khugepaged scans 16 MiB every
    /// ten seconds, and the program waits
    #[arg(long)]
    hurry: bool,
    /// Print JSON, with the scenario of each case
    #[arg(long)]
    json: bool,
}

/// What a case does to its pages.
#[derive(Copy, Clone, Debug)]
enum Step {
    Store(usize, usize),
    Load(usize, usize),
    Free(usize, usize),
    /// Drops pages with `MADV_DONTNEED`.
    Drop(usize, usize),
    PageOut(usize, usize),
    /// Clears accessed bits. (A load sets none where the TLB still has the translation.)
    ClearRefs,
    ReadOnly,
    /// Forks a child that shares the pages and lives on.
    Fork,
}

use Step::{ClearRefs, Drop, Fork, Free, Load, PageOut, ReadOnly, Store};

struct Case {
    name: &'static str,
    steps: &'static [Step],
}

const fn case(name: &'static str, steps: &'static [Step]) -> Case {
    Case { name, steps }
}

/// The cases, on either side of each limit of khugepaged.
const CASES: [Case; 14] = [
    case("one page", &[Store(0, 1)]),
    case("zeros alone", &[Load(0, 1)]),
    case("zeros and one page", &[Load(1, 511), Store(0, 1)]),
    case("unused", &[Store(0, 512), ClearRefs]),
    case("one used", &[Store(0, 512), ClearRefs, Drop(5, 1), Store(5, 1)]),
    case("all given up", &[Store(0, 512), Free(0, 512)]),
    case("one given up", &[Store(0, 512), Free(0, 1), Load(0, 512)]),
    case("one given up and stored to", &[Store(0, 512), Free(0, 1), Store(0, 1)]),
    case("read-only", &[Store(0, 512), ReadOnly]),
    case("64 in swap", &[Store(0, 512), PageOut(0, 64)]),
    case("65 in swap", &[Store(0, 512), PageOut(0, 65)]),
    case("one in swap, few there", &[Store(0, 256), PageOut(0, 1)]),
    case("256 shared", &[Store(0, 512), Fork, Store(0, 256)]),
    case("257 shared", &[Store(0, 512), Fork, Store(0, 255)]),
];

impl Case {
    fn needs_swap(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, PageOut(..)))
    }

    /// The case as a scenario.
    fn scenario(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(|step| step.operation()).collect();
        let swap = if self.needs_swap() { "swap \"zram\" size=\"64M\"\n" } else { "" };
        let forks = self.steps.iter().any(|step| matches!(step, Fork));
        let (ends, child) = if forks {
            ("barrier \"looked\"\n", "process \"child\" cpu=1 { barrier \"looked\" }\n")
        } else {
            ("", "")
        };
        format!(
            "scenario \"khugepaged\" {{\nmachine {{\ncpus 2\nthp \"madvise\"\n{swap}}}\nthread \"main\" cpu=0 {{\nrounds 1 warmup=0 {{\n\
             map \"heap\" pages={PAGES}\n{}\nmadvise \"heap\" advice=\"hugepage\"\nkhugepaged \"heap\"\n{ends}}}\n}}\n{child}}}\n",
            steps.join("\n")
        )
    }

    /// Runs the case. Returns whether khugepaged makes a huge page.
    fn outcome(&self) -> io::Result<bool> {
        let area = Area::alone(0, PAGES)?;
        let mut child = None;
        for step in self.steps {
            step.take(area, &mut child)?;
        }
        area.advise(libc::MADV_HUGEPAGE)?;
        come_by_twice()?;
        is_huge(area)
    }
}

impl Step {
    fn operation(self) -> String {
        let pages = |first: usize, pages: usize| match pages {
            1 => format!("\"heap[{first}]\""),
            _ => format!("\"heap[{first}..{}]\"", first + pages),
        };
        match self {
            Store(first, n) => format!("write {}", pages(first, n)),
            Load(first, n) => format!("read {}", pages(first, n)),
            Free(first, n) => format!("madvise {} advice=\"free\"", pages(first, n)),
            Drop(first, n) => format!("madvise {} advice=\"dontneed\"", pages(first, n)),
            PageOut(first, n) => format!("madvise {} advice=\"pageout\"", pages(first, n)),
            ClearRefs => "clear-refs".to_owned(),
            ReadOnly => "mprotect \"heap\" prot=\"read\"".to_owned(),
            Fork => "fork \"child\"".to_owned(),
        }
    }

    fn take(self, area: Area, child: &mut Option<Forked>) -> io::Result<()> {
        match self {
            Store(first, n) => (first..first + n).for_each(|page| area.write(page)),
            Load(first, n) => (first..first + n).for_each(|page| _ = area.read(page)),
            Free(first, n) => area.part(first, n).advise(libc::MADV_FREE)?,
            Drop(first, n) => area.part(first, n).advise(libc::MADV_DONTNEED)?,
            PageOut(first, n) => area.part(first, n).advise(libc::MADV_PAGEOUT)?,
            ClearRefs => fs::write("/proc/self/clear_refs", "1")?,
            ReadOnly => area.protect(libc::PROT_READ)?,
            Fork => *child = Some(Forked::begin(|| thread::sleep(PATIENCE))?),
        }
        Ok(())
    }
}

/// The result of a case.
#[derive(Debug, Serialize)]
struct Outcome {
    name: &'static str,
    /// Whether there is a huge page. `None` where the case needs swap space and there is none.
    huge: Option<bool>,
    scenario: String,
}

/// Runs all cases at once, and prints what khugepaged made of each.
pub fn khugepaged(arguments: Arguments) -> io::Result<ExitCode> {
    if let Some(what) = missing(Need::Thp) {
        return Err(io::Error::other(format!("this needs {what}")));
    }
    let _hurry = arguments.hurry.then(Hurry::new).transpose()?;
    let swap = missing(Need::Swap).is_none();
    let mut running = Vec::new();
    for case in &CASES {
        let (of_case, tell) = io::pipe()?;
        let lives = (swap || !case.needs_swap())
            .then(|| Forked::begin(|| tell_outcome(&tell, case.outcome())))
            .transpose()?;
        running.push((case, of_case, lives));
    }
    let outcomes: io::Result<Vec<Outcome>> = running
        .into_iter()
        .map(|(case, of_case, lives)| {
            let huge = lives.map(|_lives| told(case, of_case)).transpose()?;
            Ok(Outcome { name: case.name, huge, scenario: case.scenario() })
        })
        .collect();
    print(&outcomes?, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Reports the result of a case in one word, or the error.
fn tell_outcome(mut tell: &PipeWriter, outcome: io::Result<bool>) {
    let word = match outcome {
        Ok(true) => "huge".to_owned(),
        Ok(false) => "small".to_owned(),
        Err(error) => error.to_string(),
    };
    // If nobody reads it, the reader has ended.
    let _ = tell.write_all(word.as_bytes());
}

fn told(case: &Case, mut of_case: PipeReader) -> io::Result<bool> {
    let mut word = String::new();
    of_case.read_to_string(&mut word)?;
    match word.as_str() {
        "huge" => Ok(true),
        "small" => Ok(false),
        "" => Err(io::Error::other(format!("{}: its process ended", case.name))),
        error => Err(io::Error::other(format!("{}: {error}", case.name))),
    }
}

/// khugepaged's settings while it must hurry. A process restores them when this value is gone,
/// however that happens.
struct Hurry {
    /// The pipe on which that process waits. It is closed before the process is waited for.
    until: Option<PipeWriter>,
    restorer: Pid,
}

impl Hurry {
    fn new() -> io::Result<Hurry> {
        let old: Vec<(String, String)> = HURRIED
            .iter()
            .map(|(name, _)| setting(name).map(|value| ((*name).to_owned(), value)))
            .collect::<io::Result<_>>()?;
        let (mut wait, until) = io::pipe()?;
        // SAFETY: this process has no other thread that could hold a lock.
        let restorer = match unsafe { libc::fork() } {
            0 => {
                drop(until);
                // The process that cleans up must not get the signals for the terminal's job.
                let _ = setsid();
                let _ = wait.read(&mut [0]);
                for (name, value) in old {
                    let _ = fs::write(format!("{KHUGEPAGED}/{name}"), value);
                }
                // SAFETY: the process ends, and runs nothing that is the parent's to run.
                unsafe { libc::_exit(0) }
            }
            id => Pid::from_raw(id).filter(|_| id > 0),
        };
        let restorer = restorer.ok_or_else(io::Error::last_os_error)?;
        let hurry = Hurry { until: Some(until), restorer };
        for (name, value) in HURRIED {
            let path = format!("{KHUGEPAGED}/{name}");
            fs::write(&path, value)
                .map_err(|e| io::Error::other(format!("this needs root: {path}: {e}")))?;
        }
        Ok(hurry)
    }
}

impl std::ops::Drop for Hurry {
    fn drop(&mut self) {
        self.until = None;
        let _ = waitpid(Some(self.restorer), WaitOptions::empty());
    }
}

fn setting(name: &str) -> io::Result<String> {
    let path = format!("{KHUGEPAGED}/{name}");
    let text = fs::read_to_string(&path).map_err(|e| io::Error::other(format!("{path}: {e}")))?;
    Ok(text.trim().to_owned())
}

fn full_scans() -> io::Result<u64> {
    setting("full_scans")?.parse().map_err(io::Error::other)
}

/// Waits until khugepaged has begun and ended a scan of everything.
fn come_by_twice() -> io::Result<()> {
    let (before, began) = (full_scans()?, Instant::now());
    while full_scans()? < before + 2 {
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("khugepaged did not come by"));
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Whether a huge page maps the area.
fn is_huge(area: Area) -> io::Result<bool> {
    let maps = Process::myself().and_then(|process| process.smaps()).map_err(io::Error::other)?;
    let start = area.address() as u64;
    let map = maps.iter().find(|map| map.address.0 <= start && start < map.address.1);
    let huge = map.and_then(|map| map.extension.map.get("AnonHugePages"));
    huge.map(|bytes| *bytes > 0).ok_or_else(|| io::Error::other("smaps has no AnonHugePages"))
}

fn print(outcomes: &[Outcome], json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, outcomes)?;
        return writeln!(out);
    }
    for Outcome { name, huge, .. } in outcomes {
        let what = match huge {
            Some(true) => "a huge page",
            Some(false) => "small pages",
            None => "not tried: no swap space in memory",
        };
        writeln!(out, "{name:26} {what}")?;
    }
    Ok(())
}
