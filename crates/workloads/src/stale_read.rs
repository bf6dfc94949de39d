//! Stale reads: a thread that has seen a number published reads an older one from its page
//! (docs/findings/stale-read.md).
//!
//! The page and others are in memory and mapped clean. The main thread pages them out: reclaim
//! clears their PTEs and defers the flush. The writer waits until the page is out, and stores the
//! next number to it, which brings it back in another frame. Then the writer publishes the number.
//! The reader waits for the number and reads the page through the translation that its CPU still
//! has: the old frame.
//!
//! The control differs in one thing: the pages are dirty. Reclaim flushes before it writes dirty
//! pages out (mm/rmap.c: try_to_unmap_flush_dirty), so before they can come back.

use crate::area::Area;
use crate::rounds::missing;
use crate::sys::{self, PAGE};
use crate::table::Need;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_relative};
use serde::Serialize;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

/// The number of pages that go out at a time. The pages behind the first one delay its flush.
const PAGES: usize = 256;
/// The offset at which the control stores to each page: beside the number.
const BESIDE: usize = 64;
/// Bit 62 of a word of /proc/PID/pagemap: the page is in swap.
const SWAPPED: u64 = 1 << 62;

/// What is asked for.
#[derive(Copy, Clone, Debug, clap::Args)]
pub struct Arguments {
    /// How many rounds, of either kind; in each the page goes out once
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// With 2, the writer shares a CPU with reclaim and takes it by priority, which needs root;
    /// otherwise as many as the machine has
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=3))]
    cpus: Option<u32>,
    /// Pages that the reader reads before each look at the page: more than its TLB holds, so that
    /// no TLB keeps the page's old translation
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    evict: u32,
    /// Leave the control out: rounds with clean pages only
    #[arg(long)]
    clean_only: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of the rounds of one kind.
#[derive(Debug, Serialize)]
struct Outcome {
    /// Whether the pages were dirty when they went out.
    control: bool,
    rounds: u32,
    /// Rounds in which the writer stored while the page was out.
    stores: u64,
    /// How often the reader looked.
    reads: u64,
    /// How often the reader found a number older than the published one.
    stale_reads: u64,
    /// Rounds in which the reader found an older number.
    stale_rounds: u64,
    /// How often the reader found an older number after reclaim had returned. Reclaim has then
    /// flushed.
    stale_afterwards: u64,
}

/// Runs both kinds and prints the results. The exit status is 1 if the control has a stale read.
pub fn stale_read(arguments: Arguments) -> io::Result<ExitCode> {
    if let Some(what) = missing(Need::Swap).or_else(|| missing(Need::SecondCpu)) {
        return Err(io::Error::other(format!("this needs {what}")));
    }
    let online = sys::online_cpus();
    let cpus = arguments.cpus.map_or(online.min(3), |cpus| cpus as usize);
    if cpus > online {
        return Err(io::Error::other(format!("there are {online} CPUs; try --cpus {online}")));
    }
    let play = Play {
        area: Area::anonymous(0, PAGES)?,
        others: Area::anonymous(1, 2)?,
        evicting: Area::alone(2, arguments.evict.max(1) as usize)?,
        shares: cpus == 2,
        evict: arguments.evict as usize,
        asked: AtomicU32::new(0),
        answered: [AtomicU32::new(0), AtomicU32::new(0)],
        watching: [AtomicU32::new(0), AtomicU32::new(0)],
        published: AtomicU64::new(0),
    };
    let mut outcomes = vec![play.run(arguments.rounds, false)?];
    if !arguments.clean_only {
        outcomes.push(play.run(arguments.rounds, true)?);
    }
    print(&outcomes, arguments.json)?;
    let broken = outcomes.iter().any(|outcome| outcome.control && outcome.stale_reads > 0);
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(outcomes: &[Outcome], json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return Ok(serde_json::to_writer(out, outcomes)?);
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    writeln!(out, "Linux {}", release.trim())?;
    for outcome in outcomes {
        let kind = if outcome.control { "dirty (control)" } else { "clean" };
        let Outcome { rounds, stores, reads, stale_reads, stale_rounds, stale_afterwards, .. } =
            outcome;
        writeln!(
            out,
            "{kind:15} {rounds} rounds, {stores} stores to a page that was out, {reads} reads: \
             {stale_reads} stale in {stale_rounds} rounds, {stale_afterwards} after the flush"
        )?;
    }
    Ok(())
}

/// The two threads beside the main one.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Role {
    Writer,
    Reader,
}

