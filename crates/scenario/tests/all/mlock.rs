//! Locked memory: what kernels refuse, what reclaim leaves, and what a batch of locked pages costs.

use needless_model::account::Account;
use needless_model::counters::Counter;
use needless_model::kernels::KernelRow;
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, Source, compile};

const ROWS: [&str; 6] = ["5.8", "5.10", "6.1", "6.12", "6.18", "7.3"];

fn run(round: &str, child: &str, row: &str) -> Result<Account, String> {
    let text = format!(
        "scenario \"mlock\" {{
            machine {{ cpus 3; swap \"zram\" size=\"1M\" }}
            thread \"main\" cpu=0 {{
                map \"heap\" pages=8 table=\"shared\"
                map \"shm\" pages=8 backing=\"shared\"
                map \"other\" pages=1
                rounds 1 warmup=0 {{ {round} }}
            }}
            thread \"spinner\" cpu=1 {{ spin }}
            process \"child\" cpu=2 {{ {child} }}
        }}"
    );
    let program = compile(&Source::new("mlock", text), &Settings::default()).unwrap();
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &options);
    Ok(Account::of(&program, &run.map_err(|error| error.to_string())?))
}

/// The value of each counter in the round.
fn counts<const N: usize>(round: &str, child: &str, row: &str, counters: [Counter; N]) -> [u64; N] {
    let account = run(round, child, row).unwrap();
    counters.map(|counter| account.typical(counter).unwrap())
}

/// Source: mm/madvise.c:can_madv_lru_vma, madvise_dontneed_free_valid_vma, madvise_remove,
/// is_valid_guard_vma (5.10 to 7.2).
#[test]
fn what_is_locked_is_not_given_up() {
    for row in ROWS {
        for lock in ["mlock \"heap\"", "mlock \"heap\" when=\"on-fault\""] {
            for advice in ["dontneed", "free", "cold", "pageout"] {
                let advised = format!("madvise \"heap[2]\" advice=\"{advice}\"");
                let refused = run(&format!("{lock}\n {advised}"), "", row).unwrap_err();
                assert!(refused.contains("EINVAL"), "{row} {advice}: {refused}");
                let unlocked = run(&format!("{lock}\n munlock \"heap\"\n {advised}"), "", row);
                assert!(unlocked.is_ok(), "{row} {advice}: {unlocked:?}");
            }
        }
        let remove = run("mlock \"shm\"\n madvise \"shm\" advice=\"remove\"", "", row);
        assert!(remove.unwrap_err().contains("EINVAL"), "{row}");
    }
    let guard = run("mlock \"heap\"\n madvise \"heap\" advice=\"guard-install\"", "", "7.3");
    assert!(guard.unwrap_err().contains("EINVAL"));
    // Pages before the locked ones have been advised (mm/madvise.c:madvise_walk_vmas). A child
    // inherits no lock.
    let child = "madvise \"heap\" advice=\"dontneed\"\n madvise \"heap\" advice=\"pageout\"";
    assert!(run("mlock \"heap\"\n fork \"child\"\n wait \"child\"", child, "7.3").is_ok());
}

/// Source: mm/gup.c:populate_vma_page_range, mm/mlock.c:__mlock_posix_error_return (5.10 to 7.2).
#[test]
fn what_cannot_be_brought_into_memory_is_refused() {
    let none = "mprotect \"heap\" prot=\"none\"\n mlock \"heap\"";
    for row in ROWS {
        assert!(run(none, "", row).unwrap_err().contains("ENOMEM"), "{row}");
        let on_fault = run(&format!("{none} when=\"on-fault\""), "", row);
        assert_eq!(on_fault.is_ok(), !row.starts_with("5."), "{row}");
    }
}

/// mlock faults pages in by stores where the memory is private and stores are allowed, so no later
/// store faults. It loads shared memory, which may then be stored to at once all the same. The
/// faults that the kernel counts without an exception are those of mlock and mprotect.
#[test]
fn no_store_faults_to_what_was_locked() {
    let asked = [Counter::Faults, Counter::MinorFaults, Counter::Zeroings];
    for row in ROWS {
        for (lock, expected) in [
            ("mlock \"heap\"\n write \"heap\"", [0, 8, 8]),
            ("read \"heap\"\n mlock \"heap\"\n write \"heap\"", [8, 16, 8]),
            ("mlock \"shm\"\n write \"shm\"", [0, 8, 8]),
            ("mlock \"heap\" when=\"on-fault\"\n write \"heap\"", [8, 8, 8]),
            (
                "mprotect \"heap\" prot=\"read\"\n mlock \"heap\"\n mprotect \"heap\" prot=\"read-write\"\n write \"heap\"",
                [0, 16, 8],
            ),
            (
                "mprotect \"heap\" prot=\"read\"\n mlock \"heap\" when=\"on-fault\"\n mprotect \"heap\" prot=\"read-write\"\n write \"heap\"",
                [8, 8, 8],
            ),
        ] {
            assert_eq!(counts(lock, "", row, asked), expected, "{row}: {lock}");
        }
    }
}

/// Reclaim leaves locked pages, whether or not they were counted as locked. In 5.10, a page that a
/// fault brought back from swap was not counted.
#[test]
fn reclaim_leaves_what_is_locked() {
    for row in ROWS {
        for (lock, expected) in [
            ("write \"heap\"", 8),
            ("write \"heap\"\n mlock \"heap\"", 0),
            ("mlock \"heap\" when=\"on-fault\"\n write \"heap\"", 0),
            (
                "write \"heap\"\n madvise \"heap\" advice=\"pageout\"\n mlock \"heap\" when=\"on-fault\"\n read \"heap\"",
                8,
            ),
        ] {
            // Advice about other memory empties the CPU's LRU batches.
            let round = format!(
                "{lock}\n madvise \"other\" advice=\"cold\"\n reclaim \"heap\"\n reclaim \"heap\""
            );
            assert_eq!(counts(&round, "", row, [Counter::PagesOut]), [expected], "{row}: {lock}");
        }
    }
}

/// A mapping locks a page, copies it and so unmaps it. That leaves a reference in its CPU's batch,
/// and the copy waits there as well. The child has the page alone by then, and still copies it
/// needlessly, unless the batch became full meanwhile.
#[test]
fn a_batch_of_locked_pages_costs_copies() {
    let child = "barrier \"copied\"\n write \"heap\"";
    let round = "fork \"child\"\n write \"heap\"\n barrier \"copied\"\n wait \"child\"";
    let asked = [Counter::Copies, Counter::NeedlessCopies];
    for (row, needless) in [("5.10", 1), ("6.1", 1), ("6.12", 8), ("6.18", 8), ("7.3", 8)] {
        let unlocked = format!("mlock \"heap\"\n munlock \"heap\"\n {round}");
        assert_eq!(counts(&unlocked, child, row, asked), [8, 0], "{row}");
        let locked = format!("mlock \"heap\"\n {round}");
        assert_eq!(counts(&locked, child, row, asked), [8 + needless, needless], "{row}");
    }
}
