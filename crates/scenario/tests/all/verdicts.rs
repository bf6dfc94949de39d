//! Verdicts are checked against what follows from them and against cases computed by hand. They are
//! pinned for every capture.

use crate::common::{Capture, captures, fold};
use needless_model::addr::{MmId, ProcessId};
use needless_model::arch::{AccessedDirty, Arch};
use needless_model::event::{Event, EventKind, FlushReason};
use needless_model::kernel::fault::{Fault, Outcome, exc_page_fault};
use needless_model::kernels::KernelRow;
use needless_model::machine::frames::{Frame, FrameFlags};
use needless_model::machine::world::mm_of;
use needless_model::program::Program;
use needless_model::pte::{Pte, PteFlags};
use needless_model::run::{Round, TargetRun};
use needless_model::sim::{self, SimEnv, SimError, SimOptions, SimWorld, end_state};
use needless_model::verdict::Reason;
use needless_scenario::random::{Target, generate};
use needless_scenario::{Settings, Source, compile, load};
use needless_testing::each;
use std::collections::BTreeSet;

const MM: MmId = mm_of(ProcessId::FIRST);

fn run(program: &Program, row: &str) -> TargetRun {
    try_run(program, row).unwrap_or_else(|error| panic!("{row}: {error}"))
}

fn try_run(program: &Program, row: &str) -> Result<TargetRun, SimError> {
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    sim::run(program, &KernelRow::parse(row).unwrap(), &options)
}

/// An event with a verdict as text: its kind, `+` if it was needed or `-` if not, and the reason.
fn judged(event: &Event) -> Option<String> {
    let verdict = event.verdict?;
    let what = match event.kind {
        EventKind::FaultDone { class, .. } => class.name().to_owned(),
        EventKind::Copy { .. } => "copy".to_owned(),
        EventKind::Split { .. } => "split".to_owned(),
        EventKind::FaultRetry { .. } => "retry".to_owned(),
        EventKind::Flush { reason, pages, .. } => {
            let what = match reason {
                FlushReason::RemoteSend => "send",
                FlushReason::RemoteShootdown => "interrupt",
                FlushReason::LocalBatch => "batch",
                FlushReason::LocalMm => "local",
                FlushReason::TaskSwitch | FlushReason::RemoteWrongCpu => return None,
            };
            let pages = pages.map_or("ALL".to_owned(), |pages| pages.to_string());
            format!("{what}({pages})")
        }
        EventKind::Tlbi { operation, .. } => operation.name().to_owned(),
        _ => return None,
    };
    let sign = if verdict.is_needless() { '-' } else { '+' };
    let reason = serde_json::to_value(verdict.reason).unwrap();
    Some(format!("{what}{sign}{}", reason.as_str().unwrap()))
}

/// All verdicts of a round, in order.
fn verdicts(round: &Round) -> String {
    fold(&round.events.iter().filter_map(judged).collect::<Vec<_>>())
}

/// The verdicts of a round. All rounds must have the same.
fn verdicts_of(name: &str, run: &TargetRun) -> String {
    let first = verdicts(&run.rounds[0]);
    for round in &run.rounds {
        assert_eq!(verdicts(round), first, "{name}, round {}", round.index);
    }
    first
}

/// The model's verdicts for each capture, whose sequence it reproduces.
#[test]
fn the_verdicts_of_every_capture_are_pinned() {
    let of = |capture: &Capture| {
        let mut lines = String::new();
        let source = load(capture.scenario).unwrap();
        let program = compile(&source, &Settings::default()).unwrap();
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for &kernel in &capture.kernels {
            let text = verdicts_of(capture.scenario, &run(&program, kernel));
            match groups.iter_mut().find(|(known, _)| *known == text) {
                Some((_, kernels)) => kernels.push(kernel),
                None => groups.push((text, vec![kernel])),
            }
        }
        for (text, kernels) in groups {
            lines += &format!("{}\t{}\t{text}\n", capture.scenario, kernels.join(" "));
        }
        lines
    };
    let captures: Vec<Capture> = captures().collect();
    insta::assert_snapshot!("captures", each(&captures, of).concat());
}

