//! How problems look. One snapshot holds them all, so that their wording can be read in one go.

use miette::{GraphicalReportHandler, GraphicalTheme};
use needless_scenario::{ScenarioError, Settings, Source, compile, load};

fn render(error: &ScenarioError) -> String {
    let mut out = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(100)
        .render_report(&mut out, error)
        .unwrap();
    out
}

/// A scenario around operations of the first thread.
fn ops(text: &str) -> String {
    format!(
        "scenario \"x\" {{\n    param \"n\" default=8\n    thread \"t\" cpu=0 {{\n        map \"heap\" \
         pages=\"n\"\n        rounds 10 {{\n            {text}\n        }}\n    }}\n}}\n"
    )
}

/// A scenario around parts.
fn parts(text: &str) -> String {
    format!("scenario \"x\" {{\n    {text}\n}}\n")
}

/// Parts of a scenario with a process that may be forked.
fn forking(parent: &str, child: &str) -> String {
    format!(
        "thread \"t\" cpu=0 {{ rounds 1 {{\n{parent}\n}} }}\n    process \"child\" cpu=1 {{ {child} }}"
    )
}

fn cases() -> Vec<(&'static str, String)> {
    let main = "thread \"t\" cpu=0 { rounds 1 {} }";
    vec![
        ("type annotation on an argument", ops("repeat (n+1)*2 {}")),
        ("type annotation on a property", ops("map \"b\" pages=(n)8")),
        ("duplicate property", ops("map \"b\" pages=1 pages=2")),
        ("bare word", ops("read heap")),
        ("not KDL", ops("read 1x")),
        ("unclosed block", "scenario \"x\" {".to_owned()),
        ("unclosed string", ops("read \"heap")),
        ("slash-dash", ops("/- read \"heap\"")),
        ("unknown process", parts(&forking("fork \"chidl\"", ""))),
        ("no process at all", ops("fork \"child\"")),
        ("a process that forks itself", parts(&forking("", "fork \"child\""))),
        ("a process first", parts("process \"child\" cpu=0 { rounds 1 {} }")),
        ("a process with rounds", parts(&forking("", "rounds 1 {}"))),
        ("exec in the first process", ops("exec")),
        ("exec before something else", parts(&forking("", "exec; sleep"))),
        ("exec in a loop", parts(&forking("", "repeat 2 { exec }"))),
        ("nested too deeply", "a {".repeat(40)),
        ("unknown operation", ops("wriet \"heap\"")),
        ("unknown property", ops("madvise \"heap\" advise=\"cold\"")),
        ("argument count", ops("read \"heap\" \"heap\"; mark")),
        ("block missing", ops("measure")),
        ("unknown advice", ops("madvise \"heap\" advice=\"pagout\"")),
        ("unknown name inside an expression", ops("read \"heap[0..m+1]\"")),
        ("unknown area", ops("read \"haep[3]\"")),
        ("outside the area", ops("for-each \"p\" in=\"heap\" { read \"heap[p+1]\" }")),
        ("syntax inside a string", ops("read \"heap[1+]\"")),
        ("division by zero", ops("read \"heap[n/(n-8)]\"")),
        ("overflow", ops("read \"heap[n*9223372036854775807]\"")),
        ("range backwards", ops("read \"heap[4..2]\"")),
        ("empty range", ops("munmap \"heap[2..2]\"")),
        ("duration without unit", ops("sleep 10")),
        ("would never end", ops("spin")),
        ("rounds twice", ops("rounds 1 {}")),
        ("measure outside rounds", parts("thread \"t\" cpu=0 { measure {}; rounds 1 {} }")),
        ("no rounds", parts("thread \"t\" cpu=0 {}")),
        ("CPU too high", parts("machine { cpus 2 }\n    thread \"t\" cpu=\"1+1\" { rounds 1 {} }")),
        (
            "page table shared by accident",
            ops("map \"a\" pages=1 at=\"1G\"; map \"b\" pages=1 at=\"1G + 8K\""),
        ),
        ("areas overlap", ops("map \"a\" pages=4 at=\"1G\"; map \"b\" pages=1 at=\"1G + 8K\"")),
        ("no room for a neighbour", ops("map \"a\" pages=512 table=\"shared\"")),
        ("limits of a parameter", parts(&format!("param \"n\" default=5 max=4\n    {main}"))),
        ("not for the kernel", parts(&format!("{main}\n    kernel-thread \"k\" cpu=1 {{ spin }}"))),
        ("a name for two pages", ops("read \"heap[0..2]\" as=\"seen\"")),
        (
            "litmus test of a row that is none",
            parts(&format!("{main}\n    litmus {{ safe \"6.12,unmap-flsh=never\" }}")),
        ),
        ("several at once", ops("read \"a\"; read \"heap[9]\"; sleep \"1h\"")),
        ("empty file", String::new()),
    ]
}

