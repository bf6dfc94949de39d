//! Writes the text of a case. Writing also tests whether every operation is permitted where it is.

use super::operations::{Effect, FEATURES, Needs, Operation, with_effect};
use super::state::{MAP, Pages, State};
use super::{ACTORS, AreaPlan, Case, FILE, Idle, Life, Memory, NAMES, PROCESSES, Place, Step};
use needless_model::program::{Mthp, MthpMode};
use std::fmt::Write as _;
use std::ops::Range;

/// Where areas lie that are placed by hand. Areas placed by default are further down.
const PLACES: [u64; 2] = [0x7100_0000_0000, 0x7200_0000_0000];

/// The size that one last-level page table maps, in MiB, and the size of a page, in KiB.
const TABLE_MIB: u64 = 2;
const PAGE_KIB: usize = 4;

impl Case {
    /// The scenario's text; `None` if an operation is not permitted where it is.
    pub fn text(&self) -> Option<String> {
        let state = State::new(&self.areas, self.operations()).with(self.uffd());
        let state = if self.one_mapping { state.collapses_one_mapping() } else { state };
        let mut writer = Writer { state, ..Writer::default() };
        for (number, area) in self.areas.iter().enumerate() {
            writer.declare(number, area);
        }
        writer.steps(&self.setup, 0)?;
        let setup = std::mem::take(&mut writer.lines);
        writer.turns = Default::default();
        writer.neutral(&self.body, 0)?;
        Some(self.layout(&setup, &writer))
    }

    /// The line that declares the file, if an area maps it. The file is as large as the areas need.
    fn file(&self) -> String {
        let end = |area: &AreaPlan| match area.memory {
            Memory::File { first, .. } => Some(first + area.pages),
            Memory::Private | Memory::Shared => None,
        };
        let on_disk = |area: &AreaPlan| matches!(area.memory, Memory::File { disk: true, .. });
        let disk = self.areas.iter().any(on_disk);
        let fs = if disk { "ext4" } else { "tmpfs" };
        let content = if self.holes { " content=\"holes\"" } else { "" };
        let writes = match self.write_pages {
            1 => String::new(),
            pages => format!(" write-pages={pages}"),
        };
        let pages = self.areas.iter().filter_map(end).max();
        pages.map_or_else(String::new, |pages| {
            format!("    file \"{FILE}\" fs=\"{fs}\" pages={pages}{content}{writes}\n\n")
        })
    }

    fn layout(&self, setup: &[String], writer: &Writer) -> String {
        let (name, rounds, warmup) = (&self.name, self.rounds, self.warmup);
        let file = self.file();
        let mut text = format!("scenario \"{name}\" {{\n{file}    machine {{\n");
        let cpus = self.company.cpus();
        let _ = writeln!(text, "        cpus {}", self.cpus_of_nodes.unwrap_or(cpus));
        if self.cpus_of_nodes.is_some() {
            text += "        nodes 2\n";
        }
        if self.swap {
            text += "        swap \"zram\" size=\"64M\"\n";
        }
        let thp = self.thp.word();
        let _ = writeln!(text, "        thp \"{thp}\"");
        for (order, mode) in self.mthp.iter().flat_map(|mthp| mthp.orders()) {
            if mode != MthpMode::Never {
                let (size, mode) = (Mthp::size_of(order), mode.word());
                let _ = writeln!(text, "        mthp \"{size}\" \"{mode}\"");
            }
        }
        let _ = writeln!(text, "    }}\n\n    thread \"main\" cpu=0 {{");
        indent(&mut text, 2, setup);
        let _ = writeln!(text, "        rounds {rounds} warmup={warmup} {{");
        indent(&mut text, 3, &writer.lines);
        text += "        }\n    }\n";
        let times = rounds + warmup;
        for (number, lines) in writer.turns.iter().enumerate().take(self.company.acting) {
            let (name, cpu) = (ACTORS[number].0, number + 1);
            let _ = writeln!(text, "\n    thread \"{name}\" cpu={cpu} {{");
            let _ = writeln!(text, "        repeat {times} {{");
            indent(&mut text, 3, lines);
            text += "        }\n    }\n";
        }
        for (number, process) in writer.processes.iter().enumerate().take(self.company.processes) {
            let (name, cpu) = (PROCESSES[number].0, number + 1 + self.company.acting);
            let _ = writeln!(text, "\n    process \"{name}\" cpu={cpu} {{");
            indent(&mut text, 2, &process.lines);
            text += "    }\n";
        }
        if let Some(idle) = self.company.idle {
            let [to, from] = NAMES;
            let answers = match self.uffd().moves {
                true => format!("uffd-serve by=\"move\" from=\"{from}\" to=\"{to}\""),
                false => "uffd-serve by=\"copy\"".to_owned(),
            };
            let (name, line) = match idle {
                Idle::Spinner => ("spinner", "spin"),
                Idle::Sleeper => ("sleeper", "sleep"),
                Idle::Handler => ("handler", &*answers),
            };
            let _ = writeln!(text, "\n    thread \"{name}\" cpu={} {{ {line} }}", cpus - 1);
        }
        text + "}\n"
    }
}

