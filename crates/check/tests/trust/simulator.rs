//! The simulator's run is one of those that the checker explores.
//!
//! The checker is driven along the simulator's discrete order: one thread is active at a time and
//! hands over at barriers or when it is done; a load or store uses what the TLB holds, else it
//! walks, and the TLB holds what was walked. For this the checker's TLBs are explicit: they hold
//! what they were filled with. The same way is then gone with may-cache sets, as explorations do.

use crate::catalogue::{LONG, LONGEST};
use crate::{litmus_test, row};
use needless_check::{Choice, Driven, Entry, Next, Offer, Options, Way, drive, place, reaches};
use needless_model::addr::{ProcessId, Vpn};
use needless_model::arch::{Arch, TINY, TINY_FAULTS};
use needless_model::kernels::KernelRow;
use needless_model::machine::world::mm_of;
use needless_model::program::{Expr, OpKind, Program};
use needless_model::pte::Pte;
use needless_model::sim::{SimOptions, SimWorld, end_state};
use needless_scenario::{Settings, Source, builtin, compile, random};
use std::collections::VecDeque;

/// What a thread did in the explicit mode.
#[derive(Copy, Clone, Debug)]
enum Move {
    /// This way, of those of a step that is no access.
    Step(u8, u8),
    /// An access through this translation, which the TLB held.
    Hit(u8, Entry),
    /// An access through this translation, which was walked for.
    Miss(u8, Entry),
    /// An access into a fault.
    Fault(u8),
}

/// Chooses as the simulator does.
struct Discrete<'a> {
    program: &'a Program,
    active: u8,
    /// Threads that wait for their turn.
    queue: VecDeque<u8>,
    /// What was walked last, to be cached.
    walked: Option<Choice>,
    moves: Vec<Move>,
}

fn thread_of(offer: &Offer) -> Option<u8> {
    match offer.choice {
        Choice::Go { thread, .. } => Some(thread),
        _ => None,
    }
}

impl Discrete<'_> {
    fn choose(&mut self, offers: &[Offer]) -> Option<usize> {
        if let Some(fill) = self.walked.take()
            && let Some(at) = offers.iter().position(|offer| offer.choice == fill)
        {
            return Some(at);
        }
        // A barrier that is complete: its threads queue up, behind those that wait for their turn.
        let passed = offers.iter().enumerate().find_map(|(at, offer)| match offer.next {
            Some(Next::Barrier(barrier)) => Some((at, barrier)),
            _ => None,
        });
        if let Some((at, barrier)) = passed {
            let threads = &self.program.barriers[usize::from(barrier)].threads;
            // Who is there from its start has had its turn.
            self.queue.retain(|thread| !threads.iter().any(|here| here.0 as u8 == *thread));
            self.queue.extend(threads.iter().map(|thread| thread.0 as u8));
            self.active = self.queue.pop_front()?;
            self.note(offers[at]);
            return Some(at);
        }
        // Whose wait is over, or whose process has begun, has a turn again.
        let waited = offers.iter().filter(|offer| matches!(offer.next, Some(Next::Wait(_))));
        for thread in waited.filter_map(thread_of) {
            if thread != self.active && !self.queue.contains(&thread) {
                self.queue.push_back(thread);
            }
        }
        while !offers.iter().any(|offer| thread_of(offer) == Some(self.active)) {
            self.active = self.queue.pop_front()?;
        }
        // A translation that is held comes before a walk, a walk before a fault.
        let rank = |offer: &Offer| match offer.way {
            Some(Way::Cached(_)) | None => 0,
            Some(Way::Walk(_) | Way::Uncached(_)) => 1,
            Some(Way::Fault) => 2,
        };
        let mine = offers.iter().enumerate();
        let mine = mine.filter(|(_, offer)| thread_of(offer) == Some(self.active));
        let (at, offer) = mine.min_by_key(|(_, offer)| rank(offer))?;
        self.note(*offer);
        Some(at)
    }

    fn note(&mut self, offer: Offer) {
        let Choice::Go { thread, way } = offer.choice else { return };
        self.moves.push(match (offer.next, offer.way) {
            (_, Some(Way::Cached(entry))) => Move::Hit(thread, entry),
            (Some(Next::Access { page, .. }), Some(Way::Uncached(walked))) => {
                let cpu = self.program.threads[usize::from(thread)].cpu.0 as u8;
                self.walked = Some(Choice::Fill { cpu, page: page.0 as u8 });
                Move::Miss(thread, Entry::made_by(walked))
            }
            (_, Some(Way::Fault)) => Move::Fault(thread),
            _ => Move::Step(thread, way),
        });
    }
}

