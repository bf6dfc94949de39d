//! Mappings of files on tmpfs, as kernels were seen to treat them: 8 pages unless a test names
//! more, and the process's other CPU busy.

use needless_model::event::{Event, EventKind, FaultClass};
use needless_model::kernels::KernelRow;
use needless_model::run::TargetRun;
use needless_model::sequence::{Sequence, TraceOrder};
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, Source, compile};

const ROWS: [&str; 6] = ["5.8", "5.10", "6.1", "6.12", "6.18", "7.3"];

/// A scenario with private pages of a written file, shared pages of that file, and private pages of
/// a hole.
fn scenario(before: &str, round: &str, child: &str) -> String {
    format!(
        "scenario \"files\" {{
            machine {{ cpus 3 }}
            file \"data\" fs=\"tmpfs\" pages=64
            file \"hole\" fs=\"tmpfs\" pages=8 content=\"holes\"
            thread \"main\" cpu=0 {{
                map \"own\" pages=8 file=\"data\" table=\"shared\"
                map \"large\" pages=61 file=\"data\" offset=3 table=\"shared\"
                map \"file\" pages=8 file=\"data\" backing=\"shared\" table=\"shared\"
                map \"hole\" pages=8 file=\"hole\" table=\"shared\"
                map \"filled\" pages=8 file=\"hole\" backing=\"shared\" table=\"shared\"
                {before}
                rounds 1 warmup=0 {{ {round} }}
            }}
            thread \"spinner\" cpu=1 {{ spin }}
            process \"child\" cpu=2 {{ {child} }}
        }}"
    )
}

fn run(text: &str, row: &str) -> (Sequence, TargetRun) {
    let program = compile(&Source::new("files", text), &Settings::default()).unwrap();
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &options).unwrap();
    let rounds: Vec<&[Event]> = run.rounds.iter().map(|round| &round.events[..]).collect();
    let order = TraceOrder::of(rounds.iter().copied());
    (Sequence::of(&program, rounds[0], order), run)
}

fn assert_sequence((before, round, child): (&str, &str, &str), row: &str, expected: &str) {
    let (found, _) = run(&scenario(before, round, child), row);
    assert_eq!(found, expected.parse().unwrap(), "{row}: {before}; {round}: {found}");
}

/// Source: the project's captures a_privfile_rw_1, b_shm_read_write_8_fa and b_pf3_shm_8 (5.10 to
/// 7.3), and runs of the built-in scenarios f_around, f_protect, f_fork and a_privfile_w.
#[test]
fn faults_and_flushes_of_one_process() {
    for (before, round, expected) in [
        ("", "read \"own\"\n write \"own\"", "R (WP IPI:MM(1))x8"),
        // The store comes first: the copy is mapped where nothing was mapped, so nothing has to be
        // flushed.
        (
            "",
            "write \"own\"\n write \"own\"\n madvise \"own\" advice=\"dontneed\"",
            "Wx8 IPI:MM(8)",
        ),
        // A fault maps sixteen pages, aligned by their addresses, wherever they lie in the file,
        // and no page beyond the area.
        ("", "read \"large[20]\"\n read \"large[16..32]\"\n read \"large\"", "Rx4"),
        ("read \"large[20]\"", "write \"large[15..17]\"", "W WP IPI:MM(1)"),
        // A mapped page is left alone: a copy of the process stays.
        ("write \"own[3]\"", "read \"own\"\n write \"own[3..5]\"", "R WP IPI:MM(1)"),
        // Holes are filled page by page. The file gets the pages, so other mappings find them.
        ("", "read \"hole\"", "Rx8"),
        ("", "write \"hole\"\n read \"filled\"", "Wx8 R"),
        // A shared mapping maps the page writable.
        ("read \"file\"", "write \"file\"", "(none)"),
        (
            "write \"file\"",
            "madvise \"file\" advice=\"dontneed\"\n write \"file\"",
            "IPI:MM(8) Wx8",
        ),
        ("", "write \"file\"\n munmap \"file\"", "Wx8 IPI:MM(8)"),
    ] {
        for row in ROWS {
            assert_sequence((before, round, ""), row, expected);
        }
    }
}

