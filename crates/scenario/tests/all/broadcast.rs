//! Shootdowns without interrupts: AMD's `INVLPGB`, hardware that keeps TLBs coherent, and CPUs that
//! flush by themselves (LATR).

use needless_model::event::{EventKind, FlushReason};
use needless_model::kernels::KernelRow;
use needless_model::sequence::{Sequence, TraceOrder};
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, Source, compile};

/// The sequence of a round of `ops` in four pages, beside so many threads that spin, and how many
/// CPUs were interrupted.
fn beside(row: &str, spinners: u16, ops: &str) -> (String, usize) {
    let threads: String = (1..=spinners)
        .map(|cpu| format!("thread \"t{cpu}\" cpu={cpu} {{ barrier \"go\"; spin }}\n"))
        .collect();
    let text = format!(
        "scenario \"broadcast\" {{ machine {{ cpus {}; swap \"zram\" size=\"1M\" }}
         thread \"main\" cpu=0 {{ map \"heap\" pages=4\n write \"heap\"\n barrier \"go\"
             rounds 1 warmup=0 {{ {ops} }} }}
         {threads} }}",
        spinners + 1
    );
    let program = compile(&Source::new("broadcast", text), &Settings::default()).unwrap();
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &options).unwrap();
    let events = &run.rounds[0].events;
    let interrupted = events.iter().filter(|event| {
        matches!(event.kind, EventKind::Flush { reason: FlushReason::RemoteShootdown, .. })
    });
    let order = TraceOrder::of(run.rounds.iter().map(|round| &round.events[..]));
    (Sequence::of(&program, events, order).to_string(), interrupted.count())
}

/// Three flushes: 7.3 gives exclusive pages their right to store back, and flushes that, too.
const PROTECT: &str = "mprotect \"heap\" prot=\"read\"; mprotect \"heap\" prot=\"read-write\";
    mprotect \"heap\" prot=\"read\"";

#[test]
fn an_address_space_that_many_cpus_use_is_flushed_by_an_instruction() {
    // The first flush interrupts the others and finds that there are many; the next one does not.
    let (sequence, interrupted) = beside("7.3+invlpgb", 3, PROTECT);
    assert_eq!((sequence.as_str(), interrupted), ("IPI:MM(4) TLBI:invlpgb(4)x2", 3));
    // Up to three CPUs are interrupted each time.
    let (sequence, interrupted) = beside("7.3+invlpgb", 2, PROTECT);
    assert_eq!((sequence.as_str(), interrupted), ("IPI:MM(4)x3", 6));
    let (sequence, interrupted) = beside("7.3,shootdown=invlpgb-all", 1, PROTECT);
    assert_eq!((sequence.as_str(), interrupted), ("TLBI:invlpgb(4)x3", 0));
}

#[test]
fn a_batch_is_flushed_by_an_instruction_however_few_cpus_there_are() {
    // Each page is dirty, and is flushed before it is written.
    let reclaim = "reclaim \"heap\"";
    assert_eq!(beside("7.3", 1, reclaim), ("IPI:BATCH(ALL)x4".to_owned(), 4));
    assert_eq!(beside("7.3+invlpgb", 1, reclaim), ("TLBI:invlpgb(ALL)x4".to_owned(), 0));
}

#[test]
fn coherent_hardware_is_never_flushed() {
    for ops in [PROTECT, "reclaim \"heap\"", "madvise \"heap\" advice=\"dontneed\""] {
        let (sequence, interrupted) = beside("7.3+coherent", 1, ops);
        assert!(!sequence.contains("IPI") && !sequence.contains("loc:"), "{sequence}");
        assert_eq!(interrupted, 0);
    }
}

#[test]
fn cpus_that_flush_by_themselves_are_not_interrupted() {
    for ops in ["reclaim \"heap\"", "madvise \"heap\" advice=\"dontneed\""] {
        let (sequence, interrupted) = beside("6.12+latr", 1, ops);
        assert_eq!(interrupted, 0, "{ops}: {sequence}");
        assert_ne!(beside("6.12", 1, ops).1, 0, "{ops}");
    }
    // What mprotect takes away is gone when it returns.
    assert_eq!(beside("6.12+latr", 1, PROTECT).1, beside("6.12", 1, PROTECT).1);
}
