//! Output: results to standard output, messages and progress to standard error.
//!
//! Every character that this program prints leaves through this file, and text written to files
//! through [`crate::files::write_text`]. Both pass the outer door for text that others chose
//! ([`needless_model::foreign`]). Lints forbid printing elsewhere.
#![allow(
    clippy::disallowed_methods,
    reason = "this is where standard output and error are written"
)]

use crate::args::{Cli, Color};
use crate::failure::Failure;
use crate::files::{Readers, can_write, write_text, write_whole};
use anstream::{AutoStream, ColorChoice};
use clap::Parser;
use miette::MietteHandlerOpts;
use needless_model::foreign;
use needless_report::Style;
use needless_report::style::number;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terminal_size::{Width, terminal_size_of};

/// The smallest and the largest number of columns that text fills, whatever the terminal says.
const WIDTHS: std::ops::RangeInclusive<u16> = 60..=200;

/// Where and how to print.
pub struct Output {
    /// The style of results.
    pub style: Style,
    choice: ColorChoice,
}

impl Output {
    /// Output with colour as the user asked for.
    pub fn new(color: Color) -> Output {
        let choice = match color {
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
            Color::Auto => AutoStream::choice(&std::io::stdout()),
        };
        let color = !matches!(choice, ColorChoice::Never);
        let width = width(&std::io::stdout());
        Output { style: Style { color, unicode: unicode(), width }, choice }
    }

    /// The style of results that [`Output::beside`] prints.
    pub fn style_beside(&self) -> Style {
        Style { width: width(&std::io::stderr()), ..self.style }
    }

    /// Prints a result.
    pub fn result(&self, text: &str) -> Result<(), Failure> {
        let mut out = AutoStream::new(opened()?, self.choice);
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let text = foreign::output(text, self.style.color);
        let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
        let written = written.and_then(|()| out.flush());
        written.map_err(|error| Failure::of_stream("standard output", error))
    }

    /// Prints a result on standard error, where it does not mix with a command's output.
    pub fn beside(&self, text: &str) -> Result<(), Failure> {
        let choice = match self.choice {
            ColorChoice::Auto => AutoStream::choice(&std::io::stderr()),
            choice => choice,
        };
        let mut out = AutoStream::new(std::io::stderr().lock(), choice);
        let text = foreign::output(text, self.style.color);
        out.write_all(text.as_bytes()).map_err(|error| Failure::of_stream("standard error", error))
    }

    /// Prints a JSON document.
    pub fn json(&self, document: &serde_json::Value) -> Result<(), Failure> {
        self.result(&json_text(document))
    }

    /// Prints the command that the user may want next.
    pub fn next(&self, command: &str) -> Result<(), Failure> {
        self.result(&format!("\n{}", self.style.dim(format!("next: {}", foreign::line(command)))))
    }
}

/// Where a result goes: to standard output, or to a file.
pub struct Sink<'a> {
    output: &'a Output,
    file: Option<&'a Path>,
}

impl Output {
    /// Where a result goes. That a file cannot be written is told before long work.
    pub fn to<'a>(&'a self, file: Option<&'a Path>) -> Result<Sink<'a>, Failure> {
        file.map_or(Ok(()), can_write)?;
        Ok(Sink { output: self, file })
    }

    /// Where a result goes that can be a table. That a terminal cannot take one is told before long
    /// work, too.
    pub fn to_as<'a>(
        &'a self,
        file: Option<&'a Path>,
        table: Option<needless_tables::Format>,
    ) -> Result<Sink<'a>, Failure> {
        if table.is_some() && file.is_none() && std::io::stdout().is_terminal() {
            return Err(Failure::Usage {
                message:
                    "a table in Parquet or Arrow is not text, and standard output is a terminal"
                        .to_owned(),
                help: "write it to a file, as in -o result.parquet".to_owned(),
            });
        }
        self.to(file)
    }
}

