//! NUMA nodes in scenarios: what the text refuses, and that the model says what it lacks.
#![allow(clippy::unwrap_used)]

use needless_model::kernels::KernelRow;
use needless_model::sim::{self, SimError, SimOptions};
use needless_scenario::{Settings, Source, builtin, compile};

fn compiled(machine: &str, op: &str) -> Result<(), String> {
    let text = format!(
        "scenario \"nodes\" {{ machine {{ {machine} }}
         thread \"main\" cpu=0 {{ map \"heap\" pages=4\n rounds 1 {{ {op} }} }} }}"
    );
    let source = Source::new("nodes", text);
    compile(&source, &Settings::default()).map(drop).map_err(|error| {
        // Without the frame and the line breaks that the report has.
        let report = format!("{:?}", miette::Report::new(error)).replace('│', " ");
        report.split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

#[test]
fn a_node_that_the_machine_does_not_have_is_refused() {
    let refused = |machine: &str, op: &str| compiled(machine, op).unwrap_err();
    for op in [
        "move_pages \"heap\" node=2",
        "mbind \"heap\" policy=\"bind\" node=2",
        "migrate_pages from=0 to=2",
        "set_mempolicy policy=\"preferred\" node=2",
    ] {
        let error = refused("nodes 2", op);
        assert!(error.contains("there is no NUMA node 2"), "{error}");
        assert!(error.contains("numbered 0..2"), "{error}");
        assert!(refused("", op).contains("nodes 2"), "the remedy");
    }
    assert!(refused("nodes 2", "move_pages \"heap\" node=\"0-1\"").contains("node -1"));
    assert!(refused("nodes 2 slow=2", "read \"heap\"").contains("slow nodes"));
    assert!(refused("nodes 65", "read \"heap\"").contains("65"));
}

#[test]
fn policies_name_a_node_where_they_need_one() {
    assert_eq!(compiled("nodes 2", "mbind \"heap\" policy=\"interleave\""), Ok(()));
    let refused = |op: &str| compiled("nodes 2", op).unwrap_err();
    assert!(refused("mbind \"heap\" policy=\"bind\"").contains("needs a NUMA node"));
    assert!(refused("mbind \"heap\" policy=\"local\" node=1").contains("names no node"));
    assert!(refused("set_mempolicy policy=\"weighted\"").contains("weighted"));
    assert!(refused("memory-reclaim 0").contains("at least 1"));
}

#[test]
fn one_call_moves_so_many_pages() {
    let text = "scenario \"nodes\" { machine { nodes 2 }
         thread \"main\" cpu=0 { map \"heap\" pages=1048577\n rounds 1 { move_pages \"heap\" node=1 } } }";
    let error = compile(&Source::new("nodes", text), &Settings::default()).unwrap_err();
    let report = format!("{:?}", miette::Report::new(error));
    assert!(report.contains("1048577 pages") && report.contains("in parts"), "{report}");
    let part = text.replace("move_pages \"heap\"", "move_pages \"heap[1..1048577]\"");
    compile(&Source::new("nodes", part), &Settings::default()).unwrap();
}

#[test]
fn sampling_has_to_be_switched_on() {
    let scan = "numa-scan \"heap\"";
    for machine in ["nodes 2", "nodes 2\n numa-balancing \"off\""] {
        let error = compiled(machine, scan).unwrap_err();
        assert!(error.contains("numa-balancing \"on\""), "{error}");
    }
    assert_eq!(compiled("nodes 2\n numa-balancing \"tiering\"", scan), Ok(()));
}

/// What of the built-in scenarios the model lacks.
const LACKING: [(&str, &str); 5] = [
    ("e_mbind", "mbind"),
    ("e_move_thp", "huge pages with several NUMA nodes"),
    ("e_hint", "NUMA balancing"),
    ("e_hint_write", "NUMA balancing"),
    ("e_hint_local", "NUMA balancing"),
];

#[test]
fn the_model_says_what_it_lacks() {
    for name in builtin::OF_NODES.iter().map(|text| text.name) {
        let program = compile(&builtin::find(name).unwrap(), &Settings::default()).unwrap();
        let row = KernelRow::parse("7.3").unwrap();
        let ended = sim::run(&program, &row, &SimOptions::default());
        match LACKING.iter().find(|(lacking, _)| *lacking == name) {
            None => assert!(ended.is_ok(), "{name}: {:?}", ended.err()),
            Some((_, what)) => {
                let error = ended.unwrap_err();
                assert!(matches!(error, SimError::NotModelled { .. }), "{name}: {error}");
                assert!(error.to_string().contains(what), "{name}: {error}");
            }
        }
    }
}
