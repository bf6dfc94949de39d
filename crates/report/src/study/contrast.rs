//! Contrasts: the order of the cases under each of two conditions, and the differences between
//! these.

use super::blocks::Block;
use super::number;
use crate::saved::Row;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Cases that are run under two conditions each.
#[derive(Clone, Debug)]
pub struct ContrastResult {
    /// What the contrast asks.
    pub text: String,
    /// The names of the two conditions.
    pub names: [String; 2],
    /// The target that all cases ran on.
    pub target: String,
    /// The unit of the cases' costs.
    pub unit: String,
    /// The cases under each condition with their costs, the cheapest first, or the reason why these
    /// are not known.
    pub orders: [Result<Vec<(String, f64)>, String>; 2],
    /// The cases, in the order of the study.
    pub cases: Vec<CaseResult>,
}

/// A case under both conditions.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case's name.
    pub name: String,
    /// The differences in the machine and in what was asked for, those with the most influence
    /// first.
    pub conditions: Vec<Row>,
    /// The counts that differ, or the reason why there are none.
    pub figures: Result<Vec<Row>, String>,
    /// Whether anything was counted under both conditions. If only time was measured, nothing is
    /// known to be equal.
    pub counted: bool,
}

impl ContrastResult {
    /// The conditions that differ in every case that ran. Nothing else can be the cause of what all
    /// cases show.
    fn common(&self) -> Vec<&Row> {
        let mut ran = self.cases.iter().filter(|case| case.figures.is_ok());
        let Some(first) = ran.next() else { return Vec::new() };
        let rest: Vec<&CaseResult> = ran.collect();
        let in_all = |row: &&Row| rest.iter().all(|case| case.conditions.contains(row));
        first.conditions.iter().filter(in_all).collect()
    }

    /// Differences that only some cases have.
    fn others(&self) -> Vec<String> {
        let common = self.common();
        let row = |case: &CaseResult, row: &Row| format!("{} ({})", told(row), case.name);
        let ran = self.cases.iter().filter(|case| case.figures.is_ok());
        let others = ran.flat_map(|case| {
            let own = case.conditions.iter().filter(|row| !common.contains(row));
            own.map(|own| row(case, own)).collect::<Vec<_>>()
        });
        others.collect()
    }

    /// Whether the cases have another order under the second condition. `None` if that is not
    /// known.
    fn reordered(&self) -> Option<bool> {
        let names = |order: &Result<Vec<(String, f64)>, String>| {
            let order = order.as_ref().ok()?;
            Some(order.iter().map(|(name, _)| name.clone()).collect::<Vec<String>>())
        };
        Some(names(&self.orders[0])? != names(&self.orders[1])?)
    }

    /// The conclusion, in a sentence.
    fn cause(&self) -> String {
        let (common, others) = (self.common(), self.others());
        let what = match self.reordered() {
            Some(true) => "the order is another one",
            Some(false) => "the order is the same",
            None => "the orders are not known",
        };
        if common.is_empty() {
            return format!("{what}; what differs is not the same in all cases");
        }
        let told: Vec<String> = common.iter().map(|row| told(row)).collect();
        let alone = if others.is_empty() { "; nothing else differs" } else { "" };
        let counts = self.counts();
        let word = if self.reordered() == Some(true) { "the cause" } else { "what differs" };
        format!("{what}; {word}: {}{alone}. {counts}{}", told.join(", "), self.only_then())
    }