impl Sink<'_> {
    /// How a result looks there. A file has no colours, and the usual width.
    pub fn style(&self) -> Style {
        match self.file {
            Some(_) => Style { unicode: self.output.style.unicode, ..Style::PLAIN },
            None => self.output.style,
        }
    }

    /// Whether that is a file, which is written once.
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Writes the result.
    pub fn result(&self, text: &str) -> Result<(), Failure> {
        match self.file {
            Some(path) => write_text(path, Readers::Usual, &format!("{}\n", text.trim_end())),
            None => self.output.result(text),
        }
    }

    /// Writes the result as a JSON document.
    pub fn json(&self, document: &serde_json::Value) -> Result<(), Failure> {
        self.result(&json_text(document))
    }

    /// Writes the result as a table.
    pub fn table(
        &self,
        table: &needless_tables::RecordBatch,
        format: needless_tables::Format,
    ) -> Result<(), Failure> {
        let bytes = needless_tables::bytes(table, format)?;
        match self.file {
            Some(path) => write_whole(path, Readers::Usual, |out| out.write_all(&bytes)),
            None => {
                let mut out = opened()?;
                let written = out.write_all(&bytes).and_then(|()| out.flush());
                written.map_err(|error| Failure::of_stream("standard output", error))
            }
        }
    }

    /// Names the command that one would want next, where people read.
    pub fn next(&self, command: &str) -> Result<(), Failure> {
        if self.is_file() { Ok(()) } else { self.output.next(command) }
    }
}

/// Standard output, unless it was closed.
fn opened() -> Result<std::io::StdoutLock<'static>, Failure> {
    if needless_watch::inherited::output_was_closed() {
        let error = std::io::Error::from(rustix::io::Errno::BADF);
        return Err(Failure::of_stream("standard output", error));
    }
    Ok(std::io::stdout().lock())
}

/// A JSON document as it is printed and written to files.
pub fn json_text(document: &serde_json::Value) -> String {
    foreign::json(&format!("{document:#}\n")).into_owned()
}

/// Writes a message for the user. If writing fails, the exit status has to suffice.
pub fn tell(text: &str) {
    let stderr = std::io::stderr();
    let style = Style { width: width(&stderr), ..Style::PLAIN };
    let _ = writeln!(&stderr, "{}", style.wrap(&foreign::output(text, false), 4));
}

/// Writes a message that `layout` has laid out already.
pub fn tell_laid_out(layout: impl FnOnce(Style) -> String) {
    let stderr = std::io::stderr();
    let text = layout(Style { width: width(&stderr), ..Style::PLAIN });
    let _ = write!(&stderr, "{}", foreign::output(&text, false));
}

/// Writes why the command failed, with the place and the remedy.
pub fn tell_failure(failure: Failure) {
    let stderr = std::io::stderr();
    let columns = usize::from(width(&stderr));
    // A message ends with its cause, so the chain of causes would repeat it.
    let handler = MietteHandlerOpts::new().width(columns).without_cause_chain();
    // The hook is set once, here.
    let _ = miette::set_hook(Box::new(move |_| Box::new(handler.clone().build())));
    let text = format!("{:?}", miette::Report::new(failure));
    let _ = writeln!(&stderr, "{}", foreign::output(&text, true));
}

/// Shows what clap makes of the command line: a usage error, or the help or version that was asked
/// for.
pub fn say_usage(error: &clap::Error) -> std::io::Result<()> {
    // The message quotes arguments. So clap parses once more, with each argument on one visible
    // line.
    let shown = Cli::try_parse_from(std::env::args_os().map(foreign::path)).err();
    let error = shown.as_ref().unwrap_or(error);
    let text = error.render().ansi().to_string();
    let text = foreign::output(&text, true);
    match error.use_stderr() {
        true => write!(anstream::stderr().lock(), "{text}"),
        false => {
            let mut out = anstream::stdout().lock();
            write!(out, "{text}").and_then(|()| out.flush())
        }
    }
}

/// The number of columns to fill: those of the terminal that `stream` is, else those that COLUMNS
/// names, else 100.
fn width(stream: &impl AsFd) -> u16 {
    let terminal = terminal_size_of(stream).map(|(Width(columns), _)| columns);
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    let known = terminal.or_else(named).filter(|columns| *columns > 0);
    known.map_or(Style::PLAIN.width, |columns| columns.clamp(*WIDTHS.start(), *WIDTHS.end()))
}

/// Whether the locale's character set is UTF-8. The first of the three variables that is set
/// decides.
fn unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| std::env::var(name).ok());
    let locale = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The time before the first line, and the longest time between two lines, where there is no
/// terminal.
const QUIET: Duration = Duration::from_secs(10);
const AT_MOST: Duration = Duration::from_secs(60);