/// A private mapping never gets the right to store to the file's pages, whatever its protection
/// was.
#[test]
fn mprotect_gives_back_what_is_the_processs_own() {
    let before = "read \"own\"\n write \"own[0..4]\"\n mprotect \"own\" prot=\"read\"";
    let round = "mprotect \"own\" prot=\"read-write\"\n write \"own\"";
    for (row, expected) in [
        ("5.10", "IPI:MM(8) WPx4 (WP IPI:MM(1))x4"),
        ("6.1", "IPI:MM(4) (WP IPI:MM(1))x4"),
        ("6.12", "IPI:MM(4) (WP IPI:MM(1))x4"),
        ("7.3", "IPI:MM(4) (WP IPI:MM(1))x4"),
    ] {
        assert_sequence((before, round, ""), row, expected);
    }
}

/// Without copies in the mapping, a fork copies no page tables. With some, it copies everything
/// that is mapped.
#[test]
fn a_fork_copies_page_tables_with_pages_of_the_processs_own() {
    let child = "read \"own\"\n write \"own\"";
    let forks = |after: &str| format!("fork \"child\"\n wait \"child\"\n {after}");
    for row in ROWS {
        let untouched = ("read \"own\"", &*forks("write \"own[0]\""), child);
        assert_sequence(untouched, row, "IPI:MM(ALL) R (WP loc:MM(1))x8 WP IPI:MM(1)");
    }
    for row in ["5.10", "6.1", "6.12", "6.18", "7.3"] {
        let before = "read \"own\"\n write \"own[0..4]\"";
        let copied = (before, &*forks("write \"own\""), child);
        assert_sequence(copied, row, "IPI:MM(ALL) (WP loc:MM(1))x8 WPx4 (WP IPI:MM(1))x4");
    }
}

/// Source: mm/memory.c:fault_dirty_shared_page (5.10): a written page is dirty already, and a copy
/// dirties no page of the file.
#[test]
fn a_store_is_major_in_5_10_only_where_it_dirties_the_file() {
    for (round, majors) in [
        ("write \"file\"", 0),
        ("write \"hole\"", 0),
        ("write \"filled\"", 8),
        ("write \"own\"", 0),
    ] {
        let (_, run) = run(&scenario("", round, ""), "5.10");
        let major = |event: &&Event| matches!(event.kind, EventKind::FaultDone { major: true, .. });
        assert_eq!(run.rounds[0].events.iter().filter(major).count(), majors, "{round}");
    }
}

#[test]
fn classes_and_copies() {
    let class = |round: &str| -> Vec<FaultClass> {
        let (_, run) = run(&scenario("", round, ""), "6.12");
        let classes = run.rounds[0].events.iter().filter_map(|event| match event.kind {
            EventKind::FaultDone { class, .. } => Some(class),
            _ => None,
        });
        classes.collect()
    };
    assert_eq!(class("write \"own[0]\""), [FaultClass::CowCopy]);
    assert_eq!(
        class("read \"own[0]\"\n write \"own[0]\""),
        [FaultClass::FileMap, FaultClass::CowCopy]
    );
    assert_eq!(class("write \"file[0]\""), [FaultClass::SharedDirty]);
    let (_, run) = run(&scenario("", "write \"own\"", ""), "6.12");
    let copies = run.rounds[0].events.iter().filter(|e| matches!(e.kind, EventKind::Copy { .. }));
    assert_eq!(copies.count(), 8);
}

