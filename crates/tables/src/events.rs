//! One row for each event.

use crate::TableError;
use crate::columns::{Columns, counted, named};
use arrow_array::RecordBatch;
use needless_model::account::thread_name;
use needless_model::addr::Vpn;
use needless_model::event::{Event, EventKind};
use needless_model::program::Program;
use needless_report::Style;
use needless_report::explain::what;

/// An event, and where it was seen.
#[derive(Copy, Clone, Debug)]
pub struct Seen<'a> {
    /// The target's name.
    pub target: &'a str,
    /// The round's number.
    pub round: u32,
    /// The event.
    pub event: Event,
}

impl Seen<'_> {
    /// The page that it is about.
    fn page(&self) -> Option<Vpn> {
        match self.event.kind {
            EventKind::Fault { page, .. }
            | EventKind::FaultDone { page, .. }
            | EventKind::FaultRetry { page, .. }
            | EventKind::FaultAgain { page, .. }
            | EventKind::FaultCompleted { page }
            | EventKind::MayFault { page }
            | EventKind::Copy { page, .. }
            | EventKind::Zero { page, .. }
            | EventKind::PageIn { page, .. }
            | EventKind::PageOut { page, .. }
            | EventKind::Split { page, .. }
            | EventKind::Pte { page, .. }
            | EventKind::Told { page, .. }
            | EventKind::PageStatus { page, .. } => Some(page),
            EventKind::Free { .. }
            | EventKind::Flush { .. }
            | EventKind::TableSync { .. }
            | EventKind::Tlbi { .. }
            | EventKind::Dsb { .. }
            | EventKind::Switch { .. }
            | EventKind::Mark { .. }
            | EventKind::RoundStart { .. }
            | EventKind::RoundEnd { .. }
            | EventKind::MeasureStart
            | EventKind::MeasureEnd => None,
        }
    }

    /// How many pages it is about, and whether a flush is of everything.
    fn pages(&self) -> (Option<u64>, Option<bool>) {
        match self.event.kind {
            EventKind::Flush { pages, .. } | EventKind::Tlbi { pages, .. } => {
                (pages.map(u64::from), Some(pages.is_none()))
            }
            EventKind::Told { pages, .. } => (Some(u64::from(pages)), None),
            _ => (self.page().map(|_| 1), None),
        }
    }

    /// What a fault turned out to be, or why a flush was done.
    fn class(&self) -> Option<&'static str> {
        match self.event.kind {
            EventKind::FaultDone { class, .. } => Some(class.name()),
            EventKind::Flush { reason, .. } => Some(reason.into()),
            EventKind::Tlbi { operation, .. } => Some(operation.name()),
            EventKind::Dsb { barrier, .. } => Some(barrier.name()),
            _ => None,
        }
    }
}

