//! Runs all workloads on other kernels, booted as guests.
use super::program::{execute, kernels_of, program, with_second_chance};
use needless_guest::{Arch, Guest, GuestError, GuestFile, GuestOptions, Limits, Nodes, kernels};
use needless_model::program::{MachineNeeds, SwapKind, SwapNeed};
use needless_testing::{skip, turn};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// A guest in which every workload can run except those that need PCIDs, which QEMU does not
/// emulate.
fn usual(kernel: &str) -> GuestOptions {
    let (append, nodes) = match kernel.ends_with("/arm64") {
        true => ("hugepages=4", Nodes::Even(1)),
        false => ("hugepages=4 no5lvl", Nodes::Even(2)),
    };
    GuestOptions { append: append.to_owned(), nodes, ..GuestOptions::default() }
}

/// Watches these workloads, or all, on a kernel.
fn check(kernel: &str, program: &Path, names: &[&str]) -> Vec<Value> {
    check_in(kernel, usual(kernel), program, names)
}

/// Watches these workloads, or all, in a guest with these options.
fn check_in(kernel: &str, options: GuestOptions, program: &Path, names: &[&str]) -> Vec<Value> {
    // Watching begins and ends in half a second together, and there are 79 workloads.
    let limits = Limits { run_seconds: 900, ..Limits::default() };
    // The kernel waits for each kind of tracepoint that is opened first or closed last. On an
    // emulated machine that takes long.
    let append = format!("{} rcupdate.rcu_expedited=1", options.append);
    let options = GuestOptions { disk: true, limits, append, ..options };
    let swap = Some(SwapNeed { kind: SwapKind::Zram, size_bytes: 64 << 20 });
    let machine = MachineNeeds { swap, ..MachineNeeds::default() };
    let words = [&["check", "--json", "--rounds", "20"], names].concat();
    let done = execute(kernel, program, options, &words, &machine);
    let errors = String::from_utf8_lossy(&done.errors);
    eprint!("{errors}");
    serde_json::from_slice(&done.output).unwrap_or_else(|_| panic!("{} {errors}", done.status))
}

/// The workloads that are not exact, and those that could not run although they should.
fn wrong(kernel: &str, outcomes: &[Value]) -> Vec<String> {
    let mut lacks = vec!["pcid", "idle=poll", "takes its time"];
    if kernel == "5.10" {
        lacks.extend(["MADV_POPULATE_READ", "MADV_COLLAPSE"]);
    }
    if kernel != "7.3" {
        lacks.push("hugetlb_optimize_vmemmap");
    }
    if matches!(kernel, "5.10" | "6.1" | "6.1/arm64") {
        lacks.push("UFFD_FEATURE_WP_ASYNC");
    }
    if kernel == "6.1/arm64" {
        lacks.push("UFFD_FEATURE_PAGEFAULT_FLAG_WP");
    }
    if kernel.ends_with("/arm64") {
        lacks.extend(["a second NUMA node", "x86-64"]);
    }
    let fine = |outcome: &Value| match outcome["skipped"].as_str() {
        Some(why) => lacks.iter().any(|lack| why.contains(lack)),
        None => outcome["exact"] == true || outcome["undecided"].is_string(),
    };
    let wrong = outcomes.iter().filter(|outcome| !fine(outcome));
    wrong.map(|outcome| format!("{kernel}: {outcome}")).collect()
}

/// The workloads that other tasks disturbed in every attempt.
fn undecided(kernel: &str, outcomes: &[Value]) -> Vec<String> {
    let told = outcomes.iter().filter_map(|outcome| {
        let why = outcome["undecided"].as_str()?;
        Some(format!("{kernel}: {}: {why}", outcome["name"].as_str()?))
    });
    told.collect()
}

/// The names of everything that a report lacks.
fn missing(outcomes: &[Value]) -> BTreeSet<&str> {
    let lists = outcomes.iter().filter_map(|outcome| outcome["missing"].as_array());
    lists.flatten().filter_map(|missing| missing["what"].as_str()).collect()
}

