//! What a page says of how it was made.

use needless_model::foreign;
use needless_report::html::Made;

/// The command that is running, this version, and commands that tell more.
pub fn made(next: &[(&str, String)]) -> Made {
    let words = std::env::args_os().skip(1).map(|word| quoted(&foreign::path(word)));
    let command = std::iter::once("needless".to_owned()).chain(words).collect::<Vec<_>>();
    Made {
        command: command.join(" "),
        version: format!("needless {}", env!("NEEDLESS_VERSION")),
        next: next.iter().map(|(what, command)| ((*what).to_owned(), command.clone())).collect(),
    }
}

/// A word as a shell reads it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_word_again() {
        assert_eq!(quoted("model:6.12,reuse=page-count"), "model:6.12,reuse=page-count");
        assert_eq!(quoted("shootdowns<=2"), "'shootdowns<=2'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
