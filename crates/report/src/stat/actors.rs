//! The work that the kernel does to the program on its own account, by actor. The figures are those
//! of the last run, because they belong to the machine and not to the program.

use super::{number, time};
use crate::style::Style;
use crate::table::plain_table;
use needless_watch::actors::Acted;
use needless_watch::observation::Events;

/// This part of the report.
pub(super) fn actors(seen: &[&Events], style: Style) -> String {
    let Some(rows) = seen.last().and_then(|events| events.actors.as_deref()) else {
        return String::new();
    };
    let last = if seen.len() > 1 { " (last run)" } else { "" };
    let header = [
        &*format!("by actor{last}"),
        "its work",
        "flushes sent",
        "interrupts",
        "time lost",
        "faults",
        "time of faults",
    ];
    let text = plain_table(&header, rows.iter().map(cells).collect(), 0..2, style) + "\n";
    let how = "its work: the kernel's count for the whole machine; flushes: of whosever memory; interrupts: of the watched program; faults: up to, where others may have caused them as well, ? where none can be told apart";
    let mut text = text + &style.dim(style.wrap(how, 2)) + "\n";
    for row in rows.iter().filter(|row| reached(row)) {
        for (what, said) in [("known by", row.evidence), ("remedy", row.remedy)] {
            let line = format!("{}, {what}: {said}", row.actor);
            text += &(style.dim(style.wrap(&line, 4)) + "\n");
        }
    }
    text
}

/// Whether the actor reached the program, by interrupts or by faults.
fn reached(row: &Acted) -> bool {
    row.interrupts > Some(0) || row.faults_at_most > Some(0)
}

fn cells(row: &Acted) -> Vec<String> {
    let shown = |figure: Option<u64>| figure.map_or_else(|| "?".to_owned(), number);
    let work = match row.active {
        Some(times) => format!("{} {}", number(times), row.counter),
        None => "?".to_owned(),
    };
    let at_most = match (row.faults, row.faults_at_most) {
        (Some(_), _) | (None, None | Some(0)) => "",
        (None, Some(_)) => "up to ",
    };
    let lost = match (row.interrupts, row.interrupts_ns) {
        (Some(0), None) => time(0),
        (_, lost) => lost.map_or_else(|| "?".to_owned(), time),
    };
    let faults_time = row.faults_ns_at_most.map_or_else(|| "?".to_owned(), time);
    let faults = row.faults_at_most.map_or_else(|| "?".to_owned(), number);
    vec![
        row.actor.to_owned(),
        work,
        shown(row.flushes),
        shown(row.interrupts),
        lost,
        format!("{at_most}{faults}"),
        format!("{at_most}{faults_time}"),
    ]
}
