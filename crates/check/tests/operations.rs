//! What only the model and the checker run: reclaim, other processes, threads of the kernel.

use needless_check::{Options, Property, Report, check, replay};
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

/// Shared memory has one page for all: two processes may both find none, and only one of theirs is
/// to become it.
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

/// Whoever serves a userfaultfd moves a page, to which another CPU stores meanwhile, to where a
/// load waits for it: no load finds zeros there, and the store is in one place or the other.
/// Without the flush the store goes by what the CPU has cached.
#[test]
fn a_page_is_moved_to_where_it_is_asked_for() {
    let text = "scenario \"x\" { machine { cpus 3; thp \"never\" }
         thread \"main\" cpu=0 { map \"spare\" pages=1; map \"heap\" pages=1
             uffdio_register \"heap\" mode=\"missing\"; write \"spare\"
             rounds 1 warmup=0 { barrier \"ready\"; read \"heap[0]\"; read \"heap[0]\" } }
         thread \"handler\" cpu=1 { barrier \"ready\"; uffd-answer by=\"move\" from=\"spare\" to=\"heap\" }
         thread \"writer\" cpu=2 { barrier \"ready\"; write \"spare\"; read \"spare\"; write \"spare\" } }";
    let program = compile(&Source::new("x", text), &Settings::default()).expect("it compiles");
    let explored = |row: &str| {
        let row = KernelRow::parse(row).expect("a row");
        check(&program, &row, &Options::default()).expect("it can be explored")
    };
    for row in ["6.12", "6.18", "7.3"] {
        let report = explored(row);
        assert_eq!(report.counterexample, None, "{row}");
        assert!(report.holds() && report.ends > 0, "{row}: {report:?}");
        let wrong = explored(&format!("{row},mutant=uffd-move-unflushed"));
        assert!(wrong.counterexample.is_some(), "{row}: {wrong:?}");
    }
}

/// A huge page has a page table put by, for when it is mapped page by page. One that was forgotten
/// is missed then.
#[test]
fn a_table_that_nobody_put_by_is_missed() {
    let text = "scenario \"x\" { machine { cpus 1; thp \"always\" }
         thread \"main\" cpu=0 { map \"heap\" pages=512 align=\"2M\"; write \"heap\"
             rounds 1 { madvise \"heap[0]\" advice=\"dontneed\" } } }";
    let program = compile(&Source::new("x", text), &Settings::default()).expect("it compiles");
    let run = |row: &str| {
        let row = KernelRow::parse(row).expect("a row");
        sim::run(&program, &row, &SimOptions::default()).map_err(|error| error.to_string())
    };
    for row in ["5.10", "6.1", "6.12", "7.3"] {
        assert!(run(row).is_ok(), "{row}");
        let missed = run(&format!("{row},mutant=deposit-forgotten")).expect_err("it is missed");
        assert!(missed.contains("none was deposited"), "{row}: {missed}");
    }
}

/// What the model does not have is refused in words, not left out.
#[test]
fn what_is_not_modelled_is_refused() {
    let text = "scenario \"x\" { thread \"main\" cpu=0 { map \"heap\" pages=1 backing=\"shared\"
         rounds 1 { write \"heap\"; mremap \"heap\" to=\"away\" } } }";
    let program = compile(&Source::new("x", text), &Settings::default()).expect("it compiles");
    let row = KernelRow::parse("6.12").expect("a row");
    let checked = check(&program, &row, &Options::default()).expect_err("no such mremap");
    let run = sim::run(&program, &row, &SimOptions::default()).expect_err("no such mremap");
    for error in [checked.to_string(), run.to_string()] {
        assert!(error.contains("no mremap of shared memory"), "{error}");
    }
}

/// A folio's lock is only tried by many, so that it shows when it was taken: two processes fault on
/// a page of shared memory that is there. Who comes between the other one's taking the lock and
/// what it does under it passes the page over, and has to ask the object for it.
#[test]
fn who_locks_a_folio_for_one_step_is_met_holding_it() {
    let text = "scenario \"x\" { machine { cpus 2 }
         thread \"main\" cpu=0 { map \"shared\" pages=1 backing=\"shared\"; write \"shared\"
             rounds 1 warmup=0 { madvise \"shared\" advice=\"dontneed\"; fork \"child\"; read \"shared\" } }
         process \"child\" cpu=1 { read \"shared\" } }";
    let program = compile(&Source::new("x", text), &Settings::default()).expect("it compiles");
    let row = KernelRow::parse("6.12").expect("a row");
    let labels = |schedule: &str| -> Vec<String> {
        let schedule = schedule.parse().expect("a schedule");
        let (steps, violation) = replay(&program, &row, &Options::default(), &schedule)
            .unwrap_or_else(|error| panic!("{schedule}: {error}"));
        assert_eq!(violation, None, "{schedule}");
        steps.into_iter().map(|step| step.label).collect()
    };
    let locked = (1..).find(|n| labels(&format!("0x{n}")).last().unwrap() == "folio_trylock");
    let locked = locked.expect("fault-around tries the lock");
    let tried = |child: &[String]| child.iter().position(|label| label == "folio_trylock").unwrap();
    // Between: it finds the lock taken, and the page is not mapped.
    let between = labels(&format!("0x{locked}.1x10"));
    let between = &between[locked..];
    let after_try = &between[tried(between) + 1..];
    assert_eq!(after_try, ["filemap_map_pages", "shmem_get_folio_gfp"], "{between:?}");
    // After: the lock is free again.
    let after = labels(&format!("0x{}.1x10", locked + 1));
    let after = &after[locked + 1..];
    let after_try = &after[tried(after) + 1..];
    assert_eq!(after_try, ["filemap_map_pages", "filemap_map_pages"], "{after:?}");
}

/// A page moves, because of its mapping's policy, while another thread stores to it.
#[test]
fn pages_leave_their_node_under_a_writer() {
    let text = "scenario \"x\" { machine { cpus 2; nodes 2 }
         thread \"main\" cpu=0 { map \"heap\" pages=1; write \"heap\"
             rounds 1 warmup=0 { barrier \"ready\"
                 mbind \"heap\" policy=\"bind\" node=1 then=\"move\"; read \"heap\" } }
         thread \"writer\" cpu=1 { barrier \"ready\"; write \"heap\"; read \"heap\" } }";
    let program = compile(&Source::new("x", text), &Settings::default()).expect("it compiles");
    let violated = |row: &str| {
        let row = KernelRow::parse(row).expect("a row");
        let report = check(&program, &row, &Options::default()).expect("it can be explored");
        let holds = report.holds() && report.ends > 0;
        assert!(holds || report.counterexample.is_some(), "{report:?}");
        report.counterexample.map(|found| found.violation.property)
    };
    for row in ["5.10", "6.1", "6.12", "6.18", "7.3"] {
        assert_eq!(violated(row), None, "{row}");
    }
    assert_eq!(violated("6.12,mutant=unmap-not-flushed"), Some(Property::Coherence));
}
