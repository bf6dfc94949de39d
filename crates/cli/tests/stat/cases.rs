//! Eleven programs after public reports, each with a question that its author had. Each test asks
//! for counts and for parts of the answer's first twelve lines. If there is a program for the
//! remedy, the remedy removes what is counted. Not tested yet: a cgroup's limit (evicted-index),
//! races (parallel-first-touch), and which call is to blame in map-fixed-discard.
//!
//! The programs are C, because allocators and call sites are part of the question. The first lines
//! of each say how to run it.

use super::{json, stat, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// The programs pin threads and count flushes, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

const LINES: usize = 12;
const PAGE: u64 = 4096;

/// The bytes that parallel-first-touch maps in each round.
const AREA: u64 = 4 << 20;

fn built(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/stat/cases/{name}.c"));
    let program = folder.join(format!("case-{name}"));
    let words = ["-g", "-O1", "-Wall", "-Werror", "-pthread", "-o"];
    let status = Command::new("cc").args(words).arg(&program).arg(source).status().unwrap();
    assert!(status.success(), "cc is needed, as for linking Rust programs");
    program
}

/// The JSON of one run.
struct Case {
    events: Value,
    machine: Value,
    first_lines: String,
}

fn watched(program: &Path, words: &[&str], options: &[&str]) -> Option<Case> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // The programs' files have to be on a disk.
    std::env::set_current_dir(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let command = [&[program.to_str().unwrap()], words].concat();
    let (status, document) = json(options, &command);
    if status == 77 {
        eprintln!("skipped: {command:?} cannot run here");
        return None;
    }
    assert_eq!(status, 0, "{command:?}");
    let output = stat(&[options, &["--"], &command].concat()).output().unwrap();
    let report = text(&output.stderr);
    let first_lines: Vec<&str> = report.trim_start().lines().take(LINES).collect();
    let run = &document["runs"][0];
    Some(Case {
        events: run["events"].clone(),
        machine: run["machine"]["vmstat"].clone(),
        first_lines: super::words(&first_lines.join("\n")),
    })
}

impl Case {
    fn told(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.first_lines.contains(part), "no `{part}` in:\n{}", self.first_lines);
        }
    }

    fn not_told(&self, parts: &[&str]) {
        for part in parts {
            assert!(!self.first_lines.contains(part), "`{part}` in:\n{}", self.first_lines);
        }
    }

    fn rows(&self, table: &str) -> &[Value] {
        self.events["memory"][table].as_array().unwrap()
    }

    /// A figure of the rows of `taken` of one kind, for calls whose name contains `call`.
    fn taken(&self, how: &str, call: &str, figure: &str) -> u64 {
        let rows = self.rows("taken").iter();
        let rows = rows.filter(|row| row["how"] == how && has(&row["call"], call));
        rows.map(|row| row[figure].as_u64().unwrap()).sum()
    }

    /// Whether this many calls at one place took pages, of which this many were touched again.
    fn took(&self, how: &str, call: &str, calls: u64, faults: u64) -> bool {
        self.rows("taken").iter().any(|row| {
            let figures = row["calls"] == calls && row["faults"] == faults;
            figures && row["how"] == how && has(&row["call"], call)
        })
    }

    /// The flushes in calls of this name, sent and local, while the program ran.
    fn flushes(&self, call: &str) -> u64 {
        self.calls(call, "sent") + self.calls(call, "local")
    }

    fn calls(&self, call: &str, figure: &str) -> u64 {
        let rows = self.rows("calls").iter();
        let rows = rows.filter(|row| row["starting"] == false && has(&row["call"], call));
        rows.map(|row| row[figure].as_u64().unwrap()).sum()
    }

    /// Faults of a class on mappings whose name contains `mapping`.
    fn faults(&self, label: &str, mapping: &str) -> u64 {
        let mappings = self.rows("mappings");
        let rows = self.rows("faults").iter().filter(|row| {
            let at = row["mapping"].as_u64().map(|at| &mappings[at as usize]);
            has(&row["label"], label) && at.is_some_and(|at| has(&at["name"], mapping))
        });
        rows.map(|row| row["faults"].as_u64().unwrap()).sum()
    }

    /// Faults of a class on mappings of this many bytes.
    fn faults_of(&self, label: &str, bytes: u64) -> u64 {
        let mappings = self.rows("mappings");
        let rows = self.rows("faults").iter().filter(|row| {
            let at = row["mapping"].as_u64().map(|at| &mappings[at as usize]);
            has(&row["label"], label) && at.is_some_and(|at| at["bytes"] == bytes)
        });
        rows.map(|row| row["faults"].as_u64().unwrap()).sum()
    }

    fn needless(&self, what: &str) -> u64 {
        let rows = self.events["needless"].as_array().unwrap().iter();
        let rows = rows.filter(|row| has(&row["what"], what));
        rows.map(|row| row["times"].as_u64().unwrap()).sum()
    }
}

