//! What no kernel does is an error of the text. It is found before anything runs, with its place.

use miette::Diagnostic;
use needless_model::arch::X86_64;
use needless_scenario::{ScenarioError, Settings, Source, builtin, load, rehearsed};

/// The error, and the text that it points at.
fn error(text: &str) -> Option<(ScenarioError, Vec<String>)> {
    let error =
        rehearsed(&Source::new("bad.kdl", text), &Settings::default(), None, &X86_64).err()?;
    let labels = error.problems().filter_map(|problem| problem.labels()?.next());
    let places = labels.map(|l| text[l.offset()..l.offset() + l.len()].to_owned()).collect();
    Some((error, places))
}

fn main_thread(body: &str) -> String {
    format!("scenario \"x\" {{ thread \"main\" cpu=0 {{ {body} }} }}")
}

#[test]
fn what_no_kernel_does_is_pointed_at() {
    for (body, place, message) in [
        ("map \"a\" pages=1; rounds 3 { map \"a\" }", "\"a\"", "EEXIST"),
        ("map \"a\" pages=2 prot=\"read\"; rounds 1 { write \"a[1]\" }", "\"a[1]\"", "SIGSEGV"),
        (
            "map \"a\" pages=2; rounds 2 { munmap \"a[0]\"; read \"a[0..2]\" }",
            "\"a[0..2]\"",
            "SIGSEGV",
        ),
        ("map \"a\" pages=2; rounds 1 as=\"r\" { read \"a[r*r+2]\" }", "\"a[r*r+2]\"", "outside"),
        ("map \"a\" pages=9; rounds 9 as=\"r\" { read \"a[8/(4-r)]\" }", "\"a[8/(4-r)]\"", "zero"),
        (
            "map \"a\" pages=2; rounds 1 { munmap \"a\"; mprotect \"a\" prot=\"read\" }",
            "\"a\"",
            "ENOMEM",
        ),
        ("map \"a\" pages=1; rounds 5 as=\"r\" { repeat \"r*r-9\" {} }", "\"r*r-9\"", "the count"),
        (
            "map \"a\" pages=1; rounds 1 { uffdio_fill \"a\" by=\"copy\" }",
            "\"a\"",
            "ENOENT: the pages do not lie in one mapping that a userfaultfd watches",
        ),
        (
            "map \"a\" pages=1; map \"b\" pages=1; uffdio_register \"b\" mode=\"missing\"
             rounds 1 { uffdio_move \"a\" to=\"b\" }",
            "\"a\"",
            "ENOENT: there is no page to move",
        ),
        (
            "map \"a\" pages=1; uffdio_register \"a\" mode=\"missing\"
             rounds 1 { uffdio_fill \"a\" by=\"poison\"; read \"a\" }",
            "\"a\"",
            "poisoned page (SIGBUS)",
        ),
    ] {
        let (error, places) = error(&main_thread(body)).expect(body);
        assert_eq!(places, [place], "{body}: {error}");
        assert!(error.to_string().contains(message), "{body}: {error}");
    }
}

/// Calls that kernels refuse, and accesses behind a file's end, are errors of the text, with a
/// remedy.
#[test]
fn what_files_and_shared_memory_do_not_allow_is_pointed_at() {
    let text = |body: &str| {
        format!(
            "scenario \"x\" {{ file \"disk\" fs=\"ext4\" pages=4; file \"memory\" fs=\"tmpfs\" pages=4
             thread \"main\" cpu=0 {{ map \"file\" pages=4 file=\"disk\" backing=\"shared\"
             map \"own\" pages=4 file=\"memory\"; map \"tmp\" pages=4 file=\"memory\" backing=\"shared\"
             map \"heap\" pages=4; map \"shared\" pages=4 backing=\"shared\"
             rounds 2 {{ {body} }}; }}; {kernel}; }}",
            kernel = "kernel-thread \"flusher\" cpu=1 { writeback \"file\"; }"
        )
    };
    for (body, place, message, help) in [
        ("ftruncate \"disk\" pages=2; read \"file\"", "\"file\"", "SIGBUS", "ftruncate"),
        ("madvise \"shared\" advice=\"free\"", "\"shared\"", "EINVAL: MADV_FREE", "dontneed"),
        ("madvise \"own[1..3]\" advice=\"free\"", "\"own[1..3]\"", "EINVAL: MADV_FREE", "dontneed"),
        ("madvise \"heap\" advice=\"remove\"", "\"heap\"", "MADV_REMOVE", "backing="),
        ("madvise \"own\" advice=\"remove\"", "\"own\"", "MADV_REMOVE", "backing="),
        ("map \"more\" pages=1", "\"more\"", "EEXIST", "before `rounds`"),
    ] {
        let (error, places) = error(&text(body)).expect(body);
        assert_eq!(places, [place], "{body}: {error}");
        assert!(error.to_string().contains(message), "{body}: {error}");
        assert!(!error.to_string().contains("a real kernel does"), "{body}: {error}");
        let helps: Vec<String> =
            error.problems().filter_map(|problem| Some(problem.help()?.to_string())).collect();
        assert!(helps.iter().any(|given| given.contains(help)), "{body}: {helps:?}");
    }
    for body in ["madvise \"tmp\" advice=\"remove\"", "madvise \"heap\" advice=\"free\""] {
        assert!(error(&text(body)).is_none(), "{body}");
    }
    for area in ["heap", "tmp"] {
        let text =
            text("read \"heap\"").replace("writeback \"file\"", &format!("writeback \"{area}\""));
        let (error, places) = error(&text).expect(area);
        assert_eq!(places, [format!("\"{area}\"")]);
        assert!(error.to_string().contains("has no writeback"), "{error}");
    }
}

