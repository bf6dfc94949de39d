//! Compiles a text to a [`Program`], in stages: syntax, structure, parameters, machine and threads,
//! areas, operations. A stage that finds problems is the last one that runs.

use crate::areas::{self, Areas, Layout};
use crate::describe::{Description, ThreadDescription};
use crate::document::{self, Node, Value};
use crate::error::{Problem, ScenarioError, finish};
use crate::litmus::{self, Litmus};
use crate::ops::{Lowering, Named, word_of};
use crate::params::{self, Given};
use crate::scope::Scope;
use crate::{Settings, Source, grammar, mapped_files};
use miette::SourceSpan;
use needless_model::addr::{CpuId, ProcessId, ThreadId};
use needless_model::arch::Arch;
use needless_model::numa::{Balancing, MAX_NODES};
use needless_model::program::{
    MachineNeeds, Mthp, MthpMode, Process, Program, SwapKind, SwapNeed, ThpMode, Thread,
};
use std::collections::BTreeSet;

const MAX_CPUS: i64 = 1024;
const MAX_THREADS: i64 = 4096;

/// The name of a node that declares a forked process.
const PROCESS: &str = "process";

/// The name of a node that declares a thread of the kernel.
const KERNEL_THREAD: &str = "kernel-thread";

/// A compiled scenario, and what is shown to a reader about it.
pub(crate) struct Compiled {
    pub program: Program,
    pub description: Description,
    pub litmus: Option<Litmus>,
    /// The place of each operation in the text, by the operation's number.
    pub places: Vec<SourceSpan>,
}

/// Runs all stages.
pub(crate) fn compile(
    source: &Source,
    settings: &Settings,
    arch: &Arch,
) -> Result<Compiled, ScenarioError> {
    let given = Given::new(settings, &source.presets);
    stages(source, &given, &Layout::of(arch)).map_err(|failure| match failure {
        Failure::Text(problems) => ScenarioError::invalid(&source.name, &source.text, problems),
        Failure::Settings(problems) => ScenarioError::invalid("--set", &given.text, problems),
    })
}

/// Problems, sorted by the text that they are in: the scenario or the settings.
pub(crate) enum Failure {
    Text(Vec<Problem>),
    Settings(Vec<Problem>),
}

impl From<Vec<Problem>> for Failure {
    fn from(problems: Vec<Problem>) -> Failure {
        Failure::Text(problems)
    }
}

fn stages(source: &Source, given: &Given, layout: &Layout) -> Result<Compiled, Failure> {
    let nodes = document::read(&source.text)?;
    let outline = Outline::new(&nodes)?;
    let parameters = params::resolve(&outline.all("param"), given)?;
    let (mut machine, plans) = outline.machine_and_threads(&parameters.scope)?;
    let bodies: Vec<_> = outline.threads().map(|t| t.children()).collect();
    let files = mapped_files::read(&outline.all("file"), &parameters.scope)?;
    machine.disk = files.list.iter().any(|file| file.fs.is_written_back());
    let areas = areas::plan(&bodies, &files, &parameters.scope, layout)?;
    // An alias of a built-in is known by its own name, not by the name in the text.
    let name = if source.presets.is_empty() { outline.name } else { &source.name };
    let (mut program, named, places) =
        lower(name, outline.span, machine.clone(), &plans, areas, files)?;
    let values = parameters.described.iter().map(|p| (p.name.clone(), p.value));
    program.parameters = values.collect();
    let litmus = litmus::read(&outline.all("litmus"), &named)?;
    let threads = plans
        .iter()
        .map(|p| ThreadDescription { name: p.name.clone(), cpu: p.cpu, doc: p.doc.clone() })
        .collect();
    let description = Description {
        name: name.to_owned(),
        doc: outline.doc.clone(),
        parameters: parameters.described,
        machine,
        threads,
    };
    Ok(Compiled { program, description, litmus, places })
}

/// The parts of the `scenario` node.
struct Outline<'a> {
    name: &'a str,
    span: SourceSpan,
    doc: String,
    parts: &'a [Node],
}

