//! All workloads on other kernels, booted as guests.
use super::program::program;
use needless_guest::{Arch, Guest, GuestFile, GuestOptions, Limits, kernels};
use needless_model::program::{MachineNeeds, SwapKind, SwapNeed};
use needless_testing::{skip, turn};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A guest in which every workload can run but those that need PCIDs, which QEMU does not emulate.
fn usual(kernel: &str) -> GuestOptions {
    let (append, nodes) = match kernel.ends_with("/arm64") {
        true => ("hugepages=4", 1),
        false => ("hugepages=4 no5lvl", 2),
    };
    GuestOptions { append: append.to_owned(), nodes, ..GuestOptions::default() }
}

/// What is about interrupts and no flush of an address space: not counted in guests yet.
const CALLS: [&str; 5] = ["collapse", "collapse_idle", "membarrier", "text_patch", "kernel_flush"];

/// All others.
fn names() -> Vec<String> {
    let list = Command::new(env!("CARGO_BIN_EXE_needless-workload")).arg("list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> =
        names.filter(|name| !CALLS.contains(name)).map(str::to_owned).collect();
    assert!(names.len() > 60, "{names:?}");
    names
}

/// These workloads watched on a kernel.
fn check(kernel: &str, program: &Path, names: &[String]) -> Vec<Value> {
    let file = GuestFile { name: "needless-workload".to_owned(), source: program.to_owned() };
    // Watching begins and ends in half a second each, and there are 71 workloads.
    let limits = Limits { run_seconds: 900, ..Limits::default() };
    let files = vec![file];
    let options = GuestOptions { files, disk: true, limits, ..usual(kernel) };
    let mut guest = Guest::boot(&kernels::ready(kernel).unwrap(), &options).unwrap();
    let swap = Some(SwapNeed { kind: SwapKind::Zram, size_bytes: 64 << 20 });
    let machine = MachineNeeds { swap, ..MachineNeeds::default() };
    let mut words = vec!["/needless-workload", "check", "--json", "--rounds", "20"];
    words.extend(names.iter().map(String::as_str));
    let done = guest.execute(&words, machine).unwrap();
    let errors = String::from_utf8_lossy(&done.errors);
    serde_json::from_slice(&done.output).unwrap_or_else(|_| panic!("{} {errors}", done.status))
}

/// What is not exact, and what could not run although it should.
fn wrong(kernel: &str, outcomes: &[Value]) -> Vec<String> {
    let mut lacks = vec!["pcid"];
    if kernel == "5.10" {
        lacks.push("MADV_POPULATE_READ");
    }
    if matches!(kernel, "5.10" | "6.1" | "6.1/arm64") {
        lacks.push("UFFD_FEATURE_WP_ASYNC");
    }
    if kernel == "6.1/arm64" {
        lacks.push("UFFD_FEATURE_PAGEFAULT_FLAG_WP");
    }
    if kernel.ends_with("/arm64") {
        lacks.push("a second NUMA node");
    }
    let fine = |outcome: &Value| match outcome["skipped"].as_str() {
        Some(why) => lacks.iter().any(|lack| why.contains(lack)),
        None => outcome["exact"] == true || outcome["undecided"].is_string(),
    };
    let wrong = outcomes.iter().filter(|outcome| !fine(outcome));
    wrong.map(|outcome| format!("{kernel}: {outcome}")).collect()
}

/// What others disturbed in every attempt.
fn undecided(kernel: &str, outcomes: &[Value]) -> Vec<String> {
    let told = outcomes.iter().filter_map(|outcome| {
        let why = outcome["undecided"].as_str()?;
        Some(format!("{kernel}: {}: {why}", outcome["name"].as_str()?))
    });
    told.collect()
}

/// The names of what a report lacks.
fn missing(outcomes: &[Value]) -> BTreeSet<&str> {
    let lists = outcomes.iter().filter_map(|outcome| outcome["missing"].as_array());
    lists.flatten().filter_map(|missing| missing["what"].as_str()).collect()
}

#[test]
fn every_class_and_every_cause_is_counted_exactly_on_every_kernel() {
    let _turn = turn();
    let program = program(Arch::X86_64).unwrap();
    let (mut all_wrong, mut all_undecided) = (Vec::new(), Vec::new());
    for (kernel, tells_fault_around) in
        [("5.10", false), ("6.1", false), ("6.12", true), ("7.3", true)]
    {
        let outcomes = check(kernel, &program, &names());
        all_wrong.extend(wrong(kernel, &outcomes));
        all_undecided.extend(undecided(kernel, &outcomes));
        assert_eq!(missing(&outcomes).is_empty(), tells_fault_around, "{:?}", missing(&outcomes));
    }
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
    if !all_undecided.is_empty() {
        skip!("{}", all_undecided.join("; "));
    }
}

/// Exceptions and flushes are no tracepoints there: faults are counted, minor and major, and have
/// no class.
#[test]
fn on_arm64_the_faults_are_counted_and_the_rest_is_told_to_be_missing() {
    let _turn = turn();
    let Some(program) = program(Arch::Arm64) else { return };
    let mut all_undecided = Vec::new();
    for kernel in ["6.1/arm64", "6.12/arm64"] {
        let outcomes = check(kernel, &program, &names());
        all_undecided.extend(undecided(kernel, &outcomes));
        let wrong = wrong(kernel, &outcomes);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let missing = missing(&outcomes);
        for what in ["exceptions:page_fault_user", "exceptions:page_fault_kernel", "tlb:tlb_flush"]
        {
            assert!(missing.contains(what), "{kernel}: {missing:?}");
        }
    }
    if !all_undecided.is_empty() {
        skip!("{}", all_undecided.join("; "));
    }
}
