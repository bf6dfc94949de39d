//! Pages of hand-made runs and of a checked litmus test.
#![allow(clippy::unwrap_used)]

mod common;
mod page;

use common::{comparison, live, live_target, model, model_target, program};
use needless_check::{Options, check, replay, scenes};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::run::Round;
use needless_model::sim::{self, SimOptions, SimWorld, Watch};
use needless_report::check::{Checked, Replayed};
use needless_report::compare::{Comparison, Ran, Target};
use needless_report::expect::cases;
use needless_report::explain::Explanation;
use needless_report::html::{self, Follower, Held, Made};
use needless_report::style::Detail;
use needless_report::{Style, notes};
use needless_scenario::{Settings, compile, litmus, load};
use page::{checked, element};
use serde_json::Value;

/// A name that would be markup, and a script, if it were not text.
const MARKUP: &str = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u{202e}";

fn made() -> Made {
    Made {
        command: "needless compare 'a b' <x>".into(),
        version: "needless 0.1.0".into(),
        next: vec![("One round".into(), "needless explain 'a b'".into())],
    }
}

fn single(program: &Program, target: Target) -> Comparison {
    Comparison {
        program: program.clone(),
        targets: vec![target],
        steps: Vec::new(),
        avoided: Vec::new(),
    }
}

#[test]
fn a_comparison_says_first_what_the_text_says_first() {
    let comparison = comparison();
    let page = html::compare(&comparison, &[], &made());
    let (data, figures) = checked(&page);
    assert_eq!(data["targets"][0]["target"], "live");
    assert_eq!(figures, 4 * 11, "ten counters and the rounds of four targets");
    let text = notes::text(&comparison, Style { width: 10_000, ..Style::PLAIN }, Detail::Answer);
    let answer: Vec<&str> = text.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert!(answer.len() > 4, "{text}");
    let first = page.split("<section id=\"picture\"").next().unwrap();
    for line in answer {
        let line = line.trim().replace("->", "→");
        assert!(first.contains(&format!("<li>{line}</li>")), "{line}: {first}");
    }
    // What is needless, and what removed it; and how to do it again.
    for there in [
        "needless: 1 fault, 1 copy, 2 shootdowns",
        "copies 1 → 0, shootdowns 4 → 3: reuse (page-count → exclusive-drain) alone",
        "needless compare 'a b' &lt;x&gt;",
        "The machine of live",
    ] {
        assert!(page.contains(there), "{there}");
    }
}

#[test]
fn what_was_expected_is_on_the_first_screen() {
    let comparison = comparison();
    let expected = ["copies<=0".parse().unwrap()];
    let page = html::compare(&comparison, &cases(&comparison, &expected), &made());
    let (data, _) = checked(&page);
    assert!(data["expectations"].as_array().is_some_and(|cases| cases.len() > 4), "{data}");
    let first = page.split("<section id=\"picture\"").next().unwrap();
    assert!(first.contains("model:5.10: copies&lt;=0: no: "), "{first}");
}

#[test]
fn a_run_has_every_counter() {
    for target in [model_target("5.10"), live_target(live(12, Some(3)), true)] {
        let (data, figures) = checked(&html::run(&single(&program(), target), &made()));
        let counters = data["counters"].as_object().unwrap().len();
        assert_eq!(figures, counters);
    }
}

#[test]
fn names_that_others_chose_stay_text() {
    let mut program = program();
    program.name = MARKUP.into();
    program.areas[0].name = MARKUP.into();
    program.threads[0].name = MARKUP.into();
    program.op_texts = vec![MARKUP.into(), MARKUP.into(), MARKUP.into()];
    let mut target = model_target("5.10");
    target.name = MARKUP.into();
    target.remark = Some(MARKUP.into());
    let run = Ran::model(&program, model("5.10", 1));
    let explanation = Explanation { program: &program, ran: &run, at: 0 };
    let comparison = single(&program, target);
    let made = Made { command: MARKUP.into(), version: MARKUP.into(), next: Vec::new() };
    for page in [
        html::compare(&comparison, &[], &made),
        html::run(&comparison, &made),
        html::explain(&explanation, &[], &made),
    ] {
        assert!(!page.contains("<img") && !page.contains("<script>alert"), "{page}");
        assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
        let (data, _) = checked(&page);
        assert_eq!(data["scenario"]["name"], MARKUP, "the data has the name as it is");
    }
}

#[test]
fn a_hundred_thousand_rounds_make_a_small_page() {
    let run = model("5.10", 100_000);
    let ran = Ran::model(&program(), run);
    let mut comparison = comparison();
    comparison.targets = (0..3)
        .map(|at| Target {
            name: format!("model:{at}"),
            remark: None,
            outcome: needless_report::Outcome::Ran(Box::new(ran.clone())),
        })
        .collect();
    let page = html::compare(&comparison, &[], &made());
    let (data, _) = checked(&page);
    let target = &data["targets"][2];
    assert_eq!(target["rounds"], 100_000);
    // What is the same in all rounds is told in short.
    assert_eq!(target["samples"]["faults"]["runs"], serde_json::json!([[2, 100_000]]));
    assert!(page.contains("/targets/2/samples/round"), "what is left out is said");
}