/// A thread whose body is not lowered yet.
struct ThreadPlan<'a> {
    name: String,
    cpu: CpuId,
    kernel: bool,
    process: ProcessId,
    doc: String,
    body: &'a [Node],
    scope: Scope,
}

impl ThreadPlan<'_> {
    /// Whether the thread belongs to a forked process.
    fn is_forked(&self) -> bool {
        self.process != ProcessId::FIRST
    }
}

impl<'a> Outline<'a> {
    fn new(nodes: &'a [Node]) -> Result<Outline<'a>, Vec<Problem>> {
        let mut problems = Vec::new();
        grammar::check(nodes, &mut problems);
        let Some(scenario) = nodes.first() else {
            let problem = Problem::new((0..0).into(), "there is no scenario here", "nothing here");
            return Err(vec![problem.help("write scenario \"NAME\" { … }")]);
        };
        if let Some(second) = nodes.get(1).filter(|n| n.name == "scenario") {
            problems.push(
                Problem::new(second.span, "a second scenario", "this one")
                    .also(scenario.span, "the first one")
                    .help("a file holds one scenario; put this one into its own file"),
            );
        }
        let mut outline = Outline {
            name: "",
            span: scenario.span,
            doc: String::new(),
            parts: scenario.children(),
        };
        if problems.is_empty() {
            match label(&scenario.args[0], "a scenario") {
                Ok(name) => outline.name = name,
                Err(problem) => problems.push(problem),
            }
            match doc(outline.parts) {
                Ok(doc) => outline.doc = doc,
                Err(problem) => problems.push(problem),
            }
        }
        finish(problems, outline)
    }

    fn all(&self, name: &str) -> Vec<&'a Node> {
        self.parts.iter().filter(|n| n.name == name).collect()
    }

    /// All threads in the order of the text, those of the kernel included.
    fn threads(&self) -> impl Iterator<Item = &'a Node> + use<'a> {
        let kinds = ["thread", KERNEL_THREAD, PROCESS];
        self.parts.iter().filter(move |n| kinds.contains(&n.name.as_str()))
    }

    fn machine_and_threads(
        &self,
        scope: &Scope,
    ) -> Result<(MachineNeeds, Vec<ThreadPlan<'a>>), Vec<Problem>> {
        let mut problems = Vec::new();
        let mut machine = match machine(&self.all("machine"), scope) {
            Ok(machine) => machine,
            Err(problem) => return Err(vec![problem]),
        };
        let mut plans = Vec::new();
        for (number, node) in self.threads().enumerate() {
            let not_first = match node.name.as_str() {
                KERNEL_THREAD => Some("the first thread is a kernel thread"),
                PROCESS => Some("the first thread belongs to a forked process"),
                _ => None,
            };
            if let Some(message) = not_first.filter(|_| number == 0) {
                problems.push(Problem::new(node.span, message, "this one").help(
                    "the scenario begins and ends with its first thread; put a `thread` before it",
                ));
            }
            if let Err(problem) = add_threads(node, machine.cpus, scope, &mut plans) {
                problems.push(problem);
            }
        }
        if plans.is_empty() && problems.is_empty() {
            problems.push(
                Problem::new(self.span, "the scenario has no thread", "this one")
                    .help("add thread \"main\" cpu=0 { … }"),
            );
        }
        if machine.cpus == 0 {
            machine.cpus = plans.iter().map(|p| p.cpu.0 + 1).max().unwrap_or(1);
        }
        finish(problems, (machine, plans))
    }
}

/// Reads a name that no expression uses.
pub(crate) fn label<'a>(value: &'a Value, what: &str) -> Result<&'a str, Problem> {
    let name = value.text("a name")?;
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= 80 && name.chars().all(fine) {
        return Ok(name);
    }
    Err(Problem::new(value.span, format!("`{name}` cannot name {what}"), "this name")
        .help("use letters, digits, `-`, `_` and `.`; at most 80"))
}

/// Joins the sentences of the `doc` lines among `nodes`.
fn doc(nodes: &[Node]) -> Result<String, Problem> {
    let lines = nodes.iter().filter(|n| n.name == "doc");
    let lines: Result<Vec<_>, _> = lines.map(|n| n.args[0].text("a sentence")).collect();
    Ok(lines?.join(" "))
}