/// Repeats the moves where TLBs are sets: a walk that sets bits is a step of its own, fills are
/// none.
fn follow(moves: &[Move]) -> impl FnMut(&[Offer]) -> Option<usize> {
    let mut at = 0;
    move |offers| {
        let wanted = *moves.get(at)?;
        let walks = |offer: &Offer| match (wanted, offer.way) {
            (Move::Miss(thread, entry), Some(Way::Walk(walked))) => {
                thread_of(offer) == Some(thread) && Entry::made_by(walked) == entry
            }
            _ => false,
        };
        let fits = |offer: &Offer| match (wanted, offer.way, offer.choice) {
            (Move::Step(thread, way), None, choice) => choice == Choice::Go { thread, way },
            (Move::Hit(thread, entry) | Move::Miss(thread, entry), Some(Way::Cached(held)), _) => {
                thread_of(offer) == Some(thread) && held == entry
            }
            (Move::Fault(thread), Some(Way::Fault), _) => thread_of(offer) == Some(thread),
            _ => false,
        };
        // Once its bits are set, the walk is offered no more.
        if let Some(walk) = offers.iter().position(walks) {
            return Some(walk);
        }
        at += 1;
        offers.iter().position(fits)
    }
}

/// A random scenario in which a second thread acts; one round of it.
fn random_program(seed: u64, release: (u32, u32)) -> Option<Program> {
    let text = random::generate(seed, &random::Target::new(release, 2)).text()?;
    if !text.contains("thread \"second\"") {
        return None;
    }
    let mut program = compile(&Source::new("random", text), &Settings::default()).unwrap();
    for op in program.threads.iter_mut().flat_map(|thread| &mut thread.body) {
        match &mut op.kind {
            OpKind::Rounds { warmup, count, .. } => (*warmup, *count) = (0, 1),
            // The second thread's turns, one for each round.
            OpKind::Repeat { count, .. } => *count = Expr::Const(1),
            _ => {}
        }
    }
    let pages: u64 = program.areas.iter().map(|area| area.range.pages()).sum();
    (pages <= MOST_PAGES && place(&program, &TINY).is_some()).then_some(program)
}

/// Seeds that are tried; most give scenarios of one thread, or too large.
const SEEDS: u64 = 2000;

/// The checked machine has 16 frames, some of which LRU batches hold.
const MOST_PAGES: u64 = 7;

fn ptes(program: &Program, pte: impl Fn(Vpn) -> Pte) -> Vec<Pte> {
    program.areas.iter().flat_map(|area| area.range.iter()).map(pte).collect()
}

/// Both ends have equal PTEs, down to frames, swap slots and the accessed bit, and as many frames
/// in use.
fn assert_same_end(what: &str, program: &Program, model: &SimWorld, checked: &Driven) {
    assert!(checked.is_end, "{what}: it stopped after {}", checked.schedule);
    let world = &checked.world;
    assert_eq!(world.ghost.violation, None, "{what}");
    let of_model = ptes(program, |page| model.pte(mm_of(ProcessId::FIRST), page));
    let of_checker = ptes(program, |page| world.pte(mm_of(ProcessId::FIRST), page));
    assert_eq!(of_model, of_checker, "{what}: {}", checked.schedule);
    assert_eq!(model.frames.allocated(), world.frames.allocated(), "{what}");
}

fn of_first(program: &Program, thread: u8) -> bool {
    program.threads[usize::from(thread)].process == ProcessId::FIRST
}

/// The way through the checker that the simulator takes, with explicit TLBs.
fn explicit(program: &Program, row: &KernelRow, arch: Arch) -> (Driven, Vec<Move>) {
    let options = Options { arch, explicit: true, ..Options::default() };
    let mut discrete = Discrete {
        program,
        active: 0,
        queue: (1..program.threads.len() as u8)
            .filter(|thread| of_first(program, *thread))
            .collect(),
        walked: None,
        moves: Vec::new(),
    };
    let driven = drive(program, row, &options, &mut |offers| discrete.choose(offers)).unwrap();
    (driven, discrete.moves)
}

