//! Every stage survives damaged built-ins: the fuzz target's twin for the stable toolchain.

use needless_model::rng::SplitMix64;
use needless_scenario::{Settings, Source, builtin, compile, exercise, format, load};
use proptest::prelude::*;

/// Pieces that damage a text in interesting ways.
const PIECES: [&str; 34] = [
    "{",
    "}",
    "\"",
    "(",
    ")",
    "=",
    ";",
    "\n",
    "\r",
    "//",
    "/*",
    "*/",
    "/-",
    "\\",
    "#",
    "é",
    "\u{feff}",
    "-",
    "*",
    "/0",
    "..",
    "[",
    "]",
    "9223372036854775807",
    "0",
    "T",
    "index",
    "heap",
    "p",
    " ",
    "rounds 1 { }",
    "map \"x\" pages=1",
    "\u{2028}",
    "count=\"0\"",
];

/// Makes one random change of `text`.
fn mutate(text: &mut String, rng: &mut SplitMix64) {
    let mut place = |bound: usize| rng.below(bound as u64 + 1) as usize;
    let (a, b) = (place(text.len()), place(text.len()));
    let (kind, piece, cut) = (place(3), PIECES[place(PIECES.len() - 1)], place(12));
    let (from, to) = (text.floor_char_boundary(a.min(b)), text.floor_char_boundary(a.max(b)));
    match kind {
        0 => text.insert_str(from, piece),
        1 => {
            text.replace_range(from..text.floor_char_boundary((from + cut).min(text.len())), piece)
        }
        2 => text.truncate(to),
        _ => {
            let copy = text[from..to].to_owned();
            text.insert_str(from, &copy);
        }
    }
}

#[test]
fn mutated_builtins_never_panic() {
    let mut rng = SplitMix64::new(2);
    for builtin in builtin::ALL.iter().chain(builtin::LITMUS) {
        exercise(builtin.text);
        for _ in 0..40 {
            let mut text = builtin.text.to_owned();
            for _ in 0..=rng.below(4) {
                mutate(&mut text, &mut rng);
            }
            exercise(&text);
        }
    }
}

/// Finds comments without the crate's lexer. Strings here may divide (`/`), but have no `//` and no
/// `/*`.
fn comments(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        rest = &rest[at..];
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |i| i + 2)
        } else {
            rest = &rest[1..];
            continue;
        };
        found.push(rest[..end].trim_end().to_owned());
        rest = &rest[end..];
    }
    found.sort();
    found
}

/// Puts comments behind the tokens of some lines.
fn commented(text: &str, choices: &[u8]) -> String {
    let mut out = String::new();
    for (i, line) in text.lines().enumerate() {
        let choice = choices[i % choices.len()];
        match choice % 6 {
            0 => out += &format!("// own line {i}\n{line}\n"),
            1 => out += &format!("{line} // behind {i}\n"),
            2 => out += &format!("/* before {i} */ {line}\n"),
            3 => out += &format!("/* two\n   lines {i} */\n\n\n{line}\n"),
            4 if line.ends_with('{') => out += &format!("{line} /* inside {i} */ // and {i}\n"),
            _ => out += &format!("   {line}\n"),
        }
    }
    out
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "\\PC{0,200}") {
        exercise(&text);
    }

    #[test]
    fn any_expression_is_survived(
        pages in "[-+*/%().0-9a-zKMGT _\\[\\]]{0,40}",
        range in "(heap)?[-+*/%().0-9p \\[\\]]{0,30}",
    ) {
        exercise(&std::format!(
            "scenario \"x\" {{ thread \"t\" cpu=0 {{ map \"heap\" pages=\"{pages}\"; rounds 1 {{ \
             for-each \"p\" in=\"{range}\" {{ read \"{range}\" }} }} }} }}"
        ));
    }

    #[test]
    fn any_setting_is_survived(value in "\\PC{0,30}", name in "[a-z]{0,8}") {
        let settings: Settings = [(name, value.clone()), ("pages".to_owned(), value)].into_iter().collect();
        let _ = compile(&load("cow-reuse").unwrap(), &settings);
    }

    #[test]
    fn fmt_keeps_every_comment(
        which in 0..builtin::ALL.len(),
        choices in proptest::collection::vec(any::<u8>(), 1..40),
    ) {
        let text = commented(builtin::ALL[which].text, &choices);
        let source = Source::new("commented", text);
        let once = format(&source).map_err(|e| TestCaseError::fail(std::format!("{e:?}")))?;
        prop_assert_eq!(comments(&source.text), comments(&once));
        exercise(&source.text);
        let plain = compile(&Source::new("plain", builtin::ALL[which].text), &Settings::default());
        let formatted = compile(&Source::new("formatted", once), &Settings::default());
        prop_assert_eq!(plain.unwrap(), formatted.unwrap());
    }
}
