//! The runner's entry point. The library documents the protocol.
#![allow(clippy::disallowed_methods, reason = "it is a program of its own")]

use needless_runner::guard::Streams;
use needless_runner::{
    guard, guest, huge_tlb, image, keeper, perf, privilege, session, start, wire,
};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    if guest::is_init() {
        guest::init();
    }
    if let Err(error) = privilege::give_up() {
        return complain(&format!("cannot give up capabilities: {error}"));
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => report(start::first_start()),
        ["--run", descriptor, made_after] => report(session::run(descriptor, made_after)),
        [image::VERB] => image::run(),
        [huge_tlb::VERB] => huge_tlb::run(),
        [perf::VERB] => perf::probe(),
        ["--watch"] => keeper::serve(std::io::stdin().lock(), std::io::stdout().lock()),
        ["--guard", ref command @ ..] => guard::run(command, Streams::Moved),
        [guard::GUARD_ALL, ref command @ ..] => guard::run(command, Streams::Kept),
        ["--version"] => {
            let _ = writeln!(
                std::io::stdout(),
                "needless-runner {} (protocol {})",
                env!("CARGO_PKG_VERSION"),
                wire::PROTOCOL_VERSION
            );
            ExitCode::SUCCESS
        }
        _ => complain("it is started by `needless`, and reads a request from standard input"),
    }
}

fn complain(what: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "needless-runner: {what}");
    ExitCode::from(2)
}

/// Turns a failure into the message that the other side expects, and into an exit status.
fn report(result: Result<(), wire::Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.send(),
    }
}
