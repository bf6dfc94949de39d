//! The cost of fork: 8 pages, and the parent's other CPU busy. The expectations for a child that
//! reads and writes, a parent that writes first, and zero pages come from the runner. It ran them
//! on 2026-11-24 on booted 5.10, 6.1 and 6.12, six rounds each, and all rounds equalled the
//! model's. On 6.18 and 7.3 it ran the first and the last of them.

use needless_model::addr::{CpuId, ProcessId};
use needless_model::event::{Event, EventKind, FlushReason};
use needless_model::kernels::KernelRow;
use needless_model::machine::world::mm_of;
use needless_model::run::TargetRun;
use needless_model::sequence::{Sequence, TraceOrder};
use needless_model::sim::{self, SimOptions, end_state};
use needless_scenario::{Settings, Source, compile};

const ROWS: [&str; 6] = ["5.8", "5.10", "6.1", "6.12", "6.18", "7.3"];

fn scenario(before: &str, parent: &str, child: &str) -> String {
    format!(
        "scenario \"fork\" {{
            machine {{ cpus 3\n swap \"zram\" size=\"4M\" }}
            thread \"main\" cpu=0 {{
                map \"heap\" pages=8
                {before}
                rounds 1 warmup=0 {{ {parent} }}
            }}
            thread \"spinner\" cpu=1 {{ spin }}
            process \"child\" cpu=2 {{ {child} }}
        }}"
    )
}

fn run(text: &str, row: &str) -> TargetRun {
    let program = compile(&Source::new("fork", text), &Settings::default()).unwrap();
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    sim::run(&program, &KernelRow::parse(row).unwrap(), &options).unwrap()
}

/// The sequence of the one round.
fn sequence(text: &str, row: &str) -> String {
    let program = compile(&Source::new("fork", text), &Settings::default()).unwrap();
    let run = run(text, row);
    let rounds: Vec<&[Event]> = run.rounds.iter().map(|round| &round.events[..]).collect();
    Sequence::of(&program, rounds[0], TraceOrder::of(rounds.iter().copied())).to_string()
}

#[test]
fn pages_are_shared_until_somebody_stores() {
    let written = "write \"heap\"";
    let zeros = "read \"heap\"";
    // Each row: what happened before, what the parent and the child do, and the cost.
    let table = [
        // A fork flushes even if it copies nothing but mappings.
        ("", "fork \"child\"\n wait \"child\"", "", "IPI:MM(ALL)"),
        // The child's reads cost nothing, and its stores copy. Afterwards the pages belong to the
        // parent alone again.
        (
            written,
            "fork \"child\"\n wait \"child\"\n write \"heap\"",
            "read \"heap\"",
            "IPI:MM(ALL) WPx8",
        ),
        (
            written,
            "fork \"child\"\n wait \"child\"\n write \"heap\"",
            "write \"heap\"",
            "IPI:MM(ALL) (WP loc:MM(1))x8 WPx8",
        ),
        // The first to store copies, while the child lives. The parent's other CPU has to be
        // flushed.
        (
            written,
            "fork \"child\"\n write \"heap\"\n barrier \"b\"\n wait \"child\"",
            "barrier \"b\"\n write \"heap\"",
            "IPI:MM(ALL) (WP IPI:MM(1))x8 WPx8",
        ),
        // A mapping without anonymous pages is not copied: the child takes faults of its own.
        (
            zeros,
            "fork \"child\"\n wait \"child\"\n write \"heap\"",
            "read \"heap\"",
            "IPI:MM(ALL) Rx8 (WP IPI:MM(1))x8",
        ),
    ];
    for (before, parent, child, expected) in table {
        for row in ROWS {
            let text = scenario(before, parent, child);
            assert_eq!(sequence(&text, row), expected, "{row}: {before}; {parent}; {child}");
        }
    }
}

/// The state of the child's PTEs. Source: mm/memory.c:copy_present_pte (5.10), __copy_present_ptes
/// (6.12, 7.3).
#[test]
fn the_childs_pages_are_old_unless_a_proposal_keeps_them() {
    let text =
        scenario("write \"heap\"", "fork \"child\"\n barrier \"b\"", "barrier \"b\"\n sleep");
    let program = compile(&Source::new("fork", text), &Settings::default()).unwrap();
    let page = program.areas[0].range.start;
    for (name, young) in
        [("5.10", false), ("6.12", false), ("7.3", false), ("7.3+fork-young", true)]
    {
        let row = KernelRow::parse(name).unwrap();
        let options = SimOptions { paranoid: true, ..SimOptions::default() };
        let world = end_state(&program, &row, row.arch(), &options).unwrap();
        let pte = |process| world.pte(mm_of(ProcessId(process)), page).present().unwrap();
        let (parents, childs) = (pte(0), pte(1));
        assert_eq!(parents.pfn, childs.pfn);
        assert_eq!((parents.accessed(), childs.accessed()), (true, young), "{name}");
        assert!(!parents.writable() && !childs.writable() && childs.dirty(), "{name}");
    }
}

