//! Threads that differ in one thing are told apart; each kind of difference has a case.
#![allow(clippy::unwrap_used)]

use super::renamings;
use crate::observe::Watching;
use crate::setting::{Options, with_setting};
use needless_model::kernels::KernelRow;
use needless_model::program::OpKind;
use needless_scenario::{Settings, Source, compile};

/// How many renamings there are of a scenario in which `one` and `two` run beside a main thread.
fn count(one: &str, two: &str) -> usize {
    count_on(one, two, "6.12", false)
}

fn count_on(one: &str, two: &str, row: &str, watched: bool) -> usize {
    let text = format!(
        "scenario \"x\" {{ machine {{ cpus 4; swap \"zram\" size=\"1M\" }}
         thread \"main\" cpu=0 {{ map \"heap\" pages=2; map \"other\" pages=2; write \"heap\";
             rounds 1 warmup=0 {{ barrier \"go\"; barrier \"late\" }} }}
         {one}
         {two} }}"
    );
    let program = compile(&Source::new("x", &*text), &Settings::default()).unwrap();
    let mut watching = Watching::default();
    if watched {
        let touches = |kind: &OpKind| matches!(kind, OpKind::Touch { .. });
        let load = program.threads[1].body.iter().find(|op| touches(&op.kind)).unwrap().id;
        watching.add("seen", &[(load, None)], &program);
    }
    let row = KernelRow::parse(row).unwrap();
    let counted = with_setting(&program, &row, &Options::default(), |setting| {
        Ok(renamings(setting.program, setting.acts, &row, &watching).len())
    });
    counted.unwrap()
}

/// A thread on a CPU that meets the others and does this.
fn thread(kind: &str, name: &str, cpu: u16, barrier: &str, body: &str) -> String {
    format!("{kind} \"{name}\" cpu={cpu} {{ barrier \"{barrier}\"; {body} }}")
}

fn user(cpu: u16, barrier: &str, body: &str) -> String {
    thread("thread", &format!("user{cpu}"), cpu, barrier, body)
}

const READ: &str = "read \"heap[0]\"";
const WRITE: &str = "write \"heap[0]\"";

#[test]
fn threads_that_do_the_same_are_alike() {
    assert_eq!(count(&user(1, "go", READ), &user(2, "go", READ)), 1);
    // Each stores a value of its own; nobody asks for it.
    assert_eq!(count(&user(1, "go", WRITE), &user(2, "go", WRITE)), 1);
    let three = format!("{}\n{}", user(2, "go", READ), user(3, "go", READ));
    assert_eq!(count(&user(1, "go", READ), &three), 5);
}

#[test]
fn threads_that_differ_in_one_thing_are_told_apart() {
    let first = user(1, "go", READ);
    let different = [
        ("barrier", user(2, "late", READ)),
        ("area", user(2, "go", "read \"other[0]\"")),
        ("page", user(2, "go", "read \"heap[1]\"")),
        ("access", user(2, "go", WRITE)),
        ("call", user(2, "go", "madvise \"heap\" advice=\"dontneed\"")),
        ("length", user(2, "go", &format!("{READ}; {READ}"))),
        ("CPU", thread("thread", "user2", 1, "go", READ)),
        ("CPU of the main thread", thread("thread", "user2", 0, "go", READ)),
    ];
    for (what, second) in different {
        assert_eq!(count(&first, &second), 0, "{what}");
    }
    let reclaim = |name: &str, cpu, kind: &str| thread(kind, name, cpu, "go", "reclaim \"heap\"");
    let (kernel, user) = (reclaim("a", 1, "kernel-thread"), reclaim("b", 2, "thread"));
    assert_eq!(count(&kernel, &user), 0, "kernel thread");
    assert_eq!(count(&kernel, &reclaim("b", 2, "kernel-thread")), 1);
    let pin = |name| format!("pin \"heap[0]\" as=\"{name}\" access=\"read\"; spin");
    let (one, two) = (self::user(1, "go", &pin("p")), self::user(2, "go", &pin("q")));
    assert_eq!(count(&one, &two), 0, "pin");
}

#[test]
fn what_a_row_or_an_observation_names_is_told_apart() {
    let (one, two) = (user(1, "go", READ), user(2, "go", READ));
    assert_eq!(count_on(&one, &two, "6.12,skip-needed=1.1", false), 0);
    assert_eq!(count_on(&one, &two, "6.12", true), 0);
}
