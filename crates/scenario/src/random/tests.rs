//! Tests that every case compiles, and runs on every model row without error.

use super::operations::{self, LEFT_OUT, OPERATIONS};
use super::*;
use crate::{Settings, Source, compile, grammar, ops};
use needless_model::call::CallKind;
use needless_model::kernels::KernelRow;
use needless_model::program::Advice;
use needless_model::sim::{self, SimOptions};
use strum::IntoEnumIterator;

const NEWEST: (u32, u32) = (u32::MAX, 0);

/// The first seed for development that draws processes.
const WITH_PROCESSES: u64 = 500_000;

/// The first seed for development that draws files, too.
const WITH_FILES: u64 = 750_000;

/// The first seed for development that draws disks, too.
const WITH_DISKS: u64 = 875_000;

/// The first seed for development that changes files by system calls, too.
const WITH_FILE_CALLS: u64 = 950_000;

/// The first seed for development whose files leave memory, too.
const WITH_DROPS: u64 = 962_500;

/// The first seed for development that draws guards and advice about several ranges, too.
const WITH_GUARDS: u64 = 975_000;

/// The first seed for development with huge pages.
const WITH_HUGE_PAGES: u64 = 300_000;

/// The first seed for development that gives any advice about several ranges at once.
const WITH_RANGES: u64 = 350_000;

/// The first seed for development with userfaultfd.
const WITH_USERFAULTFD: u64 = 200_000;

/// The first seed for development in which userfaultfd watches files.
const WITH_WATCHED_FILES: u64 = 250_000;

/// The first seed for development in which an answer may be a moved page.
const WITH_MOVED_IN: u64 = 275_000;

/// The first seed for development that clears soft-dirty bits.
const WITH_SOFT_DIRTY: u64 = 100_000;

/// The first seed for development that locks memory.
const WITH_MLOCK: u64 = 10_000;

/// The first seed for development in which pages of files leave memory as private pages do.
const WITH_PAGEOUT: u64 = 30_000;

/// The first seed for development with large folios of files.
const WITH_FOLIOS: u64 = 20_000;

/// The first seed for development with large folios of private memory.
const WITH_MTHP: u64 = 40_000;

/// The first seed for development of machines with two NUMA nodes.
const WITH_NODES: u64 = 50_000;

/// The first `count` seeds of each class.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    [
        0,
        WITH_HUGE_PAGES,
        WITH_RANGES,
        WITH_USERFAULTFD,
        WITH_WATCHED_FILES,
        WITH_MOVED_IN,
        WITH_SOFT_DIRTY,
        WITH_MLOCK,
        WITH_PAGEOUT,
        WITH_FOLIOS,
        WITH_MTHP,
        WITH_NODES,
        WITH_PROCESSES,
        WITH_FILES,
        WITH_DISKS,
        WITH_FILE_CALLS,
        WITH_DROPS,
        WITH_GUARDS,
    ]
    .into_iter()
    .flat_map(move |first| first..first + count)
}

/// The case of the seed for the newest kernel, with everything that it can have.
fn drawn(seed: u64) -> Case {
    generate(seed, &Target::new(NEWEST, 3))
}

/// The texts of the first `count` seeds of each class.
fn texts(count: u64) -> Vec<String> {
    seeds(count).filter_map(|seed| drawn(seed).text()).collect()
}

fn run(case: &Case, row: &KernelRow) {
    let text = case.text().unwrap();
    let program = compile(&Source::new(&case.name, &text), &Settings::default())
        .unwrap_or_else(|error| panic!("{:?}\n{text}", miette::Report::new(error)));
    if let Err(error) = sim::run(&program, row, &SimOptions::default()) {
        panic!("{} on {}: {error}\n{text}", case.name, row.name);
    }
}

#[test]
fn every_case_runs_on_every_row() {
    needless_testing::each(&KernelRow::all(), |row| {
        seeds(150).for_each(|seed| {
            run(&generate(seed, &Target::new(row.release, 2 + seed as usize % 2)), row)
        });
    });
}

