//! The kernel rows and the policies in which they differ, as data.

use crate::SCHEMA_VERSION;
use needless_model::kernels::{KernelRow, Standing};
use needless_model::policy::POLICIES;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Why a row may not be compared with a running kernel, if so.
pub fn remark(row: &KernelRow) -> Option<String> {
    match row.standing {
        Standing::Runnable => None,
        Standing::PublishedFiguresOnly => Some("published figures only".to_owned()),
    }
}

/// The policies of [`POLICIES`] with these numbers, and the values that each of `rows` has for
/// them, as a JSON document (docs/schema/policies.schema.json).
pub fn json(rows: &[KernelRow], asked: &[usize]) -> Value {
    let policies: Vec<Value> = asked
        .iter()
        .map(|at| {
            let policy = &POLICIES[*at];
            let values: BTreeMap<&str, &str> = policy.values.iter().copied().collect();
            json!({
                "name": policy.name,
                "group": policy.group,
                "summary": policy.summary,
                "source": policy.source,
                "values": values,
            })
        })
        .collect();
    let kernels: Vec<Value> = rows
        .iter()
        .map(|row| {
            let words = row.policies.words();
            let values: BTreeMap<&str, &str> =
                asked.iter().map(|at| (POLICIES[*at].name, words[*at])).collect();
            json!({ "name": row.name, "remark": remark(row), "policies": values })
        })
        .collect();
    json!({ "schema_version": SCHEMA_VERSION, "policies": policies, "kernels": kernels })
}
