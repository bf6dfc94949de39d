//! The table of nodes: which nodes are allowed where, with which arguments and properties.
//!
//! This table decides everything that can be checked without knowing a value. The language
//! reference and the tests walk it too.

use crate::document::Node;
use crate::error::{Problem, suggest};
use crate::ops;
use needless_model::call::CallKind;
use std::sync::LazyLock;
use strum::IntoEnumIterator;

/// A node of the language.
#[derive(Debug)]
pub struct Rule {
    /// The word that the node begins with.
    pub name: &'static str,
    /// How the node is written.
    pub usage: &'static str,
    /// What the node does, in one line.
    pub doc: &'static str,
    /// The smallest and the largest number of arguments.
    args: (usize, usize),
    /// Properties that the node must have.
    required: &'static [&'static str],
    /// Properties that the node may have.
    optional: &'static [&'static str],
    body: Body,
}

/// What is allowed between the braces.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Body {
    /// There are no braces.
    None,
    /// The parts of a scenario.
    Scenario,
    /// What a scenario needs of the machine.
    Machine,
    /// Operations of a thread.
    Ops,
    /// Questions for the checker.
    Litmus,
    /// Nodes from this table.
    Of(&'static [Rule]),
}

impl Body {
    fn rules(self) -> Vec<&'static Rule> {
        match self {
            Body::None => Vec::new(),
            Body::Scenario => PARTS.iter().collect(),
            Body::Machine => NEEDS.iter().collect(),
            Body::Ops => operations().collect(),
            Body::Litmus => LITMUS.iter().collect(),
            Body::Of(rules) => rules.iter().collect(),
        }
    }
}

/// Writes a row of a table in a short form.
pub(crate) const fn rule(
    name: &'static str,
    args: (usize, usize),
    required: &'static [&'static str],
    optional: &'static [&'static str],
    body: Body,
    (usage, doc): (&'static str, &'static str),
) -> Rule {
    Rule { name, usage, doc, args, required, optional, body }
}

/// The rule of an operation without a body.
pub(crate) const fn line(
    name: &'static str,
    args: (usize, usize),
    required: &'static [&'static str],
    optional: &'static [&'static str],
    text: (&'static str, &'static str),
) -> Rule {
    rule(name, args, required, optional, Body::None, text)
}

/// What is allowed at the top of a file.
static TOP: &[Rule] = &[rule(
    "scenario",
    (1, 1),
    &[],
    &[],
    Body::Scenario,
    ("scenario \"NAME\" { … }", "A scenario; a file holds one."),
)];

/// What is allowed in a scenario.
#[rustfmt::skip]
pub static PARTS: &[Rule] = &[
    rule("doc", (1, 1), &[], &[], Body::None,
        ("doc \"SENTENCE\"", "Says what the scenario or thread is for.")),
    rule("param", (1, 1), &["default"], &["doc", "min", "max"], Body::None,
        ("param \"NAME\" default=N [min=N] [max=N] [doc=\"…\"]", "A number that `--set NAME=N` changes.")),
    rule("machine", (0, 0), &[], &[], Body::Machine,
        ("machine { … }", "What the scenario needs of the machine.")),
    rule("file", (1, 1), &["fs", "pages"], &["content", "write-pages"], Body::None,
        ("file \"NAME\" fs=\"tmpfs|ext4\" pages=N [content=\"data|holes\"] [write-pages=N]",
         "A file that belongs to the scenario, created before anything else happens.")),
    rule("thread", (1, 1), &["cpu"], &["count"], Body::Ops,
        ("thread \"NAME\" cpu=N [count=N] { … }", "A thread, pinned to a CPU.")),
    rule("kernel-thread", (1, 1), &["cpu"], &["count"], Body::Ops,
        ("kernel-thread \"NAME\" cpu=N [count=N] { … }",
         "A thread of the kernel (kswapd, khugepaged): it has no address space of its own.")),
    rule("process", (1, 1), &["cpu"], &[], Body::Ops,
        ("process \"NAME\" cpu=N { … }",
         "A process that begins each time it is forked, as a copy of the process that forks it, and ends after its last operation.")),
    rule("litmus", (0, 0), &[], &[], Body::Litmus,
        ("litmus { … }", "What the checker has to find in the scenario.")),
];

