//! A study's report as Markdown.

use super::blocks::Block;
use super::{Studied, View};

/// The report as Markdown.
pub fn markdown(studied: &Studied, view: View) -> String {
    let mut text = String::new();
    for block in studied.blocks(view) {
        match block {
            Block::Heading(name, rest) => {
                let level = if text.is_empty() { "#" } else { "\n##" };
                text += &format!("{level} {}\n", escaped(&name));
                if !rest.is_empty() {
                    text += &format!("\n{}\n", escaped(&rest));
                }
                text.push('\n');
            }
            Block::Caption(line) => text += &format!("\n{}:\n\n", escaped(&line)),
            Block::Answer(question, answer) => {
                text += &format!("- **{}** {}\n", escaped(&question), escaped(&answer));
            }
            Block::Line(line) => text += &format!("- {}\n", escaped(line.trim_start())),
            Block::Table { header, rows, words } => {
                text += &row(&header);
                let rule = |at| if at < words { "---" } else { "--:" };
                let rule: Vec<String> = (0..header.len()).map(|at| rule(at).to_owned()).collect();
                text += &format!("|{}|\n", rule.join("|"));
                rows.iter().for_each(|cells| text += &row(cells));
                text.push('\n');
            }
        }
    }
    text
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A text without what Markdown would take for markup.
fn escaped(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        if matches!(c, '|' | '*' | '_' | '<' | '>' | '`' | '\\' | '~') {
            plain.push('\\');
        }
        plain.push(c);
    }
    plain
}
