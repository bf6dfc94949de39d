//! Mappings of files on disks, as kernels were seen to treat them: 8 pages, and the process's other
//! CPU busy.

use needless_model::event::{Event, EventKind};
use needless_model::kernels::KernelRow;
use needless_model::run::TargetRun;
use needless_model::sequence::{Sequence, TraceOrder};
use needless_model::sim::{self, SimOptions};
use needless_model::site::Site;
use needless_model::verdict::Reason;
use needless_scenario::{Settings, Source, compile};

const ROWS: [&str; 6] = ["5.8", "5.10", "6.1", "6.12", "6.18", "7.3"];

/// Runs a scenario with shared and private pages of a file on ext4, and shared pages of a file on
/// tmpfs.
fn run(before: &str, round: &str, row: &str) -> (Sequence, TargetRun) {
    let text = format!(
        "scenario \"disks\" {{
            machine {{ cpus 3 }}
            file \"data\" fs=\"ext4\" pages=8
            file \"memory\" fs=\"tmpfs\" pages=8 content=\"holes\"
            file \"empty\" fs=\"ext4\" pages=8 content=\"holes\"
            thread \"main\" cpu=0 {{
                map \"file\" pages=8 file=\"data\" backing=\"shared\" table=\"shared\"
                map \"own\" pages=8 file=\"data\" table=\"shared\"
                map \"memory\" pages=8 file=\"memory\" backing=\"shared\" table=\"shared\"
                map \"filled\" pages=8 file=\"empty\" backing=\"shared\" table=\"shared\"
                map \"copied\" pages=8 file=\"empty\" table=\"shared\"
                {before}
                rounds 1 warmup=0 {{ {round} }}
            }}
            thread \"spinner\" cpu=1 {{ spin }}
            process \"child\" cpu=2 {{ write \"file\" }}
        }}"
    );
    let program = compile(&Source::new("disks", text), &Settings::default()).unwrap();
    assert!(program.machine.disk);
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &options).unwrap();
    let rounds: Vec<&[Event]> = run.rounds.iter().map(|round| &round.events[..]).collect();
    let order = TraceOrder::of(rounds.iter().copied());
    (Sequence::of(&program, rounds[0], order), run)
}

fn assert_sequence(before: &str, round: &str, row: &str, expected: &str) {
    let (found, _) = run(before, round, row);
    assert_eq!(found, expected.parse().unwrap(), "{row}: {before}; {round}: {found}");
}

fn majors(before: &str, round: &str, row: &str) -> usize {
    let (_, run) = run(before, round, row);
    let major = |event: &&Event| matches!(event.kind, EventKind::FaultDone { major: true, .. });
    run.rounds[0].events.iter().filter(major).count()
}

/// Source: runs of the built-in scenarios b_pf3_ext4 and b_ext4_* (5.10 to 7.3).
#[test]
fn the_file_system_is_told_of_the_first_store_to_each_clean_page() {
    let rights = "mprotect \"file\" prot=\"read\"\n mprotect \"file\" prot=\"read-write\"";
    let protected = format!("{rights}\n write \"file\"");
    let cleaned = format!("msync \"file\"\n {protected}");
    for row in ROWS {
        for (before, round, expected) in [
            ("", "write \"file\"\n munmap \"file\"", "Wx8 IPI:MM(8)"),
            // A read maps all pages around it, without the right to store.
            ("", "read \"file\"\n write \"file\"\n write \"file\"", "R WPx8"),
            (
                "write \"file\"",
                "msync \"file\"\n msync \"file\"\n write \"file\"",
                "IPI:MM(1)x8 WPx8",
            ),
            ("write \"file[2..4]\"", "msync \"file[0..3]\"", "IPI:MM(1)"),
            // Dirty pages may be stored to again at once.
            ("write \"file\"", &*protected, "IPI:MM(8)x2"),
            // A copy is not written back, and pages of tmpfs are not either.
            ("write \"own\"\n write \"memory\"", "msync \"own\"\n msync \"memory\"", "(none)"),
            ("read \"own\"", "write \"own\"", "(WP IPI:MM(1))x8"),
        ] {
            assert_sequence(before, round, row, expected);
        }
        let flushes = if matches!(row, "5.8" | "5.10") { " IPI:MM(8)x2" } else { "" };
        assert_sequence("write \"file\"", &cleaned, row, &format!("IPI:MM(1)x8{flushes} WPx8"));
    }
}

