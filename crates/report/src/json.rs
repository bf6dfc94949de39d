//! JSON documents. The shape of a comparison is docs/schema/compare.schema.json.
//!
//! `per_round` gives the most frequent value of each counter, `spread` says how far rounds
//! differ where they do, `samples` has every round's value. Unknown is `null`, and `unknown`
//! says why.

use crate::SCHEMA_VERSION;
use crate::answer::Avoided;
use crate::compare::{Comparison, Ran, Reference, Target};
use crate::expect::{Case, Verdict};
use crate::notes::instruction_groups;
use crate::stats::{Median, median};
use crate::steps::Step;
use needless_model::account::{Account, RoundAt};
use needless_model::addr::ProcessId;
use needless_model::agreement::PageDifference;
use needless_model::counters::{Counted, Counter, FAULTS_BY_CLASS};
use needless_model::program::{Process, Program, ThpMode};
use needless_model::run::Round;
use needless_model::verdict::{Judgement, Needless, Reason};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    scenario: Scenario<'a>,
    environment: Option<&'a BTreeMap<String, String>>,
    targets: Vec<TargetDocument<'a>>,
    steps: &'a [Step],
    avoided: &'a [Avoided],
    expectations: Vec<ExpectationDocument<'a>>,
    counters: BTreeMap<&'static str, CounterDocument>,
}

#[derive(Serialize)]
struct ExpectationDocument<'a> {
    target: &'a str,
    expected: String,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

#[derive(Serialize)]
struct Scenario<'a> {
    name: &'a str,
    parameters: BTreeMap<&'a str, i64>,
    /// The mode that the scenario asks for. `null` leaves the machine as it is.
    thp: Option<&'static str>,
    cpus: u16,
    threads: Vec<&'a str>,
    areas: Vec<AreaDocument<'a>>,
}

#[derive(Serialize)]
struct AreaDocument<'a> {
    name: &'a str,
    pages: u64,
}

#[derive(Serialize)]
struct CounterDocument {
    unit: &'static str,
    doc: &'static str,
}

#[derive(Serialize)]
struct TargetDocument<'a> {
    target: &'a str,
    status: &'static str,
    reason: Option<&'a str>,
    remark: Option<&'a str>,
    #[serde(flatten)]
    ran: Option<RanDocument<'a>>,
}

#[derive(Serialize)]
struct RanDocument<'a> {
    release: Option<&'a str>,
    rounds: usize,
    per_round: Map<String, Value>,
    /// Each process by itself. Empty if there is only one.
    processes: Vec<ProcessDocument<'a>>,
    spread: BTreeMap<&'static str, SpreadDocument>,
    cycles: Option<Median>,
    sequence: Option<String>,
    sequences: Vec<SequenceDocument>,
    instructions: Vec<InstructionsDocument<'a>>,
    samples: Map<String, Value>,
    /// The kernel's counts of the whole machine, in the median round.
    kernel_counters: BTreeMap<&'a str, u64>,
    verdicts: Verdicts,
    findings: Vec<FindingDocument>,
    unknown: &'a BTreeMap<String, String>,
    agreement: Option<AgreementDocument<'a>>,
    witness: &'a needless_model::run::Witness,
    environment: &'a BTreeMap<String, String>,
    final_pages: &'a BTreeMap<String, String>,
}

/// The counts of one process, as far as they can be told apart.
#[derive(Serialize)]
struct ProcessDocument<'a> {
    process: &'a str,
    per_round: BTreeMap<&'static str, Option<u64>>,
    cycles: Option<Median>,
}

#[derive(Serialize)]
struct SpreadDocument {
    equal_rounds: usize,
    known_rounds: usize,
    min: u64,
    max: u64,
    median: u64,
}

#[derive(Serialize)]
struct SequenceDocument {
    sequence: String,
    rounds: usize,
}

/// The instructions executed in some rounds, by phase.
#[derive(Serialize)]
struct InstructionsDocument<'a> {
    phases: &'a [BTreeMap<String, u64>],
    rounds: usize,
}

/// The verdicts of one typical round, event by event.
#[derive(Serialize)]
struct Verdicts {
    round: Option<u32>,
    events: Vec<VerdictDocument>,
}

#[derive(Serialize)]
struct VerdictDocument {
    event: u64,
    what: Option<Needless>,
    function: Option<&'static str>,
    file: Option<&'static str>,
    judgement: Judgement,
    reason: Reason,
    text: &'static str,
    caused_by: Option<u64>,
}

#[derive(Serialize)]
struct FindingDocument {
    what: Needless,
    function: Option<&'static str>,
    file: Option<&'static str>,
    reason: Reason,
    text: &'static str,
    count: u64,
}

