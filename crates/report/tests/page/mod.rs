//! What holds for every page.

use needless_model::foreign::steers;
use serde_json::Value;

/// The largest page, in bytes.
const MOST_BYTES: usize = 2_000_000;

/// Looks at a page, and returns its raw data and how many figures of its tables are in that.
///
/// # Panics
/// If the page refers to anything but itself, is too large, or has a figure that its data does not
/// have.
pub fn checked(page: &str) -> (Value, usize) {
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    assert!(page.len() <= MOST_BYTES, "{} bytes", page.len());
    assert!(!page.contains(|c| c != '\n' && steers(c)));
    for attribute in [" src=\"", " href=\"", " action=\"", "url("] {
        for value in page.split(attribute).skip(1) {
            let here = value.starts_with('#') || value.starts_with("data:,\"");
            assert!(here, "{attribute}{}", &value[..value.len().min(80)]);
        }
    }
    let data: Value = serde_json::from_str(&element(page, "data")).unwrap();
    let mut figures = 0;
    for (place, text) in attributes(page, "data-json") {
        let value = data.pointer(&place).unwrap_or_else(|| panic!("{place} is not in the data"));
        let known = if value.is_null() { "?".to_owned() } else { value.to_string() };
        assert_eq!(text, known, "{place}");
        figures += 1;
    }
    for (place, text) in attributes(page, "data-rounded") {
        let value = data.pointer(&place).unwrap_or_else(|| panic!("{place} is not in the data"));
        match value.as_f64() {
            None => assert_eq!(text, "?", "{place}"),
            Some(value) => {
                let shown: f64 = text.parse().unwrap();
                assert!((shown - value).abs() <= value.abs() * 1e-3, "{place}: {shown}, {value}");
            }
        }
        figures += 1;
    }
    (data, figures)
}

/// The text of a script element.
pub fn element(page: &str, id: &str) -> String {
    let start = format!("id=\"{id}\">");
    let text = page.split(&start).nth(1).unwrap_or_else(|| panic!("there is no {id}"));
    text.split("</script>").next().unwrap().to_owned()
}

/// The values of an attribute, each with the text behind its tag.
fn attributes(page: &str, name: &str) -> Vec<(String, String)> {
    let start = format!("{name}=\"");
    let found = page.split(&start).skip(1);
    found
        .map(|rest| {
            let (value, rest) = rest.split_once("\">").unwrap();
            (unescaped(value), unescaped(rest.split('<').next().unwrap()))
        })
        .collect()
}

/// The text that a template escaped.
fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    text.replace("&amp;", "&")
}
