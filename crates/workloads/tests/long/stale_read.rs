//! Stale reads on booted kernels, and none in the control (docs/findings/stale-read.md). `make
//! stale-read` prints the figures; its `KERNELS` and `ROUNDS` select kernels and numbers of rounds.
use super::program::{kernels_of, program, with_second_chance};
use needless_guest::{Arch, Guest, GuestError, GuestFile, GuestOptions, kernels};
use needless_model::program::{MachineNeeds, SwapKind, SwapNeed};
use needless_testing::{skip, turn};
use serde::Deserialize;
use std::path::Path;

/// The figures of `needless-workload stale-read --json`, for rounds of one kind, that the tests
/// check.
#[derive(Debug, Deserialize)]
struct Outcome {
    control: bool,
    stores: u64,
    reads: u64,
    stale_reads: u64,
    stale_rounds: u64,
    stale_afterwards: u64,
}

/// The number of runs, of which one has to show a stale read. Where the window is short (6.12 and
/// later), one round in twenty does. On a loaded machine the emulator may let no store of a run
/// fall into the window.
const TRIES: u32 = 5;

/// The number of rounds of each kind.
fn rounds() -> u32 {
    std::env::var("NEEDLESS_ROUNDS").map_or(60, |rounds| rounds.parse().unwrap())
}

/// A guest with the program. It has two CPUs, for which the emulator needs two processors.
fn boot(kernel: &str, program: &Path) -> Guest {
    let file = GuestFile { name: "needless-workload".to_owned(), source: program.to_owned() };
    let options = GuestOptions { files: vec![file], cpus: 2, ..GuestOptions::default() };
    Guest::boot(&kernels::ready(kernel).unwrap(), &options).unwrap()
}

/// Runs the program. Returns what it prints for each kind of rounds.
fn run(
    guest: &mut Guest,
    kernel: &str,
    rounds: u32,
    more: &[&str],
) -> Result<Vec<Outcome>, GuestError> {
    let swap = Some(SwapNeed { kind: SwapKind::Zram, size_bytes: 64 << 20 });
    let machine = MachineNeeds { swap, ..MachineNeeds::default() };
    let rounds = rounds.to_string();
    let words = ["/needless-workload", "stale-read", "--json", "--cpus", "2", "--rounds", &rounds];
    let done = guest.execute(&[&words[..], more].concat(), machine)?;
    let errors = String::from_utf8_lossy(&done.errors);
    println!("{kernel}: {}", String::from_utf8_lossy(&done.output));
    Ok(serde_json::from_slice(&done.output)
        .unwrap_or_else(|_| panic!("{kernel}: {} {errors}", done.status)))
}

/// The rounds with clean pages, and those of the control.
fn stale_read(kernel: &str, program: &Path) -> [Outcome; 2] {
    let once = || run(&mut boot(kernel, program), kernel, rounds(), &[]);
    with_second_chance(kernel, once).unwrap().try_into().unwrap()
}

/// Checks that the control has no stale read. Returns whether that says anything: not without a
/// store.
fn controlled(kernel: &str, control: &Outcome) -> bool {
    assert!(control.control, "{kernel}: no control: {control:?}");
    assert_eq!((control.stale_reads, control.stale_afterwards), (0, 0), "{kernel}");
    control.stores > 0
}

#[test]
fn a_put_off_flush_lets_a_reader_see_what_was_replaced() {
    let _turn = turn();
    let program = program(Arch::X86_64).unwrap();
    for kernel in kernels_of(Arch::X86_64, "5.10 6.1 6.12 6.18 7.3") {
        let shown = (0..TRIES).any(|_| {
            let [clean, control] = stale_read(&kernel, &program);
            assert!(clean.stale_rounds <= clean.stores, "{kernel}: {clean:?}");
            assert_eq!(clean.stale_afterwards, 0, "{kernel}");
            controlled(&kernel, &control) && clean.stale_rounds > 0
        });
        assert!(
            shown,
            "{kernel}: in {TRIES} runs none with a stale read and a store in the control"
        );
    }
}

/// On arm64 the processor broadcasts the invalidation while the page table is locked. At most the
/// wait for its end is deferred (arch/arm64/include/asm/tlbflush.h: arch_tlbbatch_add_pending,
/// 6.12). An emulated invalidation is done at once.
#[test]
fn on_arm64_the_invalidation_is_not_put_off() {
    let _turn = turn();
    let Some(program) = program(Arch::Arm64) else { return };
    for kernel in kernels_of(Arch::Arm64, "6.1/arm64 6.12/arm64") {
        let shown = (0..TRIES).any(|_| {
            let [clean, control] = stale_read(&kernel, &program);
            assert_eq!((clean.stale_reads, clean.stale_afterwards), (0, 0), "{kernel}");
            controlled(&kernel, &control) && clean.stores > 0
        });
        assert!(shown, "{kernel}: in {TRIES} runs none with stores in both");
    }
}

/// With patches/6.12/removed-after.patch there is no stale read, in a hundred times as many rounds
/// as the stock kernel needed to show some.
#[test]
fn folios_that_leave_the_cache_after_the_flush_are_never_read_stale() {
    const STOCK: &str = "6.12";
    const PATCHED: &str = "6.12+removed-after";
    let _turn = turn();
    if !kernels::cached().unwrap().iter().any(|name| name == PATCHED) {
        skip!("kernel {PATCHED} is not built here: `make kernels-own`");
    }
    let program = program(Arch::X86_64).unwrap();
    let clean = |guest: &mut Guest, kernel, rounds| {
        run(guest, kernel, rounds, &["--clean-only"]).unwrap().pop().unwrap()
    };
    let mut stock = boot(STOCK, &program);
    let tries = (1..=TRIES).find(|_| clean(&mut stock, STOCK, rounds()).stale_rounds > 0);
    drop(stock);
    let Some(tries) = tries else { skip!("the stock kernel shows none in {TRIES} runs") };
    let mut patched = boot(PATCHED, &program);
    let (mut stores, mut reads) = (0, 0);
    for _ in 0..100 * tries {
        let found = clean(&mut patched, PATCHED, rounds());
        assert_eq!((found.stale_reads, found.stale_afterwards), (0, 0), "{found:?}");
        (stores, reads) = (stores + found.stores, reads + found.reads);
    }
    assert!(stores > 0 && reads > 0);
    println!(
        "{PATCHED}: {} rounds, {stores} stores, {reads} reads, 0 stale",
        100 * tries * rounds()
    );
}
