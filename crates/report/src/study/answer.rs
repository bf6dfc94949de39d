//! The answer: sentences and tables with figures of the parts in them, for the first screen.

use super::{
    CheckResult, FigureResult, Margin, PartResult, Standing, Studied, TargetResult, number,
};
use crate::style::count;
use needless_model::counters::Counter;
use needless_model::property::Property;
use needless_scenario::study::{
    Answer, Given, Matrix, MatrixColumn, MatrixRow, Piece, RunOf, Template,
};
use std::collections::BTreeMap;

/// Kernel rows are named one by one if their names fit into this many columns. Otherwise they are
/// counted.
const NAMED_COLUMNS: usize = 48;

/// The last question. A study that answers it says itself what it assumes; the stated figures that
/// it uses follow.
const ASSUMED: &str = "What is assumed";

/// What is assumed if nothing is stated.
const NOTHING_STATED: &str = "no price: every figure is counted, measured, published or computed";

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
        let others = self.study.answers.iter().filter(|answer| answer.question != ASSUMED);
        let sentences = others.filter(ran).map(|answer| self.sentence(answer));
        let assumed = (!self.study.answers.is_empty()).then(|| self.assumed());
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

    /// What was assumed: the study's own sentence, then the stated figures.
    fn assumed(&self) -> Sentence {
        let own = self.study.answers.iter().find(|answer| answer.question == ASSUMED);
        let own = own.map(|answer| self.sentence(answer));
        match (own, self.stated()) {
            (Some(own), None) => own,
            (Some(own), Some(stated)) => {
                Sentence { text: own.text.map(|text| format!("{text} {stated}")), ..own }
            }
            (None, stated) => Sentence {
                question: ASSUMED.to_owned(),
                text: Ok(stated.unwrap_or_else(|| NOTHING_STATED.to_owned())),
                but: Vec::new(),
            },
        }
    }

    /// The stated figures that were used, with the range in which every conclusion holds. `None` if
    /// none was used.
    fn stated(&self) -> Option<String> {
        let used = self.study.given.iter().filter(|given| self.is_assumption(given));
        let used: Vec<(&Given, String)> =
            used.map(|given| (given, self.range(&given.name))).collect();
        let figure = |(given, range): &(&Given, String)| {
            let unit = if given.unit.is_empty() { "" } else { " " };
            format!("{} {}{unit}{}{range}", given.name, number(given.value), given.unit)
        };
        let figures: Vec<String> = used.iter().map(figure).collect();
        let ranges = match used.iter().all(|(_, range)| range.is_empty()) {
            true => "no relation asks how far they may move",
            false => "every conclusion holds in these ranges",
        };
        (!figures.is_empty()).then(|| format!("{}; {ranges}", figures.join(", ")))
    }

    /// Whether a figure was stated and a part uses it. The study's size is no assumption.
    fn is_assumption(&self, given: &Given) -> bool {
        let mut figures = self.parts.iter().flat_map(|part| &part.figures);
        given.stated.is_some()
            && !["size", "live_size"].contains(&given.name.as_str())
            && figures.any(|figure| figure.name == given.name)
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

/// `holds on 12 kernel rows`, `fails P8 on 5.10, 6.1`; or why nothing was explored. A single row is
/// not named: the sentence says which one it chose.
fn found<'a>(checks: impl Iterator<Item = &'a CheckResult>) -> Result<String, String> {
    let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for check in checks {
        if check.states.is_none() {
            let reason = check.standing.reason().unwrap_or("it was not explored");
            return Err(format!("check: {reason}"));
        }
        rows.entry(number_of(check)).or_default().push(&check.row);
    }
    let single = rows.values().map(Vec::len).sum::<usize>() == 1;
    let told = rows.iter().map(|(number, rows)| {
        let verdict =
            if *number == "holds" { "holds".to_owned() } else { format!("fails {number}") };
        if single { verdict } else { format!("{verdict} on {}", listed(rows)) }
    });
    Ok(told.collect::<Vec<_>>().join("; "))
}

/// The names of kernel rows, or their number if the names are too long.
fn listed(rows: &[&str]) -> String {
    let named = rows.join(", ");
    match named.len() <= NAMED_COLUMNS {
        true => named,
        false => count(rows.len(), "kernel row"),
    }
}

/// What the checker found: `holds`, or the number of the property that fails.
fn number_of(check: &CheckResult) -> &str {
    check.found.split(',').next().unwrap_or_default()
}

