//! Debian's order of package versions (Debian Policy 5.6.12).
//!
//! A version is `[epoch:]upstream[-revision]`. Parts are compared as alternating runs of non-digits
//! and digits. Among non-digits, `~` comes before everything, even the end, and letters come before
//! all other characters.

use std::cmp::Ordering;

/// Compares two package versions.
pub fn compare(a: &str, b: &str) -> Ordering {
    let ((epoch_a, upstream_a, revision_a), (epoch_b, upstream_b, revision_b)) =
        (split(a), split(b));
    epoch_a
        .cmp(&epoch_b)
        .then_with(|| compare_part(upstream_a, upstream_b))
        .then_with(|| compare_part(revision_a, revision_b))
}

fn split(version: &str) -> (u64, &str, &str) {
    let (epoch, rest) = match version.split_once(':') {
        Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest),
        None => (0, version),
    };
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch, upstream, revision)
}

fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (text_a, text_b) =
            (take(&mut a, |c| !c.is_ascii_digit()), take(&mut b, |c| !c.is_ascii_digit()));
        let (number_a, number_b) =
            (take(&mut a, |c| c.is_ascii_digit()), take(&mut b, |c| c.is_ascii_digit()));
        let order = compare_text(text_a, text_b).then_with(|| compare_number(number_a, number_b));
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

fn take<'a>(text: &mut &'a str, wanted: impl Fn(char) -> bool) -> &'a str {
    let end = text.find(|c| !wanted(c)).unwrap_or(text.len());
    let (taken, rest) = text.split_at(end);
    *text = rest;
    taken
}

fn compare_text(a: &str, b: &str) -> Ordering {
    let weight = |c: Option<char>| match c {
        Some('~') => -1,
        None => 0,
        Some(c) if c.is_ascii_alphabetic() => c as i64,
        Some(c) => c as i64 + 256,
    };
    let (mut a, mut b) = (a.chars(), b.chars());
    loop {
        let (x, y) = (a.next(), b.next());
        if x.is_none() && y.is_none() {
            return Ordering::Equal;
        }
        match weight(x).cmp(&weight(y)) {
            Ordering::Equal => {}
            order => return order,
        }
    }
}

/// Compares two numbers of any length.
fn compare_number(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_dpkg_orders_them() {
        let ascending = [
            "5.10.209-2",
            "5.10.262-1",
            "6.1~rc8-1~exp1",
            "6.1.94-1~deb11u1",
            "6.1.94-1",
            "6.1.190-1",
            "6.12.94-1",
            "6.12.107-1~deb12u1",
            "6.12.107-1",
            "6.12.107-1+b1",
            "1:1.0",
        ];
        for (at, a) in ascending.iter().enumerate() {
            for (other, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a, b), at.cmp(&other), "{a} {b}");
            }
        }
        assert_eq!(compare("1.01", "1.1"), Ordering::Equal);
    }
}