/// What a target lacks is in none of its scenarios. All other scenarios equal those of a target
/// that has it.
#[test]
fn what_is_lacking_is_not_drawn() {
    let words = [
        (Optional::SoftDirty, ["of=\"soft-dirty\"", "pagemap \""]),
        (Optional::HugePages, ["hugepage", "mthp"]),
        (Optional::Userfaultfd, ["uffd", "userfaultfd"]),
    ];
    let of_everything = OF_EVERYTHING..OF_EVERYTHING + 200;
    for (feature, words) in words {
        let without = Target { without: vec![feature], ..Target::new(NEWEST, 3) };
        let mut changed = 0;
        for seed in of_everything.clone() {
            let (all, text) =
                (drawn(seed).text().unwrap(), generate(seed, &without).text().unwrap());
            assert!(words.iter().all(|word| !text.contains(word)), "{seed} {feature}: {text}");
            changed += usize::from(all != text);
            assert!(all != text || words.iter().all(|word| !all.contains(word)), "{seed}: {all}");
        }
        assert!(changed >= 15, "{feature}: {changed}");
    }
}

#[test]
fn a_seed_is_one_text() {
    let text = |seed| drawn(seed).text();
    assert_eq!(text(7), text(7));
    assert_ne!(text(7), text(8));
}

#[test]
fn every_operation_and_every_company_is_drawn() {
    let texts = texts(400);
    assert_eq!(texts.len(), seeds(400).count(), "every case can be written");
    for operation in OPERATIONS.iter() {
        let line =
            operation.line.lines().next().unwrap().replace("{file}", "{}").replace("{first}", "{}");
        let (start, end) = line.split_once("{}").unwrap_or((&line, ""));
        let end = end.split('{').next().unwrap();
        let there = |line: &str| line.trim().starts_with(start) && line.contains(end);
        assert!(texts.iter().any(|text| text.lines().any(there)), "{}", operation.line);
    }
    let words =
        ["spin }", "sleep }", "barrier", "repeat", "for-each", "mark", "table=\"shared", "2M -"];
    let of_processes =
        ["backing=\"shared\"", "fork \"grandchild\"", "barrier \"out\"", "barrier \"up\"", "exec"];
    let of_files = [
        "file \"data\" fs=\"tmpfs\"",
        "file \"data\" fs=\"ext4\"",
        "content=\"holes\"",
        "write-pages=",
        "uffd-serve by=\"copy\"",
        "uffd-serve by=\"move\"",
        "mthp \"16KiB\" \"always\"",
        "mthp \"256KiB\" \"inherit\"",
        "mthp \"64KiB\" \"madvise\"",
        "offset=0 back",
        "offset=0\n",
        "offset=2",
    ];
    for word in words.into_iter().chain(of_processes).chain(of_files) {
        assert!(texts.iter().any(|text| text.contains(word)), "{word}");
    }
}

/// An operation of the language, or a word of one, that random scenarios lack needs a row in
/// [`OPERATIONS`].
#[test]
fn the_whole_language_is_drawn() {
    let texts = texts(600);
    let lines = || texts.iter().flat_map(|text| text.split(['\n', '{'])).map(str::trim);
    let left_out = |name: &str| LEFT_OUT.iter().any(|(other, _)| *other == name);
    let nowhere = CallKind::iter().filter(|kind| operations::call(*kind).is_empty());
    let nowhere: Vec<&str> = nowhere.map(|kind| ops::rule(kind).name).collect();
    let without_row = [
        "sigaction",
        "uffd-answer",
        "reclaim",
        "khugepaged",
        "split-deferred",
        "switch",
        "fork",
        "wait",
        "exec",
        "pin",
        "dma",
        "unpin",
        "writeback",
        "migrate_pages",
        "memory-reclaim",
        "numa-scan",
    ];
    assert_eq!(
        nowhere, without_row,
        "these run in the model or on real kernels only, are about processes, or are not drawn yet"
    );
    let of_processes = ["fork", "wait", "exec"];
    let drawn =
        |name: &str| of_processes.contains(&name) || !left_out(name) && !nowhere.contains(&name);
    for rule in grammar::operations().filter(|rule| drawn(rule.name)) {
        let drawn = lines().any(|line| line.split(' ').next() == Some(rule.name));
        assert!(drawn, "`{}` is drawn", rule.name);
    }
    let advice = Advice::ALL.iter().map(|(_, word)| format!("advice=\"{word}\""));
    let words = ops::ACCESSES.map(|(word, _)| format!("access=\"{word}\"")).into_iter();
    let words = words.chain(ops::PROTS.map(|(word, _)| format!("prot=\"{word}\"")));
    for word in words.chain(advice) {
        assert!(lines().any(|line| line.contains(&word)), "{word} is drawn");
    }
}