/// The events of some rounds of `program`, in their order.
pub fn events(program: &Program, seen: &[Seen<'_>]) -> Result<RecordBatch, TableError> {
    let mut columns = Columns::default();
    columns
        .texts(named("scenario", "the scenario's name"), seen.iter().map(|_| Some(&program.name)));
    columns.texts(named("target", "the target's name"), seen.iter().map(|seen| Some(seen.target)));
    columns.numbers(
        named("round", "the round's number, from 0 after the warm-up"),
        seen.iter().map(|seen| Some(u64::from(seen.round))),
    );
    columns.numbers(
        named("event", "the event's number in the run"),
        seen.iter().map(|seen| Some(seen.event.seq)),
    );
    columns.numbers(
        counted("time_ns", "nanoseconds", "CLOCK_MONOTONIC_RAW; the model has no clock"),
        // The record has 0 where there is no clock.
        seen.iter().map(|seen| Some(seen.event.time_ns).filter(|time| *time > 0)),
    );
    columns.numbers(
        named("cpu", "the CPU where it happened"),
        seen.iter().map(|seen| Some(u64::from(seen.event.cpu.0))),
    );
    columns.texts(
        named("thread", "the scenario's thread that ran there"),
        seen.iter().map(|seen| {
            let thread = seen.event.thread?;
            Some(thread_name(program, Some(thread)))
        }),
    );
    columns.texts(
        named("operation", "the scenario's operation that the thread was in"),
        seen.iter().map(|seen| {
            let text = program.op_texts.get(seen.event.op? as usize)?;
            Some(text.lines().next()?.trim())
        }),
    );
    columns.texts(
        named("kind", "the kind of event, as in the record of --events"),
        seen.iter().map(|seen| Some(<&'static str>::from(seen.event.kind))),
    );
    columns.texts(
        named("what", "the event in words, as explain has them"),
        seen.iter().map(|seen| Some(what(program, &seen.event, Style::PLAIN))),
    );
    columns.texts(
        named("page", "the page that it is about: heap[3], or an address"),
        seen.iter().map(|seen| {
            let page = seen.page()?;
            Some(program.page_name(page).unwrap_or_else(|| page.to_string()))
        }),
    );
    columns.numbers(
        counted("pages", "pages", "how many pages it is about; null for a flush of everything"),
        seen.iter().map(|seen| seen.pages().0),
    );
    columns.flags(
        named("everything", "whether a flush is of the whole address space"),
        seen.iter().map(|seen| seen.pages().1),
    );
    columns.texts(
        named(
            "class",
            "what a fault turned out to be; why a flush was done, or by which instruction",
        ),
        seen.iter().map(Seen::class),
    );
    columns.flags(
        named("needless", "whether it could have been left out"),
        seen.iter().map(|seen| Some(seen.event.verdict?.is_needless())),
    );
    columns.texts(
        named("verdict", "why it was needed or not"),
        seen.iter().map(|seen| Some(seen.event.verdict?.reason.text())),
    );
    columns.numbers(
        named("caused_by", "the event without which it would not have happened"),
        seen.iter().map(|seen| seen.event.verdict?.caused_by),
    );
    columns.texts(
        named("function", "the kernel's function"),
        seen.iter().map(|seen| Some(seen.event.site?.function())),
    );
    columns.texts(
        named("file", "the kernel's source file, named as in 6.12"),
        seen.iter().map(|seen| Some(seen.event.site?.file())),
    );
    columns.finish("events", None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use needless_model::kernels::KernelRow;
    use needless_model::sim::{self, SimOptions};
    use needless_scenario::{Settings, compile, load};

    #[test]
    fn an_event_has_its_verdict_and_its_function() {
        let settings: Settings = [("rounds", "1")].into_iter().collect();
        let program = compile(&load("cow-reuse").unwrap(), &settings).unwrap();
        let row = KernelRow::parse("5.10").unwrap();
        let run = sim::run(&program, &row, &SimOptions::default()).unwrap();
        let target = "model:5.10";
        let seen =
            run.rounds[0].events.iter().map(|event| Seen { target, round: 0, event: *event });
        let seen: Vec<Seen<'_>> = seen.collect();
        let table = events(&program, &seen).unwrap();
        assert_eq!(table.num_rows(), run.rounds[0].events.len());
        let texts = |name: &str| table.column_by_name(name).unwrap().as_string::<i32>().clone();
        let kinds = texts("kind");
        let copy = kinds.iter().position(|kind| kind == Some("copy")).unwrap();
        assert_eq!(texts("page").value(copy), "heap[0]");
        let needless = table.column_by_name("needless").unwrap().as_boolean();
        assert!(needless.value(copy), "5.10 copies a page that nobody shares");
        assert!(texts("file").value(copy).starts_with("mm/"));
        assert!(table.column_by_name("time_ns").unwrap().is_null(copy));
    }

    #[test]
    fn kinds_are_named_as_in_the_record() {
        let kinds = [EventKind::MeasureStart, EventKind::RoundEnd { round: 1 }];
        for kind in kinds {
            let name = <&'static str>::from(kind);
            assert!(serde_json::to_string(&kind).unwrap().contains(&format!("\"{name}\"")));
        }
    }
}
