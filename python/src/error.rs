//! Errors as Python raises them: the text that the command prints, with its place and its remedy.

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, SourceSpan};
use needless_check::CheckError;
use needless_model::foreign;
use needless_model::kernels::{KernelRow, RowError};
use needless_scenario::ScenarioError;
use needless_tables::TableError;
use pyo3::prelude::*;
use std::fmt::Display;

/// Columns of a text.
const WIDTH: usize = 100;

/// Why something was not done.
#[derive(Debug)]
pub enum Failure {
    /// What is told in the command's words.
    Told(Box<Told>),
    /// An exception that came from Python, such as that of Ctrl-C.
    Python(PyErr),
}

/// What is told about a failure.
#[derive(Debug)]
pub struct Told {
    text: String,
    message: String,
    place: Option<(usize, usize)>,
    remedy: Option<String>,
    /// Whether what was asked for is wrong, and not the machine.
    input: bool,
}

/// A failure that points at no text.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
struct Plain {
    message: String,
    #[help]
    help: Option<String>,
}

/// A target's name with a mistake in it.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{reason}")]
#[diagnostic(help("{help}"))]
struct BadTarget {
    reason: String,
    help: String,
    #[source_code]
    name: String,
    #[label("here")]
    at: SourceSpan,
}

impl Failure {
    fn of(diagnostic: &dyn Diagnostic, input: bool) -> Failure {
        let theme = GraphicalTheme::unicode_nocolor();
        let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH);
        let mut text = String::new();
        if handler.without_cause_chain().render_report(&mut text, diagnostic).is_err() {
            text = diagnostic.to_string();
        }
        Failure::Told(Box::new(Told {
            text: text.trim_end().to_owned(),
            message: diagnostic.to_string(),
            place: place(diagnostic),
            remedy: diagnostic.help().map(|help| help.to_string()),
            input,
        }))
    }

    /// What was asked for is wrong.
    pub fn input(message: impl Display, help: impl Display) -> Failure {
        let plain = Plain { message: message.to_string(), help: Some(help.to_string()) };
        Failure::of(&plain, true)
    }

    /// Something else is wrong.
    pub fn other(message: impl Display, help: Option<String>) -> Failure {
        Failure::of(&Plain { message: message.to_string(), help }, false)
    }

    /// A row of the model that was not understood.
    pub fn row(name: &str, row: &str, error: &RowError) -> Failure {
        let prefix = name.len() - row.len();
        let at = error.place(row);
        let reason = foreign::line(&error.to_string()).into_owned();
        Failure::of(
            &BadTarget {
                reason: format!("target `{}`: {reason}", foreign::short(name)),
                help: "`needless policies` lists the rows, and the policies that options may set"
                    .to_owned(),
                name: foreign::line(name).into_owned(),
                at: (at.start + prefix..at.end + prefix).into(),
            },
            true,
        )
    }

    /// A scenario that cannot be checked.
    pub fn check(scenario: &str, error: &CheckError) -> Failure {
        Failure::input(
            format!("`{scenario}` cannot be checked: {error}"),
            "the checker takes scenarios of a few pages and threads; `needless scenario list` shows some",
        )
    }

    fn raised(self, py: Python<'_>) -> PyResult<PyErr> {
        let told = match self {
            Failure::Told(told) => told,
            Failure::Python(error) => return Ok(error),
        };
        let class = if told.input { "InputError" } else { "Error" };
        let class = py.import("needless._errors")?.getattr(class)?;
        let (line, column) = told.place.unzip();
        let error = class.call1((told.text, told.message, line, column, told.remedy))?;
        Ok(PyErr::from_value(error))
    }
}

/// Line and column of what is spoken of, from 1.
fn place(diagnostic: &dyn Diagnostic) -> Option<(usize, usize)> {
    let labels: Vec<_> = diagnostic.labels()?.collect();
    let first = labels.iter().find(|label| label.primary()).or(labels.first())?;
    let there = diagnostic.source_code()?.read_span(first.inner(), 0, 0).ok()?;
    Some((there.line() + 1, there.column() + 1))
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Failure {
        Failure::of(&error, true)
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Failure {
        Failure::other(error, None)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| failure.raised(py).unwrap_or_else(|error| error))
    }
}

/// The row of the model that a target names.
pub fn row_of(name: &str) -> Result<KernelRow, Failure> {
    let Some(row) = name.strip_prefix("model:") else {
        return Err(Failure::input(
            format!("there is no row of the model in `{}`", foreign::short(name)),
            format!(
                "rows are model:KERNEL[,option=value]; KERNEL is one of {}",
                KernelRow::names().join(", ")
            ),
        ));
    };
    KernelRow::parse(row).map_err(|error| Failure::row(name, row, &error))
}
