//! A study's report in every format.
#![allow(clippy::unwrap_used)]

mod page;

use needless_model::counters::Counter;
use needless_model::site::Site;
use needless_model::verdict::{Finding, Needless, Reason};
use needless_report::Style;
use needless_report::cost::Price;
use needless_report::html::{self, Made};
use needless_report::saved::Row;
use needless_report::study::{
    CaseResult, CheckResult, ContrastResult, CostsResult, Count, FigureResult, Margin, NOT_DECIDED,
    PartResult, RelationResult, RunResult, SampleResult, Standing, Studied, TargetResult, Tested,
    Totals, View, document, list_document, list_text, markdown, text,
};
use needless_scenario::Source;
use needless_scenario::study::{Study, parse};

const UNICODE: Style = Style { color: false, unicode: true, width: 100 };
const WIDE: Style = Style { width: 200, ..UNICODE };

fn study() -> Study {
    let text = "study \"copies\" {
        doc \"Why is a page copied?\"
        doc \"Nobody else can see it.\"
        source \"Somebody, a list, 2021\"
        takes \"a minute\"
        published \"sends\" 399935 doc=\"shootdowns\"
        missing \"the published machine\" why=\"it is elsewhere\"
        answer \"How much\" is=\"{sends:0} shootdowns were published.\" of=\"shootdowns\"
        answer \"Is it safe\" is=\"it {shootdowns/batched-pending}.\"
        matrix \"Shootdowns a round\" {
            column \"one\" run=\"shootdowns.one\" counter=\"shootdowns\"
            column \"sends\"
            row \"5.8\" published=\"3\" model=\"model:5.8\" real=\"kernel:5.10\" \"{sends}\"
            row \"here\" real=\"live\" \"\"
        }
        part \"shootdowns\" {
            doc \"How many?\"
            run \"one\" scenario=\"cow-reuse\" { on \"model:5.8\" }
            check \"cleared\" test=\"batched-pending\" { on \"7.3+pending-cleared\" finds=\"holds\" }
        }
    }";
    parse(&Source::new("copies", text), None).unwrap()
}

fn target(name: &str, found: u64, expected: u64, standing: Standing) -> TargetResult {
    let finding = Finding {
        what: Needless::Shootdown,
        site: Some(Site::FlushTlbBatchedPending),
        reason: Reason::PendingAlreadyFlushed,
    };
    let real = !name.starts_with("model");
    TargetResult {
        target: name.into(),
        release: real.then(|| "6.18.44".into()),
        counts: vec![Count {
            counter: Counter::Shootdowns,
            expected: Some(expected),
            found: Some(found),
            transferred: real,
        }],
        cycles: real.then_some(886),
        agreement: real.then(|| (100, 100, "model:6.18".into())),
        undecided: None,
        odd: real.then(|| "1 of 100 rounds was odd the first time, none when repeated".into()),
        tlbi: None,
        findings: vec![(finding, 100)],
        rounds: 100,
        standing: Some(standing),
    }
}

fn not_here(name: &str) -> TargetResult {
    TargetResult {
        target: name.into(),
        release: None,
        counts: vec![Count {
            counter: Counter::Shootdowns,
            expected: None,
            found: None,
            transferred: false,
        }],
        cycles: None,
        agreement: None,
        undecided: None,
        odd: None,
        tlbi: None,
        findings: Vec::new(),
        rounds: 0,
        standing: Some(Standing::NotHere("left out by -t".into())),
    }
}

fn sample(name: &str, measured: f64, predicted: f64, held_out: bool) -> SampleResult {
    SampleResult { name: name.into(), measured, predicted, held_out }
}

fn relation(text: &str, sides: Option<(f64, f64)>, standing: Standing) -> RelationResult {
    let formula = "ours ~ sends / 100000".to_owned();
    RelationResult {
        text: text.into(),
        formula,
        sides,
        within: Some(1.01),
        standing,
        margins: vec![],
        follows: String::new(),
    }
}

fn check(row: &str, standing: Standing) -> CheckResult {
    let explored = !matches!(standing, Standing::NotHere(_));
    CheckResult {
        name: "cleared".into(),
        test: "batched-pending, cpus=2".into(),
        shown: "docs/findings/pending-cleared.md".into(),
        row: row.into(),
        expected: "holds".into(),
        found: if explored { "P5, 50 steps".into() } else { "?".into() },
        states: explored.then_some(3951),
        standing,
    }
}