/// A scenario with one thread, and with a spinner on another CPU if `spins`.
fn written(body: &str, spins: bool) -> Program {
    let spinner = if spins { "thread \"spinner\" cpu=1 { spin; }" } else { "" };
    let text = format!(
        "scenario \"case\" {{ machine {{ cpus 2; swap \"zram\" size=\"1M\"; }}
           thread \"main\" cpu=0 {{ {body} }}; {spinner} }}"
    );
    compile(&Source::new("case", text), &Settings::default()).unwrap()
}

/// One case for each reason. The verdicts were derived by hand from the definitions.
///
/// The thread's CPU may have cached every translation that it could have walked. So may a spinner's
/// CPU, whichever thread touched the page.
const CASES: &[(&str, bool, &str, &str)] = &[
    // Both CPUs may hold the page that is given up.
    (
        "6.12",
        true,
        "map \"heap\" pages=1; rounds 1 { write \"heap\"; madvise \"heap\" advice=\"dontneed\"; }",
        "first-touch+new-translation send(1)+stale-translations interrupt(1)+stale-translations",
    ),
    // The page's table is freed with it.
    (
        "6.12",
        false,
        "rounds 1 { map \"heap\" pages=1 table=\"alone\"; write \"heap\"; munmap \"heap\"; }",
        "first-touch+new-translation local(1)+freed-tables",
    ),
    // The pending mark of the round before makes the walk flush once more. The gather then flushes
    // the page whose accessed bit it cleared. The batch has unmapped and flushed that page
    // meanwhile.
    (
        "6.1",
        true,
        "map \"heap\" pages=1; write \"heap\";
         rounds 1 warmup=1 { madvise \"heap\" advice=\"pageout\"; read \"heap\"; write \"heap\"; }",
        "send(ALL)-pending-already-flushed interrupt(ALL)-nothing-stale \
         send(ALL)+stale-translations interrupt(ALL)+stale-translations \
         send(1)-unmapped-and-flushed interrupt(1)-nothing-stale \
         swap-in+new-translation reuse-could-have-been-writable",
    ),
    // Read-only protection takes the right to store away. Read-write gives it back, to the PTE
    // (6.12) or only to the mapping (5.10).
    (
        "6.12",
        false,
        "map \"heap\" pages=1; write \"heap\";
         rounds 1 { mprotect \"heap\" prot=\"read\"; mprotect \"heap\" prot=\"read-write\"; }",
        "local(1)+stale-translations local(1)-only-granted",
    ),
    (
        "5.10",
        false,
        "map \"heap\" pages=1; write \"heap\";
         rounds 1 { mprotect \"heap\" prot=\"read\"; mprotect \"heap\" prot=\"read-write\"; write \"heap\"; }",
        "local(1)+stale-translations local(1)-only-granted reuse-could-have-been-writable",
    ),
    // userfaultfd notes the store, so the page was not protected needlessly.
    (
        "6.12",
        false,
        "map \"heap\" pages=1; write \"heap\"; uffdio_register \"heap\" mode=\"wp\" features=\"async\";
         rounds 1 { uffdio_writeprotect \"heap\" mode=\"protect\"; write \"heap\"; }",
        "local(1)+stale-translations reuse+userfaultfd-told",
    ),
    // The soft-dirty bit notes the store, too. The last call finds no page that could be stored to.
    (
        "6.12",
        false,
        "map \"heap\" pages=1; write \"heap\";
         rounds 1 { clear-refs of=\"soft-dirty\"; write \"heap\"; clear-refs of=\"soft-dirty\"; clear-refs of=\"soft-dirty\"; }",
        "local(ALL)+stale-translations reuse+soft-dirty-noted local(ALL)+stale-translations local(ALL)-nothing-stale",
    ),
    // The signal tells the handler, which gives the right back.
    (
        "6.12",
        false,
        "sigaction \"SIGSEGV\" by=\"mprotect\"; map \"heap\" pages=1; write \"heap\"; rounds 1 { mprotect \"heap\" prot=\"read\"; write \"heap\"; }",
        "local(1)+stale-translations signal+new-translation local(1)-only-granted",
    ),
    // A read sets the accessed bit, and MADV_COLD clears it.
    (
        "6.12",
        false,
        "map \"heap\" pages=1; write \"heap\"; rounds 1 { read \"heap\"; madvise \"heap\" advice=\"cold\"; }",
        "local(1)-only-accessed-bit",
    ),
    // For a page that nobody wrote since, MADV_FREE clears only the accessed bit.
    (
        "6.12",
        false,
        "map \"heap\" pages=1; write \"heap\";
         rounds 1 { madvise \"heap\" advice=\"free\"; read \"heap\"; madvise \"heap\" advice=\"free\"; write \"heap\"; }",
        "local(1)+stale-translations local(1)-only-accessed-bit",
    ),
    // The LRU batch's reference makes the kernel copy. The old page is then flushed from the TLB.
    (
        "5.10",
        false,
        "map \"heap\" pages=1; write \"heap\";
         rounds 1 { madvise \"heap\" advice=\"pageout\"; read \"heap\"; write \"heap\"; }",
        "local(1)+stale-translations local(1)-unmapped-and-flushed swap-in+new-translation \
         copy-only-transient-reference local(1)+stale-translations cow-copy-could-have-been-writable",
    ),
];

#[test]
fn verdicts_are_those_worked_out_by_hand() {
    for (row, spins, body, expected) in CASES {
        let program = written(body, *spins);
        assert_eq!(verdicts_of(body, &run(&program, row)), *expected, "{row}: {body}");
    }
}

/// A program with memory for two huge pages, the first of them written as one, and a thread on
/// another CPU.
fn huge(round: &str, other: &str) -> Program {
    let text = format!(
        "scenario \"case\" {{ machine {{ cpus 2; thp \"madvise\"; }}
           thread \"main\" cpu=0 {{
             map \"heap\" pages=1024 align=\"2M\"; madvise \"heap[0..512]\" advice=\"hugepage\";
             write \"heap[0]\"; rounds 1 {{ {round} }} }}
           thread \"other\" cpu=1 {{ {other} }} }}"
    );
    compile(&Source::new("case", text), &Settings::default()).unwrap()
}

/// What a round does with a huge page in parts, what another thread does with it, and whether the
/// split was needless.
const SPLITS: &[(&str, &str, &str)] = &[
    ("munmap \"heap[0..256]\"; munmap \"heap[256..512]\"", "", "split-rest-followed"),
    ("munmap \"heap[5..9]\"; munmap \"heap[0..512]\"", "", "split-rest-followed"),
    (
        "madvise \"heap[300..400]\" advice=\"dontneed\"; madvise \"heap[400..600]\" advice=\"dontneed\"; \
         write \"heap[700]\"; madvise \"heap[0..300]\" advice=\"dontneed\"",
        "",
        "split-rest-followed",
    ),
    (
        "process_madvise \"heap[0..512]\" advice=\"dontneed\" pages=256 stride=256",
        "",
        "split-rest-followed",
    ),
    (
        "mprotect \"heap[0..256]\" prot=\"read\"; mprotect \"heap[256..512]\" prot=\"read\"",
        "",
        "split-rest-followed",
    ),
    // Only a part is done; the rest is done by another kind of call, or with another protection.
    ("munmap \"heap[0..256]\"", "", "split+used-in-parts"),
    ("munmap \"heap[0..256]\"; munmap \"heap[256..511]\"", "", "split+used-in-parts"),
    (
        "madvise \"heap[0..256]\" advice=\"dontneed\"; munmap \"heap[0..512]\"",
        "",
        "split+used-in-parts",
    ),
    (
        "mprotect \"heap[0..256]\" prot=\"read\"; mprotect \"heap[256..512]\" prot=\"none\"",
        "",
        "split+used-in-parts",
    ),
    // A page is used in between: one that is left, one that was taken, or by another thread.
    (
        "munmap \"heap[0..256]\"; read \"heap[300]\"; munmap \"heap[256..512]\"",
        "",
        "split+used-in-parts",
    ),
    (
        "madvise \"heap[0..256]\" advice=\"dontneed\"; read \"heap[0]\"; \
         madvise \"heap[256..512]\" advice=\"dontneed\"",
        "",
        "split+used-in-parts",
    ),
    (
        "munmap \"heap[0..256]\"; barrier \"a\"; barrier \"b\"; munmap \"heap[256..512]\"",
        "barrier \"a\"; read \"heap[300]\"; barrier \"b\"",
        "split+used-in-parts",
    ),
    // Another thread does the rest; a touch reaches beyond the huge page.
    (
        "munmap \"heap[0..256]\"; barrier \"a\"; barrier \"b\"",
        "barrier \"a\"; munmap \"heap[256..512]\"; barrier \"b\"",
        "split+used-in-parts",
    ),
    (
        "munmap \"heap[0..256]\"; barrier \"a\"; barrier \"b\"; munmap \"heap[256..512]\"",
        "barrier \"a\"; read \"heap[512]\"; barrier \"b\"",
        "split-rest-followed",
    ),
];

#[test]
fn splits_are_judged_by_what_follows() {
    for (round, other, expected) in SPLITS {
        // In 6.12 a process could not yet advise itself this way.
        let rows =
            if round.starts_with("process_madvise") { &["7.3"][..] } else { &["6.12", "7.3"] };
        for row in rows {
            let run = run(&huge(round, other), row);
            let events = run.rounds[0].events.iter();
            let splits: Vec<String> =
                events.filter_map(judged).filter(|what| what.starts_with("split")).collect();
            assert_eq!(splits, [*expected], "{row}: {round}");
        }
    }
}

/// A needless split is the cause of its flush.
#[test]
fn the_flush_of_a_needless_split_names_it() {
    let caused = |round: &str| {
        let run = run(&huge(round, "spin"), "6.12");
        let events = &run.rounds[0].events;
        let split = events.iter().find(|event| matches!(event.kind, EventKind::Split { .. }));
        let (seq, caused_by) = (split.unwrap().seq, |event: &Event| event.verdict?.caused_by);
        events.iter().filter(|event| caused_by(event) == Some(seq)).count()
    };
    assert_eq!(caused("munmap \"heap[0..256]\"; munmap \"heap[256..512]\""), 1);
    assert_eq!(caused("munmap \"heap[0..256]\""), 0);
}

/// One call about all of the pages splits nothing and leaves the same pages.
#[test]
fn what_a_needless_split_is_for_can_be_done_at_once() {
    let splits = |run: &TargetRun| {
        let events = run.rounds[0].events.iter();
        events.filter(|event| matches!(event.kind, EventKind::Split { .. })).count()
    };
    for (parts, whole) in [
        (SPLITS[0].0, "munmap \"heap[0..512]\""),
        (SPLITS[1].0, "munmap \"heap[0..512]\""),
        (SPLITS[2].0, "write \"heap[700]\"; madvise \"heap[0..600]\" advice=\"dontneed\""),
        (SPLITS[3].0, "madvise \"heap[0..512]\" advice=\"dontneed\""),
        (SPLITS[4].0, "mprotect \"heap[0..512]\" prot=\"read\""),
    ] {
        for row in ["5.10", "6.1", "6.12", "6.18", "7.3"] {
            let new = row == "6.18" || row == "7.3";
            if !new && parts.starts_with("process_madvise") {
                continue;
            }
            let (parts, whole) = (run(&huge(parts, "spin"), row), run(&huge(whole, "spin"), row));
            assert_eq!((splits(&parts), splits(&whole)), (1, 0), "{row}");
            // Pages that stay are then mapped as one, which the address space's count of huge pages
            // shows.
            let pages = |run: &TargetRun| {
                let mut pages = run.final_pages.clone();
                pages.remove("AnonHugePages");
                pages
            };
            assert!(pages(&parts) == pages(&whole), "{row}: pages end in other states");
        }
    }
}

/// Full flushes: only a huge page's entry is stale and the flush counts base pages; small pages are
/// stale, too; or the flush is about few base pages.
#[test]
fn full_flushes_where_one_of_a_huge_page_would_do_are_judged() {
    let judged = |round: &str, row: &str| verdicts(&run(&huge(round, "spin"), row).rounds[0]);
    let protect = "mprotect \"heap[5..9]\" prot=\"read\"";
    assert_eq!(judged(protect, "6.12"), WIDE);
    let small = "write \"heap[700]\"; mprotect \"heap[0..1024]\" prot=\"read\"";
    assert_eq!(
        judged(small, "6.12"),
        "first-touch+new-translation send(ALL)+stale-translations interrupt(ALL)+stale-translations"
    );
    let few = "write \"heap[700]\"; mprotect \"heap[700..710]\" prot=\"read\"";
    assert!(!judged(few, "6.12").contains("only-huge-stale"));
    // A narrow flush leaves nothing stale: using a stale translation afterwards would end the run.
    let used = "mprotect \"heap[5..9]\" prot=\"none\"; mprotect \"heap[5..9]\" prot=\"read-write\"; \
                write \"heap[0..512]\"";
    for row in ROWS.map(|(row, _)| row) {
        let program = huge(used, "spin");
        let (wide, narrow) = (run(&program, row), run(&program, &format!("{row},skip=needless")));
        assert_eq!(wide.final_pages, narrow.final_pages, "{row}");
        let full = |run: &TargetRun| {
            let sends = run.rounds[0].events.iter();
            let full = |event: &&Event| {
                let all = matches!(event.kind, EventKind::Flush { pages: None, .. });
                all && event.verdict.is_some_and(|verdict| verdict.is_too_wide())
            };
            sends.filter(full).count()
        };
        assert!(full(&wide) > 0 && full(&narrow) == 0, "{row}");
    }
}

/// The verdicts where only the huge page's entry is stale.
const WIDE: &str = "split+used-in-parts send(ALL)+only-huge-stale interrupt(ALL)+stale-translations \
                    send(4)+stale-translations interrupt(4)+stale-translations";

/// The second fault on the huge zero page, where a huge page replaces it and where pages are copied
/// one by one.
#[test]
fn the_huge_zero_pages_second_fault_is_judged() {
    let round = "madvise \"heap[0..512]\" advice=\"dontneed\"; read \"heap[0]\"; write \"heap[0]\"";
    let judged = |round: &str, row: &str| {
        let text = verdicts(&run(&huge(round, "spin"), row).rounds[0]);
        let upgrades = text.split(' ').filter(|what| what.starts_with("zero-upgrade"));
        upgrades.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(judged(round, "7.3"), [ZERO]);
    assert_eq!(judged(round, "6.12"), ["zero-upgrade+new-translation"]);
    let small =
        "madvise \"heap[600..601]\" advice=\"dontneed\"; read \"heap[600]\"; write \"heap[600]\"";
    assert_eq!(judged(small, "7.3"), ["zero-upgrade+new-translation"]);
    let first = "madvise \"heap[0..512]\" advice=\"dontneed\"; write \"heap[0]\"";
    assert!(judged(first, "7.3").is_empty());
}

/// The verdict where a huge page replaces the huge zero page.
const ZERO: &str = "zero-upgrade+huge-zero-mapped";

/// Reasons that one process in discrete order cannot show. They are the fault and the copy of a
/// page that another process maps, has a reference to, or had a claim on when it was last mapped,
/// and a fault that finds its work done.
#[test]
fn shared_pages_and_finished_work_are_judged() {
    let program =
        written("map \"heap\" pages=4; write \"heap\"; rounds 1 { read \"heap\"; }", false);
    let row = KernelRow::parse("5.10").unwrap();
    let mut world = end_state(&program, &row, row.arch(), &SimOptions::default()).unwrap();
    let pages = program.areas[0].range;
    world.log.clear();
    // The thread runs again.
    world.cpus[0].lazy = false;
    fault(&mut world, &program, Fault::new(MM, pages.start, true));
    // The page is read-only as after a fork: with another mapping; with a reference of a reader;
    // with neither any more.
    let claims: [fn(&mut Frame); 3] = [
        |frame| (frame.maps, frame.refs) = (2, 2),
        |frame| frame.refs = 2,
        |frame| frame.flags.set(FrameFlags::CLAIMED, true),
    ];
    for (page, claim) in pages.iter().skip(1).zip(claims) {
        let pte = world.pte(MM, page).present().unwrap();
        world.frames.update(pte.pfn, claim);
        let table = &mut world.mms[MM.index()].table;
        table.set(page, Pte::Present(pte.without(PteFlags::WRITABLE)), 0).unwrap();
        fault(&mut world, &program, Fault::new(MM, page, true));
    }
    let judged: Vec<String> = world.log.events.iter().filter_map(judged).collect();
    let expected = "spurious-already-granted copy+old-page-shared local(1)+stale-translations \
                    cow-copy+write-was-claimed \
                    copy+old-page-shared local(1)+stale-translations \
                    cow-copy-could-have-been-writable \
                    reuse+write-was-claimed";
    assert_eq!(judged.join(" "), expected);
}

/// A fault that userfaultfd exists for is not needless, whoever maps the page.
#[test]
fn faults_that_userfaultfd_learns_of_are_needed() {
    let cases = [
        ("c_uffd_missing", "5.10", Reason::UserfaultfdTold),
        ("c_uffd_missing", "6.12", Reason::UserfaultfdTold),
        ("c_uffd_sync", "5.10", Reason::UserfaultfdTold),
        ("c_uffd_sync", "6.12", Reason::UserfaultfdTold),
        ("c_uffd_wp_async", "7.3", Reason::UserfaultfdTold),
        // A store where nothing is protected is not reported.
        ("c_uffd_wp_empty", "6.12", Reason::NewTranslation),
    ];
    for (name, row, reason) in cases {
        let program = compile(&load(name).unwrap(), &Settings::default()).unwrap();
        let run = run(&program, row);
        let events = run.rounds.iter().flat_map(|round| &round.events);
        let faults = events.filter(|e| matches!(e.kind, EventKind::FaultDone { .. }));
        let judged: BTreeSet<_> =
            faults.map(|e| e.verdict.unwrap()).map(|v| (v.is_needless(), v.reason)).collect();
        assert_eq!(judged, BTreeSet::from([(false, reason)]), "{name} on {row}");
    }
}

/// Where processors do not set the accessed bit, a fault sets it.
#[test]
fn setting_bits_is_judged() {
    let body = "map \"heap\" pages=1; write \"heap\"; madvise \"heap\" advice=\"cold\"; \
                rounds 1 { read \"heap[0..0]\"; }";
    let program = written(body, false);
    let row = KernelRow::parse("6.12").unwrap();
    let arch = Arch { accessed_dirty: AccessedDirty::Fault, ..row.arch() };
    let mut world = end_state(&program, &row, arch, &SimOptions::default()).unwrap();
    world.log.clear();
    world.cpus[0].lazy = false;
    let page = program.areas[0].range.start;
    for _ in 0..2 {
        fault(&mut world, &program, Fault::new(MM, page, false));
    }
    let judged: Vec<String> = world.log.events.iter().filter_map(judged).collect();
    assert_eq!(judged.join(" "), SET_BITS);
}

/// A store that its entry does not allow yet, on a processor that keeps such an entry. And the
/// flush that 5.8 makes for a fault that is tried again, whose own entry nobody had before.
#[test]
fn a_flush_without_which_the_access_would_fault_again_is_judged() {
    let judged = |body: &str, row: &str| {
        let program = written(body, false);
        let row = KernelRow::parse(row).unwrap();
        verdicts(&sim::run(&program, &row, &SimOptions::default()).unwrap().rounds[0])
    };
    let protected = "map \"heap\" pages=1; write \"heap\"; mprotect \"heap\" prot=\"read\"; \
                     mprotect \"heap\" prot=\"read-write\"; rounds 1 { write \"heap\"; }";
    assert_eq!(judged(protected, "5.10/arm64"), KEPT);
    let shared = "map \"heap\" pages=1 backing=\"shared\"; rounds 1 { write \"heap\"; }";
    let expected = "retry-retried-mapped vale1is-only-granted shared-dirty+new-translation";
    assert_eq!(judged(shared, "5.8/arm64"), expected);
}

/// A store that the file system must learn of, tried again needlessly. And a read of a page that
/// must be read from disk first.
#[test]
fn second_tries_are_judged() {
    let judged = |content: &str, body: &str, row: &str| {
        let text = format!(
            "scenario \"case\" {{ file \"data\" fs=\"ext4\" pages=1 content=\"{content}\"
             thread \"main\" cpu=0 {{ map \"file\" pages=1 file=\"data\" backing=\"shared\"; {body}; }}; }}"
        );
        let program = compile(&Source::new("case", text), &Settings::default()).unwrap();
        let row = KernelRow::parse(row).unwrap();
        verdicts(&sim::run(&program, &row, &SimOptions::default()).unwrap().rounds[0])
    };
    let stored = "read \"file\"; rounds 1 { write \"file\"; }";
    assert_eq!(judged("data", stored, "5.10"), NOTED);
    assert_eq!(judged("data", stored, "6.12"), "shared-dirty+store-noted");
    assert_eq!(judged("holes", "rounds 1 { read \"file\"; }", "6.12"), READ);
}

/// NUMA balancing took the translation away. The fault was needed to learn who uses the page.
#[test]
fn hint_faults_are_judged() {
    let text = "scenario \"case\" { machine { cpus 1; nodes 2; numa-balancing \"on\"; }
        thread \"main\" cpu=0 { map \"heap\" pages=1; write \"heap\"; move_pages \"heap\" node=1;
        rounds 1 warmup=0 { numa-scan \"heap\"; read \"heap\"; write \"heap\"; }; }; }";
    let program = compile(&Source::new("case", text), &Settings::default()).unwrap();
    let row = KernelRow::parse("6.12").unwrap();
    let found = verdicts(&sim::run(&program, &row, &SimOptions::default()).unwrap().rounds[0]);
    assert!(found.ends_with(HINT), "{found}");
}

/// The verdicts of a hint fault. The store that follows it faults needlessly.
const HINT: &str = "numa-hint+sampled reuse-could-have-been-writable";

/// The verdicts of a store that the file system learns of.
const NOTED: &str = "retry-retried-mapped shared-dirty+store-noted";

/// The verdicts of a read of a page that is not in memory.
const READ: &str = "retry+retried-unmapped file-map+new-translation";

/// The verdicts where the processor keeps an entry that does not allow the store.
const KEPT: &str = "vale1is+kept-entry reuse-could-have-been-writable";

/// The verdicts where a fault sets the accessed bit.
const SET_BITS: &str = "access-flag-only-set-bits spurious-already-granted";

fn fault(world: &mut SimWorld, program: &Program, fault: Fault) {
    let outcome = exc_page_fault(&mut SimEnv::of(world, program, 0, 0), fault);
    assert_eq!(outcome, Outcome::Served);
}

#[test]
fn every_reason_has_a_case() {
    let shared = "spurious-already-granted copy+old-page-shared cow-copy+write-was-claimed";
    let cases = CASES.iter().flat_map(|case| case.3.split(' ')).chain(shared.split(' '));
    let cases = cases.chain(SET_BITS.split(' ')).chain(KEPT.split(' '));
    let cases = cases.chain(NOTED.split(' ')).chain(READ.split(' ')).chain(HINT.split(' '));
    let cases = cases.chain(SPLITS.iter().map(|case| case.2)).chain(WIDE.split(' ')).chain([ZERO]);
    let named: BTreeSet<&str> =
        cases.filter_map(|token| token.split_once(['+', '-'])).map(|(_, reason)| reason).collect();
    for reason in Reason::ALL {
        let name = serde_json::to_value(reason).unwrap();
        let name = name.as_str().unwrap();
        assert!(named.iter().any(|known| known.ends_with(name)), "{name} has no case");
    }
}

/// Kernels, and the release whose operations scenarios for them may use.
const ROWS: [(&str, (u32, u32)); 5] =
    [("5.10", (5, 10)), ("6.1", (6, 1)), ("6.12", (6, 12)), ("6.18", (6, 18)), ("7.3", (7, 3))];

/// Scenarios from this seed on have huge pages.
const WITH_HUGE_PAGES: u64 = 300_000;

/// Nothing breaks without the flushes that are called needless, nor with a narrow flush in place of
/// each that is called too wide. No stale translation is used, which would end the run, and the
/// pages end in the same state. `NEEDLESS_SEEDS` sets the number of scenarios.
#[test]
fn what_is_called_needless_can_be_left_out() {
    let seeds = std::env::var("NEEDLESS_SEEDS").map_or(200, |seeds| seeds.parse().unwrap());
    for (row, release) in ROWS {
        // The number of flushes that were left out; `None` if the kernel refuses the scenario.
        let judged = |&seed: &u64| {
            let text = generate(seed, &Target::new(release, 3)).text()?;
            let program = compile(&Source::new("random", text), &Settings::default()).unwrap();
            let (with, without) =
                (try_run(&program, row), try_run(&program, &format!("{row},skip=needless")));
            let (with, without) = match (with, without) {
                (Ok(with), Ok(without)) => (with, without),
                // Some draws ask for what the kernel refuses.
                (with, without) => {
                    assert_eq!(with.err(), without.err(), "seed {seed} on {row}");
                    return Some(None);
                }
            };
            assert_eq!(with.final_pages, without.final_pages, "seed {seed} on {row}");
            let flushes =
                |run: &TargetRun| -> usize { run.rounds.iter().map(needless_flushes).sum() };
            assert_eq!(flushes(&without), 0, "seed {seed} on {row}");
            Some(Some(flushes(&with)))
        };
        let all: Vec<u64> =
            (0..seeds).chain(WITH_HUGE_PAGES..WITH_HUGE_PAGES + seeds / 10).collect();
        let judged: Vec<Option<usize>> = each(&all, judged).into_iter().flatten().collect();
        let left_out: usize = judged.iter().flatten().sum();
        let refused = judged.iter().filter(|flushes| flushes.is_none()).count() as u64;
        assert!(left_out > seeds as usize / 10, "{row}: only {left_out} flushes were left out");
        assert!(refused <= seeds / 100, "{row} refuses {refused} of {seeds} scenarios");
        println!("{row}: {left_out} flushes left out, {refused} scenarios refused");
    }
}

/// The number of flushes that are called needless, without the interrupts that they cause.
fn needless_flushes(round: &Round) -> usize {
    let flush = |event: &&Event| match event.kind {
        EventKind::Flush { reason, .. } => reason != FlushReason::RemoteShootdown,
        _ => false,
    };
    let needless = |event: &&Event| event.verdict.is_some_and(|verdict| verdict.is_needless());
    round.events.iter().filter(flush).filter(needless).count()
}