#[test]
fn processes_that_run_or_do_not_end_are_named() {
    let text = |parent: &str, child: &str| {
        format!(
            "scenario \"x\" {{ thread \"main\" cpu=0 {{ rounds 2 {{ {parent} }}; }}; process \"child\" cpu=1 {{ {child} }}; }}"
        )
    };
    let (problem, places) = error(&text("fork \"child\"", "spin")).unwrap();
    assert_eq!(places, ["\"child\""]);
    assert!(problem.to_string().contains("EAGAIN: the process runs already"), "{problem}");
    let waits = "fork \"child\"; wait \"child\"";
    let (problem, places) = error(&text(waits, "sleep")).unwrap();
    assert_eq!(places, ["\"child\""]);
    assert!(
        problem.to_string().contains("`main` waits for the end of process `child`"),
        "{problem}"
    );
    assert!(error(&text(waits, "")).is_none());
    let (problem, _) = error(&text(waits, "wait \"child\"")).unwrap();
    assert!(problem.to_string().contains("`child` cannot wait for itself"), "{problem}");
}

#[test]
fn threads_that_wait_for_good_are_named() {
    let text = "scenario \"x\" {
        thread \"main\" cpu=0 { map \"a\" pages=1; rounds 3 { barrier \"go\" } }
        thread \"other\" cpu=1 { repeat 2 { barrier \"go\" } } }";
    let (problem, places) = error(text).unwrap();
    assert_eq!(places, ["\"go\""]);
    assert!(problem.to_string().contains("`main` waits at barrier `go`"), "{problem}");
    let as_often = text.replace("repeat 2", "repeat 3");
    assert!(error(&as_often).is_none(), "{as_often}");
    let crossed = "scenario \"x\" {
        thread \"main\" cpu=0 { map \"a\" pages=1; rounds 1 { barrier \"b\"; barrier \"c\" } }
        thread \"other\" cpu=1 { barrier \"c\"; barrier \"b\" } }";
    let (_, places) = error(crossed).unwrap();
    assert_eq!(places, ["\"b\"", "\"c\""]);
}

#[test]
fn every_built_in_is_good() {
    for name in builtin::names().chain(builtin::litmus_names()) {
        let source = load(name).unwrap();
        let outcome = rehearsed(&source, &Settings::default(), None, &X86_64);
        assert!(outcome.is_ok(), "{name}: {:?}", outcome.err().map(miette::Report::new));
    }
}

#[test]
fn long_programs_are_rehearsed_for_a_moment() {
    let started = std::time::Instant::now();
    for body in [
        "map \"a\" pages=99999999; rounds 1000000000 { write \"a\" }",
        "map \"a\" pages=99999999; rounds 1 { madvise \"a\" advice=\"populate-write\" }",
        "map \"a\" pages=1; rounds 1 { repeat 1000000000 { read \"a\" } }",
        "map \"a\" pages=1; rounds 1 { repeat 1000000000 { } }",
        "map \"a\" pages=8; rounds 1 { touch \"a\" access=\"read\" order=\"random\" seed=1 count=\"1T\" }",
        "map \"a\" pages=99999999; rounds 1 { madvise \"a\" advice=\"dontneed\"; mprotect \"a\" prot=\"read\" }",
    ] {
        assert!(error(&main_thread(body)).is_none(), "{body}");
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
