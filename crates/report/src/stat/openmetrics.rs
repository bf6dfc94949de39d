//! The report of `needless stat` as OpenMetrics: one sample, of the whole time that was watched.
//!
//! Counters begin at 0 with the sample. Figures that are not visible have no family, and
//! `needless_not_visible` names what is missing. A family that is there has every figure. Families
//! do not depend on what was found, but labels do. Threads are not among the labels, because their
//! numbers would be new in each sample.

use super::Stat;
use needless_watch::Observation;
use needless_watch::interrupts::Held;
use needless_watch::observation::{Events, Faults, Finding, Interrupts, WaitedFor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write};

/// The kind of a family's figures.
#[derive(Copy, Clone)]
enum Kind {
    Counter,
    Gauge,
    Info,
}

/// A family that a report may have.
struct Family {
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    help: &'static str,
}

const fn family(name: &'static str, kind: Kind, help: &'static str) -> Family {
    Family { name, kind, unit: "", help }
}

const fn seconds(name: &'static str, kind: Kind, help: &'static str) -> Family {
    Family { name, kind, unit: "seconds", help }
}

/// All families, in the order of the report. docs/stat.md has the same table.
macro_rules! families {
    ($($id:ident = $make:ident($name:literal, $kind:ident, $help:literal);)*) => {
        $(const $id: Family = $make(concat!("needless_", $name), Kind::$kind, $help);)*
        #[cfg(test)]
        const ALL: &[&Family] = &[$(&$id),*];
    };
}

families! {
    RUN = family("run", Info, "What was watched, and the kernel.");
    SAMPLE = seconds("sample_seconds", Gauge, "How long it was watched.");
    STATUS = family("command_status", Gauge, "The command's exit status.");
    TASK_FAULTS = family("task_faults", Counter, "Page faults as the kernel counted them for the tasks.");
    TASK_CPU = seconds("task_cpu_seconds", Counter, "CPU time of the tasks.");
    FAULTS = family("faults", Counter, "Page-fault exceptions by class.");
    FAULT_TIME = seconds("fault_seconds", Counter, "Time from exception to end of fault, watching included.");
    FAULT_WAITS = family("fault_waits", Counter, "How often faults left their CPU to wait for something (--waits).");
    FAULT_WAITED = seconds("fault_wait_seconds", Counter, "How long they were away for that (--waits).");
    WITHOUT = family("faults_without_exception", Counter, "Faults that the kernel counted and no processor took.");
    FLUSHES = family("flushes", Counter, "TLB flushes by cause; sent: other CPUs were asked.");
    FULL = family("full_flushes", Counter, "Of these, those of everything.");
    PAGES = family("flushed_pages", Counter, "Pages that the others covered.");
    FLUSH_INTERRUPTS = family("flush_interrupts", Counter, "Interrupts that flushes caused.");
    LOWER_BOUND = family("flushes_lower_bound", Gauge, "1 if flushes are sent that no event tells, so that those counted are a lower bound.");
    SWITCHES = family("address_space_switches", Counter, "Switches away from watched threads to another address space.");
    INTERRUPTS = family("interrupts", Counter, "Interrupts from one CPU to another, by what they asked for and what the sender was doing.");
    UNINTERRUPTED = family("uninterrupted_calls", Counter, "Requests without an interrupt: an idle CPU looked for itself, or a kernel thread did it.");
    INTERRUPT_TIME = seconds("interrupt_seconds", Counter, "Time lost by interrupted tasks: the median of those timed, times their number.");
    COUNTED = family("kernel_interrupts", Counter, "Interrupts as the kernel counted them, by line of /proc/interrupts and CPU.");
    SEEN = family("recorded_interrupts", Counter, "Of these, those recorded.");
    NEEDLESS = family("needless", Counter, "What was needless, by kind and cause.");
    TOGGLES = family("protection_changes", Counter, "Changes of the protection of single pages to and fro, which may be barriers.");
    GUARD_REACHED = family("guarded_cpu_reached", Counter, "What reached a guarded CPU.");
    GUARD_CAUSES = family("guarded_reached", Counter, "What reached guarded CPUs, by cause.");
    GUARD_LONGEST = seconds("guarded_cpu_longest_undisturbed_seconds", Gauge, "The longest time that a guarded CPU was left alone.");
    VMSTAT = family("vmstat", Counter, "Counters of /proc/vmstat: the whole machine's, whoever caused it.");
    NOT_VISIBLE = family("not_visible", Gauge, "What this kernel or user does not show, and what the report lacks for it.");
    RECORDS = family("records", Counter, "Records read.");
    LOST = family("lost_records", Counter, "Records lost.");
    READER = seconds("reader_seconds", Counter, "CPU time of the reader.");
}