    /// What the conditions change in the counts, case by case.
    fn counts(&self) -> String {
        let names = |chosen: &dyn Fn(&CaseResult) -> bool| {
            let cases = self.cases.iter().filter(|case| chosen(case));
            cases.map(|case| case.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let differs = |case: &CaseResult| case.figures.as_ref().is_ok_and(|rows| !rows.is_empty());
        let same = |case: &CaseResult| case.counted && !differs(case);
        let uncounted = |case: &CaseResult| !case.counted && !differs(case);
        let told = [
            ("What is counted differs in", names(&differs)),
            ("it is equal in", names(&same)),
            ("nothing was counted in", names(&uncounted)),
        ];
        let told = told.into_iter().filter(|(_, names)| !names.is_empty());
        told.map(|(what, names)| format!("{what} {names}")).collect::<Vec<_>>().join("; ")
    }

    /// What happens only under the second condition, with the cases in which it does.
    fn only_then(&self) -> String {
        let nothing = |value: &Option<String>| value.as_ref().is_none_or(|value| value == "0");
        let mut new: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for case in &self.cases {
            let rows = case.figures.iter().flatten();
            for row in rows.filter(|row| nothing(&row.first) && !nothing(&row.second)) {
                new.entry(&row.name).or_default().push(&case.name);
            }
        }
        if new.is_empty() {
            return String::new();
        }
        let one = |(name, cases): (&str, Vec<&str>)| format!("{name} ({})", cases.join(", "));
        let new: Vec<String> = new.into_iter().map(one).collect();
        format!("; only then there are {}", new.join(", "))
    }

    pub(super) fn blocks(&self, blocks: &mut Vec<Block>) {
        blocks.push(Block::Caption(format!("{}: {}", self.text, self.target)));
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for case in &self.cases {
            if let Err(reason) = &case.figures {
                reasons.entry(reason).or_default().push(&case.name);
            }
        }
        for (reason, names) in &reasons {
            let line = format!("{}: not to be had here: {reason}", names.join(", "));
            blocks.push(Block::Line(line));
        }
        if self.cases.iter().all(|case| case.figures.is_err()) {
            return;
        }
        blocks.push(Block::Line(self.cause()));
        for row in self.others() {
            blocks.push(Block::Line(format!("differs as well: {row}")));
        }
        for (name, order) in self.names.iter().zip(&self.orders) {
            blocks.push(Block::Line(match order {
                Ok(order) => format!("{name}: {}", ordered(order, &self.unit)),
                Err(_) => format!("{name}: not to be had here"),
            }));
        }
        let rows: Vec<Vec<String>> = self.cases.iter().flat_map(rows).collect();
        if !rows.is_empty() {
            let header = ["case", "counted per round", &self.names[0], &self.names[1]];
            let header = header.map(str::to_owned).into();
            blocks.push(Block::Table { header, rows, words: 2 });
        }
    }

    pub(super) fn document(&self) -> Value {
        let order = |order: &Result<Vec<(String, f64)>, String>| match order {
            Ok(order) => order
                .iter()
                .map(|(name, cost)| json!({ "case": name, "costs": cost }))
                .collect::<Vec<_>>()
                .into(),
            Err(_) => Value::Null,
        };
        let case = |case: &CaseResult| {
            json!({
                "name": case.name,
                "conditions": case.conditions,
                "figures": case.figures.as_ref().ok(),
                "reason": case.figures.as_ref().err(),
            })
        };
        json!({
            "text": self.text,
            "target": self.target,
            "names": self.names,
            "unit": (!self.unit.is_empty()).then_some(&self.unit),
            "orders": self.orders.iter().map(order).collect::<Vec<_>>(),
            "cause": self.cause(),
            "cases": self.cases.iter().map(case).collect::<Vec<_>>(),
        })
    }
}

fn rows(case: &CaseResult) -> Vec<Vec<String>> {
    let cell = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let row =
        |row: &Row| vec![case.name.clone(), row.name.clone(), cell(&row.first), cell(&row.second)];
    case.figures.iter().flatten().map(row).collect()
}

/// A difference: `thp.enabled never → madvise`.
fn told(row: &Row) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    format!("{} {} → {}", row.name, value(&row.first), value(&row.second))
}

/// An order: `a 1 us < b 2 us`.
fn ordered(order: &[(String, f64)], unit: &str) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let case = |(name, cost): &(String, f64)| format!("{name} {}{unit}", number(*cost));
    order.iter().map(case).collect::<Vec<_>>().join(" < ")
}
