//! Agreement with made-up real kernels: rows of the model.

use super::*;
use needless_live::FailureKind;
use needless_model::kernels::KernelRow;
use needless_model::sim::{self, SimOptions};
use needless_report::agree::Totals;
use needless_scenario::random::Target;
use needless_scenario::{Settings, Source, compile};

/// A row that pretends to be the real kernel of another release.
struct Pretender {
    row: KernelRow,
    release: &'static str,
    /// The number of results that are called invalid before the first good one.
    spoilt: u32,
    /// The pretender lacks CPUs: it refuses programs with this many or more.
    lacks_cpus: u16,
    /// The number of programs that were given to it.
    runs: u32,
    /// The number of runs in which a collapse is refused, before one in which it is not.
    refusals: u32,
}

impl RealTarget for Pretender {
    fn name(&self) -> String {
        "pretender".to_owned()
    }

    fn release(&self) -> String {
        self.release.to_owned()
    }

    fn cpus(&self) -> usize {
        3
    }

    fn batch(&self) -> usize {
        5
    }

    fn run(&mut self, programs: &[Program]) -> Vec<Result<TargetRun, Refusal>> {
        let mut run = |program: &Program| {
            self.runs += 1;
            if self.refusals > 0 {
                self.refusals -= 1;
                let failure = refused(program, "collapse");
                let moment = is_for_the_moment(&failure, program);
                let extent = if moment { Extent::Moment } else { Extent::Operation };
                return Err(Refusal { reason: failure.what, help: None, status: 125, extent });
            }
            if program.machine.cpus >= self.lacks_cpus {
                let reason = format!("{} CPUs are needed", program.machine.cpus);
                return Err(Refusal { reason, help: None, status: 121, extent: Extent::EveryRun });
            }
            let run = sim::run(program, &self.row, &SimOptions::default()).unwrap();
            let invalid = (self.spoilt > 0).then(|| "spoilt".to_owned());
            self.spoilt = self.spoilt.saturating_sub(1);
            // A kernel of that release says that MGLRU is on.
            let environment = [("vm.lru_gen".to_owned(), "0x0007".to_owned())].into();
            let release = Some(self.release.to_owned());
            Ok(TargetRun { release, environment, invalid, ..run })
        };
        programs.iter().map(&mut run).collect()
    }

    fn close(&mut self) -> Option<String> {
        None
    }
}

fn pretender(row: &str, release: &'static str) -> Pretender {
    let row = KernelRow::parse(row).unwrap();
    Pretender { row, release, spoilt: 0, lacks_cpus: u16::MAX, runs: 0, refusals: 0 }
}

/// The agreement of the model with the pretender.
fn judged(target: &mut Pretender, scenarios: &[Scenario]) -> TargetAgreement {
    let progress = crate::output::Progress::new("scenario", 0);
    let memory = crate::memory::Memory::new(None);
    let keep = crate::runs::Keep::default();
    let mut runs = Runs { memory, progress: &progress, keep, events: None, tlbs: Vec::new() };
    judge(target, scenarios, &mut runs, &|| {}).unwrap()
}

fn drawn(count: u64) -> Vec<Scenario> {
    let target = Target::new((6, 18), 3);
    (0..count).map(|seed| random(seed, &target).unwrap()).collect()
}

#[test]
fn a_row_agrees_with_itself() {
    let agreement = judged(&mut pretender("6.18", "6.18.44"), &drawn(12));
    assert_eq!((agreement.row.as_str(), agreement.own_row), ("model:6.18", true));
    assert_eq!(agreement.release.as_deref(), Some("6.18.44"));
    let exact = |s: &ScenarioAgreement| matches!(s.standing, Standing::Exact { .. });
    assert!(agreement.scenarios.iter().all(exact));
}

#[test]
fn a_wrong_rule_is_found_and_made_small() {
    let mut wrong = pretender("6.18,swapin-read=read-only", "6.18.44");
    let agreement = judged(&mut wrong, &drawn(40));
    let mut found = agreement.scenarios.iter().filter_map(|scenario| match &scenario.standing {
        Standing::Differing(difference) => Some(difference),
        _ => None,
    });
    let difference = found.next().unwrap();
    assert_eq!(difference.repeated, (3, 3));
    let minimal = difference.minimal.as_ref().unwrap();
    let lines: Vec<&str> = minimal.scenario.lines().map(str::trim).collect();
    let operations = |word: &str| lines.iter().filter(|line| line.starts_with(word)).count();
    assert!(lines.contains(&"map \"heap\" pages=1"), "{}", minimal.scenario);
    assert_eq!(operations("madvise"), 1, "{}", minimal.scenario);
    // The page has to go to swap before it is read, in the set-up or in the round before.
    assert_eq!(operations("rounds 1 warmup="), 1, "{}", minimal.scenario);
    assert!(lines.len() < 20, "{}", minimal.scenario);
}

