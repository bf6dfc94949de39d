//! Shared memory, as kernels were seen to treat it: 8 pages, and the process's other CPU busy.

use needless_model::event::Event;
use needless_model::kernels::KernelRow;
use needless_model::run::TargetRun;
use needless_model::sequence::{Sequence, TraceOrder};
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, Source, compile};

const ROWS: [&str; 6] = ["5.8", "5.10", "6.1", "6.12", "6.18", "7.3"];

fn scenario(before: &str, round: &str, child: &str) -> String {
    format!(
        "scenario \"shared\" {{
            machine {{ cpus 3 }}
            thread \"main\" cpu=0 {{
                map \"shm\" pages=64 backing=\"shared\" table=\"shared\"
                map \"own\" pages=8 backing=\"shared\" prot=\"read-write\"
                {before}
                rounds 1 warmup=0 {{ {round} }}
            }}
            thread \"spinner\" cpu=1 {{ spin }}
            process \"child\" cpu=2 {{ {child} }}
        }}"
    )
}

fn run(text: &str, row: &str) -> (String, TargetRun) {
    let program = compile(&Source::new("shared", text), &Settings::default()).unwrap();
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &options).unwrap();
    let rounds: Vec<&[Event]> = run.rounds.iter().map(|round| &round.events[..]).collect();
    let order = TraceOrder::of(rounds.iter().copied());
    (Sequence::of(&program, rounds[0], order).to_string(), run)
}

fn sequence(before: &str, round: &str, child: &str, row: &str) -> String {
    run(&scenario(before, round, child), row).0
}

/// Source: the project's captures b_shm_read_write_8_fa and b_pf3_shm_8 (5.10 to 7.3; on tmpfs,
/// which uses the same code).
#[test]
fn faults_and_flushes_of_one_process() {
    let written = "write \"shm[0..8]\"";
    let gives_up = "madvise \"shm\" advice=\"dontneed\"";
    for (before, round, expected) in [
        ("", written, "Wx8"),
        // After MADV_DONTNEED the pages are still there: one fault maps all pages around it,
        // writable.
        (written, &*format!("{gives_up}\n read \"shm[0..8]\"\n {written}"), "IPI:MM(8) R"),
        (written, &*format!("{gives_up}\n {written}"), "IPI:MM(8) Wx8"),
        // In an area of 64 pages, a fault maps the sixteen around it.
        (
            "write \"shm\"",
            &*format!("{gives_up}\n read \"shm[20]\"\n read \"shm\""),
            "IPI:MM(ALL) Rx4",
        ),
        // No page exists yet: a fault of its own makes each.
        ("", "read \"shm[0..8]\"\n write \"shm[0..8]\"", "Rx8"),
        // On every kernel, mprotect itself gives the right to store back.
        (
            written,
            "mprotect \"shm[0..8]\" prot=\"read\"\n mprotect \"shm[0..8]\" prot=\"read-write\"\n write \"shm[0..8]\"",
            "IPI:MM(8)x2",
        ),
        // Dirty PTEs are flushed before their table is freed.
        ("write \"own\"", "munmap \"own\"", "IPI:MM(8) IPI:MM(0/send1)"),
    ] {
        for row in ROWS {
            assert_eq!(sequence(before, round, "", row), expected, "{row}: {before}; {round}");
        }
    }
}

/// A fork copies no page table of shared memory: the child takes faults of its own, and both
/// processes see each other's stores.
#[test]
fn a_fork_copies_no_page_table_of_it() {
    let forks = "fork \"child\"\n wait \"child\"\n write \"shm[0..8]\"";
    for row in ROWS {
        let sequence = |child| sequence("write \"shm[0..8]\"", forks, child, row);
        assert_eq!(sequence("read \"shm[0..8]\"\n write \"shm[0..8]\""), "IPI:MM(ALL) R", "{row}");
        assert_eq!(sequence("write \"shm[0..8]\""), "IPI:MM(ALL) Wx8", "{row}");
    }
}

/// Source: mm/memory.c:fault_dirty_shared_page (5.10, 6.1 to 7.3).
#[test]
fn the_first_store_to_a_page_is_a_major_fault_in_5_10() {
    let text = scenario(
        "",
        "write \"shm[0..8]\"\n madvise \"shm\" advice=\"dontneed\"\n write \"shm[0..8]\"",
        "",
    );
    for (row, major) in [("5.8", 0), ("5.10", 8), ("5.15", 8), ("6.1", 0), ("6.12", 0), ("7.3", 0)]
    {
        let (_, run) = run(&text, row);
        let counters = &run.rounds[0];
        let events = counters.events.iter().filter(|event| {
            matches!(event.kind, needless_model::event::EventKind::FaultDone { major: true, .. })
        });
        assert_eq!(events.count(), major, "{row}");
    }
}

/// A read of a dirty page maps it by a PTE. In newer kernels (6.18 and 7.3) the PTE is dirty, so
/// its munmap flushes before the table goes.
///
/// Source: mm/memory.c:set_pte_range (6.12: clean; 7.2, 7.3: dirty); 6.18 was seen to set it dirty.
#[test]
fn what_is_read_while_dirty_is_dirty_in_newer_kernels() {
    let round = "madvise \"own\" advice=\"dontneed\"\n read \"own[0]\"\n munmap \"own\"";
    let table = "IPI:MM(0/send1)";
    for (row, unmapped) in [
        ("5.10", "IPI:MM(8)".to_owned()),
        ("6.12", "IPI:MM(8)".to_owned()),
        ("6.18", format!("IPI:MM(8) {table}")),
        ("7.3", format!("IPI:MM(8) {table}")),
    ] {
        let expected = format!("IPI:MM(8) R {unmapped}");
        let found = sequence("write \"own\"", round, "", row);
        assert_eq!(found, expected, "{row}");
    }
}

#[test]
fn what_the_model_does_not_have_is_refused() {
    for (round, what) in [
        ("madvise \"shm\" advice=\"free\"", "MADV_FREE needs private memory"),
        ("mremap \"own\" to=\"away\"", "no mremap of shared memory"),
        ("pin \"shm[0]\" as=\"p\" access=\"read\"", "no pins of shared memory"),
    ] {
        let text = scenario("map \"away\" pages=8\n munmap \"away\"", round, "");
        let program = compile(&Source::new("shared", text), &Settings::default()).unwrap();
        let row = KernelRow::parse("6.12").unwrap();
        let error = sim::run(&program, &row, &SimOptions::default()).unwrap_err().to_string();
        assert!(error.contains(what), "{round}: {error}");
    }
}