/// The words for the two states of a switch.
const ON_OR_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];

/// Reads what the `machine` node asks for. `cpus` is 0 if the node does not say a number.
fn machine(nodes: &[&Node], scope: &Scope) -> Result<MachineNeeds, Problem> {
    let mut needs = MachineNeeds::default();
    let (first, rest) = match nodes {
        [] => return Ok(needs),
        [first, rest @ ..] => (first, rest),
    };
    if let Some(second) = rest.first() {
        return Err(Problem::new(second.span, "`machine` is given twice", "again here")
            .also(first.span, "first here")
            .help("put everything that it needs into one block"));
    }
    let mut seen = BTreeSet::new();
    for need in first.children() {
        let name = match need.name == "mthp" {
            true => format!("mthp \"{}\"", need.args[0].text("a size of large folios")?),
            false => need.name.clone(),
        };
        if !seen.insert(name.clone()) {
            return Err(Problem::new(need.span, format!("`{name}` is given twice"), "again here")
                .help("remove one of them"));
        }
        let value = &need.args[0];
        match need.name.as_str() {
            "cpus" => {
                needs.cpus = scope.number_in(value, "the number of CPUs", 1..=MAX_CPUS)? as u16;
            }
            "swap" => {
                let kind = word_of(value, "kind of swap device", &[("zram", SwapKind::Zram)])?;
                let Some(size) = need.prop("size") else { continue };
                let size = scope.number_in(size, "the size", 1 << 20..=1 << 40)?;
                needs.swap = Some(SwapNeed { kind, size_bytes: size as u64 });
            }
            "nodes" => {
                let most = i64::from(MAX_NODES);
                let nodes = scope.number_in(value, "the number of nodes", 1..=most)?;
                needs.nodes = Some(nodes as u16);
                if let Some(slow) = need.prop("slow") {
                    let what = "the number of slow nodes";
                    needs.numa.slow = scope.number_in(slow, what, 0..=nodes - 1)? as u16;
                }
            }
            "demotion" => needs.numa.demotion = Some(word_of(value, "setting", &ON_OR_OFF)?),
            "mglru" => needs.numa.mglru = Some(word_of(value, "setting", &ON_OR_OFF)?),
            "numa-balancing" => {
                needs.numa.balancing = Some(word_of(value, "setting", &Balancing::ALL)?);
            }
            "mthp" => needs.mthp = Some(mthp(need, needs.mthp)?),
            _ => needs.thp = Some(word_of(value, "mode", &ThpMode::ALL)?),
        }
    }
    Ok(needs)
}

/// Adds the mode that an `mthp` node gives one size to the modes `before`.
fn mthp(need: &Node, before: Option<Mthp>) -> Result<Mthp, Problem> {
    let sizes: Vec<(&str, &str)> = Mthp::SIZES.iter().map(|size| (*size, *size)).collect();
    let size = word_of(&need.args[0], "size of a large folio", &sizes)?;
    let mode = word_of(&need.args[1], "mode", &MthpMode::ALL)?;
    let before = before.unwrap_or_default();
    Ok(before.with(size, mode).unwrap_or(before))
}

/// Adds the threads that one `thread` node declares.
fn add_threads<'a>(
    node: &'a Node,
    cpus: u16,
    params: &Scope,
    plans: &mut Vec<ThreadPlan<'a>>,
) -> Result<(), Problem> {
    let name = label(&node.args[0], "a thread")?;
    let count = match node.prop("count") {
        Some(value) => {
            let count = params.number_in(value, "the number of threads", 0..=MAX_THREADS)?;
            if plans.is_empty() && count != 1 {
                return Err(Problem::new(value.span, "the first thread is one thread", "not one")
                    .help("the scenario begins and ends with its first thread; leave count= out"));
            }
            count
        }
        None => 1,
    };
    let doc = doc(node.children())?;
    let before = plans.len();
    for index in 0..count {
        let mut scope = params.clone();
        if node.prop("count").is_some() {
            scope.constant("index", index);
        }
        let name = if count == 1 { name.to_owned() } else { format!("{name}-{index}") };
        let cpu = cpu(node, cpus, &scope)?;
        check_thread(node, &name, count, plans, before)?;
        let (doc, body) = (doc.clone(), node.children());
        let kernel = node.name == KERNEL_THREAD;
        let process = match node.name.as_str() {
            PROCESS => ProcessId(1 + plans.iter().filter(|p| p.is_forked()).count() as u16),
            _ => ProcessId::FIRST,
        };
        plans.push(ThreadPlan { name, cpu, kernel, process, doc, body, scope });
    }
    Ok(())
}

