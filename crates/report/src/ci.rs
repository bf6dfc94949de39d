//! Formats for continuous integration: JUnit XML, and TAP 14 (testanything.org).
//!
//! Each target's run is a case, and so is each of its expectations. An undecided case is skipped:
//! it has neither passed nor failed. The exit status shows it.

use crate::expect::{Case, Verdict};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// JUnit XML: a suite for the scenario, with a case for each target's run and each expectation.
pub fn junit(scenario: &str, cases: &[Case<'_>]) -> Result<String, String> {
    let mut suite = TestSuite::new(scenario);
    for case in cases {
        let status = match &case.verdict {
            Verdict::Met => TestCaseStatus::success(),
            Verdict::Missed(reason) => not_met(NonSuccessKind::Failure, reason),
            Verdict::NotRun(reason) => not_met(NonSuccessKind::Error, reason),
            Verdict::Undecided(reason) => {
                let mut status = TestCaseStatus::skipped();
                status.set_message(reason.as_str());
                status
            }
        };
        let mut test = TestCase::new(case.name(), status);
        test.set_classname(case.target);
        suite.add_test_case(test);
    }
    let mut report = Report::new("needless");
    report.add_test_suite(suite);
    report.to_string().map_err(|error| error.to_string())
}

fn not_met(kind: NonSuccessKind, reason: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(reason);
    status
}

/// TAP 14: a line for each case. A YAML block has the reason why a case is not as expected.
pub fn tap(scenario: &str, cases: &[Case<'_>]) -> String {
    let mut text = format!("TAP version 14\n1..{}\n", cases.len());
    for (at, case) in cases.iter().enumerate() {
        let name = escaped(&format!("{scenario} on {}: {}", case.target, case.name()));
        let number = at + 1;
        text += &match &case.verdict {
            Verdict::Met => format!("ok {number} - {name}\n"),
            Verdict::Undecided(reason) => {
                format!("ok {number} - {name} # SKIP {}\n", escaped(reason))
            }
            Verdict::Missed(reason) => not_ok(number, &name, "fail", reason),
            Verdict::NotRun(reason) => not_ok(number, &name, "error", reason),
        };
    }
    text
}

fn not_ok(number: usize, name: &str, severity: &str, reason: &str) -> String {
    // JSON strings are YAML strings.
    let reason = serde_json::Value::from(reason);
    format!("not ok {number} - {name}\n  ---\n  message: {reason}\n  severity: {severity}\n  ...\n")
}

/// Text on one line in which nothing is a directive.
fn escaped(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('\\', "\\\\").replace('#', "\\#")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::Expectation;

    fn cases() -> Vec<Case<'static>> {
        let case = |target, expectation: Option<Expectation>, verdict| Case {
            target,
            expectation,
            verdict,
        };
        let few = "shootdowns<=2".parse::<Expectation>().ok();
        vec![
            case("model:6.12", None, Verdict::Met),
            case("model:6.12", few, Verdict::Missed("it is 3 in 1 of 5 rounds".into())),
            case(
                "kernel:./bzImage,append=a#b",
                few,
                Verdict::Undecided("no \"events\" & #1".into()),
            ),
            case("live", None, Verdict::NotRun("not\npermitted \u{1}".into())),
        ]
    }

    #[test]
    fn junit_and_tap() {
        let junit = junit("cow-reuse", &cases()).unwrap();
        insta::assert_snapshot!(format!("{junit}\n\n{}", tap("cow-reuse", &cases())));
    }
}