/// Runs the discrete order in the checker where TLBs are sets, as explorations have them.
pub fn discrete(program: &Program, row: &KernelRow) -> Driven {
    let (_, moves) = explicit(program, row, TINY);
    drive(program, row, &Options::default(), &mut follow(&moves)).unwrap()
}

/// Runs `program` in the simulator and in the checker, and compares; the way through the checker.
fn compared(what: &str, program: &Program, row_name: &str, arch: Arch) -> Driven {
    let row = row(row_name);
    // As the checker places it.
    let placed = place(program, &arch).unwrap();
    let model = end_state(&placed, &row, arch, &SimOptions::default())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let (explicit, moves) = explicit(program, &row, arch);
    assert_same_end(&format!("{what}, explicit"), &placed, &model, &explicit);
    let mut follow = follow(&moves);
    let options = Options { arch, ..Options::default() };
    let driven = drive(program, &row, &options, &mut follow).unwrap();
    assert_same_end(what, &placed, &model, &driven);
    driven
}

/// Rows, and the kernels whose operations the scenarios for them have.
const ROWS: [(&str, (u32, u32)); 4] =
    [("5.10", (5, 10)), ("6.1", (6, 1)), ("6.12", (6, 12)), ("7.3", (7, 3))];

#[test]
fn each_state_of_a_random_run_is_explored() {
    for (row, release) in ROWS {
        let programs = (0..SEEDS).filter_map(|seed| Some((seed, random_program(seed, release)?)));
        let mut count = 0;
        for (seed, program) in programs {
            assert_explored(&format!("seed {seed} on {row}"), &program, row, TINY);
            count += 1;
        }
        assert!(count >= 40, "{row}: {count} programs");
    }
}

/// Here a thread loads from what it may not use by then. The signal ends the thread in the checker,
/// but the run in the simulator.
const SIGNAL: [&str; 12] = [
    "fpr-other-process",
    "guard-nested",
    "huge-move",
    "huge-split",
    "huge-split-none",
    "latr-reuse",
    "lazy-table-free",
    "mremap-move",
    "move-table",
    "mprotect-none",
    "protnone-reclaim",
    "switch-move",
];

/// Its states are more than are kept here.
const LARGE: &str = "uffd-stale";

/// It asks whether an access faults at all. Where faults set the accessed bit, one does.
const OF_HARDWARE: &str = "fork-first-read";

/// Unlike random scenarios, litmus tests have threads that get in each other's way.
#[test]
fn each_state_of_a_litmus_tests_run_is_explored() {
    let left_out = |name: &&str| SIGNAL.contains(name) || *name == LONGEST || *name == LARGE;
    for name in builtin::litmus_names().filter(|name| !left_out(name)) {
        let settings: &[(&str, &str)] = if name == LONG { &[("cpus", "2")] } else { &[] };
        let test = litmus_test(name, settings);
        for row in test.litmus.safe.iter().take(2) {
            assert_explored(&format!("{name} on {row}"), &test.program, row, TINY);
        }
        if let Some(row) = test.litmus.safe.first().filter(|_| name != OF_HARDWARE) {
            let what = format!("{name} on {row}, {}", TINY_FAULTS.name);
            assert_explored(&what, &test.program, row, TINY_FAULTS);
        }
    }
}

/// Where the kernel sets accessed and dirty bits in faults, and flushes by other rules.
#[test]
fn another_architecture_is_the_same_for_both() {
    let row = "6.12";
    let programs = (0..SEEDS).filter_map(|seed| Some((seed, random_program(seed, (6, 12))?)));
    for (seed, program) in programs.take(40) {
        assert_explored(&format!("seed {seed}"), &program, row, TINY_FAULTS);
    }
}

/// The simulator's run is a way through the checker, each state of which an exploration reaches.
fn assert_explored(what: &str, program: &Program, row_name: &str, arch: Arch) {
    let options = Options { arch, max_states: 500_000, ..Options::default() };
    let way = compared(what, program, row_name, arch).schedule;
    let (report, reached) = reaches(program, &row(row_name), &options, &way).unwrap();
    assert!(report.holds(), "{what}: {report}");
    assert_eq!(reached.len(), way.0.len() + 1);
    let missed = reached.iter().position(|reached| !reached);
    assert_eq!(missed, None, "{what}: a state on the way is not explored");
}
