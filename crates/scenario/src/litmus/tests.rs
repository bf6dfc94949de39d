//! Tests of the `litmus` node and of the names that it uses: what is read, and what is refused.

use super::*;
use crate::{ScenarioError, Settings, Source};
use miette::Diagnostic;
use needless_model::program::Program;

/// A scenario with named accesses and these parts.
fn text(parts: &str) -> String {
    format!(
        "scenario \"x\" {{ {parts}\n thread \"a\" cpu=0 {{ map \"heap\" pages=2\n \
         rounds 1 {{ write \"heap[0]\" as=\"old\"; write \"heap[1]\" as=\"new\" }} }}\n \
         thread \"b\" cpu=1 {{ read \"heap[0]\" as=\"seen\"; read \"heap[1]\" as=\"late\" }} }}"
    )
}

fn litmus(text: &str) -> Result<(Program, Option<Litmus>), ScenarioError> {
    crate::litmus(&Source::new("x", text), &Settings::default())
}

/// The only problem of a text: its message, the text that it points at, and its help.
fn problem(text: &str) -> (String, String, String) {
    let error = litmus(text).expect_err(text);
    let problems: Vec<_> = error.problems().collect();
    assert_eq!(problems.len(), 1, "{text}: {problems:?}");
    let label = problems[0].labels().unwrap().next().unwrap();
    let place = text[label.offset()..label.offset() + label.len()].to_owned();
    let help = problems[0].help().expect("a remedy").to_string();
    (problems[0].to_string(), place, help)
}

#[test]
fn everything_is_read() {
    let (program, litmus) = litmus(&text(
        "litmus { doc \"One.\"; doc \"Two.\"; forbid \"P1\" \"P5\"
         observe \"o\" when=\"seen=old and late=zero\" expect=\"sometimes\"
         safe \"5.10\" \"6.12,mglru=off\"
         fails \"6.12,mutant=unmap-not-flushed\" violates=\"P1\" doc=\"No flush.\" }",
    ))
    .unwrap();
    let litmus = litmus.unwrap();
    let op = |text: &str| program.op_texts.iter().position(|t| t == text).unwrap() as u32;
    assert_eq!(litmus.forbid, [Property::NoUseAfterFree, Property::Revoked]);
    assert_eq!(litmus.safe, ["5.10", "6.12,mglru=off"]);
    let [observation] = &litmus.observations[..] else { panic!() };
    assert_eq!((observation.name.as_str(), observation.expect), ("o", Expect::Sometimes));
    let old = Clause { load: op("read heap[0]"), value: Some(op("write heap[0]")) };
    assert_eq!(observation.clauses, [old, Clause { load: op("read heap[1]"), value: None }]);
    let row = "6.12,mutant=unmap-not-flushed".to_owned();
    let doc = "No flush.".to_owned();
    assert_eq!(litmus.fails, [Failing { row, violates: Property::NoUseAfterFree, doc }]);
}

#[test]
fn without_forbid_every_property_must_hold() {
    let (_, read) = litmus(&text("litmus { safe \"6.12\" }")).unwrap();
    assert_eq!(read.unwrap().forbid, []);
    assert_eq!(litmus(&text("")).unwrap().1, None);
}

#[test]
fn names_do_not_change_the_program() {
    let with = text("");
    let without = ["old", "new", "seen", "late"]
        .iter()
        .fold(with.clone(), |text, name| text.replace(&format!(" as=\"{name}\""), ""));
    assert_ne!(with, without);
    assert_eq!(litmus(&with).unwrap(), litmus(&without).unwrap());
}

