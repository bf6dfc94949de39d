//! `completions` and `man`: made from the command's declaration.

use crate::args::Cli;
use crate::failure::{EXPECTED, Failure};
use crate::output::{Output, write_whole};
use clap::CommandFactory;
use std::path::Path;

/// `needless completions`
pub fn completions(shell: clap_complete::Shell, output: &Output) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "needless", &mut script);
    output.result(&String::from_utf8_lossy(&script))?;
    Ok(EXPECTED)
}

/// `needless man`
pub fn man(directory: Option<&Path>, output: &Output) -> Result<u8, Failure> {
    let mut command = Cli::command();
    command.build();
    let Some(directory) = directory else {
        output.result(&page(command)?)?;
        return Ok(EXPECTED);
    };
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    for verb in verbs.collect::<Vec<_>>() {
        let name = format!("needless-{}", verb.get_name());
        let text = page(verb.name(name.clone()))?;
        let path = directory.join(format!("{name}.1"));
        write_whole(&path, |out| out.write_all(text.as_bytes()))?;
    }
    let text = page(command)?;
    write_whole(&directory.join("needless.1"), |out| out.write_all(text.as_bytes()))?;
    Ok(EXPECTED)
}

fn page(command: clap::Command) -> Result<String, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
