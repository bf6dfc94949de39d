//! The answer: sentences and tables with figures of the parts in them, for the first screen.

use super::{
    CheckResult, FigureResult, Margin, PartResult, Standing, Studied, TargetResult, number,
};
use crate::style::count;
use needless_model::counters::Counter;
use needless_model::property::Property;
use needless_scenario::study::{Answer, Matrix, MatrixColumn, MatrixRow, Piece, RunOf, Template};
use std::collections::BTreeMap;

/// Kernel rows are named one by one if their names fit into this many columns. Otherwise they are
/// counted.
const NAMED_COLUMNS: usize = 48;

/// A sentence of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// The question that it answers.
    pub question: String,
    /// The answer, or the reason why there is none here.
    pub text: Result<String, String>,
    /// What contradicts the answer: for a part, the number of relations, targets and checks that
    /// fail.
    pub but: Vec<String>,
}

/// A table of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixResult {
    /// What the table shows.
    pub text: String,
    /// The columns' headings. The heading of the rows' names is empty.
    pub header: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
    /// Whether cells are pairs: a model's figure and a real kernel's.
    pub pairs: bool,
}

impl Studied {
    /// The sentences of the parts that ran, then the assumptions.
    pub fn answers(&self) -> Vec<Sentence> {
        let ran = |answer: &&Answer| {
            let named = answer.text.parts().chain(answer.of.iter().map(String::as_str));
            named.into_iter().all(|name| self.part(name).is_some())
        };
        let sentences = self.study.answers.iter().filter(ran).map(|answer| self.sentence(answer));
        let assumed = if self.study.answers.is_empty() { None } else { self.assumed() };
        sentences.chain(assumed).collect()
    }

    /// The tables of the parts that ran.
    pub fn matrices(&self) -> Vec<MatrixResult> {
        let all = self.study.matrices.iter();
        all.filter(|matrix| self.shown(matrix)).map(|matrix| self.matrix(matrix)).collect()
    }

    fn part(&self, name: &str) -> Option<&PartResult> {
        self.parts.iter().find(|part| part.name == name)
    }

    fn sentence(&self, answer: &Answer) -> Sentence {
        let named = answer.text.parts().chain(answer.of.iter().map(String::as_str));
        let mut parts: Vec<&str> = Vec::new();
        for name in named {
            if !parts.contains(&name) {
                parts.push(name);
            }
        }
        let failing = parts.iter().filter_map(|name| failing(self.part(name)?));
        Sentence {
            question: answer.question.clone(),
            text: self.filled(&answer.text),
            but: failing.collect(),
        }
    }

    /// A template with its figures. A figure without a value is `?`, and the first reason follows
    /// the text. If no figure has a value, the result is the reason.
    fn filled(&self, template: &Template) -> Result<String, String> {
        let (mut text, mut had, mut reason) = (String::new(), 0, None);
        for piece in &template.0 {
            match (self.piece(piece), piece) {
                (Ok(words), Piece::Text(_)) => text += &words,
                (Ok(figure), _) => {
                    had += 1;
                    text += &figure;
                }
                (Err(why), _) => {
                    text.push('?');
                    reason = reason.or(Some(why));
                }
            }
        }
        match reason {
            None => Ok(text),
            Some(reason) if had == 0 => Err(reason),
            Some(reason) => Ok(format!("{text} (?: {reason})")),
        }
    }

    fn piece(&self, piece: &Piece) -> Result<String, String> {
        let of_part =
            |name: &str| self.part(name).ok_or_else(|| format!("part {name} was left out"));
        let no_figure = |name: &str| format!("there is no figure {name}");
        match piece {
            Piece::Text(text) => Ok(text.clone()),
            Piece::Figure { part: None, name, decimals } => {
                let given = self.study.given.iter().find(|given| given.name == *name);
                Ok(rounded(given.ok_or_else(|| no_figure(name))?.value, *decimals))
            }
            Piece::Figure { part: Some(part), name, decimals } => {
                let figure = of_part(part)?.figures.iter().find(|figure| figure.name == *name);
                let figure: &FigureResult = figure.ok_or_else(|| no_figure(name))?;
                Ok(rounded(figure.value.clone()?, *decimals))
            }
            Piece::Check { part, test, rows } => {
                let of_test = |check: &&CheckResult| scenario_of(check) == test;
                let chosen = |check: &&CheckResult| {
                    rows.iter().all(|(with, word)| check.row.contains(word.as_str()) == *with)
                };
                found(of_part(part)?.checks.iter().filter(of_test).filter(chosen))
            }
        }
    }

    /// The stated figures that were used. A figure that relations let move has the range in which
    /// every conclusion holds.
    fn assumed(&self) -> Option<Sentence> {
        let stated = self.study.given.iter().filter(|given| given.stated.is_some());
        let used = |name: &str| {
            let figures = self.parts.iter().flat_map(|part| &part.figures);
            figures.into_iter().any(|figure| figure.name == name)
        };
        let own = stated.filter(|given| !["size", "live_size"].contains(&given.name.as_str()));
        let listed: Vec<String> = own
            .filter(|given| used(&given.name))
            .map(|given| {
                let unit = if given.unit.is_empty() { "" } else { " " };
                let range = self.range(&given.name);
                format!("{} {}{unit}{}{range}", given.name, number(given.value), given.unit)
            })
            .collect();
        let text = match listed.is_empty() {
            true => "no price: every figure is counted, measured, published or computed".to_owned(),
            false => format!("{}; every conclusion holds in these ranges", listed.join(", ")),
        };
        Some(Sentence { question: "What is assumed".to_owned(), text: Ok(text), but: Vec::new() })
    }