#[test]
fn what_is_wrong_with_a_litmus_node_is_pointed_at() {
    for (parts, message, place, help) in [
        ("forbid \"P1\"", "names no kernel row", "litmus", "add safe"),
        ("forbid \"P99\"; safe \"6.1\"", "unknown property `P99`", "\"P99\"", "P1, P2"),
        ("forbid 1; safe \"6.1\"", "a property's number", "1", "quoted"),
        ("forbid \"P1\" \"P1\"; safe \"6.1\"", "`P1` is given twice", "\"P1\"", "remove"),
        (
            "forbid \"P1\"; forbid \"P2\"; safe \"6.1\"",
            "`forbid` is given twice",
            "forbid",
            "one line",
        ),
        ("safe \"6.1\"; safe \"6.12\"", "`safe` is given twice", "safe", "one line"),
        ("safe \"6.13\"", "no kernel row `6.13`", "\"6.13\"", "did you mean `6.1"),
        (
            "safe \"6.12,reus=x\"",
            "`reus=x` is not understood",
            "\"6.12,reus=x\"",
            "did you mean `reuse`?",
        ),
        (
            "safe \"6.12,reuse=mapcoun\"",
            "no value `mapcoun`",
            "\"6.12,reuse=mapcoun\"",
            "`mapcount`",
        ),
        ("safe \"6.12,x\"", "`x` is not understood", "\"6.12,x\"", "needless policies"),
        ("safe \"6.1\" \"6.1\"", "`6.1` is given twice", "\"6.1\"", "remove one"),
        (
            "safe \"6.1\"; fails \"6.1\" violates=\"P1\"",
            "`6.1` is given twice",
            "\"6.1\"",
            "remove one",
        ),
        ("fails \"6.1\" violates=\"P0\"", "unknown property `P0`", "\"P0\"", "properties: P1"),
        ("fails \"6.1\"", "needs the property `violates`", "fails", "usage: fails"),
        ("safe", "`safe` needs one argument", "safe", "usage: safe"),
        ("doc 1; safe \"6.1\"", "a sentence", "1", "quoted"),
    ] {
        let (said, at, remedy) = problem(&text(&format!("litmus {{ {parts} }}")));
        assert!(said.contains(message), "{parts}: {said}");
        assert_eq!(at, place, "{parts}");
        assert!(remedy.contains(help), "{parts}: {remedy}");
    }
    let (said, _, _) = problem(&text("litmus { safe \"6.1\" }; litmus { safe \"6.1\" }"));
    assert_eq!(said, "`litmus` is given twice");
}

#[test]
fn what_is_wrong_with_an_observation_is_pointed_at() {
    for (when, message, place, help) in [
        ("sen=old", "no load is named `sen`", "sen", "did you mean `seen`?"),
        ("seen=odl", "no store is named `odl`", "odl", "stores here: old, new, zero"),
        ("seen=old and old=zero", "`old` is not a load", "old", "on the left"),
        ("seen=late", "`late` is not a store", "late", "on the right"),
        ("seen", "not an observation", "seen", "LOAD=STORE"),
        ("seen=old and ", "not an observation", "", "LOAD=STORE"),
        ("seen=old and seen=zero", "`seen` is given twice", "seen", "one value"),
        ("zero=old", "no load is named `zero`", "zero", "loads here: seen, late"),
    ] {
        let observe = format!("observe \"o\" when=\"{when}\" expect=\"never\"; safe \"6.1\"");
        let (said, at, remedy) = problem(&text(&format!("litmus {{ {observe} }}")));
        assert!(said.contains(message), "{when}: {said}");
        assert_eq!(at, place, "{when}");
        assert!(remedy.contains(help), "{when}: {remedy}");
    }
    let observe = |name, expect| {
        format!("observe \"{name}\" when=\"seen=old\" expect=\"{expect}\"; safe \"6.1\"")
    };
    let expect = problem(&text(&format!("litmus {{ {} }}", observe("o", "nevr"))));
    assert_eq!(
        (expect.0.as_str(), expect.2.as_str()),
        ("unknown expect `nevr`", "did you mean `never`?")
    );
    let name = problem(&text(&format!("litmus {{ {} }}", observe("o o", "never"))));
    assert_eq!(name.0, "`o o` cannot name an observation");
    let twice =
        format!("{}; observe \"o\" when=\"seen=old\" expect=\"never\"", observe("o", "never"));
    assert_eq!(problem(&text(&format!("litmus {{ {twice} }}"))).0, "`o` is given twice");
}

