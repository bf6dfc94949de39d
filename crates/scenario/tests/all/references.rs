//! The effects of references that nobody uses: those of the swap cache, of LRU batches and of full
//! gathers. The expectations were worked out by hand from source.

use needless_model::addr::CpuId;
use needless_model::event::{Event, EventKind, FaultClass, FlushReason};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::sim::{self, SimOptions, end_state};
use needless_scenario::{Settings, Source, compile};

/// A program with 3 CPUs: what happens before the round, the round, another thread's part, and a
/// child's part.
fn program([before, round, other, child]: [&str; 4], pages: u32) -> Program {
    let text = format!(
        "scenario \"references\" {{
            machine {{ cpus 3\n swap \"zram\" size=\"8M\" }}
            thread \"main\" cpu=0 {{ map \"heap\" pages={pages}\n {before}\n rounds 1 warmup=0 {{ {round} }} }}
            thread \"other\" cpu=1 {{ {other} }}
            process \"child\" cpu=2 {{ {child} }}
        }}"
    );
    compile(&Source::new("references", text), &Settings::default()).unwrap()
}

fn row(name: &str) -> KernelRow {
    KernelRow::parse(name).unwrap()
}

fn events(program: &Program, name: &str) -> Vec<Event> {
    sim::run(program, &row(name), &SimOptions::default()).unwrap().rounds.remove(0).events
}

fn copies(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event.kind, EventKind::Copy { .. })).count()
}

/// The number of pages in the swap cache and of frames in use when every thread has ended.
fn left(program: &Program, name: &str) -> (usize, u64) {
    let row = row(name);
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    let world = end_state(program, &row, row.arch(), &options).unwrap();
    let cached = world.frames.iter().filter(|(pfn, _)| world.swap.slot_of(*pfn).is_some());
    (cached.count(), world.frames.allocated())
}

/// Another CPU's LRU batch holds the page. So MADV_PAGEOUT gives the page a swap slot and replaces
/// its PTE, but cannot free it. A read then brings it back from the swap cache.
const BACK_FROM_CACHE: &str = "write \"heap\"\n madvise \"heap\" advice=\"cold\"\n barrier \"cold\"\n barrier \"colder\"\n madvise \"heap\" advice=\"pageout\"\n read \"heap\"";
const COLD: &str =
    "barrier \"cold\"\n madvise \"heap\" advice=\"cold\"\n barrier \"colder\"\n spin";

/// With MGLRU every page counts as active, so MADV_COLD puts it into a batch.
const MGLRU: &str = "6.1,mglru=on";

/// PageAnonExclusive is checked first, before folio_free_swap. Source: mm/memory.c:do_wp_page
/// (6.1).
#[test]
fn an_exclusive_page_stays_in_the_swap_cache_when_it_is_reused() {
    let reused = program([BACK_FROM_CACHE, "write \"heap\"", COLD, ""], 1);
    assert_eq!(copies(&events(&reused, MGLRU)), 0);
    assert_eq!(left(&reused, MGLRU), (1, 1));
}

/// A fork clears PageAnonExclusive. Source: mm/memory.c:wp_can_reuse_anon_folio: folio_free_swap
/// (6.1 to 7.3).
#[test]
fn a_page_that_was_shared_leaves_the_swap_cache_when_it_is_reused() {
    // munmap empties the other CPU's batch.
    let drains = "barrier \"cold\"\n madvise \"heap\" advice=\"cold\"\n barrier \"colder\"\n barrier \"back\"\n map \"own\" pages=1\n munmap \"own\"\n barrier \"drained\"\n spin";
    let round =
        "barrier \"back\"\n barrier \"drained\"\n fork \"child\"\n wait \"child\"\n write \"heap\"";
    let reused = program([BACK_FROM_CACHE, round, drains, ""], 1);
    assert_eq!(copies(&events(&reused, MGLRU)), 0);
    assert_eq!(left(&reused, MGLRU), (0, 1));
}

/// Source: mm/swap_state.c:free_pages_and_swap_cache (5.10 to 7.3).
#[test]
fn what_is_given_up_leaves_the_swap_cache() {
    for name in [MGLRU, "6.12", "7.3"] {
        let given_up = program(
            [
                BACK_FROM_CACHE,
                "madvise \"heap\" advice=\"dontneed\"",
                "barrier \"cold\"\n barrier \"colder\"",
                "",
            ],
            1,
        );
        assert_eq!(left(&given_up, name), (0, 0), "{name}");
        let batched =
            program([BACK_FROM_CACHE, "madvise \"heap\" advice=\"dontneed\"", COLD, ""], 1);
        assert_eq!(left(&batched, name).0, 0, "{name}");
    }
}