/// The labels of a sample.
type Labels<'a> = &'a [(&'a str, &'a dyn Display)];

/// A report that is being written.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// A family's samples. There are none if the family is not visible.
    fn write(&mut self, family: &Family, samples: impl FnOnce(&mut Samples<'_>) -> fmt::Result) {
        let Family { name, kind, unit, help } = *family;
        let kind_name = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        };
        let mut written = writeln!(self.text, "# TYPE {name} {kind_name}");
        if !unit.is_empty() {
            written = written.and(writeln!(self.text, "# UNIT {name} {unit}"));
        }
        written = written.and(writeln!(self.text, "# HELP {name} {help}"));
        let suffix = match kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        };
        let mut all = Samples { text: &mut self.text, name, suffix };
        // Writing to a string does not fail.
        let _ = written.and_then(|()| samples(&mut all));
    }

    fn count(&mut self, family: &Family, value: Option<u64>) {
        if let Some(value) = value {
            self.write(family, |samples| samples.add(&[], value));
        }
    }
}

struct Samples<'a> {
    text: &'a mut String,
    name: &'static str,
    suffix: &'static str,
}

impl Samples<'_> {
    fn add(&mut self, labels: Labels<'_>, value: impl Display) -> fmt::Result {
        write!(self.text, "{}{}", self.name, self.suffix)?;
        let mut before = '{';
        for (label, value) in labels {
            write!(self.text, "{before}{label}=\"{}\"", escaped(&value.to_string()))?;
            before = ',';
        }
        let after = if labels.is_empty() { "" } else { "}" };
        writeln!(self.text, "{after} {value}")
    }

    fn add_time(&mut self, labels: Labels<'_>, ns: u64) -> fmt::Result {
        self.add(labels, ns as f64 / 1e9)
    }
}

/// A label's value: the format escapes these three.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The report of the last run.
pub fn openmetrics(stat: &Stat<'_>) -> String {
    let mut page = Page::default();
    if let Some(run) = stat.runs.last() {
        let kernel = stat.environment.get("kernel.release").map_or("unknown", String::as_str);
        page.write(&RUN, |samples| {
            samples.add(&[("subject", &stat.subject), ("kernel", &kernel)], 1)
        });
        page.write(&SAMPLE, |samples| samples.add_time(&[], run.elapsed_ns));
        page.count(&STATUS, run.status.map(u64::from));
        usage(&mut page, run);
        if let Some(events) = &run.events {
            match &events.guard {
                Some(_) => guard(&mut page, events),
                None => programs(&mut page, events),
            }
            counted(&mut page, events.counted_interrupts.as_deref());
        }
        machine(&mut page, run);
    }
    page.text + "# EOF\n"
}

fn usage(page: &mut Page, run: &Observation) {
    let Some(usage) = run.usage else { return };
    page.write(&TASK_FAULTS, |samples| {
        samples.add(&[("kind", &"minor")], usage.minor_faults)?;
        samples.add(&[("kind", &"major")], usage.major_faults)
    });
    page.write(&TASK_CPU, |samples| {
        samples.add_time(&[("mode", &"user")], usage.user_ns)?;
        samples.add_time(&[("mode", &"system")], usage.system_ns)
    });
}

fn programs(page: &mut Page, events: &Events) {
    faults(page, events);
    flushes(page, events);
    if let Some(rows) = &events.interrupts {
        interrupts(page, rows);
    }
    if let Some(findings) = &events.needless {
        needless(page, findings);
    }
    if let Some(rows) = &events.toggled {
        page.write(&TOGGLES, |samples| {
            rows.iter().try_for_each(|row| {
                let labels: Labels<'_> = &[
                    ("process", &row.process.name),
                    ("pid", &row.process.tid.unwrap_or(0)),
                    ("used_as", &row.used_as),
                ];
                samples.add(labels, row.times)
            })
        });
    }
}