/// These pages of the area or file with this name.
fn within(name: &str, range: &Range<usize>) -> String {
    match range.len() {
        1 => format!("{name}[{}]", range.start),
        _ => format!("{name}[{}..{}]", range.start, range.end),
    }
}

/// The properties of `map` that say what an area maps.
fn memory(memory: Memory) -> String {
    match memory {
        Memory::Private => String::new(),
        Memory::Shared => " backing=\"shared\"".to_owned(),
        Memory::File { first, shared, .. } => {
            let backing = if shared { " backing=\"shared\"" } else { "" };
            format!(" file=\"{FILE}\" offset={first}{backing}")
        }
    }
}

/// The state after a step that is done in `state`; `None` if the step is not permitted there.
pub(super) fn after(state: &State, step: &Step) -> Option<State> {
    let mut writer = Writer { state: state.clone(), ..Writer::default() };
    writer.step(step, 0)?;
    Some(writer.state)
}

fn indent(text: &mut String, level: usize, lines: &[String]) {
    for line in lines {
        let _ = writeln!(text, "{:1$}{line}", "", level * 4);
    }
}

/// A forked process.
#[derive(Default)]
struct Process {
    lines: Vec<String>,
    /// The process's state, from its fork on.
    state: Option<State>,
}

#[derive(Default)]
struct Writer {
    state: State,
    /// The first thread's lines.
    lines: Vec<String>,
    /// The lines of the other acting threads.
    turns: [Vec<String>; ACTORS.len()],
    /// The forked processes, and how deep among them the writer is.
    processes: [Process; PROCESSES.len()],
    depth: usize,
    marks: u32,
}

impl Writer {
    fn declare(&mut self, number: usize, area: &AreaPlan) {
        let place = match area.place {
            Place::Alone => String::new(),
            Place::Shared => " table=\"shared\"".to_owned(),
            Place::Across(before) => {
                let (at, back) = (PLACES[number], before * PAGE_KIB);
                format!(" at=\"{at:#x} + {TABLE_MIB}M - {back}K\"")
            }
        };
        let place = place + &memory(area.memory);
        self.lines.push(format!("map \"{}\" pages={}{place}", NAMES[number], area.pages));
        self.state.apply(MAP, &self.state.whole(number));
    }

    fn steps(&mut self, steps: &[Step], level: usize) -> Option<()> {
        steps.iter().try_for_each(|step| self.step(step, level))
    }

    /// Writes steps, and then what undoes their effects.
    fn neutral(&mut self, steps: &[Step], level: usize) -> Option<()> {
        let before = self.state.clone();
        self.steps(steps, level)?;
        for (effect, pages) in self.state.way_back(&before) {
            let back = with_effect(effect, |operation| self.state.permits(operation, &pages))?;
            self.operation(back, &pages, level)?;
        }
        Some(())
    }