/// What fails in a part, if anything does.
fn failing(part: &PartResult) -> Option<String> {
    let fails = part.standings().filter(|standing| matches!(standing, Standing::DoesNot(_)));
    let fails = fails.count();
    (fails > 0).then(|| format!("{fails} in part {}", part.name))
}

/// The checker's result in words: `holds`, or the property that fails and its meaning.
pub(super) fn verdict(check: &CheckResult) -> String {
    let found = number_of(check);
    match Property::parse(found) {
        Some(property) => format!("fails {property}"),
        None => found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::RelationResult;
    use needless_scenario::Source;
    use needless_scenario::study::parse;

    fn check(row: &str, found: &str) -> CheckResult {
        CheckResult {
            name: "safe".to_owned(),
            test: "uffd-none".to_owned(),
            shown: String::new(),
            row: row.to_owned(),
            expected: "holds".to_owned(),
            found: found.to_owned(),
            states: Some(7),
            standing: Standing::Holds,
        }
    }

    #[test]
    fn a_single_row_is_not_named() {
        let told = |checks: &[CheckResult]| found(checks.iter()).unwrap();
        assert_eq!(told(&[check("5.10", "P8, 7 steps")]), "fails P8");
        assert_eq!(told(&[check("6.12", "holds")]), "holds");
        let two = [check("5.10", "P8, 7 steps"), check("6.1", "holds")];
        assert_eq!(told(&two), "fails P8 on 5.10; holds on 6.1");
        let many =
            ["5.10", "6.1", "6.12"].map(|row| check(&format!("{row}/riscv64-svadu"), "holds"));
        assert_eq!(told(&many), "holds on 3 kernel rows");
        let left_out = CheckResult {
            states: None,
            standing: Standing::NotHere("left out by -t".to_owned()),
            ..check("5.10", "?")
        };
        assert_eq!(found([left_out].iter()), Err("check: left out by -t".to_owned()));
    }

    /// A study whose part has these figures and margins of `price`.
    fn studied(answers: &str, figures: &[&str], margins: Vec<Margin>) -> Studied {
        let text = format!(
            "study \"s\" {{
                doc \"d\"
                source \"s\"
                takes \"t\"
                stated \"price\" 2 unit=\"us\" doc=\"d\" source=\"s\"
                stated \"unused\" 3 doc=\"d\" source=\"s\"
                {answers}
                part \"p\" {{ figure \"all\" is=\"2 * price\" doc=\"d\" }}
            }}"
        );
        let figure = |name: &&str| FigureResult {
            name: (*name).to_owned(),
            value: Ok(2.0),
            unit: String::new(),
            origin: String::new(),
            doc: String::new(),
        };
        let relation = RelationResult {
            text: "r".to_owned(),
            formula: "all > 1".to_owned(),
            sides: None,
            within: None,
            standing: Standing::Holds,
            margins,
            follows: String::new(),
        };
        let part = PartResult {
            name: "p".to_owned(),
            figures: figures.iter().map(figure).collect(),
            relations: vec![relation],
            ..PartResult::default()
        };
        Studied {
            study: parse(&Source::new("s", text), None).unwrap(),
            parts: vec![part],
            lost: Vec::new(),
            environment: BTreeMap::new(),
            seconds: 0.0,
        }
    }

    #[test]
    fn ranges_are_promised_only_where_there_are_some() {
        const ASKED: &str = "answer \"How much\" is=\"{price}.\"";
        let assumed = |answers: &str, figures: &[&str], margins| {
            let last = studied(answers, figures, margins).answers().pop().unwrap();
            (last.question, last.text.unwrap())
        };
        let told = |figures: &[&str], margins| assumed(ASKED, figures, margins).1;
        let margin = Margin { name: "price".to_owned(), value: 2.0, least: Some(1.0), most: None };
        assert_eq!(
            told(&["price"], Vec::new()),
            "price 2 us; no relation asks how far they may move"
        );
        assert_eq!(
            told(&["price"], vec![margin]),
            "price 2 us (from 1); every conclusion holds in these ranges"
        );
        assert_eq!(told(&["all"], Vec::new()), NOTHING_STATED);
        let own = format!("answer \"{ASSUMED}\" is=\"Copies cost what zeroing costs.\"\n{ASKED}");
        let expected = "Copies cost what zeroing costs.".to_owned();
        assert_eq!(assumed(&own, &["all"], Vec::new()), (ASSUMED.to_owned(), expected));
        assert_eq!(
            assumed(&own, &["price"], Vec::new()).1,
            "Copies cost what zeroing costs. price 2 us; no relation asks how far they may move"
        );
    }
}