/// What is allowed in `machine`.
#[rustfmt::skip]
pub static NEEDS: &[Rule] = &[
    rule("cpus", (1, 1), &[], &[], Body::None,
        ("cpus N", "How many CPUs it needs; they are numbered from 0.")),
    rule("nodes", (1, 1), &[], &["slow"], Body::None,
        ("nodes N [slow=N]", "How many NUMA nodes it needs; the last ones may be slower memory without CPUs.")),
    rule("demotion", (1, 1), &[], &[], Body::None,
        ("demotion \"on|off\"", "Whether reclaim moves pages to a slower node.")),
    rule("numa-balancing", (1, 1), &[], &[], Body::None,
        ("numa-balancing \"off|on|tiering\"", "What NUMA balancing does.")),
    rule("mglru", (1, 1), &[], &[], Body::None,
        ("mglru \"on|off\"", "Whether reclaim uses the multi-generational LRU.")),
    rule("swap", (1, 1), &["size"], &[], Body::None,
        ("swap \"zram\" size=BYTES", "A swap device of its own.")),
    rule("thp", (1, 1), &[], &[], Body::None,
        ("thp \"always|madvise|never\"", "The mode of transparent huge pages.")),
    rule("mthp", (2, 2), &[], &[], Body::None,
        ("mthp \"16KiB|32KiB|…|1024KiB\" \"always|inherit|madvise|never\"",
         "Large folios of anonymous memory that are smaller than a huge page.")),
];

/// Any number of arguments.
const MANY: usize = usize::MAX;

/// What is allowed in `litmus`.
#[rustfmt::skip]
pub static LITMUS: &[Rule] = &[
    rule("doc", (1, 1), &[], &[], Body::None,
        ("doc \"SENTENCE\"", "Says why the test matters.")),
    rule("forbid", (1, MANY), &[], &[], Body::None,
        ("forbid \"P1\" …", "The properties that the test is about: their cases must occur. All of them must hold.")),
    rule("observe", (1, 1), &["when", "expect"], &[], Body::None,
        ("observe \"NAME\" when=\"LOAD=STORE and LOAD=zero …\" expect=\"never|sometimes\"",
         "Whether the loads can return what these stores wrote, all at once.")),
    rule("safe", (1, MANY), &[], &[], Body::None,
        ("safe \"ROW\" …", "The kernel rows on which the test must pass.")),
    rule("fails", (1, 1), &["violates"], &["doc"], Body::None,
        ("fails \"ROW\" violates=\"P1\" [doc=\"…\"]",
         "A kernel row that must fail, by exactly this property.")),
];

/// The operations that a thread of the kernel may have.
const OF_THE_KERNEL: [&str; 8] = [
    "reclaim",
    "writeback",
    "khugepaged",
    "split-deferred",
    "barrier",
    "repeat",
    "for-each",
    "doc",
];

/// All operations: calls into the kernel, and the other things that threads do.
pub fn operations() -> impl Iterator<Item = &'static Rule> {
    CALLS.iter().chain(OTHERS)
}

static CALLS: LazyLock<Vec<Rule>> = LazyLock::new(|| CallKind::iter().map(ops::rule).collect());