/// Each area has the pages of the file that its offset says.
#[test]
fn mappings_of_one_file_have_the_same_pages() {
    let (_, run) =
        run(&scenario("", "read \"file\"\n read \"large[0..5]\"\n write \"own[4]\"", ""), "6.12");
    let of = |page: &str| run.final_pages[page].clone();
    assert!(
        of("file[3]").ends_with("same-as:large[0]") || of("large[0]").ends_with("same-as:file[3]")
    );
    assert!(
        of("file[4]").contains("present") && !of("own[4]").contains("same-as"),
        "{}",
        of("own[4]")
    );
}

/// A file outlives its mappings: a later mapping finds what was stored.
#[test]
fn a_file_outlives_its_mappings() {
    let again = "munmap \"filled\"\n munmap \"hole\"\n map \"hole\"\n read \"hole\"";
    for row in ROWS {
        let before = "write \"filled\"\n munmap \"filled\"\n munmap \"hole\"";
        assert_sequence((before, "map \"hole\"\n read \"hole\"", ""), row, "R");
        assert_sequence(("write \"filled[0..2]\"", again, ""), row, "IPI:MM(2) Rx7");
    }
}

#[test]
fn what_the_model_does_not_have_is_refused() {
    for (round, what) in [
        (
            "madvise \"own\" advice=\"free\"",
            "own advice=free`: EINVAL: MADV_FREE needs private memory",
        ),
        ("mremap \"own\" to=\"away\"", "`mremap own to=away`: the model has no mremap of a file"),
        ("writeback \"file\"", "a file on tmpfs has no writeback"),
        ("pin \"own[0]\" as=\"p\" access=\"read\"", "no pins of a file"),
    ] {
        let text = scenario("map \"away\" pages=8\n munmap \"away\"", round, "");
        let program = compile(&Source::new("files", text), &Settings::default()).unwrap();
        let row = KernelRow::parse("6.12").unwrap();
        let error = sim::run(&program, &row, &SimOptions::default()).unwrap_err().to_string();
        assert!(error.contains(what), "{round}: {error}");
    }
}

/// Operations on files whose folios may be large are refused.
#[test]
fn reclaim_and_mlock_of_large_folios_are_refused() {
    let refused = |file: &str, round: &str, row: &str| {
        let text = format!(
            "scenario \"x\" {{ {file}; thread \"t\" cpu=0 {{ map \"a\" pages=8 file=\"data\"; rounds 1 {{ {round} }} }} }}"
        );
        let program = compile(&Source::new("x", text), &Settings::default()).unwrap();
        let row = KernelRow::parse(row).unwrap();
        sim::run(&program, &row, &SimOptions::default()).err().map(|error| error.to_string())
    };
    let large = "file \"data\" fs=\"ext4\" pages=8 write-pages=2";
    let calls = [
        "madvise \"a\" advice=\"pageout\"",
        "madvise \"a\" advice=\"cold\"",
        "mlock \"a\"",
        "reclaim \"a\"",
    ];
    for call in calls {
        let told = refused(large, call, "6.12").unwrap_or_default();
        assert!(told.contains("a file on ext4 with `write-pages`"), "{call}: {told}");
        for small in ["fs=\"ext4\" pages=8", "fs=\"tmpfs\" pages=8 write-pages=2"] {
            assert_eq!(refused(&format!("file \"data\" {small}"), call, "6.12"), None, "{call}");
        }
    }
    let read = "read \"a\"";
    assert_eq!(refused(large, read, "6.12/arm64"), None, "its folios are small");
    let told = refused(large, read, "7.3/arm64").unwrap_or_default();
    assert!(told.contains("on x86-64 only"), "{told}");
}