/// What the threads do. A request is this and a serial number.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(u32)]
enum Work {
    Rest,
    /// Empty the CPU's LRU batch: pages in it cannot be paged out.
    Drain,
    /// The reader loads from the page, so that its TLB has the translation.
    Load,
    /// Run the experiment until the next request.
    Watch,
    End,
}

const KINDS: u32 = 8;

impl Work {
    fn of(request: u32) -> Work {
        [Work::Rest, Work::Drain, Work::Load, Work::Watch, Work::End][(request % KINDS) as usize]
    }
}

/// The state that the three threads share.
struct Play {
    /// The page, and those behind it.
    area: Area,
    /// A page for each thread to give advice about.
    others: Area,
    evicting: Area,
    /// Whether the writer shares the main thread's CPU.
    shares: bool,
    evict: usize,
    /// The latest request, and the latest one that each thread has answered.
    asked: AtomicU32,
    answered: [AtomicU32; 2],
    /// The request to watch that each thread has begun.
    watching: [AtomicU32; 2],
    /// The number that was stored last.
    published: AtomicU64,
}

/// What a thread counted.
#[derive(Default)]
struct Counts {
    stores: u64,
    reads: u64,
    stale_reads: u64,
    stale_rounds: u64,
    stale_afterwards: u64,
}

impl Play {
    fn run(&self, rounds: u32, control: bool) -> io::Result<Outcome> {
        self.fill();
        self.evicting.write_all();
        sys::pin(if self.shares { 0 } else { 2 })?;
        // The last request of an earlier run is not a request of this run.
        let before = self.asked.load(Ordering::SeqCst);
        let (written, read) = thread::scope(|scope| {
            let writer = scope.spawn(|| self.serve(Role::Writer, before));
            let reader = scope.spawn(|| self.serve(Role::Reader, before));
            let went =
                self.rounds(rounds, control, &|| writer.is_finished() || reader.is_finished());
            self.ask(Work::End);
            let joined = |result: thread::Result<io::Result<Counts>>| {
                result.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
            };
            let counts = (joined(writer.join()), joined(reader.join()));
            // An error in a thread is the reason why the rounds ended early.
            Ok::<_, io::Error>((counts.0?, counts.1?)).and_then(|counts| went.map(|()| counts))
        })?;
        let Counts { reads, stale_reads, stale_rounds, stale_afterwards, .. } = read;
        let stores = written.stores;
        Ok(Outcome { control, rounds, stores, reads, stale_reads, stale_rounds, stale_afterwards })
    }

    fn rounds(&self, rounds: u32, control: bool, gone: &dyn Fn() -> bool) -> io::Result<()> {
        for _ in 0..rounds {
            self.ask_and_wait(Work::Drain, gone)?;
            self.area.advise(libc::MADV_PAGEOUT)?;
            for page in 0..PAGES {
                if control {
                    self.area.write_at(page * PAGE + BESIDE, 1);
                } else {
                    self.area.read(page);
                }
            }
            self.ask_and_wait(Work::Load, gone)?;
            let request = self.ask(Work::Watch);
            self.wait(&self.watching, request, gone)?;
            self.area.advise(libc::MADV_PAGEOUT)?;
            self.ask_and_wait(Work::Rest, gone)?;
        }
        Ok(())
    }