/// Writing a page back takes the right to store from every process that maps it, with one flush for
/// each.
#[test]
fn writing_back_goes_through_every_mapping() {
    let before = "write \"file\"\n fork \"child\"\n wait \"child\"";
    let round = "msync \"file\"\n write \"file\"";
    for row in ROWS {
        assert_sequence(before, round, row, "IPI:MM(1)x8 WPx8");
    }
}

/// A fault that told the file system is tried again from 5.5 to 5.19, whether or not it dirtied the
/// page, and counts as major from 5.9 on. Source: mm/memory.c:fault_dirty_shared_page,
/// mm_account_fault (5.10); runs of b_ext4_read_write and b_ext4_msync.
#[test]
fn faults_that_are_tried_again_are_major_in_5_10() {
    let cases = [
        ("", "write \"file\""),
        ("read \"file\"", "write \"file\""),
        ("write \"file\"\n msync \"file\"", "write \"file\""),
    ];
    for (before, round) in cases {
        for row in ROWS {
            let expected = if row == "5.10" { 8 } else { 0 };
            assert_eq!(majors(before, round, row), expected, "{row}: {before}; {round}");
        }
        let rules = [
            ("in-lock", 0),
            ("retry-flush,retry-account=read", 0),
            ("retry-flush", 8),
            ("retry", 8),
            ("completed", 0),
        ];
        for (rule, expected) in rules {
            let row = format!("6.12,dirty-retry={rule}");
            assert_eq!(majors(before, round, &row), expected, "{row}: {before}; {round}");
        }
    }
    // On tmpfs only a fault that made its page dirty is major.
    assert_eq!(majors("", "write \"memory\"", "5.10"), 8);
    let again = "madvise \"memory\" advice=\"dontneed\"\n write \"memory\"";
    assert_eq!(majors("write \"memory\"", again, "5.10"), 0);
}

/// A thread that makes pages of a file dirty gives its lock back and sleeps where the row says so.
/// Kernels up to 5.19 then try the fault again, newer ones end it.
#[test]
fn who_dirties_much_sleeps_where_that_is_given() {
    let counted = |row: &str| {
        let (_, run) = run("", "write \"file\"", row);
        let events = &run.rounds[0].events;
        let count = |is: fn(&EventKind) -> bool| events.iter().filter(|e| is(&e.kind)).count();
        [
            count(|kind| matches!(kind, EventKind::Switch { to: None })),
            count(|kind| matches!(kind, EventKind::FaultAgain { tried: true, .. })),
            count(|kind| matches!(kind, EventKind::FaultCompleted { .. })),
        ]
    };
    for (row, again, over) in [("5.10", 8, 0), ("6.1", 0, 8), ("6.1,dirty-retry=in-lock", 0, 0)] {
        assert_eq!(counted(row), [0, again, over], "{row}");
        assert_eq!(counted(&format!("{row},throttle=always")), [8, again, over], "{row}");
    }
}

/// A retry is needless if the try before it had mapped the page. A retry after the page was read is
/// needed.
#[test]
fn tries_that_find_their_work_done_are_needless() {
    let retries = |before: &str, round: &str, row: &str| {
        let (_, run) = run(before, round, row);
        let retries = run.rounds[0].events.iter();
        let retries = retries.filter(|event| matches!(event.kind, EventKind::FaultRetry { .. }));
        let needless: Vec<bool> =
            retries.map(|event| event.verdict.unwrap().is_needless()).collect();
        (needless.len(), needless.iter().filter(|needless| **needless).count())
    };
    for row in ROWS {
        let told = if matches!(row, "5.8" | "5.10") { 8 } else { 0 };
        assert_eq!(retries("", "write \"file\"", row), (told, told), "{row}");
        assert_eq!(retries("", "read \"filled\"", row), (8, 0), "{row}: holes are read");
    }
}