/// Each mistake is reported at its place, with a remedy.
#[test]
fn mistakes_in_the_text() {
    let problem = |file: &str, map: &str| {
        let text = format!(
            "scenario \"x\" {{ {file} thread \"t\" cpu=0 {{ map \"a\" pages=8 {map}; rounds 1 {{ read \"a\" }} }} }}"
        );
        let error = compile(&Source::new("x", text), &Settings::default()).unwrap_err();
        format!("{:?}", miette::Report::new(error))
    };
    let file = "file \"data\" fs=\"tmpfs\" pages=8;";
    for (text, words) in [
        (problem("", "file=\"data\""), "declare it in the scenario"),
        (problem(file, "file=\"date\""), "there is no file `date`"),
        (problem(file, "file=\"data\" offset=1"), "has 8 pages"),
        (problem(file, "file=\"data\" offset=8"), "must be between 0 and 7"),
        (problem(file, "offset=1"), "an offset in which file?"),
        (problem(file, "file=\"data\" backing=\"anonymous\""), "a file is not anonymous memory"),
        (problem(&format!("{file} {file}"), "file=\"data\""), "two files named `data`"),
        (problem("file \"data\" fs=\"ext9\" pages=8;", "file=\"data\""), "ext4"),
        (
            problem("file \"data\" fs=\"tmpfs\" pages=65537;", "file=\"data\""),
            "must be between 1 and 65536",
        ),
        (problem("file \"data\" fs=\"tmpfs\" pages=8 content=\"some\";", "file=\"data\""), "holes"),
        (
            problem("file \"data\" fs=\"ext4\" pages=8 write-pages=512;", "file=\"data\""),
            "must be between 1 and 256",
        ),
        (
            problem("file \"data\" fs=\"ext4\" pages=8193 write-pages=2;", "file=\"data\""),
            "with write-pages= a file has up to 8192 pages",
        ),
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Mistakes in calls that name a file are reported at their place, with a remedy.
#[test]
fn mistakes_in_calls_on_files() {
    let problem = |call: &str| {
        let text = format!(
            "scenario \"x\" {{ file \"data\" fs=\"tmpfs\" pages=8; thread \"t\" cpu=0 {{ map \"a\" pages=8; rounds 1 {{ {call} }} }} }}"
        );
        let error = compile(&Source::new("x", text), &Settings::default()).unwrap_err();
        format!("{:?}", miette::Report::new(error))
    };
    for (call, words) in [
        ("pwrite \"a\"", "there is no file `a`"),
        ("pwrite \"data[4..9]\"", "page 9 is outside `data`"),
        ("pwrite \"data[4..4]\"", "the range is empty"),
        ("ftruncate \"data\" pages=9", "at most as many pages as it was declared with"),
        ("ftruncate \"data\"", "pages"),
        ("fsync \"date\"", "there is no file `date`"),
    ] {
        let text = problem(call);
        assert!(text.contains(words), "{call}: {text}");
    }
}

/// Punching a hole takes the file's pages from every mapping of every process, and leaves copies.
/// Each address space has a flush of its own. Source: runs of the built-in scenarios f_punch and
/// f_punch_fork (5.10 to 7.3).
#[test]
fn a_hole_takes_the_pages_from_everybody() {
    let touched = "write \"file\"\n read \"own\"\n write \"own[0..4]\"";
    let punch = "madvise \"file[2..6]\" advice=\"remove\"";
    for row in ROWS {
        let cases = [
            // Two pages of the private mapping are copies.
            ((touched, punch, ""), "IPI:MM(2) IPI:MM(4)"),
            (
                (touched, "madvise \"file[2..6]\" advice=\"remove\"\n read \"own[0..4]\"", ""),
                "IPI:MM(2) IPI:MM(4)",
            ),
            // A punched page has zeros again when it is touched.
            (("madvise \"filled\" advice=\"remove\"", "read \"filled\"", ""), "Rx8"),
            (
                (
                    "madvise \"filled\" advice=\"remove\"",
                    "madvise \"filled\" advice=\"remove\"",
                    "",
                ),
                "",
            ),
        ];
        for (case, expected) in cases {
            assert_sequence(case, row, expected);
        }
    }
    let (_, run) = run(&scenario(touched, punch, ""), "6.12");
    assert!(run.rounds.iter().all(|round| round.minor_faults == Some(0)), "{run:?}");
}

/// A child's private mapping loses the file's pages, too, where its own CPU may have them cached.
/// Its flush comes right after its parent's. Source: runs on 5.10, 6.12 and 7.3;
/// mm/interval_tree.c:vma_interval_tree_insert_after.
#[test]
fn a_hole_is_seen_by_a_childs_private_mapping() {
    let round = "write \"file\"\n fork \"child\"\n barrier \"read\"\n madvise \"file\" advice=\"remove\"\n barrier \"gone\"\n wait \"child\"";
    let child = "read \"own\"\n barrier \"read\"\n barrier \"gone\"";
    for row in ROWS {
        assert_sequence(("", round, child), row, "Wx8 IPI:MM(ALL) R send(8) IPI:MM(8)");
    }
}

/// A child whose only mapping of the file is private is found as well. Source: runs on 5.10, 6.12
/// and 7.3.
#[test]
fn a_hole_is_seen_by_a_child_that_maps_the_file_privately_only() {
    let text = "scenario \"files\" {
        machine { cpus 3 }
        file \"data\" fs=\"tmpfs\" pages=8
        thread \"main\" cpu=0 {
            map \"own\" pages=8 file=\"data\" table=\"shared\"
            rounds 1 warmup=0 {
                fork \"child\"
                barrier \"read\"
                map \"file\" pages=8 file=\"data\" backing=\"shared\" table=\"shared\"
                write \"file\"
                madvise \"file\" advice=\"remove\"
                barrier \"gone\"
                wait \"child\"
            }
        }
        thread \"spinner\" cpu=1 { spin }
        process \"child\" cpu=2 { read \"own\"; barrier \"read\"; barrier \"gone\" }
    }";
    for row in ["5.10", "6.12", "7.3"] {
        assert_eq!(
            run(text, row).0,
            "IPI:MM(ALL) R Wx8 send(8) IPI:MM(8)".parse().unwrap(),
            "{row}"
        );
    }
}