    fn step(&mut self, step: &Step, level: usize) -> Option<()> {
        match step {
            Step::Do(operation, pages) => self.operation(operation, pages, level)?,
            Step::Each(pages, stride, operations) => {
                self.each(pages, *stride, operations, level)?
            }
            Step::Repeat(count, body) => {
                self.line(level, format!("repeat {count} {{"));
                self.neutral(body, level + 1)?;
                self.line(level, "}");
            }
            Step::Turn(actor, body) => {
                let (_, go, back) = ACTORS[*actor];
                let (go, back) = (format!("barrier \"{go}\""), format!("barrier \"{back}\""));
                self.line(level, &go);
                let main = std::mem::take(&mut self.lines);
                self.line(0, &go);
                self.steps(body, 0)?;
                self.line(0, &back);
                let turn = std::mem::replace(&mut self.lines, main);
                self.turns[*actor].extend(turn);
                self.line(level, &back);
            }
            Step::Fork(life) => self.fork(life, level)?,
            Step::Child(body) => {
                let (_, out, back) = *PROCESSES.get(self.depth)?;
                self.processes[self.depth].state.as_ref()?;
                let (out, back) = (format!("barrier \"{out}\""), format!("barrier \"{back}\""));
                self.line(level, &out);
                self.in_child(|writer| {
                    writer.line(0, &out);
                    writer.steps(body, 0)?;
                    writer.line(0, &back);
                    Some(())
                })?;
                self.line(level, &back);
            }
            Step::Mark => {
                self.marks += 1;
                self.line(level, format!("mark \"{}\"", self.marks));
            }
        }
        Some(())
    }

    /// Writes a fork and the process's life. The process begins with its parent's state, and has
    /// its own from then on.
    fn fork(&mut self, life: &Life, level: usize) -> Option<()> {
        let name = PROCESSES.get(self.depth)?.0;
        let child = &mut self.processes[self.depth];
        // A case may fork each process in one place only.
        if child.state.replace(self.state.of_child()).is_some() {
            return None;
        }
        self.line(level, format!("fork \"{name}\""));
        self.in_child(|writer| writer.steps(&life.first, 0))?;
        self.steps(&life.meanwhile, level)?;
        self.in_child(|writer| {
            writer.steps(&life.last, 0)?;
            if life.exec {
                writer.line(0, "exec");
            }
            Some(())
        })?;
        self.line(level, format!("wait \"{name}\""));
        Some(())
    }

    /// Writes lines of the process that the current process forked.
    fn in_child(&mut self, write: impl FnOnce(&mut Writer) -> Option<()>) -> Option<()> {
        let child = &mut self.processes[self.depth];
        let state = std::mem::replace(&mut self.state, child.state.take()?);
        let lines = std::mem::replace(&mut self.lines, std::mem::take(&mut child.lines));
        self.depth += 1;
        let written = write(self);
        self.depth -= 1;
        let child = &mut self.processes[self.depth];
        child.state = Some(std::mem::replace(&mut self.state, state));
        child.lines = std::mem::replace(&mut self.lines, lines);
        written
    }

    fn operation(&mut self, operation: &Operation, pages: &Pages, level: usize) -> Option<()> {
        if !self.state.permits(operation, pages) {
            return None;
        }
        let name = NAMES[pages.area];
        let whole = *pages == self.state.whole(pages.area);
        let range = if whole { name.to_owned() } else { within(name, &pages.range) };
        let first = self.state.first(pages.area).unwrap_or(0) + pages.range.start;
        let of_file = within(FILE, &(first..first + pages.range.len()));
        self.write(operation, (&range, &of_file, &first.to_string()), pages, level);
        self.state.apply(operation.effect, pages);
        Some(())
    }

