//! What only the model and the checker run: reclaim, other processes, threads of the kernel.

use needless_check::{Options, Property, Report, check};
use needless_model::kernels::KernelRow;
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, Source, compile};

fn explore(threads: &str, row: &str) -> Report {
    let text = format!(
        "scenario \"x\" {{ machine {{ cpus 2; swap \"zram\" size=\"1M\" }}
         thread \"main\" cpu=0 {{ map \"heap\" pages=1; write \"heap\"; {threads} }}"
    );
    let program = compile(&Source::new("x", text), &Settings::default()).expect("it compiles");
    check(&program, &KernelRow::parse(row).expect("a row"), &Options::default())
        .expect("it can be explored")
}

#[test]
fn the_kernel_reclaims_under_a_reader() {
    let threads = "rounds 1 { barrier \"ready\"; read \"heap\" } }
                   kernel-thread \"kswapd\" cpu=1 { barrier \"ready\"; reclaim \"heap\" }";
    for row in ["5.10", "6.1", "6.12", "7.3"] {
        let report = explore(threads, row);
        assert_eq!(report.counterexample, None, "{row}");
        assert!(report.holds() && report.ends > 0, "{row}: {report:?}");
    }
}

#[test]
fn other_processes_take_identifiers_over() {
    let threads = "rounds 1 { repeat 2 { switch 8; read \"heap\" } } }";
    for row in ["5.10", "6.12", "7.3"] {
        let report = explore(threads, row);
        assert_eq!(report.counterexample, None, "{row}");
        assert!(report.holds() && report.ends > 0, "{row}: {report:?}");
        assert!(report.exercised.has(Property::AsidIsolation), "{row}: {report:?}");
    }
}

/// Shared memory has one page for all: two processes may both find none, and only one of theirs is to become it.
#[test]
fn two_processes_touch_shared_memory_at_once() {
    let text = "scenario \"x\" { machine { cpus 2 }
         thread \"main\" cpu=0 { map \"shared\" pages=1 backing=\"shared\"
             rounds 1 warmup=0 { fork \"child\"; write \"shared\"; read \"shared\" } }
         process \"child\" cpu=1 { write \"shared\"; read \"shared\" } }";
    let program = compile(&Source::new("x", text), &Settings::default()).expect("it compiles");
    let violated = |row: &str| {
        let row = KernelRow::parse(row).expect("a row");
        let report = check(&program, &row, &Options::default()).expect("it can be explored");
        assert!(report.exercised.has(Property::Coherence), "{report:?}");
        report.counterexample.map(|found| found.violation.property)
    };
    for row in ["5.10", "6.1", "6.12", "7.3"] {
        assert_eq!(violated(row), None, "{row}");
        let wrong = violated(&format!("{row},mutant=cache-unchecked"));
        assert_eq!(wrong, Some(Property::Coherence), "{row}");
    }
}

/// What the model does not have is refused in words, not left out.
#[test]
fn huge_pages_are_refused() {
    let text = "scenario \"x\" { machine { thp \"always\" }
         thread \"main\" cpu=0 { map \"heap\" pages=1; rounds 1 { write \"heap\" } } }";
    let program = compile(&Source::new("x", text), &Settings::default()).expect("it compiles");
    let row = KernelRow::parse("6.12").expect("a row");
    let checked = check(&program, &row, &Options::default()).expect_err("no huge pages");
    let run = sim::run(&program, &row, &SimOptions::default()).expect_err("no huge pages");
    for error in [checked.to_string(), run.to_string()] {
        assert!(error.contains("no transparent huge pages (`thp \"always\"`)"), "{error}");
    }
}