/// Fault-around begins no earlier than the mapping, wherever that begins. Source:
/// mm/memory.c:do_fault_around (5.10 to 7.3).
#[test]
fn nothing_is_mapped_before_the_mapping() {
    let text = "scenario \"files\" {
        machine { cpus 1 }
        file \"data\" fs=\"tmpfs\" pages=16
        thread \"main\" cpu=0 {
            map \"part\" pages=4 file=\"data\" offset=8 at=\"0x10_0000_5000\"
            rounds 1 warmup=0 { read \"part\" }
        }
    }";
    for row in ROWS {
        let (found, run) = run(text, row);
        assert_eq!(found, "R".parse().unwrap(), "{row}");
        assert_eq!(run.rounds[0].minor_faults, Some(1), "{row}");
    }
}

/// When a system call writes the file, mapped pages stay as they are, and missing pages are there
/// afterwards. Source: runs of the built-in scenario f_write (5.10 to 7.3).
#[test]
fn a_file_that_is_written_is_mapped_as_before() {
    for row in ROWS {
        for (case, expected) in [
            (
                (
                    "read \"file\"\n read \"own\"",
                    "pwrite \"data\"\n read \"file\"\n read \"own\"",
                    "",
                ),
                "",
            ),
            (("", "pwrite \"hole[2..4]\"\n read \"filled\"", ""), "Rx6"),
            (("read \"own\"", "pwrite \"data\"\n write \"own[1]\"", ""), "WP IPI:MM(1)"),
        ] {
            assert_sequence(case, row, expected);
        }
    }
    // The page is dirty already.
    let (_, run) = run(&scenario("", "pwrite \"hole\"\n write \"filled\"", ""), "5.10");
    assert_eq!(run.rounds[0].major_faults, Some(0));
}

