//! Stale reads on booted kernels, and none in the control (docs/findings/stale-read.md). `make stale-read`
//! prints the figures; there `KERNELS` and `ROUNDS` say of what.
use super::program::program;
use needless_guest::{Arch, Guest, GuestFile, GuestOptions, kernels};
use needless_model::program::{MachineNeeds, SwapKind, SwapNeed};
use needless_testing::turn;
use serde::Deserialize;
use std::path::Path;

/// What is judged of what `needless-workload stale-read --json` prints for rounds of one kind.
#[derive(Debug, Deserialize)]
struct Outcome {
    control: bool,
    stores: u64,
    stale_reads: u64,
    stale_rounds: u64,
    stale_afterwards: u64,
}

/// Runs of which one has to show it: where the window is short (6.12 and later), a round in twenty does.
const TRIES: u32 = 5;

/// Rounds with clean pages, and the control's. With two CPUs the emulator needs two processors.
fn stale_read(kernel: &str, program: &Path) -> [Outcome; 2] {
    let rounds = std::env::var("NEEDLESS_ROUNDS").unwrap_or_else(|_| "60".to_owned());
    let file = GuestFile { name: "needless-workload".to_owned(), source: program.to_owned() };
    let options = GuestOptions { files: vec![file], cpus: 2, ..GuestOptions::default() };
    let mut guest = Guest::boot(&kernels::ready(kernel).unwrap(), &options).unwrap();
    let swap = Some(SwapNeed { kind: SwapKind::Zram, size_bytes: 64 << 20 });
    let machine = MachineNeeds { swap, ..MachineNeeds::default() };
    let words = ["/needless-workload", "stale-read", "--json", "--cpus", "2", "--rounds", &rounds];
    let done = guest.execute(&words, machine).unwrap();
    let errors = String::from_utf8_lossy(&done.errors);
    println!("{kernel}: {}", String::from_utf8_lossy(&done.output));
    serde_json::from_slice(&done.output)
        .unwrap_or_else(|_| panic!("{kernel}: {} {errors}", done.status))
}

/// The kernels asked for, of an architecture.
fn kernels_of(arch: Arch, usual: &str) -> Vec<String> {
    let asked = std::env::var("NEEDLESS_KERNELS").unwrap_or_else(|_| usual.to_owned());
    let kernels = asked.split_whitespace();
    let kernels = kernels.filter(|kernel| kernel.ends_with("/arm64") == (arch == Arch::Arm64));
    kernels.map(str::to_owned).collect()
}

fn assert_control(kernel: &str, control: &Outcome) {
    assert!(control.control && control.stores > 0, "{kernel}: no control: {control:?}");
    assert_eq!((control.stale_reads, control.stale_afterwards), (0, 0), "{kernel}");
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
            assert_control(&kernel, &control);
            clean.stale_rounds > 0
        });
        assert!(shown, "{kernel}: no stale read in {TRIES} runs");
    }
}

/// There the processor broadcasts the invalidation while the page table is locked; at most the wait for its end is put off
/// (arch/arm64/include/asm/tlbflush.h: arch_tlbbatch_add_pending, 6.12). An emulated one is done at once.
#[test]
fn on_arm64_the_invalidation_is_not_put_off() {
    let _turn = turn();
    let Some(program) = program(Arch::Arm64) else { return };
    for kernel in kernels_of(Arch::Arm64, "6.1/arm64 6.12/arm64") {
        let [clean, control] = stale_read(&kernel, &program);
        assert!(clean.stores > 0, "{kernel}: {clean:?}");
        assert_eq!((clean.stale_reads, clean.stale_afterwards), (0, 0), "{kernel}");
        assert_control(&kernel, &control);
    }
}
