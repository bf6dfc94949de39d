//! userfaultfd and scans for written pages: naming what kernels lack, and answers that move pages.

use needless_model::event::{Event, EventKind, FlushReason};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::sim::{self, SimError, SimOptions};
use needless_model::site::Site;
use needless_scenario::{Settings, Source, compile};

fn compiled(body: &str) -> Result<Program, String> {
    let text = format!("scenario \"test\" {{\n machine {{ cpus 2; thp \"never\" }}\n{body}\n}}");
    compile(&Source::new("test", text), &Settings::default())
        .map_err(|error| error.problems().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

fn row(name: &str) -> KernelRow {
    KernelRow::parse(name).expect("a row")
}

/// Memory that cannot be watched cannot be unregistered either. 7.3 refuses other modes where
/// stores are watched.
#[test]
fn registrations_that_kernels_refuse_are_refused() {
    let on_disk = "file=\"data\" offset=0";
    let wp = "uffdio_register \"heap\" mode=\"wp\"";
    let asynchronous = format!("{wp} features=\"async\"");
    let (missing, both) = (wp.replace("wp", "missing"), wp.replace("wp", "missing-wp"));
    let unregister = "uffdio_unregister \"heap\"";
    let refused = |kernel: &str, of: &str, calls: &[&str]| {
        let text = format!(
            "scenario \"test\" {{
                file \"data\" fs=\"ext4\" pages=1
                machine {{ cpus 2; thp \"never\" }}
                thread \"main\" cpu=0 {{
                    map \"heap\" pages=1 {of}
                    rounds 1 warmup=0 {{ {} }}
                }}
                thread \"handler\" cpu=1 {{ uffd-serve by=\"copy\" }}
            }}",
            calls.join("\n")
        );
        let program = compile(&Source::new("test", text), &Settings::default());
        let program = program.unwrap_or_else(|error| panic!("{calls:?}: {error:?}"));
        let run = sim::run(&program, &row(kernel), &SimOptions::default());
        run.err().map(|error| error.to_string())
    };
    let says = |said: Option<String>, errno: &str| said.is_some_and(|said| said.contains(errno));
    for kernel in ["5.10", "6.1", "6.12", "6.18", "7.2", "7.3"] {
        assert!(says(refused(kernel, on_disk, &[unregister]), "EINVAL"), "{kernel}");
        assert_eq!(refused(kernel, "", &[unregister]), None, "{kernel}");
        let others = refused(kernel, "", &[wp, &missing]);
        assert_eq!(says(others, "EBUSY"), kernel == "7.3", "{kernel}");
        assert_eq!(refused(kernel, "", &[wp, unregister, &missing, wp, &both]), None, "{kernel}");
    }
    assert_eq!(refused("6.12", on_disk, &[&asynchronous, unregister]), None);
}