/// Seeds that were run as evidence, and pinned, before there were processes still draw none.
#[test]
fn seeds_draw_no_processes_that_were_taken_before() {
    let draws = |seed: &u64| drawn(*seed).text().unwrap().contains("process");
    assert_eq!((0..50).chain(1_079_950..1_080_000).filter(draws).count(), 0);
    assert!((1_080_000..1_080_050).filter(draws).count() > 25);
}

/// Seeds that were run before there were files still draw none.
#[test]
fn seeds_draw_no_files_that_were_taken_before() {
    let draws = |seed: &u64| drawn(*seed).text().unwrap().contains("file=");
    let before = (0..50).chain(500_000..500_050).chain(1_199_950..1_200_000);
    assert_eq!(before.filter(draws).count(), 0);
    assert!((1_200_000..1_200_050).filter(draws).count() > 15);
}

/// Seeds that were run before there were disks draw no files on disks, no writing back and no
/// holes.
#[test]
fn seeds_draw_no_disks_that_were_taken_before() {
    let new = |seed: &u64| {
        let text = drawn(*seed).text().unwrap();
        ["ext4", "msync", "remove"].iter().any(|word| text.contains(word))
    };
    let before = (0..50).chain(750_000..750_050).chain(2_399_950..2_400_000);
    assert_eq!(before.filter(new).count(), 0);
    assert!((2_400_000..2_400_050).filter(new).count() > 25);
}

/// Seeds that were run before there were guards draw no guards and no vectored advice.
#[test]
fn seeds_draw_no_guards_that_were_taken_before() {
    let new = |seed: &u64| {
        let text = drawn(*seed).text().unwrap();
        ["guard", "process_madvise"].iter().any(|word| text.contains(word))
    };
    let before = (0..50).chain(950_000..950_050).chain(2_599_950..2_600_000);
    assert_eq!(before.filter(new).count(), 0);
    assert!((2_600_000..2_600_050).filter(new).count() > 25);
}

/// Seeds that were run before files left memory draw no such files, and none that begins as holes
/// on a disk.
#[test]
fn seeds_draw_no_drops_that_were_taken_before() {
    let draws = |seed: &u64| {
        let text = drawn(*seed).text().unwrap();
        text.contains("fadvise") || text.contains("ext4") && text.contains("holes")
    };
    let before = (0..50).chain(950_000..950_050).chain(2_599_950..2_600_000);
    assert_eq!(before.filter(draws).count(), 0);
    assert!((2_600_000..2_600_050).filter(draws).count() > 5);
}

/// Older seeds draw no advice by which pages of files and of shared memory leave memory.
#[test]
fn seeds_draw_no_pageout_of_files_that_was_taken_before() {
    let taken = |seed: &u64| {
        let case = drawn(*seed);
        let new = |operation: &&Operation| operation.drawn == operations::Drawn::WithPageout;
        case.operations().into_iter().any(|operation| new(&operation))
    };
    let before = (0..50).chain(20_000..20_050).chain(962_500..962_550).chain(8_999_950..9_000_000);
    assert_eq!(before.filter(taken).count(), 0);
    assert!((9_000_000..9_000_050).filter(taken).count() > 25);
}

/// Older seeds draw no large folios of files.
#[test]
fn seeds_draw_no_folios_that_were_taken_before() {
    let draws = |seed: &u64| drawn(*seed).text().unwrap().contains("write-pages");
    let before = (0..50).chain(962_500..962_550).chain(7_999_950..8_000_000);
    assert_eq!(before.filter(draws).count(), 0);
    assert!((8_000_000..8_000_050).filter(draws).count() > 40);
}

