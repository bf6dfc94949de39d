//! Errors that point at a place in the text.
//!
//! A stage reports every problem that it finds. A later stage runs only on what earlier stages
//! accepted, so one mistake is reported once.

use crate::excerpt::{excerpt, message, moved};
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode, SourceSpan};
use needless_model::foreign;
use std::fmt;
use thiserror::Error;

/// Why a scenario cannot be loaded or compiled.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file exists but cannot be read.
    #[error("cannot read `{}`: {source}", foreign::line(path))]
    Unreadable {
        /// The path as it was given.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The path names something that is not a scenario's file.
    #[error("`{}` is not read: {why}", foreign::line(path))]
    Refused {
        /// The path as it was given.
        path: String,
        /// The reason, in words.
        why: String,
    },
    /// There is neither a file nor a built-in scenario of this name.
    #[error("there is no file and no built-in scenario named `{}`", foreign::line(name))]
    NotFound {
        /// The name as it was given.
        name: String,
        /// The built-in scenario with the most similar name.
        similar: Option<&'static str>,
    },
    /// There is neither a file nor a built-in study of this name.
    #[error("there is no file and no built-in study named `{}`", foreign::line(name))]
    NoStudy {
        /// The name as it was given.
        name: String,
        /// The built-in study with the most similar name.
        similar: Option<&'static str>,
    },
    /// The text has problems.
    #[error(transparent)]
    Invalid(#[from] Box<Invalid>),
}

/// A text and its problems, of which there is at least one.
#[derive(Debug)]
pub struct Invalid {
    source: NamedSource<String>,
    first: Problem,
    rest: Vec<Problem>,
}

/// One problem: what is wrong, where it is, and what would help.
#[derive(Clone, Debug, Error, Diagnostic)]
#[error("{message}")]
pub struct Problem {
    message: String,
    #[label(collection)]
    labels: Vec<LabeledSpan>,
    #[help]
    help: Option<String>,
}

/// The largest number of problems that one error reports.
const TOLD_AT_ONCE: usize = 20;

impl Problem {
    /// A problem with the text at `span`; `label` explains the place.
    pub(crate) fn new(span: SourceSpan, what: impl AsRef<str>, label: &str) -> Problem {
        let labels = vec![LabeledSpan::new_primary_with_span(Some(message(label)), span)];
        Problem { message: message(what.as_ref()), labels, help: None }
    }

    /// Adds the remedy.
    pub(crate) fn help(mut self, help: impl AsRef<str>) -> Problem {
        self.help = Some(message(help.as_ref()));
        self
    }

    /// Points at a second place.
    pub(crate) fn also(mut self, span: SourceSpan, label: &str) -> Problem {
        self.labels.push(LabeledSpan::new_with_span(Some(message(label)), span));
        self
    }

    /// The places that the problem points at.
    pub(crate) fn places(&self) -> impl Iterator<Item = SourceSpan> {
        self.labels.iter().map(|label| *label.inner())
    }

    /// Points at other places instead.
    pub(crate) fn move_places(&mut self, to: impl Fn(&SourceSpan) -> SourceSpan) {
        for label in &mut self.labels {
            *label = moved(label, to(label.inner()));
        }
    }
}

impl ScenarioError {
    /// The error that reports `problems` of `text`.
    pub(crate) fn invalid(name: &str, text: &str, mut problems: Vec<Problem>) -> ScenarioError {
        problems.truncate(TOLD_AT_ONCE);
        let text = excerpt(text, &mut problems);
        let mut problems = problems.into_iter();
        let unknown = || Problem::new((0..0).into(), "the text is not a scenario", "this text");
        let first = problems.next().unwrap_or_else(unknown);
        let source = NamedSource::new(foreign::line(name), text);
        let rest = problems.collect();
        ScenarioError::Invalid(Box::new(Invalid { source, first, rest }))
    }

    /// The problems of an invalid text; none for the other errors.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        let invalid = match self {
            ScenarioError::Invalid(invalid) => Some(invalid),
            _ => None,
        };
        invalid.into_iter().flat_map(|i| std::iter::once(&i.first).chain(&i.rest))
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)
    }
}

impl std::error::Error for Invalid {}

impl Diagnostic for ScenarioError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        match self {
            ScenarioError::Unreadable { .. } | ScenarioError::Refused { .. } => {
                Some(Box::new("a scenario is a UTF-8 text file that you may read"))
            }
            ScenarioError::NotFound { similar: Some(name), .. } => {
                Some(Box::new(format!("did you mean the built-in `{name}`?")))
            }
            ScenarioError::NotFound { similar: None, .. } => {
                Some(Box::new("`needless scenario list` lists the built-in scenarios"))
            }
            ScenarioError::NoStudy { similar: Some(name), .. } => {
                Some(Box::new(format!("did you mean `{name}`?")))
            }
            ScenarioError::NoStudy { similar: None, .. } => {
                Some(Box::new("`needless study` lists the built-in studies"))
            }
            ScenarioError::Invalid(invalid) => Diagnostic::help(&invalid.first),
        }
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        match self {
            ScenarioError::Invalid(invalid) => Some(&invalid.source),
            _ => None,
        }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        match self {
            ScenarioError::Invalid(invalid) => invalid.first.labels(),
            _ => None,
        }
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        match self {
            ScenarioError::Invalid(invalid) if !invalid.rest.is_empty() => {
                Some(Box::new(invalid.rest.iter().map(|p| p as &dyn Diagnostic)))
            }
            _ => None,
        }
    }
}

/// Returns `value`, unless there are problems.
pub(crate) fn finish<T>(problems: Vec<Problem>, value: T) -> Result<T, Vec<Problem>> {
    if problems.is_empty() { Ok(value) } else { Err(problems) }
}

/// The word of `known` that `word` was probably meant to be.
pub(crate) fn similar<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?` if a word of `known` is similar to `word`, else a list of all known words.
pub(crate) fn suggest<'a>(
    what: &str,
    word: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    match similar(word, known.clone()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => match known.collect::<Vec<_>>() {
            names if names.is_empty() => format!("there are no {what} here"),
            names => format!("{what} here: {}", names.join(", ")),
        },
    }
}