    /// Fills the pages with contents that do not compress, so that writing them out takes time.
    /// Stores the number 1.
    fn fill(&self) {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for word in (0..PAGES * PAGE).step_by(size_of::<u64>()) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            self.area.write_at(word, random);
        }
        self.area.write_at(0, 1);
        self.published.store(1, Ordering::SeqCst);
    }

    fn ask(&self, work: Work) -> u32 {
        let serial = self.asked.load(Ordering::SeqCst) / KINDS + 1;
        let request = serial.wrapping_mul(KINDS) | work as u32;
        self.asked.store(request, Ordering::SeqCst);
        request
    }

    fn ask_and_wait(&self, work: Work, gone: &dyn Fn() -> bool) -> io::Result<()> {
        let request = self.ask(work);
        self.wait(&self.answered, request, gone)
    }

    fn wait(&self, told: &[AtomicU32; 2], request: u32, gone: &dyn Fn() -> bool) -> io::Result<()> {
        while told.iter().any(|told| told.load(Ordering::SeqCst) != request) {
            if gone() {
                return Err(io::Error::other("a thread ended early"));
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// A thread's life. It begins with the request after `done`.
    fn serve(&self, role: Role, mut done: u32) -> io::Result<Counts> {
        let index = role as usize;
        sys::pin(index)?;
        if role == Role::Writer && self.shares {
            sys::real_time()?;
        }
        let pagemap = File::open("/proc/self/pagemap")?;
        let mut counts = Counts::default();
        loop {
            let request = self.asked.load(Ordering::SeqCst);
            match Work::of(request) {
                _ if request == done => {
                    self.pause(role);
                    continue;
                }
                Work::End => return Ok(counts),
                Work::Rest => self.look_afterwards(role, &mut counts),
                Work::Drain => {
                    self.others.write(index);
                    self.others.advise_page(index, libc::MADV_COLD)?;
                }
                Work::Load if role == Role::Reader => _ = black_box(self.area.read_at(0)),
                Work::Load => {}
                Work::Watch => {
                    self.watching[index].store(request, Ordering::SeqCst);
                    match role {
                        Role::Writer => self.write(request, &pagemap, &mut counts)?,
                        Role::Reader => self.read(request, &mut counts),
                    }
                }
            }
            done = request;
            self.answered[index].store(request, Ordering::SeqCst);
        }
    }

    /// Waits until the page is out, then stores the next number and publishes it.
    fn write(&self, request: u32, pagemap: &File, counts: &mut Counts) -> io::Result<()> {
        let mut word = [0; size_of::<u64>()];
        let at = (self.area.address() / PAGE * word.len()) as u64;
        while self.asked.load(Ordering::SeqCst) == request {
            pagemap.read_exact_at(&mut word, at)?;
            if u64::from_le_bytes(word) & SWAPPED != 0 {
                let number = self.published.load(Ordering::Relaxed) + 1;
                self.area.write_at(0, number);
                self.published.store(number, Ordering::Release);
                counts.stores += 1;
                return Ok(());
            }
            if self.shares {
                self.pause(Role::Writer);
            }
        }
        Ok(())
    }

    /// Reads the published number and then the page, again and again.
    fn read(&self, request: u32, counts: &mut Counts) {
        let before = counts.stale_reads;
        while self.asked.load(Ordering::Relaxed) == request {
            for page in 0..self.evict {
                black_box(self.evicting.read(page));
            }
            let published = self.published.load(Ordering::Acquire);
            let found = self.area.read_at(0);
            counts.reads += 1;
            counts.stale_reads += u64::from(found < published);
        }
        counts.stale_rounds += u64::from(counts.stale_reads > before);
    }

    /// Checks the page after reclaim has returned: it must have the published number.
    fn look_afterwards(&self, role: Role, counts: &mut Counts) {
        if role == Role::Reader {
            let published = self.published.load(Ordering::Acquire);
            counts.stale_afterwards += u64::from(self.area.read_at(0) < published);
        }
    }

    /// Lets others run where this thread would keep them from it.
    fn pause(&self, role: Role) {
        if self.shares && role == Role::Writer {
            let short = Timespec { tv_sec: 0, tv_nsec: 15_000 };
            let _ = clock_nanosleep_relative(ClockId::Monotonic, &short);
        } else {
            thread::yield_now();
        }
    }
}
