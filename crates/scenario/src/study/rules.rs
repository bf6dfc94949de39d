//! The nodes of a study.

use crate::grammar::{Body, Rule, rule};

/// What is allowed at the top of a file.
pub static TOP: &[Rule] = &[rule(
    "study",
    (1, 1),
    &[],
    &[],
    Body::Of(STUDY),
    ("study \"NAME\" { … }", "A study; a file holds one."),
)];

/// What is allowed in a study.
#[rustfmt::skip]
pub static STUDY: &[Rule] = &[
    rule("doc", (1, 1), &[], &[], Body::None,
        ("doc \"SENTENCE\"", "The question. Lists show its first line.")),
    rule("source", (1, 1), &[], &[], Body::None,
        ("source \"SENTENCE\"", "Who published it, where and when.")),
    rule("takes", (1, 1), &[], &[], Body::None,
        ("takes \"SENTENCE\"", "How long it takes.")),
    rule("published", (2, 2), &["doc"], &["unit"], Body::None,
        ("published \"NAME\" NUMBER doc=\"…\" [unit=\"…\"]", "A figure that was published.")),
    rule("stated", (2, 2), &["doc", "source"], &["unit"], Body::None,
        ("stated \"NAME\" NUMBER doc=\"…\" source=\"…\" [unit=\"…\"]",
         "A figure that nobody measured here: an assumption, with where it is from.")),
    rule("size", (1, 1), &["doc"], &["live", "because"], Body::None,
        ("size PAGES doc=\"…\" [live=PAGES because=\"…\"]",
         "The number of pages of the study's large runs, unless --size gives another one. live= is the number on real kernels, and because= says why it differs. Both are figures, `size` and `live_size`, and `set` and `per=` take these words as values.")),
    rule("missing", (1, 1), &["why"], &[], Body::None,
        ("missing \"WHAT\" why=\"…\"", "What cannot be reproduced here.")),
    rule("answer", (1, 1), &["is"], &["of"], Body::None,
        ("answer \"QUESTION\" is=\"TEMPLATE\" [of=\"PART …\"]",
         "A sentence that is printed first. In a template, `{PART.FIGURE}` is a figure, `{PART.FIGURE:1}` the figure with one decimal, `{FIGURE}` one that was published or stated, and `{PART/TEST}` what the checker found in a litmus test of a part; each `~WORD` after it keeps the rows that have the word, each `~!WORD` those that do not. If a relation, a target or a check fails in a part that the template or of= names, the sentence says so.")),
    rule("matrix", (1, 1), &[], &[], Body::Of(MATRIX),
        ("matrix \"SENTENCE\" { … }", "A table that follows the sentences. Its first column has the published figures.")),
    rule("part", (1, 1), &[], &[], Body::Of(PART),
        ("part \"NAME\" { … }", "A part, which can be run alone. It uses figures of its own and those that were published or stated.")),
];

/// What is allowed in a part.
#[rustfmt::skip]
pub static PART: &[Rule] = &[
    rule("doc", (1, 1), &[], &[], Body::None,
        ("doc \"SENTENCE\"", "What the part asks.")),
    rule("run", (1, 1), &["scenario"], &["rounds", "thp"], Body::Of(RUN),
        ("run \"NAME\" scenario=\"SCENARIO\" [rounds=N] [thp=\"always|madvise|never\"] { … }",
         "A scenario on targets; thp= is the mode of transparent huge pages in place of its own.")),
    rule("check", (1, 1), &["test"], &["shown"], Body::Of(CHECK),
        ("check \"NAME\" test=\"SCENARIO\" [shown=\"…\"] { … }",
         "A litmus test that the checker explores; shown= names the document that argues about it.")),
    rule("costs", (1, 1), &["on"], &[], Body::Of(COSTS),
        ("costs \"NAME\" on=\"TARGET\" { … }",
         "A cost table, fitted to the cycles of scenarios on a real kernel.")),
    rule("tiers", (1, 1), &["row"], &["stream", "cpus", "scale", "fast", "per-second", "warm", "seconds", "pass-us"], Body::None,
        ("tiers \"NAME\" row=\"ROW\" [stream=\"xsbench|key-value|graph|writes\"] [cpus=N] [scale=N] [fast=MIB] [per-second=N] [warm=SECONDS] [seconds=SECONDS] [pass-us=N]",
         "A machine with fast and slow memory, run over time in the model: the row of its kernel, what its threads do, CPUs (16), by how much it is scaled down (16; in a study with a size a multiple, 1 unless given, of the scale that leaves that many pages of fast memory; 256 at most), fast memory (1024), units of work a second (1754778), time before it counts (63) and while it counts (20), microseconds that a pass of kswapd takes (0: it is done at once).")),
    rule("figure", (1, 1), &["doc"], &["is", "tiers", "run", "on", "counter", "class", "updates", "ages", "left", "ends", "executes", "pass", "block", "per", "costs", "term", "unit"], Body::None,
        ("figure \"NAME\" doc=\"…\" is=\"FORMULA\" | tiers=\"TIERS\" counter=\"WHAT\" | run=\"RUN\" on=\"TARGET\" counter=\"COUNTER\" | class=\"CLASS\" | updates=\"accessed|dirty|entries|markers\" | ages=\"active|resident\" pass=N | left=\"tables|markers\" | ends=\"protected|tables\" | executes=\"tlbi\" | costs=\"COSTS\" | costs=\"COSTS\" term=\"TERM\" [block=N] [per=N] [unit=\"…\"]",
         "A figure: a formula; a count per second of a machine with tiers, as the full-size machine would have it; what a run shows; the cycles that a cost table predicts for what it timed; or a price.")),
    rule("sweep", (1, 1), &["over", "values"], &[], Body::Of(SWEEP),
        ("sweep \"SENTENCE\" over=\"NUMBER\" values=\"N …\" { … }",
         "Formulas of a number. The table has a line for each of its values; each cell is a figure, COLUMN_N.")),
    rule("table", (1, 1), &["runs", "counters"], &["per"], Body::None,
        ("table \"SENTENCE\" runs=\"RUN …\" counters=\"COUNTER …\" [per=N]",
         "Runs side by side, with a table for each target: what most rounds count, and the cycles of everything that a round times, divided by per=.")),
    rule("contrast", (1, 1), &["first", "second", "on"], &["unit"], Body::Of(CONTRAST),
        ("contrast \"SENTENCE\" first=\"CONDITION\" second=\"CONDITION\" on=\"TARGET\" [unit=\"…\"] { … }",
         "Cases under two conditions: their order under each, and what differs between the conditions in what was asked for, in the machine (as `needless compare a.json b.json` says it), and in what was counted.")),
    rule("finding", (1, 1), &["what", "function", "run", "on", "times"], &[], Body::None,
        ("finding \"SENTENCE\" what=\"shootdown\" function=\"FUNCTION\" run=\"RUN\" on=\"TARGET\" times=N",
         "Something needless that the model has to find by itself, `times` times in a round.")),
    rule("relation", (1, 1), &["is"], &["factor", "percent", "where", "because", "moves", "follows"], Body::None,
        ("relation \"SENTENCE\" is=\"FORMULA = FORMULA\" [factor=N | percent=N] [where=\"FORMULA <= FORMULA\" because=\"…\"] [moves=\"STATED …\"] [follows=\"SENTENCE\"]",
         "Something that must hold. `~` takes factor= or percent=. On a machine where the condition where= does not hold, the relation is not to be had here, and because= says why. moves= names stated figures: the study says how far each may move, by itself, before the relation fails. follows= is for a relation that cannot fail by itself, and says from what it follows; it is tested, and counted separately.")),
];