/// How far a real target and the model's row agree.
#[derive(Serialize)]
pub(crate) struct AgreementDocument<'a> {
    row: &'a str,
    own_row: bool,
    rounds: usize,
    equal: usize,
    differing: &'a [usize],
    final_pages: Vec<PageDocument<'a>>,
    undecided: Option<&'a str>,
    rusage_equal: usize,
    rusage_rounds: usize,
    transferred: Vec<&'static str>,
}

/// A page that is in another state at the end.
#[derive(Serialize)]
struct PageDocument<'a> {
    page: &'a str,
    real: &'a str,
    model: &'a str,
}

impl<'a> PageDocument<'a> {
    fn of(page: &'a PageDifference) -> PageDocument<'a> {
        PageDocument { page: &page.page, real: &page.real, model: &page.model }
    }
}

impl<'a> AgreementDocument<'a> {
    pub(crate) fn of(reference: &'a Reference) -> AgreementDocument<'a> {
        let agreement = &reference.agreement;
        AgreementDocument {
            row: &reference.row,
            own_row: reference.own_row,
            rounds: agreement.rounds,
            equal: agreement.equal(),
            differing: &agreement.differing,
            final_pages: agreement.final_pages.iter().map(PageDocument::of).collect(),
            undecided: agreement.undecided.as_deref(),
            rusage_equal: agreement.rusage.0,
            rusage_rounds: agreement.rusage.1,
            transferred: reference.transferred.iter().copied().collect(),
        }
    }
}

/// The document of a comparison (and of a run, which is a comparison with one target).
pub fn comparison(comparison: &Comparison) -> Value {
    expected(comparison, &[])
}

/// The document of a comparison, with the result of each expectation.
pub fn expected(comparison: &Comparison, cases: &[Case<'_>]) -> Value {
    let program = &comparison.program;
    let areas = program.areas.iter();
    let environment = comparison.targets.iter().filter_map(Target::ran);
    value(&Document {
        schema_version: SCHEMA_VERSION,
        scenario: Scenario {
            name: &program.name,
            parameters: program.parameters.iter().map(|(name, v)| (name.as_str(), *v)).collect(),
            thp: program.machine.thp.map(ThpMode::word),
            cpus: program.machine.cpus,
            threads: program.threads.iter().map(|thread| thread.name.as_str()).collect(),
            areas: areas
                .map(|area| AreaDocument { name: &area.name, pages: area.range.pages() })
                .collect(),
        },
        environment: environment.map(|ran| &ran.run.environment).find(|map| !map.is_empty()),
        targets: comparison.targets.iter().map(|t| target(program, t)).collect(),
        steps: &comparison.steps,
        avoided: &comparison.avoided,
        expectations: cases
            .iter()
            .map(|case| ExpectationDocument {
                target: case.target,
                expected: case.name(),
                verdict: &case.verdict,
            })
            .collect(),
        counters: Counter::ALL
            .iter()
            .map(|c| (c.name(), CounterDocument { unit: c.unit(), doc: c.doc() }))
            .collect(),
    })
}

/// The value of a document whose parts are all plain data, which cannot fail to convert.
pub(crate) fn value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_else(|error| json!({ "error": error.to_string() }))
}

fn target<'a>(program: &'a Program, target: &'a Target) -> TargetDocument<'a> {
    let (status, reason) = target.status();
    TargetDocument {
        target: &target.name,
        status,
        reason,
        remark: target.remark.as_deref(),
        ran: target.ran().map(|r| document(program, r)),
    }
}

fn document<'a>(program: &'a Program, ran: &'a Ran) -> RanDocument<'a> {
    let account = &ran.account;
    let sequences: Vec<SequenceDocument> = account
        .sequences()
        .iter()
        .map(|g| SequenceDocument { sequence: g.value.to_string(), rounds: g.rounds })
        .collect();
    RanDocument {
        release: ran.run.release.as_deref(),
        rounds: account.total,
        per_round: per_round(account),
        processes: processes(program, account),
        spread: spreads(account),
        cycles: median(&account.cycles()),
        sequence: sequences.first().map(|group| group.sequence.clone()),
        sequences,
        instructions: instruction_groups(&ran.account)
            .into_iter()
            .map(|(phases, rounds)| InstructionsDocument { phases, rounds })
            .collect(),
        samples: samples(account),
        kernel_counters: kernel_counters(&ran.run.rounds),
        verdicts: verdicts(account),
        findings: findings(account),
        unknown: &account.unknown,
        agreement: ran.reference.as_ref().map(AgreementDocument::of),
        witness: &ran.run.witness,
        environment: &ran.run.environment,
        final_pages: &ran.run.final_pages,
    }
}

pub(crate) fn per_round(account: &Account) -> Map<String, Value> {
    let mut map: Map<String, Value> = Counter::ALL
        .iter()
        .map(|&counter| {
            let value = match counter {
                Counter::Cycles => median(&account.cycles()).map(|result| result.median),
                _ => account.typical(counter),
            };
            (counter.name().to_owned(), json!(value))
        })
        .collect();
    let classes = account.typical_classes().map(|(classes, _)| {
        classes.iter().map(|(class, n)| (class.name(), *n)).collect::<BTreeMap<_, _>>()
    });
    map.insert(FAULTS_BY_CLASS.to_owned(), json!(classes));
    map
}

fn processes<'a>(program: &'a Program, account: &Account) -> Vec<ProcessDocument<'a>> {
    if program.processes.len() < 2 {
        return Vec::new();
    }
    let document = |(number, process): (usize, &'a Process)| {
        let typical = |counter: &Counter| {
            let spread = account.spread_of(ProcessId(number as u16), *counter);
            (counter.name(), spread.map(|spread| spread.mode))
        };
        let counters = Counter::ALL.iter().filter(|counter| counter.is_by_process());
        ProcessDocument {
            process: &process.name,
            per_round: counters.map(typical).collect(),
            cycles: median(&account.cycles_of(ProcessId(number as u16))),
        }
    };
    program.processes.iter().enumerate().map(document).collect()
}