fn faults(page: &mut Page, events: &Events) {
    let mut each = |family: &Family, figure: fn(&Faults) -> Option<u64>| {
        if !events.faults.iter().all(|row| figure(row).is_some()) {
            return;
        }
        page.write(family, |samples| {
            events.faults.iter().try_for_each(|row| {
                let confidence = format!("{:?}", row.confidence).to_lowercase();
                let labels: Labels<'_> =
                    &[("class", &row.class), ("rule", &row.label), ("confidence", &confidence)];
                let value = figure(row).unwrap_or_default();
                match family.unit {
                    "seconds" => samples.add_time(labels, value),
                    _ => samples.add(labels, value),
                }
            })
        });
    };
    each(&FAULTS, |row| Some(row.faults));
    each(&FAULT_TIME, |row| row.time_ns);
    waits(page, &events.faults);
    page.count(&WITHOUT, events.faults_without_exception);
}

fn waits(page: &mut Page, faults: &[Faults]) {
    if faults.iter().any(|row| row.waited_for.is_none()) {
        return;
    }
    let mut each = |family: &Family, figure: fn(&WaitedFor) -> u64| {
        page.write(family, |samples| {
            let rows = faults
                .iter()
                .flat_map(|row| row.waited_for.iter().flatten().map(move |waited| (row, waited)));
            rows.into_iter().try_for_each(|(row, waited)| {
                let function = waited.function.as_deref().unwrap_or_default();
                let labels: Labels<'_> = &[
                    ("class", &row.class),
                    ("rule", &row.label),
                    ("waited_for", &waited.what),
                    ("function", &function),
                ];
                match family.unit {
                    "seconds" => samples.add_time(labels, figure(waited)),
                    _ => samples.add(labels, figure(waited)),
                }
            })
        });
    };
    each(&FAULT_WAITS, |waited| waited.waits);
    each(&FAULT_WAITED, |waited| waited.waited_ns);
}

fn flushes(page: &mut Page, events: &Events) {
    if let Some(rows) = &events.flushes {
        page.write(&FLUSHES, |samples| {
            rows.iter().try_for_each(|row| {
                samples.add(&[("cause", &row.cause), ("kind", &"sent")], row.sent)?;
                samples.add(&[("cause", &row.cause), ("kind", &"local")], row.local)
            })
        });
        let mut each = |family, figure: fn(&needless_watch::observation::Flushes) -> u64| {
            page.write(family, |samples| {
                rows.iter().try_for_each(|row| samples.add(&[("cause", &row.cause)], figure(row)))
            });
        };
        each(&FULL, |row| row.full);
        each(&PAGES, |row| row.pages);
        each(&FLUSH_INTERRUPTS, |row| row.interrupts);
        page.count(&LOWER_BOUND, Some(u64::from(events.flushes_at_least)));
    }
    if let (Some(flushed), Some(kept)) = (events.switches_flushed, events.switches_kept) {
        page.write(&SWITCHES, |samples| {
            samples.add(&[("flushed", &"yes")], flushed)?;
            samples.add(&[("flushed", &"no")], kept)
        });
    }
}

/// The sum over several threads.
#[derive(Default)]
struct Sum {
    interrupts: u64,
    uninterrupted: u64,
    lost_ns: Option<u64>,
}

/// The labels without threads: `asked` and `cause`, and the kind of the sender.
fn interrupts(page: &mut Page, rows: &[Interrupts]) {
    let mut sums: BTreeMap<(&str, &str, &str), Sum> = BTreeMap::new();
    for row in rows {
        let sender = match (row.from.tid, row.from.kernel_thread) {
            (Some(_), true) => row.from.name.as_str(),
            (Some(_), false) => "a thread",
            (None, _) => row.from.name.as_str(),
        };
        let sum = sums.entry((row.asked, row.cause.as_str(), sender)).or_default();
        sum.interrupts += row.interrupts;
        sum.uninterrupted += row.uninterrupted;
        if let Some(lost) = row.lost_ns {
            *sum.lost_ns.get_or_insert(0) += lost;
        }
    }
    let mut each = |family, figure: fn(&Sum) -> u64| {
        page.write(family, |samples| {
            sums.iter().try_for_each(|((asked, cause, sender), sum)| {
                let labels: Labels<'_> = &[("asked", asked), ("cause", cause), ("sender", sender)];
                samples.add(labels, figure(sum))
            })
        });
    };
    each(&INTERRUPTS, |sum| sum.interrupts);
    each(&UNINTERRUPTED, |sum| sum.uninterrupted);
    page.write(&INTERRUPT_TIME, |samples| {
        sums.iter().try_for_each(|((asked, cause, sender), sum)| match sum.lost_ns {
            Some(lost) => {
                samples.add_time(&[("asked", asked), ("cause", cause), ("sender", sender)], lost)
            }
            None => Ok(()),
        })
    });
}

