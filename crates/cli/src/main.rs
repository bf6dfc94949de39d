//! The `needless` command.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod agree;
mod args;
mod bisect;
mod failure;
mod files;
mod groups;
mod inherited;
mod interrupt;
mod memory;
mod output;
mod page;
mod perfetto;
mod runs;
mod source;
mod spool;
mod study;
mod targets;
mod verbs;

use args::{Cli, Verb};
use clap::Parser;
use failure::Failure;
use output::{Output, say_usage, tell, tell_failure};
use std::process::ExitCode;

/// The checker copies small worlds all the time, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Err(error) = needless_live::privilege::give_up() {
        tell(&format!("needless: cannot give up capabilities: {error}"));
        return ExitCode::from(failure::OTHER);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(shown) => return show(&shown),
    };
    files::survive_size_limits();
    inherited::put_right();
    let output = Output::new(cli.color);
    let outcome = match cli.verb {
        Verb::Run(args) => verbs::compare::run(&args, &output),
        Verb::Compare(args) => verbs::compare::compare(&args, &output),
        Verb::Bisect(args) => verbs::bisect::bisect(&args, &output),
        Verb::Explain(args) => verbs::explain::explain(&args, &output),
        Verb::Agree(args) => verbs::agree::agree(&args, &output),
        Verb::Check(args) => verbs::check::check(&args, &output),
        Verb::Stat(args) => verbs::stat::stat(&args, &output),
        Verb::Study(args) => verbs::study::study(&args, &output),
        Verb::Doctor(args) => verbs::doctor::doctor(&args, &output),
        Verb::Kernels(args) => verbs::kernels::kernels(&args.verb, &output),
        Verb::Scenario(args) => verbs::scenario::scenario(&args.verb, &output),
        Verb::Policies(args) => verbs::policies::policies(&args.names, args.format.format, &output),
        Verb::Completions { shell } => verbs::manual::completions(shell, &output),
        Verb::Man { directory } => verbs::manual::man(directory.as_deref(), &output),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failed(failure),
    }
}

/// Shows help, the version, or what is wrong with the command line.
fn show(shown: &clap::Error) -> ExitCode {
    match (say_usage(shown), shown.use_stderr()) {
        // The error cannot be shown, and neither can that.
        (_, true) => ExitCode::from(failure::USAGE),
        (Ok(()), false) => ExitCode::from(failure::EXPECTED),
        (Err(error), false) => failed(Failure::of_stream("standard output", error)),
    }
}

fn failed(failure: Failure) -> ExitCode {
    let status = failure.status();
    if !matches!(failure, Failure::ReaderGone) {
        tell_failure(failure);
    }
    ExitCode::from(status)
}
