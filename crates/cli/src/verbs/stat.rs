//! `stat`: a command or a process on this kernel.

use crate::args::{Format, StatArgs};
use crate::failure::{EVENTS_LOST, EXPECTED, Failure, NOT_PERMITTED, OTHER};
use crate::files::{Readers, can_write, write_whole};
use crate::output::{Output, Progress};
use crate::targets;
use needless_live::limits;
use needless_report::stat::{Stat, json, text};
use needless_watch::signals::Signals;
use needless_watch::{Missing, Observation, Options, Target, WatchError, child, watch};
use std::process::Command;

/// `needless stat`
pub fn stat(args: &StatArgs, output: &Output) -> Result<u8, Failure> {
    let target = match (args.pid, args.all) {
        (Some(pid), _) => Target::Process(pid),
        (None, true) => Target::All,
        (None, false) => Target::Command,
    };
    if !limits::has_proc() {
        let (reason, help) = limits::NO_PROC;
        let (target, reason, help) = ("stat".to_owned(), reason.to_owned(), Some(help.to_owned()));
        return Err(Failure::Target { target, reason, help, status: OTHER });
    }
    let options = Options { target, ring_bytes: (args.buffer as usize) << 20 };
    if let Some(path) = &args.output {
        can_write(path)?;
    }
    let mut signals = Signals::catch().map_err(other)?;
    let mut runs: Vec<Observation> = Vec::new();
    for _ in 0..args.repeat {
        let progress = Progress::spinner();
        let now = |records: u64, lost: u64| {
            progress.now(&format!("{records} records, {lost} lost"));
        };
        // A command of its own talks to the terminal itself.
        let quiet = |_: u64, _: u64| {};
        let told: &dyn Fn(u64, u64) = if args.command.is_empty() { &now } else { &quiet };
        runs.push(watch(&options, command(args), &mut signals, told).map_err(failure)?);
        if signals.asked_to_end() {
            break;
        }
    }
    match report(args, &runs, output) {
        // Nobody reads the report; the command's status is wanted nevertheless.
        Ok(()) | Err(Failure::ReaderGone) => Ok(status(args, &runs)),
        Err(failure) => Err(failure),
    }
}

fn command(args: &StatArgs) -> Option<Command> {
    let (program, rest) = args.command.split_first()?;
    let mut command = Command::new(program);
    command.args(rest);
    Some(command)
}

fn report(args: &StatArgs, runs: &[Observation], output: &Output) -> Result<(), Failure> {
    let subject = match (args.pid, args.all) {
        (Some(pid), _) => format!("process {pid}"),
        (None, true) => "every task".to_owned(),
        (None, false) => {
            let words = args.command.iter().map(|word| word.to_string_lossy());
            words.collect::<Vec<_>>().join(" ")
        }
    };
    let environment = targets::environment();
    let stat = Stat { subject: &subject, runs, environment: &environment };
    let document = match args.format {
        Format::Json => format!("{:#}\n", json(&stat)),
        Format::Text if args.output.is_some() => text(&stat, needless_report::Style::PLAIN),
        Format::Text if args.command.is_empty() => text(&stat, output.style),
        Format::Text => text(&stat, output.style_beside()),
    };
    let readers = if stat.holds_addresses() { Readers::Owner } else { Readers::Usual };
    match &args.output {
        Some(path) => write_whole(path, readers, |out| out.write_all(document.as_bytes())),
        None if args.command.is_empty() => output.result(&document),
        None => output.beside(&document),
    }
}

/// That of the command; of several runs the first that is not 0. Without a command it is whether
/// anything and everything was seen.
fn status(args: &StatArgs, runs: &[Observation]) -> u8 {
    if !args.command.is_empty() {
        return runs.iter().filter_map(|run| run.status).find(|status| *status != 0).unwrap_or(0);
    }
    let lost =
        |run: &Observation| run.events.as_ref().is_some_and(|events| events.watching.lost > 0);
    let refused = |run: &Observation| {
        let helps = |missing: &Missing| missing.what == "events" && missing.remedy.is_some();
        run.events.is_none() && run.missing.iter().any(helps)
    };
    if runs.iter().any(refused) {
        NOT_PERMITTED
    } else if runs.iter().any(lost) {
        EVENTS_LOST
    } else {
        EXPECTED
    }
}

fn other(error: std::io::Error) -> Failure {
    failure(WatchError::Io(error))
}

fn failure(error: WatchError) -> Failure {
    let (status, help) = match &error {
        WatchError::NotExecuted { error, .. } => (child::not_executed(error), None),
        WatchError::NoProcess { .. } => (crate::failure::USAGE, Some("`ps -e` lists processes")),
        WatchError::Io(error) => (OTHER, limits::remedy_of(error)),
    };
    let help = help.map(str::to_owned);
    Failure::Target { target: "stat".to_owned(), reason: error.to_string(), help, status }
}