/// Older seeds draw no large folios of private memory, nor does any seed on kernels before 6.8,
/// which have no such folios.
#[test]
fn seeds_draw_no_mthp_that_were_taken_before() {
    let draws = |seed: &u64| drawn(*seed).text().unwrap().contains("mthp");
    let before = (0..50).chain(20_000..20_050).chain(9_499_950..9_500_000);
    assert_eq!(before.filter(draws).count(), 0);
    assert_eq!((9_500_000..9_500_050).filter(draws).count(), 50);
    let old = generate(9_500_000, &Target::new((6, 1), 3)).text().unwrap();
    assert!(!old.contains("mthp"));
}

/// Only the seeds of machines with NUMA nodes draw them, and only for targets that have several.
#[test]
fn seeds_draw_no_nodes_that_were_taken_before() {
    let draws = |case: Case| {
        let text = case.text().unwrap();
        let policies = ["mbind", "move_pages", "set_mempolicy"];
        assert!(text.contains("nodes 2") || policies.iter().all(|word| !text.contains(word)));
        text.contains("nodes 2")
    };
    let before =
        (0..50).chain(40_000..40_050).chain(2_999_950..3_000_000).chain(4_000_000..4_000_050);
    assert_eq!(
        before.chain(OF_EVERYTHING..OF_EVERYTHING + 200).filter(|seed| draws(drawn(*seed))).count(),
        0
    );
    let nodes = || (WITH_NODES..WITH_NODES + 25).chain(3_000_000..3_000_025);
    assert_eq!(nodes().filter(|seed| draws(drawn(*seed))).count(), 50);
    let without = Target { without: vec![Optional::Nodes], ..Target::new(NEWEST, 3) };
    assert_eq!(nodes().filter(|seed| draws(generate(*seed, &without))).count(), 0);
}

/// Older seeds draw no answers that move pages.
#[test]
fn seeds_draw_no_moves_in_answer_that_were_taken_before() {
    let draws = |seed: &u64| drawn(*seed).text().unwrap().contains("by=\"move\"");
    let before = (200_000..200_050).chain(250_000..250_050).chain(5_749_950..5_750_000);
    assert_eq!(before.filter(draws).count(), 0);
    assert!((5_750_000..5_750_050).filter(draws).count() > 5);
    let old = generate(5_750_000, &Target::new((6, 6), 3)).text().unwrap();
    assert!(!old.contains("move"));
}

/// Older seeds draw only the advice about several ranges that they drew before.
#[test]
fn seeds_draw_no_ranges_that_were_taken_before() {
    let draws = |seed: &u64| {
        let text = drawn(*seed).text().unwrap();
        let vectored = text.lines().filter(|line| line.contains("process_madvise"));
        vectored.into_iter().any(|line| line.contains("huge") || line.contains("populate"))
    };
    let before = (0..50).chain(300_000..300_050).chain(4_499_950..4_500_000);
    assert_eq!(before.filter(draws).count(), 0);
    assert!((4_500_000..4_500_050).filter(draws).count() > 10);
}

#[test]
fn old_kernels_are_asked_for_nothing_new() {
    let texts = seeds(100).filter_map(|seed| generate(seed, &Target::new((5, 10), 3)).text());
    let new = ["populate", "guard", "process_madvise \"heap\" advice=\"dontneed\""];
    assert!(texts.into_iter().all(|text| new.iter().all(|new| !text.contains(new))));
}

#[test]
fn smaller_cases_run_and_get_small() {
    let row = KernelRow::nearest(6, 18).0;
    for seed in seeds(15) {
        let mut case = generate(seed, &Target::new(row.release, 2 + seed as usize % 2));
        let mut steps = 0;
        while let Some(smaller) = case.smaller().into_iter().next() {
            run(&smaller, &row);
            case = smaller;
            steps += 1;
            assert!(steps < 500, "every reduction makes the case smaller:\n{:?}", case.text());
        }
        assert!(case.setup.is_empty() && case.body.is_empty(), "{:?}", case.text());
    }
}
