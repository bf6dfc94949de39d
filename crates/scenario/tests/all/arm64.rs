//! The model's arm64 against captures: faults and TLB invalidations of every round, phase by phase.

use needless_model::instructions::invalidations;
use needless_model::kernels::KernelRow;
use needless_model::run::Round;
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, compile, load};

/// A round as captures write it: `1/0; 0 ¦ vale1is=1`.
fn text(round: &Round) -> String {
    let (minor, major) = (round.minor_faults.unwrap(), round.major_faults.unwrap());
    format!("{minor}/{major}; {}", invalidations(&round.instructions))
}

#[test]
fn the_model_invalidates_as_kernels_do() {
    let table = include_str!("../../../../tests/captures-arm64.tsv");
    let mut checked = 0;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [scenario, kernel, processor, faults, invalidations] = fields[..] else {
            panic!("a row without five fields: {line}");
        };
        let program = compile(&load(scenario).unwrap(), &Settings::default()).unwrap();
        let row = KernelRow::parse(&format!("{kernel}/arm64,cpu={processor}")).unwrap();
        let options = SimOptions { paranoid: true, ..SimOptions::default() };
        let run = sim::run(&program, &row, &options).unwrap();
        let expected = format!("{faults}; {invalidations}");
        for round in &run.rounds {
            assert_eq!(text(round), expected, "{scenario} {kernel} {processor}");
        }
        checked += run.rounds.len();
    }
    assert!(checked > 4000, "only {checked} rounds were checked");
}

/// What the second try of a fault flushes by the rules of 5.8 and 5.10: on a processor that sets
/// accessed and dirty bits itself, and on one that does not (Cortex-A72).
#[test]
fn only_the_old_rule_flushes_for_a_fault_that_is_tried_again() {
    let program = compile(&load("b_pf3_ext4").unwrap(), &Settings::default()).unwrap();
    let round = |row: &str| {
        let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &SimOptions::default());
        text(&run.unwrap().rounds[0])
    };
    assert_eq!(round("5.8/arm64"), "8/0; vale1is=8 ¦ rvale1is=1");
    assert_eq!(round("5.8/arm64,cpu=cortex-a72"), "8/0; vale1is=16 ¦ vale1is=16");
    assert_eq!(round("5.8/arm64,dirty-retry=in-lock"), "8/0; 0 ¦ rvale1is=1");
    assert_eq!(round("5.10/arm64"), "0/8; 0 ¦ rvale1is=1");
    assert_eq!(round("6.1/arm64"), "8/0; 0 ¦ rvale1is=1");
}