/// What is allowed in `matrix`.
#[rustfmt::skip]
pub static MATRIX: &[Rule] = &[
    rule("column", (1, 1), &[], &["run", "counter"], Body::None,
        ("column \"HEADING\" [run=\"PART.RUN\" counter=\"COUNTER\"]",
         "A column: a counter of a run on the row's targets, or else the row's next template.")),
    rule("row", (1, 12), &[], &["published", "model", "real"], Body::None,
        ("row \"NAME\" [published=\"TEMPLATE\"] [model=\"TARGET\"] [real=\"TARGET\"] [\"TEMPLATE\" …]",
         "A row: its target in the model and its real kernel, for columns with run=, and a template for each other column.")),
];

/// What is allowed in `run`.
#[rustfmt::skip]
pub static RUN: &[Rule] = &[SET,
    rule("on", (1, 1), &[], ON, Body::None,
        ("on \"TARGET\" [since=\"RELEASE\"] [COUNTER=N …]",
         "A target, with the counters that each round must have there; since= limits this to kernels from that release on.")),
];

/// The properties of `on`: `since` and the counters that a study can expect.
const ON: &[&str] = &[
    "since",
    "faults",
    "minor_faults",
    "major_faults",
    "retries",
    "copies",
    "zeroings",
    "pages_in",
    "pages_out",
    "flushes",
    "shootdowns",
    "local_flushes",
    "interrupts",
    "told_pages",
    "needless_faults",
    "needless_retries",
    "needless_copies",
    "needless_shootdowns",
    "needless_local_flushes",
    "needless_interrupts",
];

/// What is allowed in `sweep`.
#[rustfmt::skip]
pub static SWEEP: &[Rule] = &[
    rule("column", (1, 1), &["is", "doc"], &["unit"], Body::None,
        ("column \"NAME\" is=\"FORMULA\" doc=\"…\" [unit=\"…\"]",
         "A formula of the number, of figures, and of the columns before this one.")),
];

/// What is allowed in `contrast`.
#[rustfmt::skip]
pub static CONTRAST: &[Rule] = &[
    rule("case", (1, 1), &["first", "second", "costs", "then"], &[], Body::None,
        ("case \"NAME\" first=\"RUN\" second=\"RUN\" costs=\"FORMULA\" then=\"FORMULA\"",
         "A case, its runs under the first and the second condition, and what it costs under each.")),
];

/// What is allowed in `check`.
#[rustfmt::skip]
pub static CHECK: &[Rule] = &[SET,
    rule("on", (1, 1), &["finds"], &[], Body::None,
        ("on \"ROW\" finds=\"holds|P1|…\"", "A kernel row, and what the checker must find.")),
];

/// What is allowed in `costs`.
#[rustfmt::skip]
pub static COSTS: &[Rule] = &[
    rule("term", (1, 1), &["counts", "doc"], &[], Body::None,
        ("term \"NAME\" counts=\"COUNTER …|blocks\" doc=\"…\"",
         "Something that has a price: what the counters count, or `measure` itself.")),
    rule("sample", (1, 1), &["run", "block"], &["held-out"], Body::None,
        ("sample \"NAME\" run=\"RUN\" block=N [held-out=\"yes\"]",
         "A `measure` block of a run, counted from 1; one that is held out is predicted, not fitted.")),
];

const SET: Rule = rule(
    "set",
    (2, 2),
    &[],
    &[],
    Body::None,
    (
        "set \"PARAMETER\" N",
        "The value of one of the scenario's parameters, or `\"size\"`, or `\"live_size\"`.",
    ),
);