/// The mark of an unmap with a deferred flush is copied with the descriptor. So the child, which
/// ran on no CPU yet, flushes everything once for it. Source: kernel/fork.c:dup_mm, mm_init (5.10
/// to 7.3); seen with the runner on 5.10, 6.1, 6.12, 6.18 and 7.3 (2026-11-24).
#[test]
fn the_child_inherits_the_pending_mark() {
    let parent = "madvise \"heap[0]\" advice=\"pageout\"\n fork \"child\"\n wait \"child\"";
    let text = scenario("write \"heap\"", parent, "madvise \"heap[1]\" advice=\"dontneed\"");
    for row in ["5.10", "6.1", "6.12", "6.18", "7.3"] {
        let sequence = sequence(&text, row);
        assert!(sequence.ends_with("IPI:MM(ALL) loc:MM(ALL) loc:MM(1)"), "{row}: {sequence}");
    }
}

/// Parent and child both have the page in swap. The first to write copies it out of the swap cache,
/// and the other gets it from there. Only 7.2 and later ask nothing but the swap PTE whether a page
/// is exclusive, and a fork has cleared that bit. So a page that was read back faults again when it
/// is written, although the child has ended.
///
/// Source: mm/memory.c:do_swap_page (5.10, 6.1, 6.12, 6.18, 7.2, 7.3); seen with the runner on
/// 5.10, 6.1 and 6.12, and the additional fault on 7.3 (2026-11-24).
#[test]
fn pages_come_back_from_swap_for_both() {
    let swapped = "write \"heap\"\n madvise \"heap\" advice=\"pageout\"";
    let child_writes =
        scenario(swapped, "fork \"child\"\n wait \"child\"\n write \"heap\"", "write \"heap\"");
    for row in ["5.10", "6.1", "6.12", "6.18", "7.3"] {
        assert_eq!(sequence(&child_writes, row), "IPI:MM(ALL) (W loc:MM(1))x8 Wx8", "{row}");
    }
    let alone = "fork \"child\"\n wait \"child\"\n read \"heap\"\n write \"heap\"";
    for (row, expected) in [
        ("6.12", "IPI:MM(ALL) Rx8"),
        ("6.18", "IPI:MM(ALL) Rx8"),
        ("7.2", "IPI:MM(ALL) Rx8 WPx8"),
        ("7.3", "IPI:MM(ALL) Rx8 WPx8"),
    ] {
        assert_eq!(sequence(&scenario(swapped, alone, ""), row), expected, "{row}");
    }
}

/// exec unmaps the old address space when the CPU has left it, so nothing is flushed, and the
/// parent has its pages to itself again.
///
/// Source: fs/exec.c:exec_mmap, kernel/fork.c:__mmput (5.10 to 7.3).
#[test]
fn a_process_that_goes_on_with_another_program_leaves_its_pages_without_a_flush() {
    let parent = "fork \"child\"\n wait \"child\"\n write \"heap\"";
    for row in ROWS {
        let text = scenario("write \"heap\"", parent, "write \"heap\"\n exec");
        assert_eq!(sequence(&text, row), "IPI:MM(ALL) (WP loc:MM(1))x8 WPx8", "{row}");
        let run = run(&text, row);
        let switches = run.rounds[0].events.iter().filter(|event| {
            let switch =
                matches!(event.kind, EventKind::Flush { reason: FlushReason::TaskSwitch, .. });
            switch && event.cpu == CpuId(2)
        });
        // Switches to the child, to another address space, to the new program, and away from that.
        assert!(switches.count() >= 4, "{row}");
    }
}

/// The new program runs in an address space of its own before the waiting parent wakes. It has none
/// of the process's mappings.
#[test]
fn another_program_has_nothing_of_the_process() {
    let text = scenario("write \"heap\"", "fork \"child\"\n wait \"child\"", "exec");
    let run = run(&text, "6.12");
    assert!(
        run.final_pages.keys().all(|page| !page.starts_with("child:")),
        "{:?}",
        run.final_pages
    );
}

#[test]
fn a_process_runs_once_at_a_time() {
    let twice = scenario("", "fork \"child\"\n fork \"child\"", "");
    let program = compile(&Source::new("fork", twice), &Settings::default()).unwrap();
    let error = sim::run(&program, &KernelRow::parse("6.12").unwrap(), &SimOptions::default());
    assert!(error.unwrap_err().to_string().contains("EAGAIN: the process runs already"));
    // Waiting for a process that was not forked ends at once.
    assert_eq!(sequence(&scenario("", "wait \"child\"", ""), "6.12"), "(none)");
}

