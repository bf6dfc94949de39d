//! `stat`: watches a command or a process on this kernel.

use crate::args::{Cpus, FailOn, StatArgs, StatFormat};
use crate::failure::{DIFFERENCE, EVENTS_LOST, EXPECTED, Failure, NOT_PERMITTED, OTHER};
use crate::files::{Readers, can_write, write_text, write_whole};
use crate::output::{Output, Progress, json_text};
use crate::page::made;
use crate::perfetto::Drawing;
use crate::targets;
use needless_live::limits;
use needless_model::foreign;
use needless_report::html;
use needless_report::stat::{Stat, json, openmetrics, text};
use needless_watch::signals::Signals;
use needless_watch::tracepoints::Extent;
use needless_watch::{Missing, Observation, Options, Target, WatchError, child, watch};
use std::process::Command;

/// Runs `needless stat`.
pub fn stat(args: &StatArgs, output: &Output) -> Result<u8, Failure> {
    let target = match (args.pid, args.all || args.victims.is_some()) {
        (Some(pid), _) => Target::Process(pid),
        (None, true) => Target::All,
        (None, false) => Target::Command,
    };
    if args.format == StatFormat::Openmetrics && args.repeat > 1 {
        let message = "OpenMetrics holds one sample, but -r asks for several runs".to_owned();
        return Err(Failure::Usage {
            message,
            help: "leave out -r, or use --format json".to_owned(),
        });
    }
    if args.format == StatFormat::Html && args.output.is_none() && !args.command.is_empty() {
        return Err(Failure::Usage {
            message: "a page would go to standard error, beside what the command writes".into(),
            help: "name a file with -o, as in --format html -o stat.html".into(),
        });
    }
    if args.format.table().is_some() && args.output.is_none() {
        let message = "a table in Parquet or Arrow is no text, and needs a file".to_owned();
        return Err(Failure::Usage { message, help: "name it with -o FILE".to_owned() });
    }
    if !limits::has_proc() {
        let (reason, help) = limits::NO_PROC;
        let (target, reason, help) = ("stat".to_owned(), reason.to_owned(), Some(help.to_owned()));
        return Err(Failure::Target { target, reason, help, status: OTHER });
    }
    let extent = match &args.victims {
        Some(Cpus(cpus)) => Extent::Guard(cpus.clone()),
        None if args.every_interrupt => Extent::EveryInterrupt,
        None => Extent::Programs,
    };
    let (ring_bytes, waits) = ((args.buffer as usize) << 20, args.waits);
    if args.output.is_some() && args.output == args.perfetto {
        return Err(Failure::Usage {
            message: "the report and the trace cannot be the same file".into(),
            help: "name different files with --output and --perfetto".into(),
        });
    }
    let drawing = args.perfetto.as_deref().map(Drawing::begin).transpose()?;
    let (drawing, timeline) = drawing.unzip();
    let options = Options { target, ring_bytes, extent, waits, timeline };
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
        // A command writes to the terminal itself.
        let quiet = |_: u64, _: u64| {};
        let told: &dyn Fn(u64, u64) = if args.command.is_empty() { &now } else { &quiet };
        runs.push(watch(&options, command(args), &mut signals, told).map_err(failure)?);
        if signals.asked_to_end() {
            break;
        }
    }
    // With this the last sender of events is gone.
    drop(options);
    let drawn = drawing.map_or(Ok(()), Drawing::finish);
    match report(args, &runs, output).and(drawn) {
        // Nobody reads the report, but the command's status is wanted nevertheless.
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
    let words = args.command.iter().map(foreign::path);
    let command = words.collect::<Vec<_>>().join(" ");
    let subject = match (args.pid, args.all, &args.victims) {
        (Some(pid), ..) => format!("process {pid}"),
        (None, true, _) => "every task".to_owned(),
        (None, false, Some(_)) if args.command.is_empty() => "guarded CPUs".to_owned(),
        (None, false, Some(_)) => format!("guarded CPUs during {command}"),
        (None, false, None) => command,
    };
    let environment = targets::environment();
    let stat = Stat {
        subject: &subject,
        runs,
        environment: &environment,
        by_actor: args.by_actor,
        verbose: args.verbose,
        by: args.by.map(Into::into),
        breaks: args.fail_on.as_ref().and_then(|fail_on| fail_on.0.as_deref()),
    };
    let readers = if stat.holds_addresses() { Readers::Owner } else { Readers::Usual };
    if let (Some(format), Some(path)) = (args.format.table(), &args.output) {
        let bytes = needless_tables::bytes(&needless_tables::stat(&stat)?, format)?;
        return write_whole(path, readers, |out| out.write_all(&bytes));
    }
    let document = match args.format {
        StatFormat::Json => json_text(&json(&stat)),
        StatFormat::Openmetrics => openmetrics(&stat),
        StatFormat::Html => html::stat(&stat, &made(&[])),
        _ if args.output.is_some() => text(&stat, needless_report::Style::PLAIN),
        _ if args.command.is_empty() => text(&stat, output.style),
        _ => text(&stat, output.style_beside()),
    };
    match &args.output {
        Some(path) => write_text(path, readers, &document),
        None if args.command.is_empty() => output.result(&document),
        // An empty line separates it from what the command wrote.
        None if args.format == StatFormat::Text => output.beside(&format!("\n{document}")),
        None => output.beside(&document),
    }
}

/// The command's status; of several runs the first that is not 0. Without a command, the status
/// says whether events could be watched at all, and whether some were lost.
fn status(args: &StatArgs, runs: &[Observation]) -> u8 {
    let commands = runs.iter().filter_map(|run| run.status).find(|status| *status != 0);
    match (&args.fail_on, commands) {
        (_, Some(status)) => return status,
        (Some(fail_on), None) => return guarded(fail_on, runs),
        (None, None) if !args.command.is_empty() => return EXPECTED,
        (None, None) => {}
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

/// Whether a guard held. A guard that did not see everything did not hold.
fn guarded(fail_on: &FailOn, runs: &[Observation]) -> u8 {
    let mut status = EXPECTED;
    for run in runs {
        let guard = run.events.as_ref().and_then(|events| Some((events.guard.as_ref()?, events)));
        let Some((guard, events)) = guard else { return NOT_PERMITTED };
        let broken = guard.causes.iter().any(|cause| match &fail_on.0 {
            None => cause.came.interrupts > 0,
            Some(causes) => {
                let named = causes.iter().any(|asked| asked.slug() == cause.cause);
                named && cause.came.disturbances() + cause.came.same_interrupt > 0
            }
        });
        if broken {
            return DIFFERENCE;
        }
        if events.watching.lost > 0 {
            status = EVENTS_LOST;
        }
    }
    status
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
