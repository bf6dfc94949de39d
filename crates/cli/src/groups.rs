//! The verbs in groups, one line each: what help shows first.

use crate::args::Verb;
use clap::{Command, Subcommand};

/// What a user may want, and the verbs for it.
const GROUPS: [(&str, &[&str]); 5] = [
    ("see what the kernel does for a program", &["stat"]),
    ("run a scenario, on real kernels and in the model", &["run", "compare", "explain", "bisect"]),
    ("answer a question", &["study", "check", "agree"]),
    ("see what is available", &["scenario", "kernels", "policies", "doctor"]),
    ("get help and completions", &["completions", "man", "help"]),
];

/// The indentation, and the width of the column of verbs.
const INDENT: usize = 3;
const NAMES: usize = 13;

/// A line for clap's own verb, which is not among ours.
const HELP: &str = "Print the help of a verb";

/// The whole help of the command, except for what clap fills in.
pub fn template() -> String {
    format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        text()
    )
}

fn text() -> String {
    let verbs = Verb::augment_subcommands(Command::new("needless"));
    let line = |name: &&str| {
        let about = verbs.find_subcommand(name).and_then(|verb| verb.get_about());
        let about = about.map_or_else(|| HELP.to_owned(), ToString::to_string);
        format!("{:INDENT$}{name:NAMES$}{about}\n", "")
    };
    let group = |(heading, names): &(&str, &[&str])| {
        format!("{heading}\n{}\n", names.iter().map(line).collect::<String>())
    };
    GROUPS.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_in_one_group_and_takes_one_line() {
        let verbs = Verb::augment_subcommands(Command::new("needless"));
        let mut ours: Vec<&str> = verbs.get_subcommands().map(Command::get_name).collect();
        ours.push("help");
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        ours.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, ours);
        for line in text().lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
