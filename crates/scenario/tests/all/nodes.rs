//! NUMA nodes in scenarios: what the text refuses, and that the model says what it lacks.

use needless_model::event::{Event, EventKind};
use needless_model::kernels::KernelRow;
use needless_model::run::TargetRun;
use needless_model::sequence::{Sequence, TraceOrder};
use needless_model::sim::{self, SimError, SimOptions};
use needless_scenario::{Settings, Source, builtin, compile};

fn compiled(machine: &str, op: &str) -> Result<(), String> {
    let text = format!(
        "scenario \"nodes\" {{ machine {{ {machine} }}
         thread \"main\" cpu=0 {{ map \"heap\" pages=4\n rounds 1 {{ {op} }} }} }}"
    );
    let source = Source::new("nodes", text);
    compile(&source, &Settings::default()).map(drop).map_err(|error| {
        // Drops the frame and the line breaks of the report.
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

#[test]
fn the_model_runs_what_it_has_of_nodes() {
    for name in builtin::OF_NODES.iter().map(|text| text.name) {
        let program = compile(&builtin::find(name).unwrap(), &Settings::default()).unwrap();
        let row = KernelRow::parse("7.3").unwrap();
        let ended =
            sim::run(&program, &row, &SimOptions { paranoid: true, ..SimOptions::default() });
        assert!(ended.is_ok(), "{name}: {:?}", ended.err());
    }
}

/// The sequence of a round of `ops` on four pages, with NUMA balancing, beside a spinning thread.
fn sampled(row: &str, machine: &str, ops: &str) -> Result<String, SimError> {
    let text = format!(
        "scenario \"nodes\" {{ machine {{ cpus 2; nodes 2 {machine} }}
         thread \"main\" cpu=0 {{ map \"heap\" pages=4\n write \"heap\"\n rounds 1 warmup=0 {{ {ops} }} }}
         thread \"spinner\" cpu=1 {{ spin }} }}"
    );
    let program = compile(&Source::new("nodes", text), &Settings::default()).unwrap();
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &options)?;
    let order = TraceOrder::of(run.rounds.iter().map(|round| &round.events[..]));
    let nodes = run.final_pages.iter().filter(|(name, _)| name.starts_with("heap"));
    let nodes: String =
        nodes.map(|(_, state)| state.split_once(" node").map_or("-", |(_, node)| node)).collect();
    Ok(format!("{} {nodes}", Sequence::of(&program, &run.rounds[0].events, order)))
}

#[test]
fn a_sampled_page_moves_to_the_node_that_uses_it() {
    let moved = "move_pages \"heap\" node=1; mark \"m\"; numa-scan \"heap\"; mark \"r\"; read \"heap[0..2]\"; mark \"w\"; write \"heap[0..2]\"";
    let balancing = "; numa-balancing \"on\"";
    for (row, expected) in [
        ("6.1", "m: IPI:MM(4) ¦ r: Rx2 ¦ w: 0011"),
        // The move takes the right to store away.
        ("6.12", "m: IPI:MM(ALL) IPI:MM(4) ¦ r: Rx2 ¦ w: WPx2 0011"),
        ("7.3", "m: IPI:MM(ALL) IPI:MM(4) ¦ r: Rx2 ¦ w: WPx2 0011"),
    ] {
        let found = sampled(row, balancing, moved).unwrap();
        assert!(found.ends_with(expected), "{row}: {found}");
    }
    // A page on its own node stays there and keeps its right to store.
    for row in ROWS {
        let ops = "numa-scan \"heap\"; mark \"w\"; write \"heap\"; write \"heap\"";
        let found = sampled(row, balancing, ops).unwrap();
        assert!(found.ends_with("IPI:MM(4) ¦ w: Wx4 0000"), "{row}: {found}");
    }
}

#[test]
fn reclaim_demotes_and_a_hint_fault_promotes() {
    let tiers = "slow=1; demotion \"on\"; numa-balancing \"tiering\"";
    let demote = "reclaim \"heap[0..3]\"";
    // A page that just moved waits in an LRU batch, and cannot move again until the batch is
    // emptied.
    let back = "reclaim \"heap[0..3]\"; madvise \"heap[3]\" advice=\"cold\"; mark \"b\"; numa-scan \"heap\"; read \"heap\"";
    for row in ["6.12", "7.3"] {
        // One flush serves all demoted pages. The move leaves the mark of a pending flush.
        let found = sampled(row, tiers, demote).unwrap();
        assert_eq!(found, "IPI:BATCH(ALL) 1110", "{row}");
        let found = sampled(row, tiers, back).unwrap();
        assert!(found.ends_with("b: IPI:MM(3) Rx3 0000"), "{row}: {found}");
        let each = sampled(&format!("{row},migrate-batch=off"), tiers, demote).unwrap();
        assert_eq!(each, "IPI:MM(1)x3 1110", "{row}");
    }
}

/// Which pages leave their flush to a later one, and which event flushes then.
#[test]
fn flushes_are_left_to_later_ones() {
    let tiers = "slow=1; demotion \"on\"";
    let demote = "clear-refs of=\"soft-dirty\"; mark \"d\"; reclaim \"heap\"";
    let store = format!("{demote}; mark \"w\"; write \"heap[0..2]\"");
    let d = |row: &str, ops: &str| {
        let found = sampled(row, tiers, ops).unwrap();
        found.split_once("d: ").unwrap().1.to_owned()
    };
    assert_eq!(d("6.12", demote), "IPI:BATCH(ALL) 1111");
    // MIGRC does not defer the flush of dirty pages; LUF does.
    assert_eq!(d("6.12+migrc", demote), "IPI:BATCH(ALL) 1111");
    assert_eq!(d("6.12+luf", demote), "1111");
    // Before a page may be stored to, everything deferred is flushed once.
    assert_eq!(d("6.12+luf", &store), "¦ w: WP IPI:BATCH(ALL) WP 1111");
    // Writable pages do not qualify.
    let writable = format!("mark \"d\"; {}", "reclaim \"heap\"");
    assert_eq!(d("6.12+luf", &writable), "IPI:BATCH(ALL) 1111");
}

#[test]
fn what_the_model_lacks_of_sampling_is_refused() {
    for (machine, ops, what) in [
        ("; numa-balancing \"on\"", "set_mempolicy policy=\"local\"", "memory policies together"),
        ("slow=1; numa-balancing \"on\"", "read \"heap\"", "with slow nodes"),
        ("; numa-balancing \"on\"; thp \"always\"", "read \"heap\"", "huge pages"),
    ] {
        let error = sampled("6.12", machine, ops).unwrap_err();
        assert!(matches!(error, SimError::NotModelled { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let error = sampled("6.1", "; mglru \"on\"", "read \"heap\"").unwrap_err();
    assert!(error.to_string().contains("has mglru off"), "{error}");
    let error = sampled("6.1", "slow=1", "read \"heap\"").unwrap_err();
    assert!(error.to_string().contains("before 6.12"), "{error}");
    let nothing = sampled("6.12", "slow=1; numa-balancing \"tiering\"", "numa-scan \"heap\"");
    assert!(nothing.unwrap_err().to_string().contains("sampled none"));
}

/// Runs a round of `ops` on four pages. The machine has two nodes; the first CPU is on node 0.
fn round_of(row: &str, ops: &str) -> Result<TargetRun, SimError> {
    let text = format!(
        "scenario \"nodes\" {{ machine {{ cpus 2; nodes 2 }}
         thread \"main\" cpu=0 {{ map \"heap\" pages=4\n rounds 1 warmup=0 {{ {ops} }} }} }}"
    );
    let program = compile(&Source::new("nodes", text), &Settings::default()).unwrap();
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    sim::run(&program, &KernelRow::parse(row).unwrap(), &options)
}

/// The node of each page afterwards, `-` where there is no page.
fn placed(row: &str, ops: &str) -> String {
    let run = round_of(row, ops).unwrap();
    let node = |state: &String| state.split_once(" node").map_or("-", |(_, node)| node).to_owned();
    run.final_pages.values().map(node).collect()
}

const ROWS: [&str; 4] = ["5.10", "6.1", "6.12", "7.3"];

#[test]
fn pages_are_where_policies_have_them() {
    let bind = "mbind \"heap\" policy=\"bind\" node=1";
    for (ops, nodes) in [
        ("write \"heap\"", "0000"),
        (&*format!("{bind}; write \"heap\""), "1111"),
        ("mbind \"heap[1..3]\" policy=\"preferred\" node=1; write \"heap\"", "0110"),
        ("set_mempolicy policy=\"bind\" node=1; write \"heap\"", "1111"),
        // A mapping's policy takes precedence over the thread's.
        (
            "set_mempolicy policy=\"bind\" node=1; mbind \"heap[0..2]\" policy=\"local\"; write \"heap\"",
            "0011",
        ),
        (
            "set_mempolicy policy=\"bind\" node=1; set_mempolicy policy=\"default\"; write \"heap\"",
            "0000",
        ),
        // Present pages stay, unless the call moves them.
        (&format!("write \"heap\"; {bind}"), "0000"),
        (&format!("write \"heap[1..4]\"; {bind} then=\"move\""), "-111"),
        (
            &format!(
                "write \"heap\"; {bind} then=\"move\"; munmap \"heap\"; map \"heap\"; write \"heap\""
            ),
            "0000",
        ),
        ("write \"heap\"; mbind \"heap\" policy=\"local\" then=\"move\"", "0000"),
        (
            "write \"heap\"; set_mempolicy policy=\"bind\" node=1; mbind \"heap\" policy=\"default\" then=\"move\"",
            "1111",
        ),
        // The zero page is on no node.
        ("read \"heap[0..2]\"; write \"heap[2..4]\"", "--00"),
    ] {
        for row in ROWS {
            assert_eq!(placed(row, ops), nodes, "{row}: {ops}");
        }
    }
}

#[test]
fn interleaved_pages_take_turns() {
    for ops in [
        "mbind \"heap\" policy=\"interleave\"; write \"heap\"",
        "set_mempolicy policy=\"interleave\"; write \"heap\"",
        "write \"heap\"; set_mempolicy policy=\"interleave\"; mbind \"heap\" policy=\"default\" then=\"move\"",
    ] {
        for row in ROWS {
            let nodes = placed(row, ops);
            assert!(["0101", "1010"].contains(&&*nodes), "{row}: {ops}: {nodes}");
        }
    }
    // Both nodes are allowed, so present pages are where they should be.
    let moves = "write \"heap\"; mbind \"heap\" policy=\"interleave\" then=\"move\"";
    assert_eq!(placed("6.12", moves), "0000");
}

#[test]
fn migrate_pages_is_refused_by_name() {
    let error = round_of("6.12", "migrate_pages from=0 to=1").unwrap_err();
    assert!(matches!(error, SimError::NotModelled { .. }), "{error}");
    assert!(error.to_string().contains("migrate_pages"), "{error}");
}

/// mbind refuses a hole before it changes a policy. Without a policy, a hole is accepted.
#[test]
fn mbind_refuses_a_hole() {
    for row in ROWS {
        for hole in ["heap[0]", "heap[1]", "heap[3]", "heap"] {
            let ops = |policy: &str| {
                format!("write \"heap\"; munmap \"{hole}\"; mbind \"heap\" {policy} then=\"move\"")
            };
            let error = round_of(row, &ops("policy=\"bind\" node=1")).unwrap_err();
            assert!(error.to_string().contains("EFAULT"), "{row}: {hole}: {error}");
            let default = round_of(row, &ops("policy=\"default\""));
            match hole {
                "heap" => assert!(default.unwrap_err().to_string().contains("EFAULT"), "{row}"),
                _ => assert!(default.is_ok(), "{row}: {hole}: {:?}", default.err()),
            }
        }
    }
}

/// 5.10 flushes each mapping by itself. A policy for the middle splits one mapping into three,
/// which merge again once all have that policy.
#[test]
fn mbind_splits_mappings() {
    let flushes = |ops: &str| {
        let run =
            round_of("5.10", &format!("write \"heap\"; {ops}; mprotect \"heap\" prot=\"read\""))
                .unwrap();
        let starts = |event: &Event| matches!(event.kind, EventKind::Flush { .. });
        run.rounds.iter().flat_map(|round| &round.events).filter(|event| starts(event)).count()
    };
    let middle = "mbind \"heap[1..3]\" policy=\"interleave\"";
    assert_eq!(flushes("read \"heap\""), 1);
    assert_eq!(flushes(middle), 3);
    assert_eq!(flushes(&format!("{middle}; mbind \"heap\" policy=\"interleave\"")), 1);
    assert_eq!(flushes(&format!("{middle}; mbind \"heap\" policy=\"default\"")), 1);
}

/// Reclaim groups neighbouring pages by node, and flushes once for each such run.
#[test]
fn reclaim_flushes_for_each_node() {
    let batches = |policy: &str| {
        let ops = format!(
            "mbind \"heap\" {policy}; write \"heap\"; madvise \"heap\" advice=\"free\"; madvise \"heap\" advice=\"pageout\""
        );
        let text = format!(
            "scenario \"nodes\" {{ machine {{ cpus 2; nodes 2 }}
             thread \"main\" cpu=0 {{ map \"heap\" pages=4\n rounds 1 warmup=0 {{ {ops} }} }}
             thread \"spinner\" cpu=1 {{ spin }} }}"
        );
        let program = compile(&Source::new("nodes", text), &Settings::default()).unwrap();
        let run =
            sim::run(&program, &KernelRow::parse("6.12").unwrap(), &SimOptions::default()).unwrap();
        let order = TraceOrder::of(run.rounds.iter().map(|round| &round.events[..]));
        Sequence::of(&program, &run.rounds[0].events, order).to_string()
    };
    let (one, two) = (batches("policy=\"bind\" node=1"), batches("policy=\"interleave\""));
    assert!(one.ends_with("IPI:BATCH(ALL)"), "{one}");
    assert!(two.ends_with("IPI:BATCH(ALL)x4"), "{two}");
}

/// Runs a round of `ops` with two huge pages on a machine with two nodes.
fn huge(row: &str, thp: &str, ops: &str) -> Result<TargetRun, SimError> {
    let text = format!(
        "scenario \"nodes\" {{ machine {{ cpus 2; nodes 2; thp \"{thp}\" }}
         thread \"main\" cpu=0 {{ map \"heap\" pages=1024 align=\"2M\"
             madvise \"heap\" advice=\"hugepage\"
             rounds 1 warmup=0 {{ {ops} }} }} }}"
    );
    let program = compile(&Source::new("nodes", text), &Settings::default()).unwrap();
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    sim::run(&program, &KernelRow::parse(row).unwrap(), &options)
}

#[test]
fn huge_pages_move_as_wholes() {
    for row in ROWS {
        let nodes = |ops: &str| {
            let run = huge(row, "madvise", ops).unwrap();
            assert_eq!(run.final_pages["AnonHugePages"], "1024 pages", "{row}: {ops}");
            [0, 511, 512, 1023].map(|page| {
                let (_, node) =
                    run.final_pages[&format!("heap[{page}]")].split_once(" node").unwrap();
                node.to_owned()
            })
        };
        let moved = nodes("write \"heap\"; move_pages \"heap[511..513]\" node=1; read \"heap\"");
        assert_eq!(moved, ["1", "1", "1", "1"], "{row}: one page takes its huge page with it");
        let second = nodes("write \"heap\"; move_pages \"heap[700]\" node=1; write \"heap\"");
        assert_eq!(second, ["0", "0", "1", "1"], "{row}");
        let turns = nodes("set_mempolicy policy=\"interleave\"; write \"heap\"");
        assert!(
            turns[0] == turns[1] && turns[2] == turns[3] && turns[0] != turns[3],
            "{row}: {turns:?}"
        );
    }
}

#[test]
fn what_takes_huge_pages_apart_is_refused() {
    let refused = |thp: &str, ops: &str| {
        let error = huge("6.12", thp, ops).unwrap_err();
        assert!(matches!(error, SimError::NotModelled { .. }), "{error}");
        error.to_string()
    };
    for ops in
        ["mprotect \"heap[0]\" prot=\"read\"", "mbind \"heap\" policy=\"local\" then=\"move\""]
    {
        assert!(refused("madvise", ops).contains("huge pages with several NUMA nodes"));
    }
    assert!(refused("always", "write \"heap\"").contains("thp \"always\""));
}