/// Progress, on standard error. A terminal shows it in a line that vanishes when this is dropped.
/// Elsewhere it is a line from time to time, so that a log shows that the work goes on.
pub struct Progress {
    bar: indicatif::ProgressBar,
    log: Option<Log>,
}

/// Lines from time to time, written by a thread of their own: a step may last long.
struct Log {
    shared: Arc<(Mutex<Standing>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// The contents of the next line.
#[derive(Default)]
struct Standing {
    done: usize,
    steps: usize,
    unit: &'static str,
    now: String,
    over: bool,
}

impl Standing {
    fn text(&self, elapsed: Duration) -> String {
        let (done, steps) = (number(self.done as u64), number(self.steps as u64));
        let of = match (self.steps, self.now.is_empty()) {
            (0, _) => String::new(),
            (_, true) => format!("{} {done} of {steps}", self.unit),
            (_, false) => format!("{} {done} of {steps}: ", self.unit),
        };
        let elapsed = match elapsed.as_secs() {
            seconds if seconds < 120 => format!("{seconds} s"),
            seconds => format!("{} min", seconds / 60),
        };
        format!("{of}{} ({elapsed})", self.now)
    }
}

impl Log {
    fn new(unit: &'static str, steps: usize) -> Log {
        let standing = Standing { unit, steps, ..Standing::default() };
        let shared = Arc::new((Mutex::new(standing), Condvar::new()));
        let (seen, started) = (Arc::clone(&shared), Instant::now());
        // If the thread cannot start, there are no lines.
        let thread = std::thread::Builder::new().spawn(move || {
            let (standing, ended) = &*seen;
            let mut wait = QUIET;
            let Ok(mut standing) = standing.lock() else { return };
            while !standing.over {
                let Ok((now, waited)) = ended.wait_timeout(standing, wait) else { return };
                standing = now;
                let tells = standing.steps > 0 || !standing.now.is_empty();
                if waited.timed_out() && tells && !standing.over {
                    tell(&standing.text(started.elapsed()));
                    wait = (wait * 2).min(AT_MOST);
                }
            }
        });
        Log { shared, thread: thread.ok() }
    }

    fn change(&self, change: impl FnOnce(&mut Standing)) {
        if let Ok(mut standing) = self.shared.0.lock() {
            change(&mut standing);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.change(|standing| standing.over = true);
        self.shared.1.notify_all();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Progress {
    /// Progress over a number of things: scenarios, targets.
    pub fn new(unit: &'static str, steps: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = match terminal {
            true => indicatif::ProgressBar::new(steps as u64),
            false => indicatif::ProgressBar::hidden(),
        };
        if let Ok(style) = indicatif::ProgressStyle::with_template("{pos}/{len} {msg} ({elapsed})")
        {
            bar.set_style(style);
        }
        Progress { bar, log: (!terminal).then(|| Log::new(unit, steps)) }
    }

    /// Progress of work whose end is not known.
    pub fn spinner() -> Progress {
        let progress = Progress::new("", 0);
        if let Ok(style) = indicatif::ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            progress.bar.set_style(style);
        }
        progress
    }

    /// Shows what is being done now.
    pub fn now(&self, what: &str) {
        if let Some(log) = &self.log {
            log.change(|standing| standing.now = foreign::line(what).into_owned());
        }
        self.bar.set_message(foreign::line(what).into_owned());
        self.bar.tick();
    }

    /// Writes a message in between.
    pub fn tell(&self, text: &str) {
        self.bar.suspend(|| tell(text));
    }

    /// Counts one step as done.
    pub fn done(&self) {
        if let Some(log) = &self.log {
            log.change(|standing| standing.done += 1);
        }
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_how_far_it_is() {
        let mut standing =
            Standing { unit: "scenario", steps: 2000, done: 500, ..Standing::default() };
        assert_eq!(standing.text(Duration::from_secs(45)), "scenario 500 of 2,000 (45 s)");
        standing.now = "live".into();
        assert_eq!(standing.text(Duration::from_secs(150)), "scenario 500 of 2,000: live (2 min)");
        let spinner = Standing { now: "fetching".into(), ..Standing::default() };
        assert_eq!(spinner.text(QUIET), "fetching (10 s)");
    }

    #[test]
    fn its_thread_ends_with_it() {
        let log = Log::new("scenario", 3);
        log.change(|standing| standing.done = 3);
        let started = Instant::now();
        drop(log);
        assert!(started.elapsed() < QUIET);
    }
}