fn contrast() -> ContrastResult {
    let row = |name: &str, first: Option<&str>, second: Option<&str>| Row {
        name: name.into(),
        first: first.map(Into::into),
        second: second.map(Into::into),
    };
    let thp = || row("thp.enabled", Some("never"), Some("madvise"));
    let case = |name: &str, conditions, figures: Result<Vec<Row>, String>| CaseResult {
        name: name.into(),
        conditions,
        counted: figures.is_ok(),
        figures,
    };
    let order = |costs: [(&str, f64); 2]| Ok(costs.map(|(name, cost)| (name.into(), cost)).into());
    ContrastResult {
        text: "Why two orders?".into(),
        names: ["without huge pages".into(), "with huge pages".into()],
        target: "live".into(),
        unit: "cycles".into(),
        orders: [
            order([("marker", 9.5), ("read", 1226.0)]),
            order([("read", 2.0), ("marker", 9.75)]),
        ],
        cases: vec![
            case(
                "read",
                vec![thp(), row("vm.swappiness", Some("60"), Some("10"))],
                Ok(vec![
                    row("faults", Some("512"), Some("1")),
                    row("huge zero pages", None, Some("1")),
                ]),
            ),
            case("marker", vec![thp()], Ok(vec![])),
            case("default", vec![], Err("left out by -t".into())),
        ],
    }
}

fn part() -> PartResult {
    let figure = |name: &str, value, origin: &str| FigureResult {
        name: name.into(),
        value,
        unit: "cycles".into(),
        origin: origin.into(),
        doc: "what it is".into(),
    };
    let wrong = "3 shootdowns in a round, not 4".to_owned();
    let price = Price { cycles: 1927.4, interval_95: (1920.0, 1942.0) };
    let margin = |name: &str, least, most| Margin { name: name.into(), value: 110.0, least, most };
    let moved = vec![
        margin("sender", Some(98.9), None),
        margin("fault", Some(50.0), Some(121.0)),
        margin("again", None, Some(200.0)),
        margin("shared", None, None),
    ];
    let text = "study \"s\" { doc \"d\"; source \"s\"; takes \"t\"
        stated \"price\" 2 doc=\"d\" source=\"s\"
        part \"p\" { sweep \"of tasks\" over=\"tasks\" values=\"1 64\" {
            column \"all\" is=\"tasks * price\" doc=\"what all cost\" unit=\"cycles\"
            column \"each\" is=\"all / tasks\" doc=\"what each costs\" } } }";
    let sweeps = parse(&Source::new("s", text), None).unwrap().parts.remove(0).sweeps;
    PartResult {
        sweeps,
        name: "shootdowns".into(),
        doc: vec!["How many?".into()],
        tables: vec![],
        contrasts: vec![contrast()],
        runs: vec![RunResult {
            name: "one".into(),
            scenario: "cow-reuse, pages=1".into(),
            counters: vec![Counter::Shootdowns],
            targets: vec![
                target("model:5.8", 3, 3, Standing::Holds),
                target("model:5.15", 3, 4, Standing::DoesNot(wrong)),
                target("live", 2, 2, Standing::Holds),
                not_here("kernel:5.10"),
                not_here("kernel:6.1"),
            ],
        }],
        costs: vec![
            CostsResult {
                name: "here".into(),
                target: "live".into(),
                prices: Ok(vec![("fault".into(), "the exception".into(), price)]),
                samples: vec![
                    sample("first touch", 22848.0, 23601.0, false),
                    sample("three", 97880.0, 105449.0, true),
                ],
            },
            CostsResult {
                name: "there".into(),
                target: "kernel:6.12".into(),
                prices: Err("left out by -t".into()),
                samples: Vec::new(),
            },
        ],
        checks: vec![
            check("7.3+pending-cleared", Standing::DoesNot("violates P5".into())),
            check("6.12+pending-cleared", Standing::NotHere("left out by -t".into())),
        ],
        figures: vec![
            figure("sends", Ok(399_935.0), "published"),
            figure("ours", Ok(4.0), "model:5.15"),
            figure("real", Err("kernel:5.10: left out by -t".into()), "kernel:5.10"),
            figure("all_1", Ok(2.0), "1 * price"),
            figure("each_1", Ok(2.0), "all_1 / 1"),
            figure("all_64", Ok(128.0), "64 * price"),
            figure("each_64", Err("not here".into()), "all_64 / 64"),
        ],
        relations: vec![
            RelationResult {
                margins: moved,
                ..relation("as many as were published", Some((4.0, 3.99935)), Standing::Holds)
            },
            relation("and here", Some((6.0, 3.99935)), Standing::DoesNot("6 ~ 3.999".into())),
            relation("and there", None, Standing::NotHere("kernel:5.10: left out by -t".into())),
        ],
    }
}

