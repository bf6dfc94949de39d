//! The `litmus` node: what the checker should find in a scenario.
//!
//! `safe` names the kernel rows on which every property must hold. There, the case of each `forbid`
//! property must occur, so that the property does not hold for want of it, and every observation
//! must be as expected. Each `fails` names a row that must violate one property.

use crate::compile::label;
use crate::document::{Node, Value};
use crate::error::{Problem, finish, suggest};
use crate::ops::{Named, ZERO, word};
use miette::SourceSpan;
use needless_model::kernels::{KernelRow, RowError};
use needless_model::policy::{POLICIES, UnknownPolicy};
use needless_model::property::Property;

/// What the checker should find in a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Litmus {
    /// The properties that the test is about. All properties must hold, and the cases of these ones
    /// must occur.
    pub forbid: Vec<Property>,
    /// Which values loads may return.
    pub observations: Vec<Condition>,
    /// The kernel rows on which the scenario must hold.
    pub safe: Vec<String>,
    /// The kernel rows on which the scenario must fail.
    pub fails: Vec<Failing>,
}

/// Whether loads can return certain values, all at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The condition's name.
    pub name: String,
    /// The loads and values that all have to hold at once.
    pub clauses: Vec<Clause>,
    /// Whether that may be observed.
    pub expect: Expect,
}

/// One load and the value that it returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The number of the load's operation.
    pub load: u32,
    /// The number of the store's operation that wrote the value. `None` means zero.
    pub value: Option<u32>,
}

/// How often something is observed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It is observed in no interleaving.
    Never,
    /// It is observed in at least one interleaving, but not in all.
    Sometimes,
}

/// A kernel row that must fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The row, written as in `model:ROW`.
    pub row: String,
    /// The property that the row violates.
    pub violates: Property,
    /// What is wrong with the row. Empty if the scenario does not say.
    pub doc: String,
}

/// Reads the `litmus` node, if there is one. `named` lists the loads and stores that it may name.
pub(crate) fn read(nodes: &[&Node], named: &[Named]) -> Result<Option<Litmus>, Vec<Problem>> {
    let (first, rest) = match nodes {
        [] => return Ok(None),
        [first, rest @ ..] => (first, rest),
    };
    if let Some(second) = rest.first() {
        return Err(vec![twice(
            "litmus",
            second.span,
            first.span,
            "put everything into one block",
        )]);
    }
    let mut reader = Reader { named, rows: Vec::new(), problems: Vec::new() };
    let litmus = reader.litmus(first);
    finish(reader.problems, Some(litmus))
}

fn twice(name: &str, again: SourceSpan, first: SourceSpan, help: &str) -> Problem {
    Problem::new(again, format!("`{name}` is given twice"), "again here")
        .also(first, "first here")
        .help(help)
}