fn needless(page: &mut Page, findings: &[Finding]) {
    page.write(&NEEDLESS, |samples| {
        findings.iter().try_for_each(|row| {
            for (confidence, times) in
                [("certain", row.certain), ("likely", row.times - row.certain)]
            {
                let labels: Labels<'_> =
                    &[("what", &row.what), ("cause", &row.cause), ("confidence", &confidence)];
                samples.add(labels, times)?;
            }
            Ok(())
        })
    });
}

fn guard(page: &mut Page, events: &Events) {
    let Some(guard) = &events.guard else { return };
    let came = |samples: &mut Samples<'_>,
                label: (&str, &dyn Display),
                came: &needless_watch::guarded::Came| {
        let hows = [
            ("interrupt", came.interrupts),
            ("same_interrupt", came.same_interrupt),
            ("kernel_thread", came.kernel_threads),
            ("polled", came.polled),
        ];
        hows.into_iter().try_for_each(|(how, times)| samples.add(&[label, ("how", &how)], times))
    };
    page.write(&GUARD_REACHED, |samples| {
        guard.cpus.iter().try_for_each(|row| came(samples, ("cpu", &row.cpu), &row.came))
    });
    page.write(&GUARD_CAUSES, |samples| {
        guard.causes.iter().try_for_each(|row| came(samples, ("cause", &row.cause), &row.came))
    });
    page.write(&GUARD_LONGEST, |samples| {
        guard.cpus.iter().try_for_each(|row| samples.add_time(&[("cpu", &row.cpu)], row.longest_ns))
    });
}

fn counted(page: &mut Page, held: Option<&[Held]>) {
    let Some(held) = held else { return };
    page.write(&COUNTED, |samples| {
        held.iter().try_for_each(|row| {
            samples.add(&[("line", &row.line.name()), ("cpu", &row.cpu)], row.counted)
        })
    });
    page.write(&SEEN, |samples| {
        let seen = held.iter().filter_map(|row| Some((row, row.seen?)));
        seen.into_iter().try_for_each(|(row, seen)| {
            samples.add(&[("line", &row.line.name()), ("cpu", &row.cpu)], seen)
        })
    });
}

fn machine(page: &mut Page, run: &Observation) {
    if let Some(vmstat) = &run.machine.vmstat {
        page.write(&VMSTAT, |samples| {
            vmstat.iter().try_for_each(|(name, value)| samples.add(&[("name", name)], value))
        });
    }
    page.write(&NOT_VISIBLE, |samples| {
        let rows: BTreeSet<(&str, &str)> =
            run.missing.iter().map(|row| (row.what.as_str(), row.lacks.as_str())).collect();
        rows.iter()
            .try_for_each(|(what, lacks)| samples.add(&[("what", what), ("lacks", lacks)], 1))
    });
    let Some(watching) = run.events.as_ref().map(|events| events.watching) else { return };
    page.count(&RECORDS, Some(watching.records));
    page.write(&LOST, |samples| {
        samples.add(&[("about", &"everything")], watching.lost)?;
        samples.add(&[("about", &"freed pages")], watching.lost_frees)
    });
    page.write(&READER, |samples| samples.add_time(&[], watching.reader_ns));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_unit_and_are_in_the_documentation() {
        let documented = include_str!("../../../../docs/stat.md");
        for Family { name, unit, .. } in ALL {
            assert!(unit.is_empty() || name.ends_with(&format!("_{unit}")), "{name}");
            assert!(documented.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.write(&RUN, |samples| samples.add(&[("subject", &"a \"b\" \\ \n")], 1));
        assert!(page.text.ends_with("needless_run_info{subject=\"a \\\"b\\\" \\\\ \\n\"} 1\n"));
    }
}
