//! How problems look. One snapshot holds them all, so that their wording can be read in one go.
#![allow(clippy::unwrap_used)]

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
