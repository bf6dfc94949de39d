//! The first part of a study's report: sentences and one table, with the figures of its parts.
//!
//! ```text
//! template = { text | "{" place "}" }
//! place    = [ PART "." ] FIGURE [ ":" DECIMALS ]
//!          | PART "/" TEST { "~" [ "!" ] WORD }
//! ```
//!
//! The first kind of place is a figure; without a part, it is a published or stated one. The second
//! is what the checker found, on rows whose names have (or, with `!`, do not have) the words.

use super::{Part, Study};
use needless_model::counters::Counter;
use std::fmt;

/// A sentence of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The question that the sentence answers.
    pub question: String,
    /// The sentence itself.
    pub text: Template,
    /// Parts that the sentence rests on, in addition to those that it names.
    pub of: Vec<String>,
}

/// A text with places for figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template(pub Vec<Piece>);

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Words that are printed as they are.
    Text(String),
    /// A figure.
    Figure {
        /// The figure's part. `None` if the figure was published or stated.
        part: Option<String>,
        /// The figure's name.
        name: String,
        /// The number of decimals that are printed. `None`: as many as are readable.
        decimals: Option<usize>,
    },
    /// What the checker found.
    Check {
        /// The part that asks the checker.
        part: String,
        /// The name of the litmus test.
        test: String,
        /// Selects rows: the name must have the word (`true`), or must not have it (`false`).
        rows: Vec<(bool, String)>,
    },
}

impl Template {
    /// Reads a template. The error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((words, after)) = rest.split_once('{') {
            let (place, after) = after.split_once('}').ok_or("a `{` without its `}`")?;
            pieces.push(Piece::Text(words.to_owned()));
            pieces.push(Piece::parse(place)?);
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Template(pieces))
    }

    /// The parts that the template names.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Figure { part, .. } => part.as_deref(),
            Piece::Check { part, .. } => Some(part.as_str()),
        })
    }

    /// The first name in the template that the study does not have.
    pub(super) fn unknown(&self, study: &Study) -> Option<String> {
        self.0.iter().find_map(|piece| piece.unknown(study))
    }
}

impl Piece {
    fn parse(place: &str) -> Result<Piece, String> {
        if let Some((part, test)) = place.split_once('/') {
            let mut words = test.split('~');
            let test = words.next().unwrap_or_default();
            let rows = words.map(|word| match word.strip_prefix('!') {
                Some(word) => (false, word.to_owned()),
                None => (true, word.to_owned()),
            });
            let rows = rows.collect();
            return Ok(Piece::Check { part: part.to_owned(), test: test.to_owned(), rows });
        }
        let (name, decimals) = match place.split_once(':') {
            None => (place, None),
            Some((name, decimals)) => {
                let number = decimals.parse().ok().filter(|number| *number <= 9);
                let number =
                    number.ok_or_else(|| format!("`{decimals}` is not a number of decimals"))?;
                (name, Some(number))
            }
        };
        let (part, name) = match name.split_once('.') {
            None => (None, name),
            Some((part, name)) => (Some(part.to_owned()), name),
        };
        Ok(Piece::Figure { part, name: name.to_owned(), decimals })
    }

    fn unknown(&self, study: &Study) -> Option<String> {
        let part_of = |name: &str| study.parts.iter().find(|part| part.name == name);
        match self {
            Piece::Text(_) => None,
            Piece::Figure { part: None, name, .. } => {
                let known = study.given.iter().any(|given| given.name == *name);
                (!known).then(|| format!("no figure `{name}` was published or stated"))
            }
            Piece::Figure { part: Some(part), name, .. } => {
                let known = |part: &Part| part.figures.iter().any(|figure| figure.name == *name);
                let known = part_of(part).is_some_and(known);
                (!known).then(|| format!("there is no figure `{name}` in a part `{part}`"))
            }
            Piece::Check { part, test, .. } => {
                let has = |part: &Part| part.checks.iter().any(|c| c.chosen.scenario == *test);
                let known = part_of(part).is_some_and(has);
                (!known).then(|| format!("there is no check of `{test}` in a part `{part}`"))
            }
        }
    }
}

/// The table of the answer. It has a row for each kernel or case. The first column is what was
/// published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// What the table shows.
    pub text: String,
    /// The columns after the published one.
    pub columns: Vec<MatrixColumn>,
    /// The rows of the table.
    pub rows: Vec<MatrixRow>,
}

/// A column of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixColumn {
    /// The column's heading.
    pub name: String,
    /// What the column shows on the row's targets: a counter of a part's run. `None`: the row's
    /// next text.
    pub shows: Option<(RunOf, Counter)>,
}

/// A run, with its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOf {
    /// The part's name.
    pub part: String,
    /// The run's name.
    pub run: String,
}

impl fmt::Display for RunOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.part, self.run)
    }
}

/// A row of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixRow {
    /// The row's name.
    pub name: String,
    /// What was published for the row.
    pub published: Template,
    /// The target in the model, for columns that show a run.
    pub model: Option<String>,
    /// The target that is a real kernel.
    pub real: Option<String>,
    /// The cells of the other columns.
    pub texts: Vec<Template>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_figures_and_checks() {
        let template = Template::parse("a {p.f:1} b {g} {p/t~!mutant~6.12}.").unwrap();
        let figure = |part: Option<&str>, name: &str, decimals| Piece::Figure {
            part: part.map(str::to_owned),
            name: name.to_owned(),
            decimals,
        };
        let text = |words: &str| Piece::Text(words.to_owned());
        assert_eq!(
            template.0,
            [
                text("a "),
                figure(Some("p"), "f", Some(1)),
                text(" b "),
                figure(None, "g", None),
                text(" "),
                Piece::Check {
                    part: "p".to_owned(),
                    test: "t".to_owned(),
                    rows: vec![(false, "mutant".to_owned()), (true, "6.12".to_owned())],
                },
                text("."),
            ]
        );
        assert_eq!(template.parts().collect::<Vec<_>>(), ["p", "p"]);
        for bad in ["a {b", "{p.f:x}", "{p.f:12}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