/// The failure of the operation that has this word in its text.
fn refused(program: &Program, word: &str) -> Failure {
    let op = program.op_texts.iter().position(|text| text.contains(word)).unwrap();
    let what = "Resource temporarily unavailable".to_owned();
    Failure { kind: FailureKind::Operation, what, op: Some(op as u32), errno: Some(EAGAIN) }
}

fn collapsing() -> Vec<Scenario> {
    let text = "scenario \"c\" { machine { cpus 1; thp \"madvise\" }
        thread \"main\" cpu=0 { map \"heap\" pages=1024
        rounds 1 { write \"heap\"; madvise \"heap\" advice=\"collapse\"; madvise \"heap\" advice=\"dontneed\" } } }";
    let program = compile(&Source::new("c", text), &Settings::default()).unwrap();
    vec![Scenario { name: "c".into(), text: text.into(), program, case: None }]
}

/// The refusal counts only if it comes in every run.
#[test]
fn a_refusal_for_the_moment_is_tried_again() {
    let scenarios = collapsing();
    let standing = |refusals| {
        let mut target = Pretender { refusals, ..pretender("6.18", "6.18.44") };
        let progress = crate::output::Progress::new("scenario", 0);
        let memory = crate::memory::Memory::new(None);
        let keep = crate::runs::Keep::default();
        let mut runs = Runs { memory, progress: &progress, keep, events: None, tlbs: Vec::new() };
        let (row, own_row) = target.row();
        let kernel = Some(Kernel { release: None, row, own_row });
        let mut judge = Judge { target: &mut target, kernel, runs: &mut runs };
        judge.standings(&scenarios.iter().collect::<Vec<_>>()).unwrap().remove(0)
    };
    assert!(matches!(standing(RETRIES), Standing::Exact { .. }));
    assert!(matches!(standing(RETRIES + 1), Standing::Differing(_)));
    let program = &scenarios[0].program;
    assert!(!is_for_the_moment(&refused(program, "dontneed"), program));
    let other = Failure { errno: Some(22), ..refused(program, "collapse") };
    assert!(!is_for_the_moment(&other, program));
}

/// A program that needs something lacking runs once, and is counted apart.
#[test]
fn what_is_lacking_is_not_applicable() {
    let mut small = Pretender { lacks_cpus: 2, ..pretender("6.18", "6.18.44") };
    let scenarios = drawn(12);
    let needs_more = |scenario: &&Scenario| scenario.program.machine.cpus >= 2;
    let lacking = scenarios.iter().filter(needs_more).count();
    assert!((1..12).contains(&lacking));
    let agreement = judged(&mut small, &scenarios);
    let totals = Totals::of(&agreement.scenarios);
    let run = 12 - lacking;
    let expected = Totals { run, exact: run, differing: 0, undecided: 0, not_applicable: lacking };
    assert_eq!((totals, totals.is_decided()), (expected, true));
    assert_eq!(small.runs, 12, "nothing ran again");
    let mut none = Pretender { lacks_cpus: 0, ..pretender("6.18", "6.18.44") };
    let agreement = judged(&mut none, &scenarios);
    assert!(!Totals::of(&agreement.scenarios).is_decided(), "nothing was compared");
}

#[test]
fn undecided_runs_are_repeated_and_counted() {
    let mut spoilt = Pretender { spoilt: 3, ..pretender("6.18", "6.18.44") };
    let agreement = judged(&mut spoilt, &drawn(2));
    let retries: Vec<u32> = agreement.scenarios.iter().map(|scenario| scenario.retries).collect();
    assert_eq!(retries, [2, 1]);
    let mut spoilt = Pretender { spoilt: 100, ..pretender("6.18", "6.18.44") };
    let agreement = judged(&mut spoilt, &drawn(2));
    let undecided = |s: &ScenarioAgreement| matches!(s.standing, Standing::Undecided(_));
    assert!(agreement.scenarios.iter().all(undecided));
}
