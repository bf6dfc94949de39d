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

/// The policies, and what each of `rows` has for them, as a JSON document (docs/schema/policies.schema.json).
pub fn json(rows: &[KernelRow]) -> Value {
    let policies: Vec<Value> = POLICIES
        .iter()
        .map(|policy| {
            let values: BTreeMap<&str, &str> = policy.values.iter().copied().collect();
            json!({
                "name": policy.name,
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
                POLICIES.iter().map(|policy| policy.name).zip(words).collect();
            json!({ "name": row.name, "remark": remark(row), "policies": values })
        })
        .collect();
    json!({ "schema_version": SCHEMA_VERSION, "policies": policies, "kernels": kernels })
}