/// Keeps all rounds, and what TLBs hold in the first one.
struct Watcher<'a> {
    program: &'a Program,
    rounds: Vec<Round>,
    tlbs: Vec<Held>,
}

impl Watch for Watcher<'_> {
    fn round(&mut self, round: &Round) {
        self.rounds.push(round.clone());
    }

    fn world(&mut self, world: &SimWorld, events: usize) {
        if self.rounds.is_empty() {
            Held::note(&mut self.tlbs, Held::of(self.program, world, events));
        }
    }
}

#[test]
fn a_round_is_shown_step_by_step() {
    let source = load("cow-reuse").unwrap();
    let program = compile(&source, &Settings::default()).unwrap();
    let row = KernelRow::parse("5.10").unwrap();
    let options = SimOptions { pte_events: true, shows: true, ..SimOptions::default() };
    let mut watcher = Watcher { program: &program, rounds: Vec::new(), tlbs: Vec::new() };
    let mut run = sim::run_with(&program, &row, &options, &mut watcher).unwrap();
    let Watcher { rounds, tlbs, .. } = watcher;
    run.rounds = rounds;
    let ran = Ran::model(&program, run);
    let explanation = Explanation { program: &program, ran: &ran, at: 0 };
    let page = html::explain(&explanation, &tlbs, &made());
    let (data, _) = checked(&page);
    let events = data["events"].as_array().unwrap().len();
    let walk: Value = serde_json::from_str(&element(&page, "walk-0-data")).unwrap();
    assert_eq!(walk["steps"].as_array().unwrap().len(), events);
    let place = |part: &str| {
        let mut places = walk["places"].as_array().unwrap().iter();
        places.position(|place| place["part"] == part).unwrap_or_else(|| panic!("no {part}"))
    };
    let changes = |place: usize| {
        let steps = walk["steps"].as_array().unwrap().iter();
        let sets = steps.flat_map(|step| step["set"].as_array().unwrap());
        sets.filter(|set| set[0] == place).count()
    };
    for part in ["task", "tlb", "pending", "page", "frame"] {
        assert!(changes(place(part)) > 0, "{part} never changes");
    }
    // The page that is read is in the TLB after that, and not any more when it was paged out.
    let held = |at: usize| walk["steps"][at]["set"].as_array().unwrap().iter();
    let tlb = place("tlb");
    let told: Vec<&str> = (0..events)
        .flat_map(|at| held(at).filter(|set| set[0] == tlb).map(|set| set[1].as_str().unwrap()))
        .collect();
    assert!(told.iter().any(|pages| pages.contains("heap[0]")), "{told:?}");
    assert!(told.iter().any(|pages| !pages.contains("heap[0]")), "{told:?}");
    let needless = data["events"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .find(|(_, event)| event["verdict"]["judgement"] == "needless");
    let (at, _) = needless.unwrap();
    assert_eq!(walk["steps"][at]["mark"], "needless");
    assert!(page.contains(&format!("<a href=\"#{}\">", at + 1)), "the first screen links to it");
}

#[test]
fn a_counterexample_is_shown_step_by_step() {
    let (program, _) = litmus(&load("pageout-read").unwrap(), &Settings::default()).unwrap();
    let target = "model:6.12,mutant=unmap-not-flushed";
    let row = KernelRow::parse("6.12,mutant=unmap-not-flushed").unwrap();
    let options = Options::default();
    let report = check(&program, &row, &options).unwrap();
    let found = report.counterexample.clone().unwrap();
    let walk = || {
        let mut follower = Follower::new("walk".into(), &found.steps, Some(&found.violation));
        let each = &mut |scene| follower.add(&scene);
        scenes(&program, &row, &options, &found.schedule, each).unwrap();
        follower.finish()
    };
    let (scenario, target) = (program.name.clone(), target.to_owned());
    let explored = Checked { scenario: scenario.clone(), target: target.clone(), report };
    let (steps, violation) = replay(&program, &row, &options, &found.schedule).unwrap();
    let schedule = found.schedule.to_string();
    let followed = Replayed { scenario, target, schedule, steps, violation };
    let pages = [
        html::checked(&[explored], &[walk()], &made()),
        html::replayed(&followed, &walk(), &made()),
    ];
    for page in pages {
        checked(&page);
        let walk: Value = serde_json::from_str(&element(&page, "walk-0-data")).unwrap();
        let steps = walk["steps"].as_array().unwrap();
        assert_eq!(steps.len(), found.steps.len());
        for (shown, step) in steps.iter().zip(&found.steps) {
            assert_eq!(shown["what"], step.label);
            assert_eq!(shown["cpu"], step.cpu.index());
        }
        let last = steps.last().unwrap();
        assert_eq!(last["mark"], "violation");
        let words = format!("VIOLATED {}: {}", found.violation.property, found.violation.what);
        assert_eq!(last["note"], words);
        assert!(page.contains(&words) && page.contains(&format!("id=\"{}\"", steps.len())));
        let named = steps.iter().filter(|step| step["file"] != "").count();
        assert!(named > 3, "kernel functions have their files");
    }
}