#[rustfmt::skip]
static OTHERS: &[Rule] = &[
    rule("read", (1, 1), &[], &["as"], Body::None,
        ("read \"RANGE\" [as=\"NAME\"]", "Loads from every page of the range, in ascending order.")),
    rule("write", (1, 1), &[], &["value", "as"], Body::None,
        ("write \"RANGE\" [value=\"zero\"] [as=\"NAME\"]", "Stores to every page of the range, in ascending order.")),
    rule("touch", (1, 1), &["access"], &["stride", "order", "seed", "count"], Body::None,
        ("touch \"RANGE\" access=\"read|write|write-zero\" [stride=N | order=\"random\" seed=N count=N]",
         "Loads or stores with a stride, or at random.")),
    rule("spin", (0, 0), &[], &[], Body::None,
        ("spin", "Runs on the CPU without touching memory until the scenario ends.")),
    rule("sleep", (0, 1), &[], &[], Body::None,
        ("sleep [\"10ms\"]", "Sleeps for a while, or until the scenario ends.")),
    rule("uffd-serve", (0, 0), &["by"], &["from", "to"], Body::None,
        ("uffd-serve by=\"unprotect|continue|zeropage|copy|move\" [from=\"AREA\" to=\"AREA\"]", "Sleeps until userfaultfd reports an access, answers it, and sleeps again until the scenario ends: a protected page may then be stored to, a page that its file has is mapped, and a missing page gets zeros, a copy of zeros, or a page that is moved there.")),
    rule("barrier", (1, 1), &[], &[], Body::None,
        ("barrier \"NAME\"", "Waits until every thread that names the barrier has reached it.")),
    rule("repeat", (1, 1), &[], &["as"], Body::Ops,
        ("repeat N [as=\"VARIABLE\"] { … }", "Repeats the body N times; the variable counts from 0.")),
    rule("for-each", (1, 1), &["in"], &["stride"], Body::Ops,
        ("for-each \"VARIABLE\" in=\"RANGE\" [stride=N] { … }",
         "Runs the body for each page; the variable is the page's index in its area.")),
    rule("rounds", (1, 1), &[], &["warmup", "as"], Body::Ops,
        ("rounds N [warmup=N] [as=\"VARIABLE\"] { … }",
         "The scenario's rounds: the unit of every figure.")),
    rule("measure", (0, 0), &[], &[], Body::Ops,
        ("measure { … }", "Times its body in cycles.")),
    rule("mark", (1, 1), &[], &[], Body::None,
        ("mark \"NAME\"", "Marks the start of a phase of the round.")),
];

/// Checks the nodes of a file against the table.
pub(crate) fn check(nodes: &[Node], problems: &mut Vec<Problem>) {
    check_by(nodes, TOP, problems);
}

/// Checks nodes against a table of their own.
pub(crate) fn check_by(nodes: &[Node], rules: &'static [Rule], problems: &mut Vec<Problem>) {
    check_all(nodes, &rules.iter().collect::<Vec<_>>(), false, problems);
}

fn check_all(nodes: &[Node], rules: &[&'static Rule], doc: bool, problems: &mut Vec<Problem>) {
    for node in nodes {
        // `doc` lines may come before a thread's operations.
        let extra = PARTS.iter().take(usize::from(doc));
        match rules.iter().copied().chain(extra).find(|r| r.name == node.name) {
            Some(rule) => {
                check_node(node, rule, problems);
                let doc = matches!(rule.name, "thread" | "kernel-thread");
                check_all(node.children(), &rule.body.rules(), doc, problems);
                if rule.name == "kernel-thread" {
                    check_kernel(node.children(), problems);
                }
            }
            None => problems.push(
                Problem::new(node.span, format!("unknown node `{}`", node.name), "not known here")
                    .help(instead_of(&node.name).map_or_else(
                        || suggest("nodes", &node.name, rules.iter().map(|r| r.name)),
                        str::to_owned,
                    )),
            ),
        }
    }
}

/// What to write instead of a system call that has no node of its own.
fn instead_of(call: &str) -> Option<&'static str> {
    Some(match call {
        "fallocate" => {
            "a hole is punched where the file is mapped: madvise \"RANGE\" advice=\"remove\"; a file gets its size by ftruncate"
        }
        "posix_fadvise" => "fadvise \"FILE[RANGE]\" advice=\"dontneed\"",
        _ => return None,
    })
}

