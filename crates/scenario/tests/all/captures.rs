//! The model against the reference captures: the same rounds, token by token.

use crate::common::{Capture, captures, captures_of_nodes};
use needless_model::kernels::KernelRow;
use needless_model::run::{Round, TargetRun};
use needless_model::sequence::{Sequence, TraceOrder};
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, compile, load};
use needless_testing::each;
use std::str::FromStr;

/// How the rounds of the model's run differ from the capture.
fn differences(capture: &Capture, kernel: &str) -> Option<String> {
    let mut words = capture.scenario.split(' ');
    let source = load(words.next().expect("a name")).expect("a built-in");
    let settings: Settings = words.map(|word| word.split_once('=').expect("a setting")).collect();
    let program = compile(&source, &settings).expect("it compiles");
    let row = KernelRow::parse(kernel).expect("a row");
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    let run: TargetRun = match sim::run(&program, &row, &options) {
        Ok(run) => run,
        Err(error) => return Some(format!("{}: {kernel}: {error}", capture.scenario)),
    };
    let order = TraceOrder::of(run.rounds.iter().map(|round| &round.events[..]));
    let expected = Sequence::from_str(capture.sequence).expect("the notation");
    let wrong = |round: &Round| {
        let mut sequence = Sequence::of(&program, &round.events, order);
        // The tracepoint csd:csd_queue_cpu came in 6.4. Before it, nothing showed which CPU is
        // waited for.
        if row.release < (6, 4) {
            sequence = sequence.without_syncs(&[]).0;
        }
        let (minor, major) = (round.minor_faults.unwrap(), round.major_faults.unwrap());
        let faults = format!("{minor}/{major}");
        (sequence != expected || faults != capture.faults).then(|| {
            format!(
                "{} on {kernel}, round {}:\n  kernel {} {expected}\n  model  {faults} {sequence}",
                capture.scenario, round.index, capture.faults
            )
        })
    };
    run.rounds.iter().find_map(wrong)
}

#[test]
fn the_model_moves_pages_as_kernels_do() {
    let (mut held, mut wrong) = (0, Vec::new());
    for capture in captures_of_nodes() {
        for kernel in &capture.kernels {
            held += 1;
            wrong.extend(differences(&capture, kernel));
        }
    }
    assert!(held >= 27, "{held}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_model_reproduces_every_capture() {
    let captures: Vec<Capture> = captures().collect();
    let on = captures.iter().map(|capture| capture.kernels.iter().map(move |on| (capture, *on)));
    let held: Vec<(&Capture, &str)> = on.flatten().collect();
    let checked = held.len();
    let found = each(&held, |(capture, kernel)| differences(capture, kernel));
    let wrong: Vec<String> = found.into_iter().flatten().collect();
    assert!(checked > 150, "only {checked} captures were read");
    assert!(wrong.is_empty(), "{} of {checked} differ:\n{}", wrong.len(), wrong.join("\n"));
}