fn has(value: &Value, part: &str) -> bool {
    value.as_str().is_some_and(|text| text.contains(part))
}

/// Which faults are on memory that this process gave back a moment ago, and what did that cost
/// others?
#[test]
fn an_allocator_that_gives_back_at_once() {
    let program = built("purge-at-once");
    let now = watched(&program, &["now", "50"], &[]).unwrap();
    let call = "madvise(MADV_DONTNEED)";
    assert_eq!(now.taken("given_back", call, "pages"), 50 * 256);
    assert_eq!(now.taken("given_back", call, "faults"), 49 * 256, "all but the first round");
    assert_eq!(now.flushes(call), 50 * 16);
    assert_eq!(now.calls(call, "full"), 0);
    now.told(&[
        "first touches",
        &format!("that {call} at main (purge-at-once.c:"),
        "had given back",
    ]);
    now.told(&["1. ", "change: give the memory back later"]);
    now.not_told(&["munmap or mprotect"]);
    // Once a round: the number of faults stays, and a sixteenth of the flushes remains.
    let late = watched(&program, &["late", "50"], &[]).unwrap();
    assert_eq!((late.taken("given_back", call, "faults"), late.flushes(call)), (49 * 256, 50));
    let keep = watched(&program, &["keep", "50"], &[]).unwrap();
    assert_eq!((keep.taken("given_back", call, "faults"), keep.flushes(call)), (0, 0));
}

/// How many of a query's faults are on memory that the same process gave back just before, and by
/// which call?
#[test]
fn a_heap_that_is_trimmed_for_each_query() {
    let program = built("trim-per-query");
    let default = watched(&program, &["default", "20"], &[]).unwrap();
    let again = default.taken("given_back", "brk", "faults");
    assert!(again >= 19 * 1500, "{again}");
    assert_eq!(again + first(&default), default.faults("first touch", "[heap]"));
    default.told(&["[heap]", "that brk at main (trim-per-query.c:", "in free", "GLIBC_TUNABLES"]);
    let tunables =
        "GLIBC_TUNABLES=glibc.malloc.trim_threshold=67108864:glibc.malloc.top_pad=67108864";
    let words = [tunables, program.to_str().unwrap(), "default", "20"];
    let tuned = watched(Path::new("/usr/bin/env"), &words, &[]).unwrap();
    assert_eq!(tuned.taken("given_back", "brk", "faults"), 0);
}

/// The pages of the heap that were touched for the first time.
fn first(case: &Case) -> u64 {
    let mappings = case.rows("mappings");
    let rows = case.rows("faults").iter().filter(|row| {
        let at = row["mapping"].as_u64().map(|at| &mappings[at as usize]);
        row["since"] == "new" && at.is_some_and(|at| at["name"] == "[heap]")
    });
    rows.map(|row| row["faults"].as_u64().unwrap()).sum()
}

