//! Every output format, as snapshots of hand-made runs.
#![allow(clippy::unwrap_used)]

mod common;
mod page;

use common::{comparison, live, live_target, model, model_target, program};
use jiff::Timestamp;
use needless_model::counters::Counter;
use needless_model::kernels::{KernelRow, NOT_MODELLED};
use needless_model::run::{INSTRUCTIONS, Round, TargetRun};
use needless_model::sequence::Sequence;
use needless_model::sim::{self, SimOptions};
use needless_report::agree::{
    Found, Minimal, ScenarioAgreement, Standing, TargetAgreement, Totals,
};
use needless_report::compare::{Comparison, Outcome, Ran, Target};
use needless_report::doctor::{Check, State};
use needless_report::explain::{self, Explanation};
use needless_report::groups::Group;
use needless_report::html::{self, Made};
use needless_report::style::{Detail, columns};
use needless_report::{Style, agree, doctor, json, jsonl, notes, run};
use needless_scenario::{Settings, compile, load};
use std::collections::BTreeMap;

const UNICODE: Style = Style { color: false, unicode: true, width: 100 };
const ANSWER: Detail = Detail::Answer;

fn single(target: Target) -> Comparison {
    Comparison { program: program(), targets: vec![target], steps: Vec::new(), avoided: Vec::new() }
}

fn ran(target: &Target) -> &Ran {
    target.ran().unwrap()
}

#[test]
fn compare_text() {
    insta::assert_snapshot!(notes::text(&comparison(), UNICODE, ANSWER));
}

#[test]
fn compare_text_with_every_counter() {
    insta::assert_snapshot!(notes::text(&comparison(), UNICODE, Detail::All));
}

#[test]
fn an_answer_fits_80_columns_without_broken_headings() {
    let text = notes::text(&comparison(), Style { width: 80, ..UNICODE }, ANSWER);
    assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
    assert!(text.contains("copies flushes shootdowns interrupts"), "{text}");
}

#[test]
fn compare_text_in_ascii() {
    let text = notes::text(&comparison(), Style::PLAIN, ANSWER);
    assert!(text.is_ascii(), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn compare_text_with_rounds_that_differ() {
    let targets = vec![live_target(live(12, Some(3)), true), model_target("6.18")];
    let comparison =
        Comparison { program: program(), targets, steps: Vec::new(), avoided: Vec::new() };
    insta::assert_snapshot!(notes::text(&comparison, UNICODE, ANSWER));
}

#[test]
fn compare_text_on_a_kernel_without_row() {
    let comparison = single(live_target(live(12, None), false));
    let account = &ran(&comparison.targets[0]).account;
    assert_eq!(account.typical(Counter::Copies), None, "another kernel's row proves nothing");
    insta::assert_snapshot!(notes::text(&comparison, UNICODE, ANSWER));
}

#[test]
fn a_kernel_with_a_patch_that_no_row_has_says_how_another_row_is_named() {
    let told = |entry: Option<&str>| {
        let mut run = live(12, None);
        let entry = entry.map(|patches| (NOT_MODELLED.to_owned(), patches.to_owned()));
        run.environment.extend(entry);
        let text =
            notes::text(&single(live_target(run, true)), Style { width: 1000, ..UNICODE }, ANSWER);
        let mut lines = text.lines().filter(|line| line.contains("row="));
        let line = lines.next().map(str::to_owned);
        assert_eq!(lines.next(), None, "one line says it");
        line
    };
    assert_eq!(told(None), None);
    let line = told(Some("fix.patch")).unwrap();
    assert!(
        line.starts_with("live: no row is known to have fix.patch; `row=6.18+NAME` or "),
        "{line}"
    );
}

#[test]
fn an_invalid_run_borrows_nothing() {
    let mut run = live(12, None);
    run.invalid = Some("8% of the rounds were marked".into());
    let comparison = single(live_target(run, true));
    let live = ran(&comparison.targets[0]);
    assert_eq!(live.account.typical(Counter::NeedlessShootdowns), None);
    assert_eq!(live.exact(), None);
    let text = notes::text(&comparison, UNICODE, ANSWER);
    assert!(text.contains("INVALID, counts for nothing: 8% of the rounds"), "{text}");
}

#[test]
fn figures_are_borrowed_only_in_equal_rounds() {
    let target = live_target(live(12, Some(3)), true);
    let account = &ran(&target).account;
    let spread = account.spread(Counter::NeedlessShootdowns).unwrap();
    assert_eq!((spread.mode, spread.of), (1, 11));
    assert_eq!(account.value(&account.rounds[3], Counter::NeedlessShootdowns), None);
    assert_eq!(ran(&target).exact(), Some(false));
}

#[test]
fn run_text() {
    insta::assert_snapshot!(run::text(&single(model_target("5.10")), UNICODE, ANSWER));
}

#[test]
fn run_text_with_every_counter() {
    insta::assert_snapshot!(run::text(&single(model_target("5.10")), UNICODE, Detail::All));
}

#[test]
fn run_text_live() {
    insta::assert_snapshot!(run::text(&single(live_target(live(12, None), true)), UNICODE, ANSWER));
}

#[test]
fn colour_adds_escapes_only() {
    let color = notes::text(&comparison(), Style { color: true, ..UNICODE }, ANSWER);
    assert!(color.contains('\u{1b}'));
    let mut plain = String::new();
    let mut rest = color.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain += before;
        rest = after.split_once('m').unwrap().1;
    }
    plain += rest;
    // Padding before an escape stays, so lines are compared without what ends them.
    let lines = |text: &str| text.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&plain), lines(&notes::text(&comparison(), UNICODE, ANSWER)));
}