/// A forked mapping does not merge with a new mapping beside it, because of the anon_vma that it
/// has inherited. A mapping that was not inherited merges.
///
/// Source: mm/mmap.c:is_mergeable_anon_vma (5.10, 6.1), mm/vma.c (6.12, 7.3): list_is_singular.
#[test]
fn a_forked_mapping_stays_by_itself() {
    let maps = "map \"beside\" pages=4 at=\"0x200000008000\" table=\"shared\"";
    let text = |before: &str, parent: &str, child: &str| {
        scenario(before, parent, child)
            .replace("pages=8", "pages=8 at=\"0x200000000000\" table=\"shared\"")
    };
    let mappings = |text: String, process| {
        let program = compile(&Source::new("fork", text), &Settings::default()).unwrap();
        let row = KernelRow::parse("6.12").unwrap();
        let world = end_state(&program, &row, row.arch(), &SimOptions::default()).unwrap();
        world.mms[mm_of(ProcessId(process)).index()].vmas().len()
    };
    let forks = "fork \"child\"\n barrier \"b\"";
    let child = format!("barrier \"b\"\n {maps}\n sleep");
    // The areas' neighbours, which keep their page table, are mappings, too.
    let own = mappings(text(&format!("write \"heap\"\n {maps}"), "", ""), 0);
    assert_eq!(mappings(text("write \"heap\"", forks, &child), 1), own + 1);
}

/// Each process has an mm with a new context ID, which no CPU has seen. So its CPU takes an ASID
/// slot and flushes it.
///
/// Source: arch/x86/include/asm/mmu_context.h:init_new_context, arch/x86/mm/tlb.c:choose_new_asid
/// (5.10 to 7.3).
#[test]
fn a_process_that_begins_again_is_another_one() {
    let once = scenario("write \"heap\"", "fork \"child\"\n wait \"child\"", "read \"heap\"");
    let run = run(&once.replace("rounds 1", "rounds 3"), "6.12");
    assert_eq!(run.rounds.len(), 3);
    for round in &run.rounds {
        let switch =
            round.events.iter().filter(|event| event.cpu == CpuId(2)).find_map(|event| match event
                .kind
            {
                EventKind::Flush { reason: FlushReason::TaskSwitch, pages, .. } => Some(pages),
                _ => None,
            });
        assert_eq!(switch, Some(None));
    }
}

/// Clears the accessed bits as a fork does in the child's pages, but without a fork. Source:
/// fs/proc/task_mmu.c:clear_refs_pte_range (6.1, 6.12).
#[test]
fn clear_refs_makes_pages_old_without_a_flush() {
    let faults = |between: &str, row: &str| {
        let parent = format!("clear-refs\n {between} read \"heap\"");
        run(&scenario("write \"heap\"", &parent, "read \"heap\""), row).rounds[0].minor_faults
    };
    for row in ["5.10", "7.3", "6.12/arm64", "6.12/arm64,cpu=cortex-a72"] {
        assert_eq!(faults("", row), Some(0), "{row}: what the TLB holds is used as before");
    }
    // Switches to so many other address spaces that nothing is left in the TLB.
    let others = "switch 8\n";
    assert_eq!(faults(others, "6.12"), Some(0));
    assert_eq!(faults(others, "6.12/riscv64-svade"), Some(8));
    // Where each address space has an identifier of its own, other address spaces evict nothing.
    assert_eq!(faults(others, "6.12/arm64,cpu=cortex-a72"), Some(0));
}

fn shared(parent: &str, child: &str) -> String {
    format!(
        "scenario \"fork\" {{
            machine {{ cpus 2 }}
            thread \"main\" cpu=0 {{
                map \"heap\" pages=1 backing=\"shared\"
                rounds 1 warmup=0 {{ {parent} }}
            }}
            process \"child\" cpu=1 {{ {child} }}
        }}"
    )
}

/// The next store to a page that was written back faults. So it is also where the page was mapped
/// for stores and nobody stored.
#[test]
fn what_is_written_back_may_not_be_stored_to_in_silence() {
    let stores = |between: &str| {
        let parent = format!("write \"heap\"\n writeback \"heap\"\n {between}\n write \"heap\"");
        run(&shared(&parent, "read \"heap\""), "6.12").rounds[0].minor_faults
    };
    assert_eq!(stores(""), Some(2));
    let again = "madvise \"heap\" advice=\"dontneed\"\n read \"heap\"";
    assert_eq!(stores(again), Some(2), "the read maps the page, the store does not fault");
    assert_eq!(stores(&format!("{again}\n writeback \"heap\"")), Some(3));
}

/// No kernel copies the page tables of shared memory at a fork. With `fork-shared=copy` the child
/// gets them, with clean PTEs unless a proposal keeps the dirty bit. Source:
/// mm/memory.c:__copy_present_ptes (6.12).
#[test]
fn the_childs_shared_pages_are_clean_unless_a_proposal_keeps_the_bit() {
    let text = shared("write \"heap\"\n fork \"child\"\n barrier \"b\"", "barrier \"b\"\n sleep");
    let program = compile(&Source::new("fork", text), &Settings::default()).unwrap();
    let page = program.areas[0].range.start;
    for (name, dirty) in [
        ("6.12", None),
        ("6.12,fork-shared=copy", Some(false)),
        ("6.12+fork-dirty,fork-shared=copy", Some(true)),
    ] {
        let row = KernelRow::parse(name).unwrap();
        let options = SimOptions { paranoid: true, ..SimOptions::default() };
        let world = end_state(&program, &row, row.arch(), &options).unwrap();
        let pte = |process| world.pte(mm_of(ProcessId(process)), page).present();
        assert!(pte(0).unwrap().dirty(), "{name}");
        assert_eq!(pte(1).map(|pte| pte.dirty()), dirty, "{name}");
    }
}