fn cpu(node: &Node, cpus: u16, scope: &Scope) -> Result<CpuId, Problem> {
    let Some(value) = node.prop("cpu") else {
        return Err(Problem::new(node.span, "on which CPU?", "this thread").help("add cpu=N"));
    };
    let cpu = scope.number_in(value, "the CPU", 0..=MAX_CPUS - 1)? as u16;
    if cpus > 0 && cpu >= cpus {
        let help = format!("`machine` asks for {cpus}: CPUs are numbered 0..{cpus}");
        return Err(
            Problem::new(value.span, format!("there is no CPU {cpu}"), "too high").help(help)
        );
    }
    Ok(CpuId(cpu))
}

fn check_thread(
    node: &Node,
    name: &str,
    count: i64,
    plans: &[ThreadPlan],
    before: usize,
) -> Result<(), Problem> {
    if plans.len() as i64 == MAX_THREADS {
        return Err(Problem::new(node.span, "too many threads", "from here on")
            .help(format!("at most {MAX_THREADS}")));
    }
    if plans[..before].iter().any(|p| p.name == name) {
        return Err(Problem::new(
            node.args[0].span,
            format!("two threads named `{name}`"),
            "again",
        )
        .help("choose another name"));
    }
    match areas::first_map(node.children()) {
        Some(map) if count > 1 => {
            Err(Problem::new(map.span, format!("mapped by each of {count} threads"), "this `map`")
                .help("map it in a thread of its own, and meet at a barrier"))
        }
        _ => Ok(()),
    }
}

fn lower(
    name: &str,
    span: SourceSpan,
    machine: MachineNeeds,
    plans: &[ThreadPlan],
    areas: Areas,
    files: mapped_files::Files,
) -> Result<(Program, Vec<Named>, Vec<SourceSpan>), Vec<Problem>> {
    let forked: Vec<String> =
        plans.iter().filter(|p| p.is_forked()).map(|p| p.name.clone()).collect();
    let mut lowering = Lowering::new((&areas, &files), &machine, &forked);
    let mut threads = Vec::new();
    for (i, plan) in plans.iter().enumerate() {
        // The threads of one node share their problems: report these once.
        let told =
            i > 0 && std::ptr::eq(plans[i - 1].body, plan.body) && !lowering.problems.is_empty();
        if !told {
            let (thread, process) = (ThreadId(i as u16), plan.process);
            let body = lowering.thread((thread, process), plan.body, plan.scope.clone());
            let (name, kernel) = (plan.name.clone(), plan.kernel);
            threads.push(Thread { kernel, process, ..Thread::new(name, plan.cpu, body) });
        }
    }
    lowering.check_pins();
    lowering.check_userfaultfd();
    if lowering.rounds.is_none() {
        lowering.problems.push(
            Problem::new(span, "the scenario has no `rounds`", "this one")
                .help("put what is repeated and counted into rounds N { … } in the first thread"),
        );
    }
    let Lowering { texts, places, marks, barriers, slots, named, problems, .. } = lowering;
    finish(problems, ())?;
    let mut program = Program {
        name: name.to_owned(),
        machine,
        areas: areas.list,
        files: files.list,
        threads,
        marks,
        barriers,
        op_texts: texts,
        slots,
        ..Program::default()
    };
    program.processes.extend(forked.into_iter().map(|name| Process { name }));
    Ok((program, named, places))
}
