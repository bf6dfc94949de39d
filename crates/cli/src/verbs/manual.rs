//! `completions` and `man`: both are made from the command's declaration.

use crate::args::Cli;
use crate::failure::{EXPECTED, Failure};
use crate::files::{Readers, write_text};
use crate::output::Output;
use clap::{Command, CommandFactory};
use clap_mangen::{Man, roff};
use std::path::Path;

/// Runs `needless completions`.
pub fn completions(shell: clap_complete::Shell, output: &Output) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "needless", &mut script);
    output.result(&String::from_utf8_lossy(&script))?;
    Ok(EXPECTED)
}

/// Runs `needless man`.
pub fn man(directory: Option<&Path>, output: &Output) -> Result<u8, Failure> {
    let mut command = Cli::command();
    command.build();
    match directory {
        Some(directory) => pages(&command, directory)?,
        None => output.result(&page(&command))?,
    }
    Ok(EXPECTED)
}

/// Writes the pages of a command and of all verbs below it: `needless-kernels-fetch.1`.
fn pages(command: &Command, directory: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = directory.join(format!("{name}.1"));
    let text = page(command);
    write_text(&path, Readers::Usual, &text)?;
    // `help` repeats the tree of all verbs below it.
    let mut verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help");
    verbs.try_for_each(|verb| pages(verb, directory))
}

/// A manual page. Its examples are where such pages have them: before the options.
fn page(command: &Command) -> String {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _ = man.render_title(&mut page);
    let _ = man.render_name_section(&mut page);
    let _ = man.render_synopsis_section(&mut page);
    let _ = man.render_description_section(&mut page);
    let _ = examples(command).to_writer(&mut page);
    let _ = man.render_options_section(&mut page);
    if command.has_subcommands() {
        let _ = man.render_subcommands_section(&mut page);
    }
    String::from_utf8_lossy(&page).into_owned()
}

/// The examples that help begins with.
fn examples(command: &Command) -> roff::Roff {
    let help = command.get_before_help().map(ToString::to_string).unwrap_or_default();
    let mut section = roff::Roff::new();
    section.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in help.lines().skip(1) {
        section.text([roff::roman(line.trim_start())]);
    }
    section.control("fi", []);
    section
}