/// Runs on the oldest and the newest kernel. `make stat-kernels` includes those between, too, and
/// `WORKLOADS="…"` with it selects workloads. A kernel takes about a minute and a half:
/// docs/performance.md.
#[test]
fn every_class_and_every_cause_is_counted_exactly_on_every_kernel() {
    let _turn = turn();
    let program = program(Arch::X86_64).unwrap();
    let (mut all_wrong, mut all_undecided) = (Vec::new(), Vec::new());
    let names = std::env::var("NEEDLESS_WORKLOADS").unwrap_or_default();
    let names: Vec<&str> = names.split_whitespace().collect();
    for kernel in kernels_of(Arch::X86_64, "5.10 7.3") {
        let tells_fault_around = !matches!(kernel.as_str(), "5.10" | "6.1");
        let outcomes = check(&kernel, &program, &names);
        all_wrong.extend(wrong(&kernel, &outcomes));
        all_undecided.extend(undecided(&kernel, &outcomes));
        assert_eq!(missing(&outcomes).is_empty(), tells_fault_around, "{:?}", missing(&outcomes));
    }
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
    if !all_undecided.is_empty() {
        skip!("{}", all_undecided.join("; "));
    }
}

/// A CPU that polls while it is idle is asked and not interrupted, if it is the only one that is
/// asked (kernel/smp.c: smp_call_function_many_cond, kernel/sched/core.c:
/// call_function_single_prep_ipi). The report tells this apart, and the kernel's count of
/// interrupts does not have it either. If several CPUs are asked, each is interrupted, polling or
/// not. A CPU whose queue has a remote wake-up in it already is not counted among them, so another
/// one may be the only one.
#[test]
fn what_idle_cpus_do_that_poll_is_no_interrupt() {
    let _turn = turn();
    let program = program(Arch::X86_64).unwrap();
    let mut never_idle = Vec::new();
    // One more CPU is there for everything else, including the watching process.
    for (kernel, cpus) in [("6.12", 1), ("6.12", 2), ("7.3", 1)] {
        let usual = GuestOptions { cpus, nodes: Nodes::Even(1), ..usual(kernel) };
        let options = GuestOptions { append: format!("{} idle=poll", usual.append), ..usual };
        let outcomes = check_in(kernel, options, &program, &["collapse_idle"]);
        let [outcome] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert_eq!(outcome["exact"], true, "{kernel}: {outcome}");
        let without = outcome["uninterrupted"]["page-table synchronisation"].as_u64().unwrap();
        // An interrupt is certainly needless if it comes to a CPU that runs no task.
        let idle = outcome["needless"][0]["certain"].as_u64().unwrap_or(0);
        match cpus {
            _ if idle == 0 => never_idle.push(kernel),
            1 => assert!((1..=idle).contains(&without), "{kernel}: {outcome}"),
            _ => {
                let lines = outcome["counted_interrupts"].as_array().unwrap().iter();
                let woken: u64 =
                    lines.filter_map(|line| line["functions"]["remote wake-up"].as_u64()).sum();
                assert!(without <= woken, "{kernel}: {outcome}");
            }
        }
        let held = outcome["counted_interrupts"].as_array().unwrap().iter();
        let calls: Vec<_> = held.filter(|held| held["line"] == "CAL" && held["cpu"] == 1).collect();
        let [calls] = calls[..] else { panic!("{kernel}: {outcome}") };
        assert_eq!(calls["agrees"], true, "{kernel}: {calls}");
    }
    if !never_idle.is_empty() {
        skip!("the other CPU was never idle: {never_idle:?}");
    }
}

/// What a guard of CPU 1 saw in a guest in which that CPU is isolated and may stop its tick.
fn guard(kernel: &str, program: &Path, words: &[&str]) -> Value {
    with_second_chance(kernel, || guard_once(kernel, program, words)).unwrap()
}