#[test]
fn compare_json() {
    let comparison = Comparison { targets: comparison().targets[..2].to_vec(), ..comparison() };
    insta::assert_json_snapshot!(json::comparison(&comparison));
}

#[test]
fn json_has_the_shape_that_the_schema_publishes() {
    let schema = include_str!("../../../docs/schema/compare.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let document = json::comparison(&comparison());
    keys_match(&schema, &document);
    let target = &schema["$defs"]["target"];
    for part in document["targets"].as_array().unwrap() {
        let known = target["properties"].as_object().unwrap();
        for key in part.as_object().unwrap().keys() {
            assert!(known.contains_key(key), "the schema has no targets[].{key}");
        }
        for key in target["required"].as_array().unwrap() {
            assert!(part.get(key.as_str().unwrap()).is_some(), "targets[].{key} is missing");
        }
    }
    let per_round = schema["$defs"]["per_round"]["properties"].as_object().unwrap();
    for counter in Counter::ALL {
        assert!(per_round.contains_key(counter.name()), "no per_round.{}", counter.name());
    }
    assert_eq!(per_round.len(), Counter::ALL.len() + 1, "and faults_by_class");
}

#[test]
fn json_follows_the_published_schemas() {
    let published = [
        (include_str!("../../../docs/schema/compare.schema.json"), json::comparison(&comparison())),
        (include_str!("../../../docs/schema/agree.schema.json"), agree::json(&agreements())),
    ];
    for (schema, document) in published {
        let schema = serde_json::from_str(schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let wrong = validator.iter_errors(&document);
        let wrong: Vec<String> =
            wrong.map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

fn keys_match(schema: &serde_json::Value, document: &serde_json::Value) {
    let known: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let given: Vec<&String> = document.as_object().unwrap().keys().collect();
    assert_eq!(known, given);
}

#[test]
fn unknown_is_null_with_a_reason_never_zero() {
    let document = json::comparison(&single(live_target(live(12, None), false)));
    let target = &document["targets"][0];
    for name in ["copies", "zeroings", "faults_by_class", "needless_shootdowns"] {
        assert!(target["per_round"][name].is_null(), "{name}");
        assert!(target["unknown"][name].is_string(), "{name}");
    }
    assert_eq!(target["per_round"]["shootdowns"], 2);
}

#[test]
fn explain_text() {
    let target = model_target("5.10");
    let explanation = Explanation { program: &program(), ran: ran(&target), at: 0 };
    insta::assert_snapshot!(explain::text(&explanation, UNICODE));
}

#[test]
fn explain_text_live() {
    let target = live_target(live(12, None), true);
    let explanation = Explanation { program: &program(), ran: ran(&target), at: 0 };
    insta::assert_snapshot!(explain::text(&explanation, UNICODE));
}

/// The try in which the fault gives its lock back, and the second try, which finds the first one's
/// work done.
#[test]
fn explain_text_of_a_retried_fault() {
    let source = load("b_pf3_ext4").unwrap();
    let settings: Settings = [("pages", "2")].into_iter().collect();
    let program = compile(&source, &settings).unwrap();
    let row = KernelRow::parse("5.10").unwrap();
    let ran = Ran::model(&program, sim::run(&program, &row, &SimOptions::default()).unwrap());
    let explanation = Explanation { program: &program, ran: &ran, at: 0 };
    insta::assert_snapshot!(explain::text(&explanation, UNICODE));
}

#[test]
fn explain_json() {
    let target = model_target("6.18");
    let explanation = Explanation { program: &program(), ran: ran(&target), at: 1 };
    insta::assert_json_snapshot!(explain::json(&explanation));
}

fn agreements() -> Vec<TargetAgreement> {
    let text = "scenario \"odd\" {\n}\n";
    let live_ran = |odd| ran(&live_target(live(12, odd), true)).clone();
    let scenario = |name: &str, standing, retries| ScenarioAgreement {
        name: name.into(),
        text: text.into(),
        groups: Group::of(&program()),
        standing,
        retries,
    };
    let mut odd = Standing::of(live_ran(Some(3)));
    if let Standing::Differing(difference) = &mut odd {
        let scenario = text.replace("odd", "small");
        let file = Some("found/odd.kdl".to_owned());
        difference.minimal =
            Some(Minimal { scenario, found: Found::Runs(Box::new(live_ran(Some(5)))), file });
        difference.repeated = (2, 3);
    }
    let one_sided = Found::Failure {
        real: None,
        row: "model:6.18".to_owned(),
        model: Some("`mremap heap to=away` failed: EFAULT: bad address".to_owned()),
    };
    let scenarios = vec![
        scenario("cow-reuse", Standing::of(live_ran(None)), 0),
        scenario("odd", odd, 1),
        scenario("one-sided", Standing::differing(one_sided), 0),
        scenario("refused", Standing::Undecided("no swap device".into()), 3),
        scenario("wider", Standing::NotApplicable("it has 2 CPUs of 3".into()), 0),
    ];
    let drawn_without = vec!["soft-dirty".to_owned()];
    let release = Some("6.18.44".to_owned());
    let row = "model:6.18".to_owned();
    let target = "live".into();
    vec![TargetAgreement { target, release, row, own_row: true, drawn_without, scenarios }]
}

#[test]
fn agree_text() {
    insta::assert_snapshot!(agree::text(&agreements(), UNICODE));
}

#[test]
fn agree_json() {
    insta::assert_json_snapshot!(agree::json(&agreements()));
}

#[test]
fn agree_page() {
    let page = html::agree(&agreements(), &Made::default());
    let (data, figures) = page::checked(&page);
    let groups = data["targets"][0]["groups"].as_object().unwrap().len();
    assert_eq!(figures, 5 * groups);
    for there in [
        "4 run, 1 exact, 2 differing, 1 undecided",
        "<td class=\"differs\">1 of 4</td>",
        "live: refused: undecided: no swap device",
        "live: 1 scenario not applicable: it has 2 CPUs of 3: wider",
        "differed in 2 of 3 runs",
    ] {
        assert!(page.contains(there), "{there}: {page}");
    }
    assert!(page::element(&page, "data").contains("model:6.18"));
}

#[test]
fn agree_document() {
    let day = Timestamp::from_second(20_778 * 86_400).unwrap();
    insta::assert_snapshot!(agree::document(&agreements(), Some(1_000_000..=1_009_999), day));
}

#[test]
fn agreement_shows_the_raw_sequence_of_both_sides() {
    let text = agree::text(&agreements(), UNICODE);
    let expected: Sequence = "IPI:MM(ALL) IPI:BATCH(ALL) R WP".parse().unwrap();
    assert!(text.contains(&expected.to_string()), "{text}");
    let totals = Totals::of(&agreements()[0].scenarios);
    assert_eq!(totals, Totals { run: 4, exact: 1, differing: 2, undecided: 1, not_applicable: 1 });
}

fn checks() -> Vec<Check> {
    let check = |name: &str, state, found: &str, help: Option<&str>| Check {
        name: name.into(),
        state,
        found: found.into(),
        help: help.map(str::to_owned),
    };
    vec![
        check("perf events", State::Missing, "permission denied", Some("run with CAP_PERFMON")),
        check("zswap", State::Warning, "on; switched off while a scenario swaps", None),
        check("pagemap", State::Ok, "can be read", None),
    ]
}

#[test]
fn doctor_text_and_json() {
    let environment = BTreeMap::from([("thp".to_owned(), "madvise".to_owned())]);
    insta::assert_snapshot!(doctor::text(&checks(), &environment, UNICODE));
    insta::assert_json_snapshot!(doctor::json(&checks(), &environment));
}

#[test]
fn events_are_json_lines_with_a_header() {
    let mut lines = Vec::new();
    let run = model("6.18", 1);
    let ran = Ran::model(&program(), run.clone());
    jsonl::header(&mut lines, "cow-reuse", &[&ran]).unwrap();
    run.rounds.iter().for_each(|round| jsonl::round(&mut lines, &run.target, round).unwrap());
    let text = String::from_utf8(lines).unwrap();
    assert_eq!(text.lines().count(), 1 + run.rounds[0].events.len());
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(value.get("schema_version").is_some() || value["target"] == "model:6.18");
    }
    let head: Vec<&str> = text.lines().take(3).collect();
    insta::assert_snapshot!(head.join("\n"));
}

#[test]
fn a_target_that_could_not_run_is_told_not_counted() {
    let target = comparison().targets.pop().unwrap();
    assert!(matches!(target.outcome, Outcome::Unavailable { .. }));
    let document = json::comparison(&single(target));
    assert_eq!(document["targets"][0]["status"], "unavailable");
    assert!(document["targets"][0].get("per_round").is_none());
}

/// A run of an emulated kernel whose rounds have this number of `tlbi vale1is`.
fn emulated(counts: &[u64]) -> Comparison {
    let round = |&count: &u64| Round {
        minor_faults: Some(1),
        instructions: vec![
            BTreeMap::new(),
            BTreeMap::from([("dsb ish".to_owned(), 1), ("tlbi vale1is".to_owned(), count)]),
        ],
        ..Round::default()
    };
    let mut run = TargetRun {
        target: "kernel:6.1/arm64".into(),
        release: Some("6.1.0-cloud-arm64".into()),
        rounds: counts.iter().map(round).collect(),
        ..TargetRun::default()
    };
    run.unseen.insert("events".into(), "there is no tracepoint".into());
    let name = run.target.clone();
    let outcome = Outcome::Ran(Box::new(Ran::alone(&program(), run)));
    single(Target { name, remark: None, outcome })
}

#[test]
fn instructions_are_shown_by_phase_and_grouped() {
    let comparison = emulated(&[2, 1, 2]);
    for text in [run::text(&comparison, UNICODE, ANSWER), notes::text(&comparison, UNICODE, ANSWER)]
    {
        assert!(text.contains("0 ¦ dsb ish=1 tlbi vale1is=2 (2 of 3)"), "{text}");
        assert!(text.contains("tlbi vale1is=1 (1 of 3)"), "{text}");
    }
    assert!(notes::text(&comparison, Style::PLAIN, ANSWER).is_ascii());
    let document = json::comparison(&comparison);
    let groups = &document["targets"][0]["instructions"];
    assert_eq!(groups[0]["phases"][1]["tlbi vale1is"], 2);
    assert_eq!((&groups[0]["rounds"], &groups[1]["rounds"]), (&2.into(), &1.into()));
    let agreement = &document["targets"][0]["agreement"];
    assert!(agreement.is_null(), "held against nothing: {agreement}");
}

#[test]
fn instructions_that_nobody_counted_are_unknown() {
    let mut comparison = emulated(&[1]);
    let Outcome::Ran(ran) = &mut comparison.targets[0].outcome else { panic!("it ran") };
    let mut run = ran.run.clone();
    run.rounds[0].instructions.clear();
    **ran = Ran::alone(&program(), run);
    ran.run.unseen.insert(INSTRUCTIONS.into(), "there is no plugin".into());
    let text = run::text(&comparison, UNICODE, ANSWER);
    assert!(text.contains("instructions: unknown: there is no plugin"), "{text}");
    let groups = &json::comparison(&comparison)["targets"][0]["instructions"];
    assert_eq!(groups.as_array().map(Vec::len), Some(0));
    // If the target does not count them, nothing is said.
    assert!(!run::text(&common::comparison(), UNICODE, ANSWER).contains("instructions"));
}