    /// The range in which all relations hold that say how far the figure may move: ` (91 to 500)`.
    fn range(&self, name: &str) -> String {
        let relations = self.parts.iter().flat_map(|part| &part.relations);
        let margins: Vec<&Margin> = relations
            .flat_map(|relation| &relation.margins)
            .filter(|margin| margin.name == name)
            .collect();
        let least = margins.iter().filter_map(|margin| margin.least).max_by(f64::total_cmp);
        let most = margins.iter().filter_map(|margin| margin.most).min_by(f64::total_cmp);
        match (margins.is_empty(), least.map(number), most.map(number)) {
            (true, ..) => String::new(),
            (false, None, None) => " (any)".to_owned(),
            (false, Some(least), None) => format!(" (from {least})"),
            (false, None, Some(most)) => format!(" (up to {most})"),
            (false, Some(least), Some(most)) => format!(" ({least} to {most})"),
        }
    }

    /// Whether all parts that a table names ran.
    fn shown(&self, matrix: &Matrix) -> bool {
        let runs = matrix.columns.iter().filter_map(|column| column.shows.as_ref());
        let runs = runs.map(|(run, _)| run.part.as_str());
        let texts = matrix.rows.iter().flat_map(|row| row.texts.iter().chain([&row.published]));
        runs.chain(texts.flat_map(Template::parts)).all(|part| self.part(part).is_some())
    }

    fn matrix(&self, matrix: &Matrix) -> MatrixResult {
        let published = matrix.rows.iter().any(|row| row.published != Template::default());
        let mut header = vec![String::new()];
        header.extend(published.then(|| "published".to_owned()));
        header.extend(matrix.columns.iter().map(|column| column.name.clone()));
        let row = |row: &MatrixRow| {
            let mut cells = vec![row.name.clone()];
            cells.extend(published.then(|| self.cell(&row.published)));
            cells.extend(self.cells(&matrix.columns, row));
            cells
        };
        MatrixResult {
            text: matrix.text.clone(),
            header,
            rows: matrix.rows.iter().map(row).collect(),
            pairs: matrix.rows.iter().any(|row| row.model.is_some() && row.real.is_some()),
        }
    }

    /// A template with `-` where a figure has no value here.
    fn cell(&self, template: &Template) -> String {
        let piece = |piece: &Piece| self.piece(piece).unwrap_or_else(|_| "-".to_owned());
        template.0.iter().map(piece).collect()
    }

    fn cells(&self, columns: &[MatrixColumn], row: &MatrixRow) -> Vec<String> {
        let mut texts = row.texts.iter();
        let cell = |column: &MatrixColumn| match &column.shows {
            Some((run, counter)) => self.counted(run, *counter, row),
            None => texts.next().map(|text| self.cell(text)).unwrap_or_default(),
        };
        columns.iter().map(cell).collect()
    }

    /// The model's figure and the real kernel's: `4 | 4`. The row and the run decide which of them
    /// there are.
    fn counted(&self, run: &RunOf, counter: Counter, row: &MatrixRow) -> String {
        let on = |target: &Option<String>| {
            let target = self.target(run, target.as_ref()?)?;
            let count = target.counts.iter().find(|count| count.counter == counter)?;
            Some(count.found.map_or_else(|| "-".to_owned(), |found| found.to_string()))
        };
        let both: Vec<String> = [on(&row.model), on(&row.real)].into_iter().flatten().collect();
        both.join(" | ")
    }

    fn target(&self, run: &RunOf, target: &str) -> Option<&TargetResult> {
        let runs = &self.part(&run.part)?.runs;
        let run = runs.iter().find(|known| known.name == run.run)?;
        run.targets.iter().find(|known| known.target == target)
    }
}

fn rounded(value: f64, decimals: Option<usize>) -> String {
    match decimals {
        None => number(value),
        Some(decimals) => format!("{value:.decimals$}"),
    }
}

/// The test's name, without its values.
fn scenario_of(check: &CheckResult) -> &str {
    check.test.split(", ").next().unwrap_or_default()
}

/// The checker's result: `holds on 12 kernel rows`, `P8 fails on 5.10, 6.1`; or why nothing was
/// explored.
fn found<'a>(checks: impl Iterator<Item = &'a CheckResult>) -> Result<String, String> {
    let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for check in checks {
        if check.states.is_none() {
            let reason = check.standing.reason().unwrap_or("it was not explored");
            return Err(format!("check: {reason}"));
        }
        let verdict = check.found.split(',').next().unwrap_or_default();
        rows.entry(verdict).or_default().push(&check.row);
    }
    let told = rows.iter().map(|(verdict, rows)| {
        let named = rows.join(", ");
        let rows = match named.len() <= NAMED_COLUMNS {
            true => named,
            false => count(rows.len(), "kernel row"),
        };
        match *verdict {
            "holds" => format!("holds on {rows}"),
            number => format!("{number} fails on {rows}"),
        }
    });
    Ok(told.collect::<Vec<_>>().join("; "))
}

/// What fails in a part, if anything does.
fn failing(part: &PartResult) -> Option<String> {
    let fails = part.standings().filter(|standing| matches!(standing, Standing::DoesNot(_)));
    let fails = fails.count();
    (fails > 0).then(|| format!("{fails} in part {}", part.name))
}

/// The checker's result in words: `holds`, or the property that fails and its meaning.
pub(super) fn verdict(check: &CheckResult) -> String {
    let found = check.found.split(',').next().unwrap_or_default();
    match Property::parse(found) {
        Some(property) => format!("fails {property}"),
        None => found.to_owned(),
    }
}