/// The page came back for both processes through the swap cache. Mapping, cache and batch hold
/// three references. That is the largest number that is reused without a copy, if the batch is this
/// CPU's. 5.10 counts all of them.
///
/// Source: mm/memory.c:wp_can_reuse_anon_folio (6.1, 6.12), do_wp_page (5.10, 7.3).
#[test]
fn three_references_that_nobody_uses_are_no_reason_to_copy() {
    let before = "write \"heap\"\n madvise \"heap\" advice=\"pageout\"";
    let round =
        "fork \"child\"\n read \"heap\"\n barrier \"read\"\n wait \"child\"\n write \"heap\"";
    let program = program([before, round, "spin", "barrier \"read\""], 1);
    for (name, expected) in [("5.10", 1), ("6.1", 0), ("6.12", 0), ("6.18", 0), ("7.3", 0)] {
        assert_eq!(copies(&events(&program, name)), expected, "{name}");
    }
}

/// A page that MADV_FREE gave up is inactive once its batch is emptied. So MADV_COLD does nothing
/// with it: no batch holds it, and 5.10 can reuse it.
///
/// Source: mm/swap.c:lru_lazyfree_fn, deactivate_page (5.10).
#[test]
fn a_page_that_was_given_up_is_not_deactivated_again() {
    let before = "write \"heap\"\n madvise \"heap\" advice=\"pageout\"\n write \"heap\"\n madvise \"heap\" advice=\"free\"";
    let round = "mprotect \"heap\" prot=\"read\"\n mprotect \"heap\" prot=\"read-write\"\n madvise \"heap\" advice=\"cold\"\n write \"heap\"";
    let program = program([before, round, "spin", ""], 1);
    assert_eq!(copies(&events(&program, "5.10")), 0);
}

/// With freed tables the condition of on_each_cpu_mask is not checked, and the CPU itself is not
/// among its targets. Source: arch/x86/mm/tlb.c:flush_tlb_multi (5.10).
#[test]
fn a_cpu_answers_its_own_flush_only_if_no_tables_were_freed() {
    for (round, expected) in
        [("munmap \"heap\"\n map \"heap\"", 0), ("madvise \"heap\" advice=\"dontneed\"", 1)]
    {
        let program = program(["", &format!("write \"heap\"\n {round}"), "spin", ""], 1);
        let own = |event: &&Event| {
            let received = EventKind::Flush {
                reason: FlushReason::RemoteShootdown,
                pages: Some(0),
                asked: None,
            };
            event.cpu == CpuId(0) && event.kind == received
        };
        assert_eq!(events(&program, "5.10").iter().filter(own).count(), expected, "{round}");
    }
}

/// The number of pages that one gather holds: its own eight entries, and 19 batches. In each of
/// them, 6.12 leaves one entry free.
///
/// Source: mm/mmu_gather.c:tlb_next_batch, MAX_GATHER_BATCH_COUNT; __tlb_remove_folio_pages_size
/// (6.12).
#[test]
fn a_gather_is_full_at_a_page_that_can_be_told() {
    for (name, holds) in [("6.1", 8 + 19 * 510), ("6.12", 7 + 19 * 509)] {
        for (pages, flushes) in [(holds, 1), (holds + 1, 2)] {
            let given_up = program(
                ["", "write \"heap\"\n madvise \"heap\" advice=\"dontneed\"", "", ""],
                pages,
            );
            let local = |event: &&Event| {
                matches!(event.kind, EventKind::Flush { reason: FlushReason::LocalMm, .. })
            };
            let found = events(&given_up, name).iter().filter(local).count();
            assert_eq!(found, flushes, "{name}: {pages} pages");
        }
    }
}

/// Only a store gets a writable PTE; FAULT_FLAG_UNSHARE does not. Source: mm/memory.c:wp_page_copy
/// (6.1).
#[test]
fn a_page_that_was_made_the_processs_own_for_loads_is_still_read_only() {
    let pin = "pin \"heap\" as=\"io\" access=\"read\"\n write \"heap\"\n unpin \"io\"";
    // The pin copies the page while the child lives, and takes it as it is when the child has
    // ended.
    let copied = format!("fork \"child\"\n {pin}\n wait \"child\"");
    let reused = format!("fork \"child\"\n wait \"child\"\n {pin}");
    let classes = |round: &str, name: &str| -> Vec<FaultClass> {
        let pinned = program(["write \"heap\"", round, "", ""], 1);
        let done = |event: &Event| match event.kind {
            EventKind::FaultDone { class, .. } if event.cpu == CpuId(0) => Some(class),
            _ => None,
        };
        events(&pinned, name).iter().filter_map(done).collect()
    };
    for name in ["6.1", "6.12", "7.3"] {
        // The pin's own fault, then the store's.
        for (round, first) in [(&copied, FaultClass::CowCopy), (&reused, FaultClass::Reuse)] {
            let found = classes(round, name);
            assert_eq!(found, [first, FaultClass::Reuse], "{name}: {round}");
        }
    }
}