/// Checks the operations of a thread of the kernel.
fn check_kernel(nodes: &[Node], problems: &mut Vec<Problem>) {
    for node in nodes {
        let name = node.name.as_str();
        if operations().any(|rule| rule.name == name) && !OF_THE_KERNEL.contains(&name) {
            let message = format!("a thread of the kernel has no `{name}`");
            problems.push(
                Problem::new(node.span, message, "not here")
                    .help(format!("it may have: {}", OF_THE_KERNEL.join(", "))),
            );
        }
        check_kernel(node.children(), problems);
    }
}

fn check_node(node: &Node, rule: &Rule, problems: &mut Vec<Problem>) {
    let usage = || format!("usage: {}", rule.usage);
    let (least, most) = rule.args;
    if let Some(extra) = node.args.get(most) {
        let message = format!("`{}` takes {}", rule.name, arguments(most));
        problems.push(Problem::new(extra.span, message, "one too many").help(usage()));
    }
    if node.args.len() < least {
        let message = format!("`{}` needs {}", rule.name, arguments(least));
        problems.push(Problem::new(node.span, message, "argument missing").help(usage()));
    }
    let known = || rule.required.iter().chain(rule.optional).copied();
    for prop in &node.props {
        if !known().any(|name| name == prop.name) {
            let message = format!("`{}` has no property `{}`", rule.name, prop.name);
            let help = suggest("properties", &prop.name, known());
            problems.push(Problem::new(prop.span, message, "not known here").help(help));
        }
    }
    for name in rule.required.iter().filter(|name| node.prop(name).is_none()) {
        let message = format!("`{}` needs the property `{name}`", rule.name);
        problems.push(Problem::new(node.span, message, "property missing").help(usage()));
    }
    match (rule.body, &node.body) {
        (Body::None, Some(_)) => problems.push(
            Problem::new(node.span, format!("`{}` takes no block", rule.name), "has one")
                .help(usage()),
        ),
        (Body::None, None) | (_, Some(_)) => {}
        (_, None) => problems.push(
            Problem::new(node.span, format!("`{}` needs a block", rule.name), "has none")
                .help(usage()),
        ),
    }
}

fn arguments(count: usize) -> String {
    match count {
        0 => "no argument".to_owned(),
        1 => "one argument".to_owned(),
        n => format!("{n} arguments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    fn problems(text: &str) -> usize {
        let mut problems = Vec::new();
        check(&document::read(text).unwrap(), &mut problems);
        problems.len()
    }

    #[test]
    fn structure() {
        assert_eq!(problems("scenario \"x\" { thread \"t\" cpu=0 { doc \"d\"; spin } }"), 0);
        for (bad, count) in [
            ("scenery \"x\" {}", 1),
            ("scenario {}", 1),
            ("scenario \"x\"", 1),
            ("scenario \"x\" { thread \"t\" { spin 1 2; rede \"h\"; map \"a\" page=1 {} } }", 5),
            (
                "scenario \"x\" { kernel-thread \"k\" cpu=0 { doc \"d\"; reclaim \"h\"; spin; repeat 2 { write \"h\" } } }",
                2,
            ),
            (
                "scenario \"x\" { litmus { doc \"d\"; forbid \"P1\" \"P2\"; observe \"o\"; read \"h\" } }",
                3,
            ),
            ("scenario \"x\" { thread \"t\" cpu=0 { measure { doc \"no\" } } }", 1),
        ] {
            assert_eq!(problems(bad), count, "{bad}");
        }
    }

    #[test]
    fn every_rule_is_described() {
        for rule in TOP.iter().chain(PARTS).chain(NEEDS).chain(LITMUS).chain(operations()) {
            assert!(rule.usage.starts_with(rule.name), "{}", rule.name);
            for prop in rule.required.iter().chain(rule.optional) {
                assert!(rule.usage.contains(&format!("{prop}=")), "{} {prop}", rule.name);
            }
            assert!(rule.doc.ends_with('.'));
        }
    }
}
