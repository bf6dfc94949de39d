//! What all pages have in common: the answer first, then the picture, the tables, and how the page
//! was made.

use super::embed;
use crate::style::Style;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use needless_model::foreign;
use serde_json::Value;
use std::collections::BTreeMap;

const CSS: &str = include_str!("page.css");
const STEPPER: &str = include_str!("stepper.js");

/// Nothing is loaded from anywhere, whatever a page's text says.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// Text that is laid out by the browser: lines are as long as they are.
pub(super) const LINES: Style = Style { color: false, unicode: true, width: u16::MAX };

/// Text that is laid out here, for a terminal.
pub(super) const LAID_OUT: Style = Style { color: false, unicode: true, width: 110 };

/// How a page was made.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// The command that makes it again.
    pub command: String,
    /// Which version of the program made it.
    pub version: String,
    /// Commands that tell more, each with what it tells.
    pub next: Vec<(String, String)>,
}

/// The parts of a page.
pub(super) struct Page<'a> {
    /// What it is about.
    pub title: String,
    /// What the first screen says.
    pub answer: Markup,
    /// What is shown of it.
    pub picture: Markup,
    /// All figures.
    pub tables: Markup,
    /// Machines, by what ran there.
    pub machines: Vec<(&'a str, &'a BTreeMap<String, String>)>,
    /// The raw data.
    pub document: Value,
    /// What of the raw data may go if it is too large, in order.
    pub may_go: &'a [&'a str],
    /// Whether something on it moves.
    pub moves: bool,
}

impl Page<'_> {
    /// The whole page.
    pub(super) fn render(self, made: &Made) -> String {
        let embed::Fitted { document, left_out } = embed::fit(self.document, self.may_go);
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    link rel="icon" href="data:,";
                    title { (self.title) }
                    style { (PreEscaped(CSS)) }
                }
                body {
                    a class="skip" href="#tables" { "Skip to the tables" }
                    main {
                        header id="answer" {
                            h1 { (self.title) }
                            (self.answer)
                        }
                        section id="picture" aria-label="Picture" { (self.picture) }
                        section id="tables" aria-label="Tables" tabindex="-1" { (self.tables) }
                        (how(made, &self.machines, &left_out))
                    }
                    script type="application/json" id="data" {
                        (PreEscaped(embed::script(&document)))
                    }
                    @if self.moves { script { (PreEscaped(STEPPER)) } }
                }
            }
        };
        // The outer door for text that others chose.
        foreign::output(&page.into_string(), false).into_owned()
    }
}

/// The last part of a page: what makes it again, and where it was made.
fn how(made: &Made, machines: &[(&str, &BTreeMap<String, String>)], left_out: &[String]) -> Markup {
    html! {
        section id="made" aria-labelledby="made-heading" {
            h2 id="made-heading" { "How this page was made" }
            (code(&made.command))
            p { "Version: " (made.version) }
            @for (what, command) in &made.next {
                p { (what) ":" }
                (code(command))
            }
            @for (name, machine) in machines {
                details {
                    summary { "The machine of " (name) }
                    (pairs(machine))
                }
            }
            p {
                "The raw data is in this file, as JSON, in the element with the id "
                code { "data" } "."
                @if !left_out.is_empty() {
                    " To keep the file small, these are left out, which "
                    code { "--format json" } " has: " (some(left_out)) "."
                }
            }
        }
    }
}

/// The most names that a sentence lists.
const NAMES: usize = 12;

fn some(names: &[String]) -> String {
    let shown = &names[..names.len().min(NAMES)];
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn code(command: &str) -> Markup {
    html! { pre tabindex="0" { code { (command) } } }
}

fn pairs(map: &BTreeMap<String, String>) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="The machine" {
            table {
                tbody {
                    @for (name, value) in map { tr { th scope="row" { (name) } td { (value) } } }
                }
            }
        }
    }
}

/// Sentences, an item each.
pub(super) fn list<S: AsRef<str>>(lines: impl IntoIterator<Item = S>) -> Markup {
    let lines: Vec<S> = lines.into_iter().collect();
    html! {
        @if !lines.is_empty() {
            ul class="lines" { @for line in &lines { li { (line.as_ref().trim()) } } }
        }
    }
}

/// Text that was laid out here.
pub(super) fn laid_out(text: &str, name: &str) -> Markup {
    html! {
        @if !text.trim().is_empty() {
            pre class="scroll" tabindex="0" role="region" aria-label=(name) { (text.trim_end()) }
        }
    }
}

/// A cell of a table.
pub(super) enum Cell {
    /// Words alone.
    Words(String),
    /// A figure: its text, its place in the raw data, and what stands behind it.
    Figure {
        /// The text of the figure.
        text: String,
        /// The JSON pointer of the figure.
        at: String,
        /// A mark, a range, or nothing.
        more: String,
    },
    /// A figure with fewer digits than the raw data has.
    Rounded {
        /// The text of the figure.
        text: String,
        /// The JSON pointer of the figure.
        at: String,
    },
}

impl Cell {
    /// A figure without anything behind it; `None`: it is unknown.
    pub(super) fn figure(value: Option<u64>, at: String) -> Cell {
        let text = value.map_or_else(|| "?".to_owned(), |value| value.to_string());
        Cell::Figure { text, at, more: String::new() }
    }

    pub(super) fn words(words: impl Into<String>) -> Cell {
        Cell::Words(words.into())
    }
}

/// A table with its caption. The first column names the rows.
pub(super) fn table(caption: &str, head: &[String], rows: &[Vec<Cell>]) -> Markup {
    let cell = |at: usize, cell: &Cell| match cell {
        Cell::Words(words) if at == 0 => html! { th scope="row" { (words) } },
        Cell::Words(words) => html! { td { (words) } },
        Cell::Figure { text, at, more } => html! {
            td class="figure" {
                span data-json=(at) { (text) }
                @if !more.is_empty() { " " span class="more" { (more) } }
            }
        },
        Cell::Rounded { text, at } => html! {
            td class="figure" { span data-rounded=(at) { (text) } }
        },
    };
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for name in head { th scope="col" { (name) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (at, content) in row.iter().enumerate() { (cell(at, content)) } }
                    }
                }
            }
        }
    }
}

/// A table of text alone.
pub(super) fn words(caption: &str, head: &[String], rows: &[Vec<String>]) -> Markup {
    let row = |row: &Vec<String>| row.iter().cloned().map(Cell::Words).collect();
    table(caption, head, &rows.iter().map(row).collect::<Vec<Vec<Cell>>>())
}

/// A name as a step of a JSON pointer (RFC 6901).
pub(super) fn step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
