//! Images by their paths: those of fetched kernels, and some that cannot be guests.

use super::boot::{program, usual};
use needless_guest::{GuestError, GuestOptions, KernelTarget, Limits, kernels, run_batch};
use needless_model::account::Account;
use needless_model::run::TargetRun;
use needless_scenario::builtin;
use needless_testing::{skip, turn};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Runs a built-in scenario on an image with these options.
fn run(image: &Path, rest: &str, limits: Limits, name: &str) -> Result<TargetRun, GuestError> {
    let mut target = KernelTarget::parse(&format!("{}{rest}", image.to_str().unwrap()))?;
    let GuestOptions { runner, .. } = usual();
    (target.options.runner, target.options.limits) = (runner, limits);
    let results = run_batch(&target, &[program(name, 5)], &|_| {});
    results.and_then(|mut results| results.pop().unwrap())
}

fn told(error: &GuestError) -> String {
    let help = miette::Diagnostic::help(error).map(|help| help.to_string());
    format!("{error}; {}", help.unwrap_or_default())
}

#[test]
fn an_image_by_its_path_is_the_kernel_that_it_is() {
    let _turn = turn();
    let kernel = kernels::ready("6.12").unwrap();
    let modules = format!(",modules={}", kernel.folder().join("modules").to_str().unwrap());
    let limits = Limits::default();
    let own = run(&kernel.image(), &format!("{modules},row=6.12"), limits, "cow-reuse").unwrap();
    assert!(own.release.as_ref().unwrap().starts_with("6.12."));
    assert!(own.environment["kernel.image"].contains("vmlinuz"), "{:?}", own.environment);
    let named = KernelTarget::named("6.12", usual());
    let stock = run_batch(&named, &[program("cow-reuse", 5)], &|_| {}).unwrap().remove(0).unwrap();
    let program = program("cow-reuse", 5);
    let [own, stock] = [own, stock].map(|run| Account::of(&program, &run));
    assert_eq!(own.sequences()[0].value, stock.sequences()[0].value);

    // Without its modules the kernel has no zram. A scenario that needs none runs, and one that
    // needs zram reports that.
    assert!(run(&kernel.image(), "", limits, "a_dontneed_w_1").is_ok());
    let lacks = run(&kernel.image(), "", limits, "cow-reuse").unwrap_err();
    assert!(told(&lacks).contains("CONFIG_ZRAM"), "{}", told(&lacks));
    assert_eq!(lacks.exit_status(), 121);
}

#[test]
fn what_cannot_be_a_guest_ends_with_its_reason() {
    let _turn = turn();
    let image = kernels::ready("6.12").unwrap().image();
    let limits = Limits::default();
    let panicked = run(&image, ",append=rdinit=/nowhere", limits, "a_dontneed_w_1").unwrap_err();
    let told_of = told(&panicked);
    assert!(told_of.contains("panic: ") && told_of.contains("CONFIG_BLK_DEV_INITRD"), "{told_of}");

    // This image starts and prints nothing: its setup code, at 0x200, jumps to itself.
    let folder = tempfile::tempdir().unwrap();
    let silent = folder.path().join("bzImage");
    let mut bytes = fs::read(&image).unwrap();
    bytes[0x200..0x202].copy_from_slice(&[0xeb, 0xfe]);
    fs::write(&silent, &bytes).unwrap();
    let short = Limits { boot: Duration::from_secs(3), ..limits };
    let late = told(&run(&silent, "", short, "a_dontneed_w_1").unwrap_err());
    assert!(late.contains("did not boot") && late.contains("CONFIG_SERIAL_8250_CONSOLE"), "{late}");

    fs::write(&silent, &bytes[..bytes.len() / 2]).unwrap();
    let cut = run(&silent, "", limits, "a_dontneed_w_1").unwrap_err();
    assert!(told(&cut).contains("truncated"), "{cut}");
}

/// The test makes a stock kernel leave a part uninitialised, as if it was configured without that
/// part.
#[test]
fn a_part_that_a_kernel_lacks_is_named_by_its_options() {
    let _turn = turn();
    let without = |function: &str, name: &str| {
        let append = format!("initcall_blacklist={function}");
        let mut target = KernelTarget::named("6.12", usual());
        target.options.append = append;
        run_batch(&target, &[program(name, 5)], &|_| {}).and_then(|mut runs| runs.pop().unwrap())
    };
    for (function, option) in [
        ("virtio_pci_driver_init", "CONFIG_VIRTIO_PCI"),
        ("virtio_console_init", "CONFIG_VIRTIO_CONSOLE"),
    ] {
        let lacks = without(function, "a_dontneed_w_1").unwrap_err();
        assert!(told(&lacks).contains(option), "{}", told(&lacks));
        assert_eq!(lacks.exit_status(), 121);
    }
    // Without tracefs the run goes on, and no unseen figure becomes a zero.
    let blind = without("tracefs_init,trace_create_tracefs", "a_dontneed_w_1").unwrap();
    assert!(!blind.rounds.is_empty());
    let reason = &blind.unseen[needless_model::account::EVENTS];
    assert!(reason.contains("CONFIG_FTRACE"), "{reason}");
}

/// The options of stock kernels that guests do not need make no difference in what is compared.
#[test]
fn the_minimal_configuration_has_the_stock_kernels_sequences() {
    const BUILT: &str = "6.12+guest";
    let _turn = turn();
    if !kernels::cached().unwrap().iter().any(|name| name == BUILT) {
        skip!("kernel {BUILT} is not built here: `needless kernels build 6.12`");
    }
    let programs = builtin::names().map(|name| program(name, 5));
    let programs: Vec<_> = programs.filter(|program| program.model_only().is_none()).collect();
    let on = |kernel: &str| {
        let target = KernelTarget::named(kernel, GuestOptions { cpus: 3, ..usual() });
        run_batch(&target, &programs, &|_| {}).unwrap()
    };
    let (stock, built) = (on("6.12"), on(BUILT));
    let mut compared = 0;
    for ((program, stock), built) in programs.iter().zip(stock).zip(built) {
        let (stock, built) = match (stock, built) {
            (Ok(stock), Ok(built)) => (stock, built),
            (stock, built) => {
                assert_eq!(stock.is_ok(), built.is_ok(), "{}: {stock:?} {built:?}", program.name);
                continue;
            }
        };
        if stock.invalid.is_some() || built.invalid.is_some() {
            continue;
        }
        let sequence = |run: &TargetRun| {
            Account::of(program, run).sequences().first().map(|group| group.value.to_string())
        };
        assert_eq!(sequence(&stock), sequence(&built), "{}", program.name);
        assert!(sequence(&stock).is_some(), "{}", program.name);
        compared += 1;
    }
    if compared * 10 < programs.len() * 9 {
        skip!("only {compared} of {} scenarios ran undisturbed on both", programs.len());
    }
}
