//! A schedule in words: what each step was, and what it did to PTEs and TLBs.

use crate::access::Way;
use crate::choice::Choice;
use crate::env::{Next, reachable};
use crate::error::CheckError;
use crate::property::Violation;
use crate::setting::Setting;
use crate::state::{State, lock_text};
use needless_model::addr::{CpuId, Vpn};
use needless_model::kernel::rmap::Place;
use needless_model::pte::Pte;

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTaken {
    /// Where it happened.
    pub cpu: CpuId,
    /// The thread; `None`: the processor by itself.
    pub thread: Option<String>,
    /// The operation of the scenario, where one begins.
    pub operation: Option<String>,
    /// What it was: a kernel function, an access, a lock.
    pub label: String,
    /// The pages whose PTE or cached translations it changed.
    pub changed: Vec<PageState>,
}

/// What holds for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageState {
    /// Its name.
    pub page: String,
    /// Its PTE.
    pub pte: String,
    /// By CPU: what it may have cached.
    pub cached: Vec<Vec<String>>,
}

/// Follows `choices` from the start.
pub fn trace(
    setting: &Setting<'_>,
    choices: &[Choice],
) -> Result<(Vec<StepTaken>, Option<Violation>), CheckError> {
    let mut state = setting.initial();
    let mut steps = Vec::with_capacity(choices.len());
    let mut acts = vec![None; setting.program.threads.len()];
    for (index, choice) in choices.iter().enumerate() {
        if !state.choices.contains(choice) {
            return Err(CheckError::Schedule { step: index + 1, word: choice.to_string() });
        }
        let mut step = describe(setting, &state, *choice);
        if let Choice::Go { thread, .. } = choice {
            let thread = usize::from(*thread);
            let act = state.act(thread);
            if acts[thread].replace(act) != Some(act) {
                let op = setting.acts[thread].get(act as usize).map(|act| act.op as usize);
                step.operation = op.and_then(|op| setting.program.op_texts.get(op)).cloned();
            }
        }
        let before = pages(setting, &state);
        state = setting.after(&state, *choice);
        let after = pages(setting, &state).into_iter().zip(before);
        step.changed = after.filter(|(after, before)| after != before).map(|(a, _)| a).collect();
        steps.push(step);
    }
    Ok((steps, state.world.ghost.violation))
}

/// What holds for each page of each process.
pub fn pages(setting: &Setting<'_>, state: &State) -> Vec<PageState> {
    let spaces = state.world.spaces().zip(&setting.program.processes).enumerate();
    spaces
        .flat_map(|(number, (mm, process))| {
            let names = setting.watch.names.iter();
            names.map(move |(page, name)| match number {
                0 => page_state(state, (mm, *page), name.clone()),
                _ => page_state(state, (mm, *page), format!("{}:{name}", process.name)),
            })
        })
        .collect()
}

fn page_state(state: &State, (mm, page): Place, name: String) -> PageState {
    let w = &state.world;
    let pte = match w.page_entry(mm, page) {
        Pte::None => "none".to_owned(),
        Pte::Table(table) => format!("table {}", table.0),
        Pte::Swap(swap) => format!("swap {}", swap.slot),
        Pte::Migration(migration) => format!("migrating f{}", migration.pfn.0),
        Pte::Marker(marker) => format!("marker {marker:?}"),
        Pte::Present(pte) => {
            let rights = match (pte.protnone(), pte.writable()) {
                (true, _) => "--",
                (false, true) => "rw",
                (false, false) => "ro",
            };
            let flag = |set: bool, letter: &'static str| if set { letter } else { "" };
            let (accessed, dirty) = (flag(pte.accessed(), " A"), flag(pte.dirty(), " D"));
            format!("f{} {rights}{accessed}{dirty}", pte.pfn.0)
        }
    };
    let cached = w.cpus.iter().enumerate().map(|(index, cpu)| {
        let entries = w.tlbs.entries(CpuId(index as u16), cpu.asid, page);
        let entries = entries.iter().filter(|_| cpu.loaded == mm);
        entries.map(ToString::to_string).collect()
    });
    PageState { page: name, pte, cached: cached.collect() }
}

fn describe(setting: &Setting<'_>, state: &State, choice: Choice) -> StepTaken {
    let name = |page: Vpn| state.world.ghost.name(page);
    let (cpu, thread, label) = match choice {
        Choice::Fill { cpu, page } => {
            let label = format!("walks and caches {}", name(Vpn(u64::from(page))));
            (CpuId(u16::from(cpu)), None, label)
        }
        Choice::Evict { cpu, entry } => {
            (CpuId(u16::from(cpu)), None, format!("forgets cached translation {entry}"))
        }
        Choice::Go { thread, way } => {
            let thread = usize::from(thread);
            let at = setting.program.threads[thread].cpu;
            let (cpu, label) = next_text(setting, state, thread, usize::from(way));
            (cpu.unwrap_or(at), Some(setting.program.threads[thread].name.clone()), label)
        }
    };
    StepTaken { cpu, thread, operation: None, label, changed: Vec::new() }
}

/// What a thread does next, and on which CPU if not on its own.
fn next_text(
    setting: &Setting<'_>,
    state: &State,
    thread: usize,
    way: usize,
) -> (Option<CpuId>, String) {
    let name = |page: Vpn| state.world.ghost.name(page);
    match state.next(thread) {
        Next::Step(site) => (None, site.function().to_owned()),
        Next::Each(reach, site, cpus) => {
            let cpu = reachable(&state.world, reach, cpus).nth(way);
            (cpu, format!("interrupt: {}", site.function()))
        }
        Next::Lock(lock) => (None, lock_text(lock)),
        Next::Access { page, write } => {
            let kind = if write { "store to" } else { "load from" };
            let text = match setting.ways(state, thread).get(way) {
                Some(Way::Cached(entry)) => {
                    format!("{kind} {} by TLB: f{}", name(page), entry.frame_of(page).0)
                }
                Some(Way::Walk(_)) => format!("walk for {} sets A/D", name(page)),
                Some(Way::Uncached(walked)) => {
                    let frame = walked.new.pfn.of_page(walked.pages, page);
                    format!("{kind} {}: f{}", name(page), frame.0)
                }
                Some(Way::Fault) | None => format!("{kind} {} faults", name(page)),
            };
            (None, text)
        }
        Next::Wait(wait) => (None, format!("has waited for {wait}")),
        Next::Barrier(barrier) => {
            let barrier = &setting.program.barriers[usize::from(barrier)].name;
            (None, format!("all pass barrier {barrier}"))
        }
        Next::Done => (None, "is done".to_owned()),
    }
}