struct Reader<'a> {
    named: &'a [Named],
    /// The rows named so far, and where they are.
    rows: Vec<(&'a str, SourceSpan)>,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    fn litmus(&mut self, node: &'a Node) -> Litmus {
        let mut litmus = Litmus {
            forbid: Vec::new(),
            observations: Vec::new(),
            safe: Vec::new(),
            fails: Vec::new(),
        };
        self.once(node, "forbid");
        self.once(node, "safe");
        let mut names = Vec::new();
        for part in node.children() {
            match part.name.as_str() {
                // `doc` lines are for readers of the scenario.
                "doc" => _ = self.keep(part.args[0].text("a sentence")),
                "forbid" => litmus.forbid = self.forbid(&part.args),
                "safe" => {
                    let rows = part.args.iter().map(|value| self.row(value));
                    let rows: Vec<_> = rows.collect();
                    litmus.safe = rows.into_iter().filter_map(|row| self.keep(row)).collect();
                }
                "observe" => {
                    let observation = self.observation(part, &mut names);
                    litmus.observations.extend(self.keep(observation));
                }
                _ => {
                    let failing = self.failing(part);
                    litmus.fails.extend(self.keep(failing));
                }
            }
        }
        if self.rows.is_empty() && self.problems.is_empty() {
            self.problems.push(
                Problem::new(node.span, "the litmus test names no kernel row", "this one")
                    .help("add safe \"6.12\", or fails \"6.12,POLICY=VALUE\" violates=\"P1\""),
            );
        }
        litmus
    }

    /// Records a problem and returns the result without it.
    fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }

    fn once(&mut self, node: &Node, name: &str) {
        let mut parts = node.children().iter().filter(|part| part.name == name);
        if let (Some(first), Some(second)) = (parts.next(), parts.next()) {
            let problem = twice(name, second.span, first.span, "put all of them into one line");
            self.problems.push(problem);
        }
    }

    fn forbid(&mut self, values: &[Value]) -> Vec<Property> {
        let mut properties: Vec<Property> = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let Some(property) = self.keep(property(value)) else { continue };
            if properties.contains(&property) {
                let number = property.number();
                let same = |other: &&Value| other.text("").is_ok_and(|text| text == number);
                let first = values[..at].iter().find(same).map_or(value.span, |other| other.span);
                self.problems.push(twice(number, value.span, first, "remove one of them"));
            }
            properties.push(property);
        }
        properties
    }

    /// Reads a kernel row that the node has not named before.
    fn row(&mut self, value: &'a Value) -> Result<String, Problem> {
        let name = value.text("a kernel row")?;
        if let Err(error) = KernelRow::parse(name) {
            return Err(
                Problem::new(value.span, error.to_string(), "this row").help(remedy(&error))
            );
        }
        if let Some((_, first)) = self.rows.iter().find(|(row, _)| *row == name) {
            let help = "a row is safe or fails; remove one of them";
            return Err(twice(name, value.span, *first, help));
        }
        self.rows.push((name, value.span));
        Ok(name.to_owned())
    }

    fn failing(&mut self, node: &'a Node) -> Result<Failing, Problem> {
        let row = self.row(&node.args[0])?;
        let Some(violates) = node.prop("violates") else {
            return Err(Problem::new(node.span, "which property fails?", "this one")
                .help("add violates=\"P1\""));
        };
        let violates = property(violates)?;
        let doc = node.prop("doc").map(|v| v.text("a sentence")).transpose()?.unwrap_or_default();
        Ok(Failing { row, violates, doc: doc.to_owned() })
    }

    fn observation(
        &self,
        node: &'a Node,
        names: &mut Vec<(&'a str, SourceSpan)>,
    ) -> Result<Condition, Problem> {
        let value = &node.args[0];
        let name = label(value, "an observation")?;
        if let Some((_, first)) = names.iter().find(|(other, _)| *other == name) {
            return Err(twice(name, value.span, *first, "choose another name"));
        }
        names.push((name, value.span));
        let expect = word(node, "expect", &EXPECTATIONS)?;
        let Some(when) = node.prop("when") else {
            return Err(Problem::new(node.span, "what is observed?", "this one")
                .help("add when=\"LOAD=STORE\""));
        };
        Ok(Condition { name: name.to_owned(), clauses: self.clauses(when)?, expect })
    }

    fn clauses(&self, when: &Value) -> Result<Vec<Clause>, Problem> {
        let text = when.text("an observation")?;
        let (mut clauses, mut start): (Vec<Clause>, _) = (Vec::new(), 0);
        for part in text.split(AND) {
            let span = when.at(start..start + part.len());
            let Some((left, right)) = part.split_once('=') else {
                return Err(Problem::new(span, "not an observation", "this part")
                    .help("write LOAD=STORE or LOAD=zero, several of them joined by ` and `"));
            };
            let value = when.at(start + left.len() + 1..start + part.len());
            let left_span = when.at(start..start + left.len());
            let load = self.access(left, left_span, false)?;
            if clauses.iter().any(|clause| clause.load == load) {
                return Err(Problem::new(left_span, format!("`{left}` is given twice"), "again")
                    .help("a load returns one value"));
            }
            let store = if right == ZERO { None } else { Some(self.access(right, value, true)?) };
            clauses.push(Clause { load, value: store });
            start += part.len() + AND.len();
        }
        Ok(clauses)
    }

    /// The operation's number of the load or store with this name.
    fn access(&self, name: &str, span: SourceSpan, store: bool) -> Result<u32, Problem> {
        let (kind, verb) = if store { ("store", "write") } else { ("load", "read") };
        let Some(named) = self.named.iter().find(|named| named.name == name) else {
            let kin = self.named.iter().filter(|named| named.store == store);
            let mut known: Vec<&str> = kin.map(|named| named.name.as_str()).collect();
            known.extend(store.then_some(ZERO));
            let help = match known.as_slice() {
                [] => format!("name one: {verb} \"heap[0]\" as=\"NAME\""),
                known => suggest(&format!("{kind}s"), name, known.iter().copied()),
            };
            let message = format!("no {kind} is named `{name}`");
            return Err(Problem::new(span, message, "not known here").help(help));
        };
        if named.store == store {
            return Ok(named.op);
        }
        Err(Problem::new(span, format!("`{name}` is not a {kind}"), "here")
            .also(named.span, "named here")
            .help("write LOAD=STORE: a `read` on the left, a `write` or zero on the right"))
    }
}

/// The word that joins clauses.
const AND: &str = " and ";

/// The words for expectations.
const EXPECTATIONS: [(&str, Expect); 2] =
    [("never", Expect::Never), ("sometimes", Expect::Sometimes)];

/// The property that has the number in `value`.
fn property(value: &Value) -> Result<Property, Problem> {
    let number = value.text("a property's number")?;
    Property::parse(number).ok_or_else(|| {
        let known = Property::ALL.iter().map(|property| property.number());
        Problem::new(value.span, format!("unknown property `{number}`"), "this number")
            .help(format!("properties: {}", known.collect::<Vec<_>>().join(", ")))
    })
}

/// The help for a kernel row that does not exist.
fn remedy(error: &RowError) -> String {
    match error {
        RowError::UnknownKernel { name } => {
            suggest("kernel rows", name, KernelRow::names().into_iter())
        }
        RowError::UnknownOption { option } if option.contains('=') => {
            let name = option.split('=').next().unwrap_or_default();
            suggest("policies", name, POLICIES.iter().map(|policy| policy.name))
        }
        RowError::Policy(UnknownPolicy::Value { value, known, .. }) => {
            suggest("values", value, known.iter().copied())
        }
        _ => "a row is KERNEL[,POLICY=VALUE]; `needless policies` lists both".to_owned(),
    }
}

#[cfg(test)]
mod tests;