/// When a file gets smaller, the pages behind its end leave every mapping, copies as well, with a
/// flush for each mapping. Source: runs of the built-in scenario f_truncate (5.10 to 7.3).
#[test]
fn what_is_behind_the_end_goes_copies_as_well() {
    let touched = "write \"file\"\n read \"own\"\n write \"own[0..4]\"";
    let cut = "ftruncate \"data\" pages=2";
    for row in ROWS {
        assert_sequence((touched, cut, ""), row, "IPI:MM(6)x2");
        let again = format!("{cut}\n ftruncate \"data\" pages=64\n read \"own\"");
        assert_sequence((touched, &again, ""), row, "IPI:MM(6)x2 Rx6");
        assert_sequence(("", "ftruncate \"data\" pages=64", ""), row, "");
    }
    let text = scenario("", &format!("{cut}\n read \"own[2]\""), "");
    let program = compile(&Source::new("files", text), &Settings::default()).unwrap();
    let row = KernelRow::parse("6.12").unwrap();
    let error = sim::run(&program, &row, &SimOptions::default()).unwrap_err().to_string();
    assert!(
        error.contains("the access to own[2] is beyond the end of its file (SIGBUS)"),
        "{error}"
    );
}

/// Before they punch a hole, 5.10 and 6.1 write the dirty pages, with a flush for each, and then
/// take all pages of the range away. The next touch reads the pages again. Source: runs of the
/// built-in scenario f_punch_disk (5.10 to 7.3).
#[test]
fn a_hole_in_a_file_on_a_disk() {
    let text = |round: &str| {
        format!(
            "scenario \"files\" {{
                machine {{ cpus 2 }}
                file \"data\" fs=\"ext4\" pages=8
                thread \"main\" cpu=0 {{
                    map \"heap\" pages=8 file=\"data\" backing=\"shared\" table=\"shared\"
                    rounds 1 warmup=0 {{ {round} }}
                }}
                thread \"spinner\" cpu=1 {{ spin }}
            }}"
        )
    };
    let punch = "write \"heap[0..2]\"\n madvise \"heap\" advice=\"remove\"";
    for (row, expected) in [
        ("5.10", "Wx2 IPI:MM(1)x2 IPI:MM(2)"),
        ("6.1", "Wx2 IPI:MM(1)x2 IPI:MM(2)"),
        ("6.12", "Wx2 IPI:MM(2)"),
    ] {
        assert_eq!(run(&text(punch), row).0, expected.parse().unwrap(), "{row}");
    }
    for row in ROWS {
        let (found, run) = run(&text(&format!("{punch}\n read \"heap[0..2]\"")), row);
        assert!(found.to_string().ends_with("Rx2"), "{row}: {found}");
        assert_eq!(run.rounds[0].major_faults, Some(if row == "5.10" { 4 } else { 2 }), "{row}");
    }
}

/// fsync writes all dirty pages of the file, mapped or not.
#[test]
fn fsync_makes_all_of_a_file_clean() {
    let text = "scenario \"files\" {
        machine { cpus 2 }
        file \"data\" fs=\"ext4\" pages=8
        thread \"main\" cpu=0 {
            map \"heap\" pages=4 file=\"data\" backing=\"shared\" table=\"shared\"
            rounds 1 warmup=0 { write \"heap[0..2]\"; pwrite \"data[6..8]\"; fsync \"data\"; write \"heap[1]\" }
        }
        thread \"spinner\" cpu=1 { spin }
    }";
    for row in ROWS {
        assert_eq!(run(text, row).0, "Wx2 IPI:MM(1)x2 WP".parse().unwrap(), "{row}");
    }
}

/// A forked process is on its CPU before its first turn, so that CPU is flushed for pages that
/// leave the process. Source: runs on 6.12 (fork, MADV_REMOVE, wait).
#[test]
fn a_child_is_flushed_before_its_first_turn() {
    let before = "read \"own\"\n write \"own[0..3]\"\n write \"file\"";
    let round = "fork \"child\"\n madvise \"file\" advice=\"remove\"\n wait \"child\"";
    for row in ["5.10", "6.1", "6.12", "6.18", "7.3"] {
        assert_sequence((before, round, ""), row, "IPI:MM(ALL) IPI:MM(5) send(5) IPI:MM(8)");
    }
}
