//! The program that runs in a guest, and the guests that it runs in.
use needless_guest::{Arch, Executed, Guest, GuestError, GuestFile, GuestOptions, kernels};
use needless_model::program::MachineNeeds;
use needless_testing::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A static `needless-workload`. `None` if it cannot be built; the test is then skipped.
pub(super) fn program(arch: Arch) -> Option<PathBuf> {
    let target = match arch {
        Arch::X86_64 => "x86_64-unknown-linux-gnu",
        Arch::Arm64 => "aarch64-unknown-linux-gnu",
    };
    if arch == Arch::Arm64 && std::env::var_os("NEEDLESS_RUNNER_ARM64").is_none() {
        skip!("scripts/arm64.sh says what arm64 guests need");
    }
    // This test is TARGET/PROFILE/deps/long-….
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(3).unwrap();
    let status = Command::new(env!("CARGO"))
        .args(["rustc", "--quiet", "-p", "needless-workloads", "--bin", "needless-workload"])
        .args(["--target", target, "--", "-C", "target-feature=+crt-static"])
        .args(["-C", "strip=debuginfo"])
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_DIR", folder)
        .status();
    assert!(status.unwrap().success(), "needless-workload does not build for {target}");
    Some(folder.join(target).join("debug/needless-workload"))
}

/// The kernels of an architecture that the user asked for (`NEEDLESS_KERNELS`), or the usual ones.
pub(super) fn kernels_of(arch: Arch, usual: &str) -> Vec<String> {
    let asked = std::env::var("NEEDLESS_KERNELS").unwrap_or_else(|_| usual.to_owned());
    let kernels = asked.split_whitespace();
    let kernels = kernels.filter(|kernel| kernel.ends_with("/arm64") == (arch == Arch::Arm64));
    kernels.map(str::to_owned).collect()
}

/// The result of a run in a guest. A guest that ends has a second chance, as in a batch: QEMU 7.2
/// was seen to bring some down (a CMPXCHG16B of the kernel after which RFLAGS held a pointer's low
/// bits; an int3 where the kernel was patching its text).
pub(super) fn with_second_chance<T>(
    kernel: &str,
    run: impl Fn() -> Result<T, GuestError>,
) -> Result<T, GuestError> {
    match run() {
        Err(error) if error.is_end() => {
            println!("{kernel}: once more: {error}");
            run()
        }
        done => done,
    }
}

/// Runs the program with these words in a guest of its own.
pub(super) fn execute(
    kernel: &str,
    program: &Path,
    options: GuestOptions,
    words: &[&str],
    machine: &MachineNeeds,
) -> Executed {
    let file = GuestFile { name: "needless-workload".to_owned(), source: program.to_owned() };
    let options = GuestOptions { files: vec![file], ..options };
    let image = kernels::ready(kernel).unwrap();
    let words = [&["/needless-workload"], words].concat();
    let once = || Guest::boot(&image, &options)?.execute(&words, machine.clone());
    with_second_chance(kernel, once).unwrap()
}