fn guard_once(kernel: &str, program: &Path, words: &[&str]) -> Result<Value, GuestError> {
    let usual = usual(kernel);
    let isolated = "nohz_full=1 isolcpus=domain,managed_irq,1 rcu_nocbs=1";
    let append = format!("{} {isolated}", usual.append);
    let file = GuestFile { name: "needless-workload".to_owned(), source: program.to_owned() };
    let options = GuestOptions { files: vec![file], append, nodes: Nodes::Even(1), ..usual };
    let mut guest = Guest::boot(&kernels::ready(kernel).unwrap(), &options)?;
    let words = [&["/needless-workload", "guard", "1"], words].concat();
    let mut guard = || {
        let done = guest.execute(&words, MachineNeeds::default())?;
        let errors = String::from_utf8_lossy(&done.errors);
        let run: Result<Value, _> = serde_json::from_slice(&done.output);
        let run = run.unwrap_or_else(|_| panic!("{} {errors}", done.status));
        assert_eq!(run["events"]["watching"]["lost"], 0, "{run}");
        Ok::<Value, GuestError>(run["events"].clone())
    };
    // Interrupts of its timer, reschedules and calls are those that the kernel counted, one by one.
    // An interrupt that is under way when the file is read may be missing: then the file is read
    // once more.
    let agrees = |events: &Value| {
        let held = events["counted_interrupts"].as_array().unwrap().iter();
        held.clone().all(|held| held["cpu"] == 1 && held["agrees"] == true)
    };
    let mut seen = Vec::new();
    for _ in 0..3 {
        let events = guard()?;
        if agrees(&events) {
            return Ok(events["guard"].clone());
        }
        seen.push(events["counted_interrupts"].clone());
    }
    panic!("{kernel}: {seen:?}");
}

/// On an isolated CPU that may stop its tick, each disturbance is named, and its number is known:
/// each round (and each of 8 before) makes one table synchronisation and two flushes.
#[test]
fn an_isolated_cpu_is_disturbed_by_what_the_workload_does_to_it() {
    let _turn = turn();
    let program = program(Arch::X86_64).unwrap();
    for kernel in ["6.12", "7.3"] {
        let alone = guard(kernel, &program, &["--rounds", "3000"]);
        let of = |guard: &Value, cause: &str| {
            let causes = guard["causes"].as_array().unwrap().iter();
            let came = |row: &Value| {
                row["interrupts"].as_u64().unwrap() + row["same_interrupt"].as_u64().unwrap()
            };
            causes.filter(|row| row["cause"] == cause).map(came).sum::<u64>()
        };
        for cause in ["tlb-flush", "table-sync", "kernel-flush", "text-patch"] {
            assert_eq!(of(&alone, cause), 0, "{kernel}: {alone}");
        }
        let disturbed = guard(kernel, &program, &["collapse", "--rounds", "20"]);
        let all = disturbed["disturbances"].as_array().unwrap();
        let synced = all.iter().filter(|row| row["cause"] == "table-sync");
        // Sometimes khugepaged is first: its scan falls between MADV_HUGEPAGE and MADV_COLLAPSE. Or
        // it collapses something between rounds, beside the workload's own collapses.
        let by_khugepaged =
            synced.clone().filter(|row| row["from"]["kernel_thread"] == true).count() as u64;
        let total = of(&disturbed, "table-sync");
        assert_eq!(synced.clone().count() as u64, total, "{kernel}: {disturbed}");
        let own = total - by_khugepaged;
        assert!(own <= 28 && total >= 28, "{kernel}: {own} of {total}: {disturbed}");
        let named = |row: &Value| match row["from"]["kernel_thread"] == true {
            true => row["from"]["name"] == "khugepaged",
            false => row["doing"] == "madvise(MADV_COLLAPSE)",
        };
        assert!(synced.clone().all(named), "{kernel}: {disturbed}");
        assert!(of(&disturbed, "tlb-flush") >= 56, "{kernel}: {disturbed}");
    }
}

/// Exceptions and flushes have no tracepoints on arm64. Faults are counted, minor and major, and
/// have no class.
#[test]
fn on_arm64_the_faults_are_counted_and_the_rest_is_told_to_be_missing() {
    let _turn = turn();
    let Some(program) = program(Arch::Arm64) else { return };
    let mut all_undecided = Vec::new();
    for kernel in ["6.1/arm64", "6.12/arm64"] {
        let outcomes = check(kernel, &program, &[]);
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