    /// Writes a loop over single pages. Operations that are permitted on all of the pages are
    /// permitted on each. Only protections may change meanwhile.
    fn each(
        &mut self,
        pages: &Pages,
        stride: usize,
        operations: &[&'static Operation],
        level: usize,
    ) -> Option<()> {
        let (before, prot) = (self.state.clone(), self.state.protection(pages));
        let stride = if stride > 1 { format!(" stride={stride}") } else { String::new() };
        let (name, range) = (NAMES[pages.area], &pages.range);
        let head =
            format!("for-each \"p\" in=\"{name}[{}..{}]\"{stride} {{", range.start, range.end);
        self.line(level, head);
        let mut changed = None;
        for operation in operations {
            let neutral = match operation.effect {
                Effect::None => true,
                Effect::Protect(new) => {
                    changed = Some(new);
                    prot.is_some()
                }
                _ => false,
            };
            if !neutral || !self.state.permits(operation, pages) {
                return None;
            }
            let first = format!("p+{}", self.state.first(pages.area).unwrap_or(0));
            let names = (&*format!("{name}[p]"), &*format!("{FILE}[{first}]"), &*first);
            self.write(operation, names, pages, level + 1);
            self.state.apply(operation.effect, pages);
        }
        if changed.is_some() && changed != prot {
            let back = with_effect(Effect::Protect(prot?), |_| true)?;
            self.write(back, (&format!("{name}[p]"), "", ""), pages, level + 1);
        }
        self.line(level, "}");
        // The pages are as before, but may be mappings of their own.
        self.state = before;
        if let (Some(_), Some(prot)) = (changed, prot) {
            for page in pages.range.clone() {
                let one = Pages { area: pages.area, range: page..page + 1 };
                self.state.apply(Effect::Protect(prot), &one);
            }
        }
        Some(())
    }

    /// Writes the operation on `range`. The pages are range `of_file` of the file, which begins at
    /// page `first`.
    fn write(
        &mut self,
        operation: &Operation,
        (range, of_file, first): (&str, &str, &str),
        pages: &Pages,
        level: usize,
    ) {
        let to = self.state.other(pages.area).map_or("", |other| NAMES[other]);
        let from = if to.is_empty() { String::new() } else { within(to, &pages.range) };
        let text = operation.line.replace("{}", range).replace("{to}", to);
        let text = text.replace("{from}", &from);
        let text = text.replace("{file}", of_file).replace("{first}", first);
        let text = text.replace("{all}", &self.state.file_pages().to_string());
        let text = text.replace(FEATURES, self.state.features().word());
        text.lines().for_each(|line| self.line(level, line));
    }

    fn line(&mut self, level: usize, line: impl AsRef<str>) {
        self.lines.push(format!("{:1$}{2}", "", level * 4, line.as_ref()));
    }
}

impl Operation {
    /// Whether the operation is `madvise` or `process_madvise`.
    pub(super) fn is_advice(&self) -> bool {
        ["madvise", "process_madvise"].iter().any(|call| self.line.starts_with(call))
    }

    /// Whether the operation is advice by which pages leave memory or may leave it. Kernels refuse
    /// such advice for locked memory.
    pub(super) fn lets_go(&self) -> bool {
        let words = ["dontneed", "free", "cold", "pageout", "remove", "guard-install"];
        self.is_advice() && words.iter().any(|word| self.line.contains(&format!("\"{word}\"")))
    }

    /// Whether the operation moves pages between NUMA nodes.
    pub(super) fn moves_pages(&self) -> bool {
        self.line.starts_with("move_pages") || self.line.contains("then=\"move\"")
    }

    /// Whether the operation loads or stores.
    pub(super) fn is_access(&self) -> bool {
        matches!(self.needs, Needs::Readable | Needs::Writable)
            && self.effect == Effect::None
            && !self.is_advice()
    }

    /// Whether the operation may be in a loop over single pages.
    pub(super) fn fits_one_page(&self) -> bool {
        matches!(self.effect, Effect::None | Effect::Protect(_))
            && !matches!(self.needs, Needs::SomeMapped | Needs::WholeHuge)
    }
}