/// A call that a kernel does not have is named, with the first kernel that has it and the oldest
/// row.
#[test]
fn what_a_row_lacks_is_named() {
    let (heap, shared) = ("map \"heap\" pages=4", "map \"heap\" pages=4 backing=\"shared\"");
    let watched = "uffdio_register \"heap\" mode=\"missing\"";
    for (map, calls, row_name, words, oldest) in [
        (
            heap,
            "uffdio_register \"heap\" mode=\"wp\" features=\"unpopulated\"",
            "6.1",
            "UFFD_FEATURE_WP_UNPOPULATED (6.4 and later",
            "6.12",
        ),
        (
            heap,
            "uffdio_register \"heap\" mode=\"wp\" features=\"async\"",
            "5.10",
            "UFFD_FEATURE_WP_ASYNC (6.7 and later",
            "6.12",
        ),
        (
            shared,
            "uffdio_register \"heap\" mode=\"minor\"",
            "5.10",
            "UFFDIO_REGISTER_MODE_MINOR for shared memory (UFFD_FEATURE_MINOR_SHMEM; 5.14 and later",
            "5.15",
        ),
        (
            shared,
            "uffdio_register \"heap\" mode=\"wp\"",
            "5.15",
            "UFFDIO_REGISTER_MODE_WP for shared memory (UFFD_FEATURE_WP_HUGETLBFS_SHMEM; 5.19 and later",
            "6.1",
        ),
        (
            shared,
            &format!("{watched}\n uffdio_fill \"heap\" by=\"continue\""),
            "5.10",
            "UFFDIO_CONTINUE for shared memory (5.14 and later",
            "5.15",
        ),
        (
            heap,
            &format!("{watched}\n uffdio_fill \"heap\" by=\"poison\""),
            "6.1",
            "UFFDIO_POISON (6.6 and later",
            "6.12",
        ),
        (
            heap,
            &format!(
                "map \"from\" pages=4\n write \"from\"\n {watched}\n uffdio_move \"from\" to=\"heap\""
            ),
            "6.1",
            "UFFDIO_MOVE (6.8 and later",
            "6.12",
        ),
        (heap, "pagemap_scan \"heap\"", "6.1", "PAGEMAP_SCAN (6.7 and later", "6.12"),
        (
            heap,
            "madvise \"heap\" advice=\"guard-install\"",
            "6.12",
            "MADV_GUARD_INSTALL and MADV_GUARD_REMOVE (6.13 and later",
            "6.16",
        ),
        (
            heap,
            "madvise \"heap\" advice=\"populate-read\"",
            "5.10",
            "MADV_POPULATE_READ and MADV_POPULATE_WRITE (5.14 and later",
            "5.15",
        ),
        (
            heap,
            "process_madvise \"heap\" advice=\"dontneed\"",
            "6.12",
            "process_madvise with this advice (6.13 and later",
            "6.16",
        ),
        (
            heap,
            "process_madvise \"heap\" advice=\"cold\"",
            "5.8",
            "process_madvise (5.10 and later",
            "5.10",
        ),
        (
            heap,
            "pagemap \"heap\"",
            "6.12,soft-dirty=off",
            "soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)",
            "",
        ),
    ] {
        let body =
            format!("thread \"main\" cpu=0 {{\n {map}\n rounds 1 warmup=0 {{ {calls} }}\n}}");
        let program = match compile(
            &Source::new(
                "test",
                format!("scenario \"test\" {{\n machine {{ cpus 1; thp \"never\" }}\n{body}\n}}"),
            ),
            &Settings::default(),
        ) {
            Ok(program) => program,
            Err(error) => panic!("{calls}: {error:?}"),
        };
        let error = sim::run(&program, &row(row_name), &SimOptions::default()).unwrap_err();
        let SimError::Call { lacks: Some(feature), .. } = &error else {
            panic!("{calls}: {error}")
        };
        let said = error.to_string();
        assert!(said.contains(&format!(": this kernel has no {words}")), "{calls}: {said}");
        assert!(feature.remedy().contains(oldest), "{calls}: {}", feature.remedy());
        let newest = sim::run(&program, &row("7.3"), &SimOptions::default());
        let other = matches!(&newest, Err(SimError::Call { lacks: None, .. }));
        assert!(newest.is_ok() || other, "{calls}: {newest:?}");
    }
}

const MOVES: &str = r#"
    thread "main" cpu=0 {
        map "spare" pages=4
        map "heap" pages=4
        uffdio_register "heap" mode="missing"
        rounds 1 warmup=0 {
            write "spare"
            write "heap[2]"
            read "heap[0]"
        }
    }
    thread "handler" cpu=1 { uffd-serve by="move" from="spare" to="heap" }
"#;