fn studied() -> Studied {
    let environment = [("kernel.release", "6.18.44"), ("cpu.online", "0-1"), ("load", "0.1")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let lost = "2 of 9 runs: another live run is going on";
    let lost = vec![("live,events=off".to_owned(), lost.to_owned())];
    let (study, environment) = (study(), environment.into());
    Studied { study, parts: vec![part()], lost, environment, seconds: 4.2 }
}

#[test]
fn everything_is_counted() {
    assert_eq!(studied().totals(), Totals { hold: 3, do_not: 3, not_here: 4 });
    let one = Totals { hold: 1, do_not: 1, not_here: 1 };
    let tested = Tested {
        relations: one,
        follow: 0,
        targets: Totals { hold: 2, do_not: 1, not_here: 2 },
        checks: Totals { hold: 0, do_not: 1, not_here: 1 },
    };
    assert_eq!(studied().tested(), tested);
    // A relation that follows from others is counted apart as long as it holds.
    let mut following = studied();
    following.parts[0].relations.iter_mut().for_each(|r| r.follows = "by construction".into());
    let tested = following.tested();
    assert_eq!((tested.follow, tested.relations.hold, tested.relations.do_not), (1, 0, 1));
    let costs = &part().costs[0];
    assert!(costs.worst(false).unwrap() < 0.034 && costs.worst(true).unwrap() > 0.077);
}

/// An emulator counts invalidations in place of flushes: no `?` asks for these.
#[test]
fn invalidations_take_the_place_of_flushes() {
    let line = |found, tlbi| {
        let mut studied = studied();
        let count = |counter| Count { counter, expected: None, found, transferred: false };
        let target = target("kernel:6.12/arm64", 0, 0, Standing::Holds);
        let counts = [Counter::Faults, Counter::Shootdowns, Counter::Flushes].map(count).into();
        let run = &mut studied.parts[0].runs[0];
        run.counters = vec![Counter::Faults, Counter::Shootdowns, Counter::Flushes];
        run.targets = vec![TargetResult { counts, tlbi, ..target }];
        let text = text(&studied, View::Details, WIDE);
        let line = text.lines().find(|line| line.starts_with("kernel:6.12/arm64 ")).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // The other columns are the standing, the cycles and the rounds that equal the model's.
    let name = "kernel:6.12/arm64 (6.18.44) yes";
    assert_eq!(line(None, Some(32)), format!("{name} ? 32 886 100/100"));
    assert_eq!(line(Some(3), Some(32)), format!("{name} 3 3 3 32 886 100/100"));
    assert_eq!(line(None, None), format!("{name} ? ? ? 886 100/100"));
}

/// Status 3 is explained: by runs that were lost, and by relations that held once.
#[test]
fn what_is_undecided_is_told_last() {
    let mut studied = studied();
    let reason = format!("{NOT_DECIDED}, it did not hold the first time only");
    studied.parts[0].relations[2].standing = Standing::NotHere(reason);
    assert_eq!(studied.undecided(), 1);
    let text = text(&studied, View::Overview, WIDE);
    let end = "UNDECIDED (status 3): live,events=off lost 2 of 9 runs: another live run is going on; run it again
UNDECIDED (status 3): 1 relation held only once of two times; run it again
";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn study_text() {
    insta::assert_snapshot!(text(&studied(), View::Details, UNICODE));
}

#[test]
fn study_first_screen() {
    insta::assert_snapshot!(text(&studied(), View::Overview, UNICODE));
}

#[test]
fn study_text_in_ascii() {
    let narrow = Style { width: 60, ..Style::PLAIN };
    let text = text(&studied(), View::Details, narrow);
    assert!(text.is_ascii(), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn study_markdown() {
    insta::assert_snapshot!(markdown(&studied(), View::Details));
}

#[test]
fn study_page() {
    let page = html::study(&studied(), &Made::default());
    let (data, figures) = page::checked(&page);
    assert_eq!(data["study"], "copies");
    assert_eq!(figures, 6, "two sides of three relations");
    let first = page.split("<section id=\"picture\"").next().unwrap();
    for there in ["<dt>How much?</dt>", "399935 shootdowns were published.", "<dt>Is it safe?</dt>"]
    {
        assert!(first.contains(there), "{there}: {first}");
    }
    for there in [
        "Needless in a round: one (cow-reuse, pages=1)",
        "needless: shootdown 1",
        "Published beside ours, relation by relation",
        "holds: as many as were published",
        "ours: 4",
        "sends / 100000: 3.999",
        "class=\"wide\"",
        "Every figure of the part shootdowns",
        "UNDECIDED (status 3): live,events=off lost 2 of 9 runs",
    ] {
        assert!(page.contains(there), "{there}");
    }
    assert!(page::element(&page, "data").contains("6.18.44"));
}

#[test]
fn study_json() {
    insta::assert_snapshot!(format!("{:#}", document(&studied())));
}

#[test]
fn studies_are_listed() {
    let listed = list_text(&[study()], UNICODE) + &format!("{:#}", list_document(&[study()]));
    insta::assert_snapshot!(listed);
}