/// The function that handles the store, and the reason of the fault.
#[test]
fn a_store_that_is_noted_is_told_from_one_that_maps() {
    let maps = (Site::DoFault, Reason::NewTranslation);
    let noted = (Site::WpPageShared, Reason::StoreNoted);
    for row in ROWS {
        for (before, expected) in
            [("", maps), ("read \"file\"", noted), ("write \"file\"\n msync \"file\"", noted)]
        {
            let (_, run) = run(before, "write \"file[3]\"", row);
            let done = |event: &&Event| matches!(event.kind, EventKind::FaultDone { .. });
            let done = run.rounds[0].events.iter().find(done).unwrap();
            let verdict = done.verdict.unwrap();
            assert!(!verdict.is_needless() && verdict.reason == expected.1, "{row}: {before}");
            // A second try that finds its work done has no site of its own.
            let tried = matches!(row, "5.8" | "5.10");
            let site = if tried { Site::HandlePteFault } else { expected.0 };
            assert_eq!(done.site, Some(site), "{row}: {before}");
        }
    }
}

/// Dirty pages are written and stay as long as a process maps them. Pages that nobody maps leave
/// memory, and a major fault reads each of them back. Source: runs of the built-in scenario f_drop
/// (5.10 to 7.3).
#[test]
fn what_nobody_has_mapped_leaves_memory() {
    let drop = "fadvise \"data\" advice=\"dontneed\"";
    let gone = format!("madvise \"file[0..4]\" advice=\"dontneed\"\n {drop}");
    for row in ROWS {
        assert_sequence("write \"file\"", drop, row, "IPI:MM(1)x8");
        assert_eq!(majors("write \"file\"", &format!("{drop}\n read \"file\""), row), 0, "{row}");
        let again = format!("{gone}\n read \"file\"");
        assert_sequence("read \"file\"", &again, row, "IPI:MM(4) Rx4");
        assert_eq!(majors("read \"file\"", &again, row), 4, "{row}");
        // Another mapping has the pages.
        let both = "read \"file\"\n read \"own\"";
        assert_sequence(both, &again, row, "IPI:MM(4) R");
        // No page of a file in memory leaves.
        let memory = "madvise \"memory\" advice=\"dontneed\"\n fadvise \"memory\" advice=\"dontneed\"\n read \"memory\"";
        assert_sequence("write \"memory\"", memory, row, "IPI:MM(8) R");
    }
}

/// Where a page stayed, all CPUs' LRU batches are emptied. Only then are another CPU's pages on the
/// LRU, so that they go to swap. Source: runs of these two scenarios on 5.10 and 6.12.
#[test]
fn pages_that_stay_have_every_batch_emptied() {
    let swapped = |read: &str, row: &str| {
        let text = format!(
            "scenario \"drains\" {{
                machine {{ cpus 2; swap \"zram\" size=\"64M\" }}
                file \"data\" fs=\"ext4\" pages=8
                thread \"main\" cpu=0 {{
                    map \"heap\" pages=8 file=\"data\" backing=\"shared\"
                    map \"anon\" pages=4
                    rounds 1 warmup=0 {{ write \"anon\"; barrier \"go\"; barrier \"back\"; read \"anon\" }}
                }}
                thread \"second\" cpu=1 {{
                    barrier \"go\"
                    {read}
                    fadvise \"data\" advice=\"dontneed\"
                    madvise \"anon\" advice=\"pageout\"
                    barrier \"back\"
                }}
            }}"
        );
        let program = compile(&Source::new("drains", text), &Settings::default()).unwrap();
        let row = KernelRow::parse(row).unwrap();
        let run = sim::run(&program, &row, &SimOptions::default()).unwrap();
        run.rounds[0].major_faults
    };
    for row in ROWS {
        assert_eq!(swapped("read \"heap\"", row), Some(4), "{row}");
        assert_eq!(swapped("", row), Some(0), "{row}");
    }
}

/// A page that was never written is read as well, by itself: a major fault for each page. A store
/// follows when the fault is tried again. In 5.10 a fault that told the file system is major
/// anyway. Source: runs of the built-in scenario f_holes (5.10 to 7.3).
#[test]
fn holes_are_read_page_by_page() {
    for (round, expected, since, before) in [
        ("read \"filled\"\n read \"copied\"", "Rx8 R", 8, 8),
        ("write \"filled\"", "Wx8", 8, 8),
        ("write \"copied\"\n write \"filled\"", "Wx16", 8, 16),
        ("read \"filled[0..4]\"\n write \"filled\"", "Rx4 WPx4 Wx4", 8, 12),
    ] {
        for row in ROWS {
            assert_sequence("", round, row, expected);
            let expected = if row == "5.10" { before } else { since };
            assert_eq!(majors("", round, row), expected, "{row}: {round}");
        }
    }
}