/// The page comes from the same place of the other area. The handler flushes that area's mapping.
/// Older kernels say what they lack.
#[test]
fn pages_are_moved_to_where_they_are_asked_for() {
    let program = compiled(MOVES).unwrap();
    for kernel in ["6.12", "6.18", "7.3"] {
        let options = SimOptions { paranoid: true, ..SimOptions::default() };
        let run = sim::run(&program, &row(kernel), &options).unwrap();
        let flush = |event: &&Event| {
            event.site == Some(Site::MovePages)
                && matches!(
                    event.kind,
                    EventKind::Flush { reason: FlushReason::RemoteSend, pages: Some(1), .. }
                )
        };
        let flushes: Vec<&Event> = run.rounds[0].events.iter().filter(flush).collect();
        assert_eq!(flushes.len(), 2, "{kernel}");
        assert!(flushes.iter().all(|event| event.cpu.0 == 1), "{kernel}");
    }
    for kernel in ["5.10", "6.1"] {
        let error = sim::run(&program, &row(kernel), &SimOptions::default()).unwrap_err();
        let said = "`uffd-serve by=move from=spare to=heap`: this kernel has no UFFDIO_MOVE (6.8 and later have it)";
        assert_eq!(error.to_string(), said, "{kernel}");
    }
}

#[test]
fn bad_moves_are_pointed_at() {
    for (served, said) in [
        ("by=\"move\" to=\"heap\"", "`from` is missing"),
        ("by=\"move\" from=\"spare\"", "`to` is missing"),
        ("by=\"move\" from=\"heap\" to=\"heap\"", "the pages are in this area already"),
        ("by=\"move\" from=\"small\" to=\"heap\"", "`small` has 1 pages for 4"),
        ("by=\"move\" from=\"shared\" to=\"heap\"", "`shared` is not private memory"),
        ("by=\"move\" from=\"spear\" to=\"heap\"", "unknown area `spear`"),
        ("by=\"copy\" from=\"spare\" to=\"heap\"", "nothing is moved"),
        ("by=\"swap\"", "unknown by `swap`"),
    ] {
        let body = MOVES.replace("by=\"move\" from=\"spare\" to=\"heap\"", served).replace(
            "map \"heap\"",
            "map \"small\" pages=1\n map \"shared\" pages=4 backing=\"shared\"\n map \"heap\"",
        );
        let found = compiled(&body).unwrap_err();
        assert!(found.contains(said), "{served}: {found}");
    }
}

/// Rounds that note stores and rounds that answer faults, each with a userfaultfd of its own.
const IN_TURN: &str = r#"
    thread "main" cpu=0 {
        map "heap" pages=4
        write "heap"
        uffdio_register "heap" mode="wp" features="unpopulated"
        uffdio_writeprotect "heap" mode="protect"
        uffdio_register "heap[0..2]" mode="wp" features="async"
        rounds 1 warmup=0 {
            write "heap"
            pagemap_scan "heap[0..2]" then="protect"
            write "heap"
        }
    }
"#;

/// When another userfaultfd takes the first one's place, pages that the first one protected are not
/// protected any more. That holds also where the new one watches nothing.
#[test]
fn another_userfaultfd_takes_the_place_of_the_first() {
    let program = compiled(IN_TURN).unwrap();
    for kernel in ["6.12", "6.18", "7.3", "7.3,uffd-async=inverted"] {
        let options = SimOptions { paranoid: true, ..SimOptions::default() };
        let run = sim::run(&program, &row(kernel), &options).unwrap();
        let fault = |event: &&Event| matches!(event.kind, EventKind::Fault { .. });
        // Faults of the second stores, to the pages that the scan protected.
        let faults = run.rounds[0].events.iter().filter(fault).count();
        assert_eq!(faults, 2, "{kernel}");
    }
}

#[test]
fn another_userfaultfd_is_refused_where_somebody_else_has_the_first() {
    let refused = |round: &str, more: &str| {
        let body = IN_TURN.replace("then=\"protect\"\n", &format!("then=\"protect\"\n{round}\n"));
        compiled(&format!("{body}\n{more}")).unwrap_err()
    };
    let served = "thread \"handler\" cpu=1 { uffd-serve by=\"unprotect\" }";
    let child = "process \"child\" cpu=1 { read \"heap\" }";
    for (round, more) in [("", served), ("fork \"child\"", child)] {
        assert_eq!(refused(round, more), "the userfaultfd has other features", "{more}");
    }
    let alike = IN_TURN.replace("features=\"unpopulated\"", "features=\"async\"");
    assert!(compiled(&format!("{alike}\n{served}")).is_ok());
}