/// Why does this process stall, on which mapping, and is each major fault needed?
#[test]
fn a_scan_of_a_file_with_random_advice() {
    let program = built("random-advice");
    let Some(random) = watched(&program, &["random", "3"], &[]) else { return };
    assert_eq!(random.taken("no_readahead", "madvise(MADV_RANDOM)", "faults"), 3 * 512);
    random.told(&["major faults", "cold.", "madvise(MADV_RANDOM) at main (random-advice.c:"]);
    random.told(&["without readahead", "no MADV_RANDOM"]);
    random.not_told(&["more memory"]);
    let normal = watched(&program, &["normal", "3"], &[]).unwrap();
    assert!(normal.faults("file map, major", "cold.") < 3 * 64, "read ahead");
}

/// Which mapping is evicted and read again, and by which call? (The report does not distinguish
/// what a cgroup's limit evicts from what advice evicts: docs/stat.md.)
#[test]
fn an_index_that_is_evicted() {
    let program = built("evicted-index");
    let advise = watched(&program, &["advise", "3"], &[]).unwrap();
    assert_eq!(advise.taken("paged_out", "madvise(MADV_PAGEOUT)", "faults"), 2 * 512);
    advise.told(&["major faults", "index.", "that madvise(MADV_PAGEOUT) at main", "had paged out"]);
    let keep = watched(&program, &["keep", "3"], &[]).unwrap();
    assert_eq!(keep.taken("paged_out", "madvise(MADV_PAGEOUT)", "faults"), 0);
}

/// How much time do these calls take, and how much of it is for pages that nobody writes?
#[test]
fn code_that_is_made_writable_as_a_whole() {
    let program = built("jit-protect");
    let all = watched(&program, &["all", "640"], &[]).unwrap();
    // There is one more flush before the thread starts.
    let flushes = 2 * 640 + 1;
    assert_eq!((all.flushes("mprotect"), all.calls("mprotect", "full")), (flushes, flushes));
    all.told(&["calls of mprotect(", "at main (jit-protect.c:", "flushes of everything"]);
    all.told(&["protect only the pages that are written"]);
    let page = watched(&program, &["page", "640"], &[]).unwrap();
    assert_eq!((page.flushes("mprotect"), page.calls("mprotect", "full")), (flushes, 1));
    page.not_told(&["membarrier", "protect only the pages"]);
    let batch = watched(&program, &["batch", "640"], &[]).unwrap();
    assert_eq!(batch.flushes("mprotect"), 2 * 20 + 1);
}

/// What does one spawn cost the parent, and how much of it is for a child that never looks?
#[test]
fn a_large_heap_that_is_forked_to_start_a_program() {
    let program = built("spawn-large-heap");
    let fork = watched(&program, &["fork", "5"], &[]).unwrap();
    let reused = fork.faults("reuse after write-protect", "anonymous");
    assert!(reused >= 5 * 4096, "{reused}");
    assert!(fork.taken("fork", "clone", "faults") >= 5 * 4096);
    assert!(fork.needless("fork had made read-only") >= 5 * 4096);
    fork.told(&["reuses after write-protect", "that a fork (clone", "posix_spawn(3)"]);
    fork.told(&["copies inside fork", "Needless: 20,"]);
    for mode in ["spawn", "dontfork"] {
        let other = watched(&program, &[mode, "5"], &[]).unwrap();
        assert!(other.faults("reuse after write-protect", "anonymous") < 50, "{mode}");
    }
}

/// Who takes back what I gave back: how many pages, in which mapping?
#[test]
fn holes_that_are_filled_again() {
    let program = built("holes-refilled");
    let collapse = watched(&program, &["collapse", "5"], &[]).unwrap();
    let back = collapse.taken("given_back", "madvise(MADV_DONTNEED)", "back_without_fault");
    assert_eq!(back, 5 * 8 * 511);
    collapse.told(&["madvise(MADV_COLLAPSE) at main", "had been given back came back"]);
    collapse.told(&["no MADV_COLLAPSE"]);
    let never = watched(&program, &["never", "5"], &[]).unwrap();
    assert_eq!(never.taken("given_back", "madvise", "back_without_fault"), 0);
}

