//! The raw data of a page: its JSON document, small enough, and harmless inside a script element.

use needless_model::foreign;
use serde_json::{Value, json};

/// The most bytes that the data of a page takes. A page has its tables and its steps beside it.
pub(super) const MOST_BYTES: usize = 1_200_000;

/// A document that is small enough.
pub(super) struct Fitted {
    /// The document.
    pub document: Value,
    /// The places in it where something was left out.
    pub left_out: Vec<String>,
}

/// `document` with what `may_go` names left out, in this order, until it is small enough. A name is
/// a place in the document, with `*` for every element: `/targets/*/samples/*`. Of a list in which
/// few values follow each other the lengths of their runs are kept.
pub(super) fn fit(mut document: Value, may_go: &[&str]) -> Fitted {
    let mut left_out = Vec::new();
    for place in may_go {
        if size(&document) <= MOST_BYTES {
            break;
        }
        let steps: Vec<&str> = place.split('/').skip(1).collect();
        leave_out(&mut document, &steps, String::new(), &mut left_out);
    }
    if size(&document) > MOST_BYTES {
        left_out = vec!["everything".to_owned()];
        document = Value::Null;
    }
    Fitted { document, left_out }
}

fn size(document: &Value) -> usize {
    document.to_string().len()
}

fn leave_out(value: &mut Value, steps: &[&str], place: String, left_out: &mut Vec<String>) {
    let Some((step, rest)) = steps.split_first() else {
        if let Some(shorter) = value.as_array().and_then(|array| runs(array)) {
            *value = shorter;
        } else if !value.is_null() {
            *value = Value::Null;
            left_out.push(place);
        }
        return;
    };
    let chosen = |name: &str| *step == "*" || *step == name;
    match value {
        Value::Array(elements) => {
            for (at, element) in elements.iter_mut().enumerate() {
                if chosen(&at.to_string()) {
                    leave_out(element, rest, format!("{place}/{at}"), left_out);
                }
            }
        }
        Value::Object(members) => {
            for (name, member) in members.iter_mut().filter(|(name, _)| chosen(name)) {
                leave_out(member, rest, format!("{place}/{name}"), left_out);
            }
        }
        _ => {}
    }
}

/// A list as values with how often each comes in a row, where that is much shorter.
fn runs(array: &[Value]) -> Option<Value> {
    let runs: Vec<(&Value, usize)> =
        array.chunk_by(|a, b| a == b).map(|run| (&run[0], run.len())).collect();
    (runs.len() * 10 < array.len()).then(|| json!({ "runs": runs }))
}

/// A document as the text of a script element: no `<` ends the element, no character steers.
pub(super) fn script(document: &Value) -> String {
    foreign::json(&document.to_string()).replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_cannot_be_left() {
        let document = json!({ "a": "</script><img src=x>\u{202e}\u{2028}&quot;" });
        let text = script(&document);
        assert!(!text.contains('<') && !text.contains(foreign::steers), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
    }

    #[test]
    fn what_is_small_stays_whole() {
        let document = json!({ "targets": [{ "samples": { "faults": [2, 2, 2] } }] });
        let Fitted { document: fitted, left_out } =
            fit(document.clone(), &["/targets/*/samples/*"]);
        assert_eq!((fitted, left_out.len()), (document, 0));
    }

    #[test]
    fn what_may_go_goes_until_the_rest_fits() {
        let all: Vec<u64> = (0..200_000).collect();
        let document = json!({ "targets": [{ "name": "a", "samples": { "same": vec![2; 200_000], "own": all } }] });
        let Fitted { document, left_out } = fit(document, &["/targets/*/samples/*", "/targets"]);
        assert_eq!(left_out, ["/targets/0/samples/own"]);
        let samples = &document["targets"][0]["samples"];
        assert_eq!(samples, &json!({ "same": { "runs": [[2, 200_000]] }, "own": null }));
        assert_eq!(document["targets"][0]["name"], "a");
        assert!(size(&document) < MOST_BYTES);
    }

    #[test]
    fn what_does_not_fit_is_not_there() {
        let Fitted { document, left_out } = fit(json!(vec!["x"; 400_000]), &["/nothing"]);
        assert_eq!((document, left_out), (Value::Null, vec!["everything".to_owned()]));
    }
}
