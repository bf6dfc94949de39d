//! Output: results to standard output, talk and progress to standard error.
//!
//! Every character that this program prints leaves through this file, and text written to files through
//! [`crate::files::write_text`]. Both pass the outer door for text that others chose
//! ([`needless_model::foreign`]); lints forbid printing elsewhere.
#![allow(
    clippy::disallowed_methods,
    reason = "this is where standard output and error are written"
)]

use crate::args::{Cli, Color};
use crate::failure::Failure;
use anstream::{AutoStream, ColorChoice};
use clap::Parser;
use miette::MietteHandlerOpts;
use needless_model::foreign;
use needless_report::Style;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use terminal_size::{Width, terminal_size_of};

/// Columns that text fills at least and at most, whatever the terminal says.
const WIDTHS: std::ops::RangeInclusive<u16> = 60..=200;

/// Where and how to print.
pub struct Output {
    /// How results look.
    pub style: Style,
    choice: ColorChoice,
}

impl Output {
    /// Output with colour as asked for.
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

    /// How results look that are printed by [`Output::beside`].
    pub fn style_beside(&self) -> Style {
        Style { width: width(&std::io::stderr()), ..self.style }
    }

    /// Prints a result.
    pub fn result(&self, text: &str) -> Result<(), Failure> {
        let mut out = AutoStream::new(std::io::stdout().lock(), self.choice);
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let text = foreign::output(text, self.style.color);
        let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
        let written = written.and_then(|()| out.flush());
        written.map_err(|error| Failure::of_stream("standard output", error))
    }

    /// Prints a result where it does not mix with that of a command: on standard error.
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

    /// Names the command that one would want next.
    pub fn next(&self, command: &str) -> Result<(), Failure> {
        self.result(&format!("\n{}", self.style.dim(format!("next: {}", foreign::line(command)))))
    }
}

/// A JSON document as it is printed and written to files.
pub fn json_text(document: &serde_json::Value) -> String {
    foreign::json(&format!("{document:#}\n")).into_owned()
}

/// Says something to whoever watches. Where nobody can be told, the exit status has to do.
pub fn tell(text: &str) {
    let stderr = std::io::stderr();
    let style = Style { width: width(&stderr), ..Style::PLAIN };
    let _ = writeln!(&stderr, "{}", style.wrap(&foreign::output(text, false), 4));
}

/// Tells what is laid out already, by `layout`.
pub fn tell_laid_out(layout: impl FnOnce(Style) -> String) {
    let stderr = std::io::stderr();
    let text = layout(Style { width: width(&stderr), ..Style::PLAIN });
    let _ = write!(&stderr, "{}", foreign::output(&text, false));
}

/// Says why the command failed, with the place and the remedy.
pub fn tell_failure(failure: Failure) {
    let stderr = std::io::stderr();
    let columns = usize::from(width(&stderr));
    // Messages end with their cause: below them it would stand once more.
    let handler = MietteHandlerOpts::new().width(columns).without_cause_chain();
    // It is set once, here.
    let _ = miette::set_hook(Box::new(move |_| Box::new(handler.clone().build())));
    let text = format!("{:?}", miette::Report::new(failure));
    let _ = writeln!(&stderr, "{}", foreign::output(&text, true));
}

/// Says what clap makes of the command line: a usage error, or the help or version asked for. Gives the exit status.
pub fn tell_usage(error: clap::Error) -> u8 {
    // It quotes arguments, so it is asked once more, with each of them on one visible line.
    let shown = Cli::try_parse_from(std::env::args_os().map(foreign::path));
    let error = shown.err().unwrap_or(error);
    let text = error.render().ansi().to_string();
    let text = foreign::output(&text, true);
    let _ = match error.use_stderr() {
        true => write!(anstream::stderr().lock(), "{text}"),
        false => write!(anstream::stdout().lock(), "{text}"),
    };
    u8::try_from(error.exit_code()).unwrap_or(crate::failure::USAGE)
}

/// Columns to fill: those of the terminal that `stream` is, else those that COLUMNS names, else 100.
fn width(stream: &impl AsFd) -> u16 {
    let terminal = terminal_size_of(stream).map(|(Width(columns), _)| columns);
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    let known = terminal.or_else(named).filter(|columns| *columns > 0);
    known.map_or(Style::PLAIN.width, |columns| columns.clamp(*WIDTHS.start(), *WIDTHS.end()))
}

/// Whether the locale's character set is UTF-8: the first of the three that is set decides.
fn unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| std::env::var(name).ok());
    let locale = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// A progress line on standard error: only on a terminal, gone when dropped.
pub struct Progress(indicatif::ProgressBar);

impl Progress {
    /// Progress over `steps`.
    pub fn new(steps: usize) -> Progress {
        let bar = if std::io::stderr().is_terminal() {
            indicatif::ProgressBar::new(steps as u64)
        } else {
            indicatif::ProgressBar::hidden()
        };
        if let Ok(style) = indicatif::ProgressStyle::with_template("{pos}/{len} {msg} ({elapsed})")
        {
            bar.set_style(style);
        }
        Progress(bar)
    }

    /// Progress of something whose end is not known.
    pub fn spinner() -> Progress {
        let progress = Progress::new(0);
        if let Ok(style) = indicatif::ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            progress.0.set_style(style);
        }
        progress
    }

    /// Says what is being done now.
    pub fn now(&self, what: &str) {
        self.0.set_message(foreign::line(what).into_owned());
        self.0.tick();
    }

    /// Says something in between.
    pub fn tell(&self, text: &str) {
        self.0.suspend(|| tell(text));
    }

    /// One step is done.
    pub fn done(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