/// Are the discarded ranges to blame, or the memory around them?
#[test]
fn single_pages_that_are_mapped_over() {
    let program = built("map-fixed-discard");
    for (mode, call, how) in [
        ("fixed", "mmap(MAP_FIXED)", "unmapped"),
        ("advice", "madvise(MADV_DONTNEED)", "given_back"),
    ] {
        let case = watched(&program, &[mode, "20"], &[]).unwrap();
        assert!(
            case.took(how, call, 20 * 8, 20 * 8),
            "{mode}: so many calls, and each page touched again: {:?}",
            case.rows("taken")
        );
        // The thread's stack takes some first touches, too.
        let all = case.faults("first touch", "anonymous");
        assert!((160..168).contains(&all), "{mode}: none around them, {all}");
        assert_eq!(case.flushes(call), 20 * 16, "{mode}: the split's and the page's");
        case.told(&["EPT"]);
    }
}

/// Which faults are first touches of the same block, and how many are races?
#[test]
fn two_threads_that_fill_new_memory() {
    let program = built("parallel-first-touch");
    let plain = watched(&program, &["plain", "20"], &[]).unwrap();
    assert_eq!(plain.faults_of("first touch", AREA), 20 * 512);
    assert_eq!(plain.faults_of("spurious", AREA), 0);
    plain.told(&[
        "first touches",
        "anonymous memory (4.0 MiB, mapped at main",
        "MADV_POPULATE_WRITE",
    ]);
    let same = watched(&program, &["same", "20"], &[]).unwrap();
    assert_eq!(same.faults_of("first touch", AREA), 20 * 512);
    let populate = watched(&program, &["populate", "20"], &[]).unwrap();
    assert_eq!(populate.faults_of("first touch", AREA), 0, "what is printed removes them");
    let huge = watched(&program, &["huge", "40"], &[]).unwrap();
    let made = huge.machine["thp_fault_alloc"].as_u64().unwrap();
    let counted = huge.faults_of("huge page", AREA);
    assert_eq!(
        counted, 40,
        "one each round, however many threads race for it; the machine's {made}"
    );
}

/// Why does a kernel thread run on a CPU where nothing else may run, and whose call causes it?
#[test]
fn advice_about_a_file_that_drains_every_cpu() {
    let program = built("fadvise-drain");
    let Some(mapped) = watched(&program, &["mapped", "150"], &[]) else { return };
    let drains = |case: &Case| -> u64 {
        let rows = case.events["interrupts"].as_array().unwrap().iter();
        let rows = rows.filter(|row| row["asked"] == "LRU drain");
        let of = |row: &&Value| row["cause"] == "fadvise64(POSIX_FADV_DONTNEED)";
        rows.filter(of).map(|row| row["uninterrupted"].as_u64().unwrap()).sum()
    };
    // A CPU that has not drained yet is not asked again. That happens on a busy machine.
    assert!(drains(&mapped) >= 75, "{}", drains(&mapped));
    mapped
        .told(&["fadvise64(POSIX_FADV_DONTNEED) at main (fadvise-drain.c:", "a kernel thread ran"]);
    mapped.told(&["no POSIX_FADV_DONTNEED"]);
    mapped.not_told(&["mbind"]);
    for mode in ["unmapped", "none"] {
        assert_eq!(drains(&watched(&program, &[mode, "150"], &[]).unwrap()), 0, "{mode}");
    }
}

/// Who gets the copy after a fork, and how many pages are copied for a child that never looks?
#[test]
fn a_fork_with_pinned_memory() {
    let program = built("pin-fork");
    for (mode, copies) in [("pinned", 64), ("dontfork", 64), ("none", 128)] {
        let Some(case) = watched(&program, &[mode, "10"], &[]) else { return };
        let copied = case.faults_of("COW copy", 128 * PAGE);
        assert_eq!(copied, 10 * copies, "{mode}");
        case.told(&["COW copies", "a fork (clone", "copies inside fork"]);
    }
}