#[test]
fn what_is_wrong_with_a_name_is_pointed_at() {
    let body = |body: &str| {
        format!(
            "scenario \"x\" {{ param \"n\" default=2; thread \"a\" cpu=0 {{ map \"heap\" pages=\"n\"\n \
             rounds 2 as=\"r\" {{ {body} }} }}\n thread \"b\" cpu=0 count=\"n\" {{ sleep \"1ms\" }} }}"
        )
    };
    for (ops, message, help) in [
        ("read \"heap[0]\" as=\"1\"", "cannot name a load or store", "letters"),
        ("read \"heap[0]\" as=\"zero\"", "cannot name a load or store", "reserved"),
        ("read \"heap[0]\" as=\"a\"; write \"heap[0]\" as=\"a\"", "`a` is given twice", "another"),
        ("read \"heap\" as=\"a\"", "does not name an access to one page", "exactly one page"),
        ("read \"heap[0..0]\" as=\"a\"", "does not name an access to one page", "exactly one page"),
        ("write \"heap[r]\" as=\"a\"", "does not name an access to one page", "exactly one page"),
        ("read \"heap[9]\" as=\"a\"", "page 9 is outside", "has 2 pages"),
        ("touch \"heap\" access=\"read\" as=\"a\"", "no property `as`", "access"),
    ] {
        let (said, _, remedy) = problem(&body(ops));
        assert!(said.contains(message), "{ops}: {said}");
        assert!(remedy.contains(help), "{ops}: {remedy}");
    }
    assert!(litmus(&body("read \"heap[n-1]\" as=\"a\"")).is_ok());
    let several = body("").replace("sleep \"1ms\"", "read \"heap[0]\" as=\"a\"");
    let (said, place, _) = problem(&several);
    assert_eq!((said.as_str(), place.as_str()), ("each of several threads names `a`", "\"a\""));
}

#[test]
fn what_is_wrong_with_the_models_own_operations_is_pointed_at() {
    let whole = |first: &str, second: &str| {
        format!(
            "scenario \"x\" {{ thread \"a\" cpu=0 {{ map \"heap\" pages=2\n \
             rounds 2 as=\"r\" {{ {first} }} }}\n kernel-thread \"k\" cpu=1 {{ {second} }} }}"
        )
    };
    for (first, second, message, help) in [
        ("switch 0", "", "the number of processes is 0", "at least 1"),
        ("switch 9", "", "the number of processes is 9", "at most 8"),
        ("switch \"r+8\"", "", "the number of processes is 9", "at most 8"),
        ("switch \"q\"", "", "unknown name `q`", "names here: r"),
        ("reclaim \"heap[1..1]\"", "", "the range is empty", "at least one page"),
        ("reclaim \"haep\"", "", "unknown area `haep`", "did you mean `heap`?"),
        (
            "",
            "spin",
            "a thread of the kernel has no `spin`",
            "reclaim, writeback, khugepaged, split-deferred, barrier, repeat, for-each, doc",
        ),
        (
            "",
            "repeat 2 { write \"heap\" }",
            "has no `write`",
            "reclaim, writeback, khugepaged, split-deferred, barrier",
        ),
        (
            "",
            "rounds 1 {}",
            "has no `rounds`",
            "reclaim, writeback, khugepaged, split-deferred, barrier",
        ),
        ("", "reclam \"heap\"", "unknown node `reclam`", "did you mean `reclaim`?"),
    ] {
        let (said, _, remedy) = problem(&whole(first, second));
        assert!(said.contains(message), "{first}{second}: {said}");
        assert!(remedy.contains(help), "{first}{second}: {remedy}");
    }
    let fine = whole(
        "barrier \"b\"; reclaim \"heap\"; switch; switch 8; switch \"r+1\"",
        "doc \"kswapd\"; barrier \"b\"; for-each \"p\" in=\"heap\" { repeat 2 { reclaim \"heap[p]\" } }",
    );
    let (program, _) = litmus(&fine).unwrap();
    assert_eq!(program.threads.iter().map(|t| t.kernel).collect::<Vec<_>>(), [false, true]);
    assert_eq!(program.other_processes(), 8);
    assert_eq!(program.model_only().as_deref(), Some("kernel-thread k"));

    let first = "scenario \"x\" { kernel-thread \"k\" cpu=0 {}; thread \"a\" cpu=1 {} }";
    let error = litmus(first).unwrap_err();
    assert_eq!(error.to_string(), "the first thread is a kernel thread");
}
