//! A study's report as text.

use super::blocks::Block;
use super::{Studied, View};
use crate::style::Style;
use crate::table::plain_table;
use needless_scenario::study::Study;

/// The report as text.
pub fn text(studied: &Studied, view: View, style: Style) -> String {
    let mut text = String::new();
    for block in studied.blocks(view) {
        match block {
            Block::Heading(name, rest) => {
                let gap = if text.is_empty() { "" } else { "\n" };
                let colon = if rest.is_empty() { "" } else { ": " };
                let line = format!("{}{colon}{rest}", style.bold(name));
                text += &format!("{gap}{}\n", style.wrap(&style.charset(&line), 4));
            }
            Block::Caption(line) => text += &format!("\n{}\n", style.wrap(&line, 4)),
            Block::Answer(question, answer) => {
                let line = format!("{} {answer}", style.bold(question));
                text += &format!("{}\n", style.wrap(&style.charset(&line), 2));
            }
            Block::Line(line) => text += &format!("{}\n", style.wrap(&style.charset(&line), 6)),
            Block::Table { header, rows, words } => {
                let header: Vec<&str> = header.iter().map(String::as_str).collect();
                let rows: Vec<Vec<String>> = rows
                    .into_iter()
                    .map(|row| row.iter().map(|cell| style.charset(cell)).collect())
                    .collect();
                text += &plain_table(&header, rows, 0..words, style);
                text.push('\n');
            }
        }
    }
    text
}

/// The list of studies.
pub fn list_text(studies: &[Study], style: Style) -> String {
    let width = studies.iter().map(|study| study.name.len()).max().unwrap_or(0);
    let line = |study: &Study| {
        let parts: Vec<&str> = study.parts.iter().map(|part| part.name.as_str()).collect();
        let doc = study.doc.first().map_or("", String::as_str);
        let first = style.wrap(&format!("{:width$}  {doc}", study.name), width + 2);
        let second = format!("{:width$}  parts: {}; takes {}", "", parts.join(", "), study.takes);
        format!("{first}\n{}\n", style.wrap(&second, width + 2))
    };
    studies.iter().map(line).collect()
}