#[test]
fn problems() {
    let mut all = String::new();
    for (name, text) in cases() {
        let source = Source::new("bad.kdl", text);
        match compile(&source, &Settings::default()) {
            Ok(_) => panic!("{name} is accepted:\n{}", source.text),
            Err(error) => all += &format!("── {name}\n{}\n", render(&error)),
        }
    }
    insta::assert_snapshot!(all);
}

#[test]
fn limits_and_times_have_their_place() {
    let limits = parts("param \"n\" default=5 min=5 max=2\n    thread \"t\" cpu=0 { rounds 1 {} }");
    for (text, message, place) in [
        (limits, "`n` can have no value", "bad.kdl:2:35"),
        (ops("sleep \"-1ms\""), "the duration is -1000000", "bad.kdl:6:20"),
        (ops("mark \"\\u{1b}[31mred\""), "a control character in a string", "bad.kdl:6:18"),
        (ops("mark \"\u{1b}[31mred\""), "a control character, U+001B", "bad.kdl:6:19"),
    ] {
        let error = compile(&Source::new("bad.kdl", &*text), &Settings::default()).unwrap_err();
        let shown = render(&error);
        assert!(shown.contains(message) && shown.contains(place), "{shown}");
    }
}

#[test]
fn nothing_of_a_text_steers_the_terminal_or_fills_it() {
    let long = "x".repeat(3 << 20);
    for text in [
        ops("mark \"\u{1b}]0;title\u{7}\""),
        ops("mark \"\\u{9b}2J\""),
        "scenario \"\\u{1b}[2J\" {}".to_owned(),
        "\"\\u{1b}[2J\"".to_owned(),
        "scenario \"x\" { thread \"\u{202e}\" cpu=0 {} }".to_owned(),
        ops(&long),
        long,
    ] {
        let started = std::time::Instant::now();
        let error = compile(&Source::new("bad\u{1b}[2J.kdl", &*text), &Settings::default());
        let shown = render(&error.unwrap_err());
        let steers = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!shown.contains(steers), "{shown:?}");
        assert!(shown.len() < 4000, "{} bytes", shown.len());
        assert!(started.elapsed().as_secs() < 2, "{:?}", started.elapsed());
    }
}

#[test]
fn only_files_of_a_scenarios_size_are_read() {
    let folder = std::env::temp_dir().join(format!("needless-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let large = folder.join("large.kdl");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let listening = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
    for (path, why) in [
        ("/dev/zero", "a device"),
        ("/", "a directory"),
        (folder.join("socket").to_str().unwrap(), "a socket"),
        (large.to_str().unwrap(), "at most 262144 bytes"),
    ] {
        let error = load(path).unwrap_err();
        assert!(matches!(error, ScenarioError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    drop(listening);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn settings_and_names() {
    let source = load("cow-reuse").unwrap();
    let mut all = String::new();
    for words in [&["pages=0"][..], &["page=1"], &["rounds=many", "threads=1/0"]] {
        let settings = Settings::parse(words.iter().copied()).unwrap();
        all += &render(&compile(&source, &settings).unwrap_err());
    }
    all += &render(&load("cow-reus").unwrap_err());
    insta::assert_snapshot!(all);
}
