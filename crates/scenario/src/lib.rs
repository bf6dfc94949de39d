//! The scenario language: a workload described once, in KDL, for every target.
//!
//! ```
//! use needless_scenario::{Settings, compile, load};
//!
//! let source = load("cow-reuse")?;
//! let settings: Settings = [("pages", "8")].into_iter().collect();
//! let program = compile(&source, &settings)?;
//! assert_eq!(program.areas[0].range.pages(), 8);
//! # Ok::<(), needless_scenario::ScenarioError>(())
//! ```
//!
//! Each stage has its own file: `lex` (tokens, and what KDL may not contain), `document` (the
//! strict layer over KDL), [`grammar`] (the table of nodes), `params`, `areas` (addresses), `ops`
//! (operations) and `litmus` (questions for the checker). `expr` and `scope` handle the expressions
//! in strings. [`study`] reads studies. [`random`] draws scenarios. No text, however bad, makes any
//! of them panic: `exercise` is the body of the fuzz target that checks this.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod areas;
pub mod builtin;
mod compile;
mod describe;
mod document;
mod error;
mod excerpt;
mod expr;
mod file;
mod format;
pub mod grammar;
mod lex;
mod litmus;
mod mapped_files;
mod ops;
mod params;
pub mod random;
mod rehearse;
mod scope;
#[doc(hidden)]
pub mod sizes;
pub mod study;
mod tokens;

pub use describe::{Description, Parameter, Summary, ThreadDescription};
pub use error::{Invalid, Problem, ScenarioError};
pub use litmus::{Clause, Condition, Expect, Failing, Litmus};

use needless_model::arch::{Arch, X86_64};
use needless_model::program::Program;
use std::collections::BTreeMap;
use std::io::ErrorKind;

/// A scenario's text, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's path, or the name of the built-in.
    pub name: String,
    /// The text itself.
    pub text: String,
    /// Values for parameters that [`Settings`] leave open: those of a built-in alias. If there are
    /// any, the program takes its name from [`Source::name`].
    pub presets: Settings,
}

impl Source {
    /// A text that problems call `name`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: name.into(), text: text.into(), presets: Settings::default() }
    }

    /// Returns the source, unless its text has a control character.
    pub fn plain(self) -> Result<Source, ScenarioError> {
        match lex::control_character(&self.text) {
            Some(problem) => Err(ScenarioError::invalid(&self.name, &self.text, vec![problem])),
            None => Ok(self),
        }
    }
}

/// Values of parameters, as text: `--set name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(pub BTreeMap<String, String>);

impl Settings {
    /// Reads words of the form `name=value`. The error is the first word that has another form.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Settings, String> {
        let pair = |word: &'a str| word.split_once('=').ok_or_else(|| word.to_owned());
        words.into_iter().map(pair).collect()
    }

    /// Whether no value is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Settings {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Settings {
        Settings(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}

/// Loads the built-in of this name, else the file at this path.
///
/// A file with the name of a built-in is reached as `./NAME`.
pub fn load(path_or_name: &str) -> Result<Source, ScenarioError> {
    if let Some(source) = builtin::find(path_or_name) {
        return Ok(source);
    }
    match file::read(path_or_name) {
        Ok(text) => Source::new(path_or_name, text).plain(),
        Err(file::Error::Refused(why)) => {
            Err(ScenarioError::Refused { path: path_or_name.to_owned(), why })
        }
        Err(file::Error::Failed(e)) if e.kind() == ErrorKind::NotFound => {
            Err(ScenarioError::NotFound {
                name: path_or_name.to_owned(),
                similar: error::similar(
                    path_or_name,
                    builtin::names().chain(builtin::litmus_names()),
                ),
            })
        }
        Err(file::Error::Failed(source)) => {
            Err(ScenarioError::Unreadable { path: path_or_name.to_owned(), source })
        }
    }
}

/// Compiles a scenario with these parameters. Pages and page tables have x86-64's sizes.
pub fn compile(source: &Source, settings: &Settings) -> Result<Program, ScenarioError> {
    compile_for(source, settings, &X86_64)
}

/// Compiles a scenario with these parameters and lays out its areas for `arch`.
pub fn compile_for(
    source: &Source,
    settings: &Settings,
    arch: &Arch,
) -> Result<Program, ScenarioError> {
    compile::compile(source, settings, arch).map(|c| c.program)
}

/// Compiles a scenario with these parameters, and reads what the checker should find in it.
pub fn litmus(
    source: &Source,
    settings: &Settings,
) -> Result<(Program, Option<Litmus>), ScenarioError> {
    compile::compile(source, settings, &X86_64).map(|c| (c.program, c.litmus))
}

/// Compiles a scenario for `arch` with these parameters, and with `rounds` instead of its own
/// number of rounds if that is given. Then runs it in the model for a moment. What no kernel does
/// is an error that points at its place.
pub fn rehearsed(
    source: &Source,
    settings: &Settings,
    rounds: Option<u32>,
    arch: &Arch,
) -> Result<(Program, Option<Litmus>), ScenarioError> {
    let mut compiled = compile::compile(source, settings, arch)?;
    if let Some(rounds) = rounds {
        compiled.program.change_rounds(|_| rounds);
    }
    match rehearse::rehearse(&compiled) {
        Ok(()) => Ok((compiled.program, compiled.litmus)),
        Err(problems) => Err(ScenarioError::invalid(&source.name, &source.text, problems)),
    }
}

/// Compiles a scenario with its defaults and returns its size.
pub fn check(source: &Source) -> Result<Summary, ScenarioError> {
    compile(source, &Settings::default()).map(|program| Summary::of(&program))
}

/// Returns the scenario's description of itself.
pub fn describe(source: &Source) -> Result<Description, ScenarioError> {
    compile::compile(source, &Settings::default(), &X86_64).map(|c| c.description)
}

/// Writes the text in its uniform layout and keeps comments. Formatting twice changes nothing.
pub fn format(source: &Source) -> Result<String, ScenarioError> {
    format::format(&source.text)
        .map_err(|problems| ScenarioError::invalid(&source.name, &source.text, problems))
}

/// Puts any text through every stage. Panics only where a stage breaks its promise.
///
/// This is the body of the fuzz target.
#[doc(hidden)]
pub fn exercise(text: &str) {
    let source = Source::new("fuzz", text);
    let checked = check(&source);
    let described = describe(&source);
    assert_eq!(checked.is_ok(), described.is_ok());
    if let Ok(once) = format(&source) {
        let formatted = Source::new("fuzz", once);
        assert_eq!(format(&formatted).ok().as_ref(), Some(&formatted.text), "fmt is idempotent");
        assert_eq!(checked.ok(), check(&formatted).ok(), "fmt keeps the meaning");
    }
    // Rendering reads every span.
    for error in [describe(&source).err(), study::parse(&source, None).err()].into_iter().flatten()
    {
        let _ = format!("{:?}", miette::Report::new(error));
    }
}