fn spreads(account: &Account) -> BTreeMap<&'static str, SpreadDocument> {
    let differing = |&counter: &Counter| {
        let spread = account.spread(counter)?;
        let all = spread.is_constant() && spread.of == account.total;
        (!all).then_some((
            counter.name(),
            SpreadDocument {
                equal_rounds: spread.equal,
                known_rounds: spread.of,
                min: spread.min,
                max: spread.max,
                median: spread.median,
            },
        ))
    };
    Counter::ALL.iter().filter_map(differing).collect()
}

/// Every round's value of every known counter. For cycles, every block's.
fn samples(account: &Account) -> Map<String, Value> {
    let known = Counter::ALL.iter().filter(|&&c| account.spread(c).is_some());
    let mut samples: Map<String, Value> = known
        .map(|&counter| {
            let values: Vec<Option<u64>> =
                account.rounds.iter().map(|round| account.value(round, counter)).collect();
            (counter.name().to_owned(), json!(values))
        })
        .collect();
    let blocks = |round: &RoundAt| round.cycles.iter().map(|block| block.cycles).collect();
    let cycles: Vec<Vec<u64>> = account.rounds.iter().map(blocks).collect();
    if cycles.iter().any(|blocks| !blocks.is_empty()) {
        samples.insert(Counter::Cycles.name().to_owned(), json!(cycles));
    }
    let indices: Vec<u32> = account.rounds.iter().map(|round| round.index).collect();
    samples.insert("round".to_owned(), json!(indices));
    samples
}

/// The median of each counter.
fn kernel_counters(rounds: &[Round]) -> BTreeMap<&str, u64> {
    let names = rounds.iter().flat_map(|round| round.kernel_counters.keys());
    let names: BTreeSet<&str> = names.map(String::as_str).collect();
    let middle = |name: &str| {
        let values = rounds.iter().filter_map(|round| round.kernel_counters.get(name).copied());
        median(&values.collect::<Vec<u64>>()).map(|result| result.median)
    };
    names.into_iter().filter_map(|name| Some((name, middle(name)?))).collect()
}

fn verdicts(account: &Account) -> Verdicts {
    let kind = account.typical_kind();
    // Events are numbered through the whole run.
    let first = kind.map_or(0, |kind| kind.first_seq);
    let document = |seen: &Counted| {
        let verdict = seen.verdict?;
        Some(VerdictDocument {
            event: first.wrapping_add(seen.seq),
            what: seen.what.needless(),
            function: seen.site.map(|site| site.function()),
            file: seen.site.map(|site| site.file()),
            judgement: verdict.judgement,
            reason: verdict.reason,
            text: verdict.reason.text(),
            caused_by: verdict.caused_by.map(|seq| first.wrapping_add(seq)),
        })
    };
    Verdicts {
        round: kind.map(|kind| kind.index),
        events: kind
            .map_or_else(Vec::new, |k| k.account.seen.iter().filter_map(document).collect()),
    }
}

fn findings(account: &Account) -> Vec<FindingDocument> {
    let document = |(finding, count): (needless_model::verdict::Finding, u64)| FindingDocument {
        what: finding.what,
        function: finding.site.map(|site| site.function()),
        file: finding.site.map(|site| site.file()),
        reason: finding.reason,
        text: finding.reason.text(),
        count,
    };
    account.findings().into_iter().map(document).collect()
}
