//! What holds after each step of a schedule, for people who look at it step by step.

use crate::access::written;
use crate::choice::Choice;
use crate::env::Next;
use crate::error::CheckError;
use crate::schedule::Schedule;
use crate::setting::{Options, Setting, with_setting};
use crate::state::{State, lock_text};
use crate::trace::pages;
use needless_model::addr::{CpuId, Pfn, Vpn};
use needless_model::arch::TlbCode;
use needless_model::kernels::KernelRow;
use needless_model::machine::frames::{Frame, FrameFlags};
use needless_model::program::{Program, Thread};
use needless_model::site::Site;

/// What holds after a step, or at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// The kernel function of the step that led here; `None`: it was none.
    pub site: Option<Site>,
    /// CPU by CPU.
    pub cpus: Vec<CpuScene>,
    /// Each page and its PTE.
    pub pages: Vec<(String, String)>,
    /// Each frame that is in use, and what it is used for.
    pub frames: Vec<(Pfn, String)>,
}

/// What holds on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuScene {
    /// Its threads, each with its operation and with what it does next.
    pub tasks: Vec<String>,
    /// Translations that its TLB may hold.
    pub cached: Vec<String>,
    /// Flushes that it has yet to do.
    pub pending: Vec<String>,
}

/// Follows a schedule, and shows what holds at the start and after each step.
pub fn scenes(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
    schedule: &Schedule,
    each: &mut dyn FnMut(Scene),
) -> Result<(), CheckError> {
    with_setting(program, row, options, |setting| {
        let mut state = setting.initial();
        each(scene(&setting, &state, None));
        for (index, choice) in schedule.0.iter().enumerate() {
            if !state.choices.contains(choice) {
                return Err(CheckError::Schedule { step: index + 1, word: choice.to_string() });
            }
            let site = site_of(&state, *choice);
            state = setting.after(&state, *choice);
            each(scene(&setting, &state, site));
        }
        Ok(())
    })
}

/// The kernel function that a choice takes a step in.
fn site_of(state: &State, choice: Choice) -> Option<Site> {
    let Choice::Go { thread, .. } = choice else { return None };
    match state.next(usize::from(thread)) {
        Next::Step(site) | Next::Each(_, site, _) => Some(site),
        Next::Lock(_) | Next::Access { .. } | Next::Wait(_) | Next::Barrier(_) | Next::Done => None,
    }
}

fn scene(setting: &Setting<'_>, state: &State, site: Option<Site>) -> Scene {
    let cpu = |index: usize| {
        let cpu = CpuId(index as u16);
        CpuScene {
            tasks: tasks(setting, state, cpu),
            cached: cached(state, cpu),
            pending: pending(setting, state, cpu),
        }
    };
    Scene {
        site,
        cpus: (0..setting.cpus()).map(cpu).collect(),
        pages: pages(setting, state).into_iter().map(|page| (page.page, page.pte)).collect(),
        frames: state.world.frames.iter().map(|(pfn, of)| (pfn, frame(state, pfn, of))).collect(),
    }
}

fn tasks(setting: &Setting<'_>, state: &State, cpu: CpuId) -> Vec<String> {
    let threads = setting.program.threads.iter().enumerate();
    let task = |(number, thread): (usize, &Thread)| {
        let name = &thread.name;
        let next = next(setting, state, number);
        let act = setting.acts[number].get(state.act(number) as usize);
        let op = act.and_then(|act| setting.program.op_texts.get(act.op as usize));
        let op = op.and_then(|op| op.lines().next()).map_or("", str::trim);
        match (state.next(number), op) {
            (Next::Done, _) | (_, "") => format!("{name}: {next}"),
            _ => format!("{name}: {op}; next: {next}"),
        }
    };
    threads.filter(|(_, thread)| thread.cpu == cpu).map(task).collect()
}

/// What a thread does next.
fn next(setting: &Setting<'_>, state: &State, thread: usize) -> String {
    let name = |page: Vpn| state.world.ghost.name(page);
    match state.next(thread) {
        Next::Step(site) => site.function().to_owned(),
        Next::Each(_, site, _) => format!("{} on other CPUs", site.function()),
        Next::Lock(lock) => lock_text(lock),
        Next::Access { page, write: true } => format!("store to {}", name(page)),
        Next::Access { page, write: false } => format!("load from {}", name(page)),
        Next::Wait(wait) => format!("waits for {wait}"),
        Next::Barrier(barrier) => {
            format!("barrier {}", setting.program.barriers[usize::from(barrier)].name)
        }
        Next::Done => "done".to_owned(),
    }
}

/// What the CPU may have cached. An identifier that is not in use keeps what it had.
fn cached(state: &State, cpu: CpuId) -> Vec<String> {
    let w = &state.world;
    let in_use = w.cpus[cpu.index()].asid;
    let slots = w.tlbs.slots.iter().filter(|((of, _), _)| *of == cpu);
    let lines = slots.flat_map(|((_, asid), (_, entries))| {
        let aside = if *asid == in_use { "" } else { " (identifier not in use)" };
        entries.iter().map(move |entry| {
            let more = match entry.pages.order {
                0 => String::new(),
                order => format!(" and {} more", (1_u64 << order) - 1),
            };
            format!("{}{more}: {entry}{aside}", w.ghost.name(entry.pages.start))
        })
    });
    lines.collect()
}

/// Flushes that the CPU has yet to do, or that its threads owe.
fn pending(setting: &Setting<'_>, state: &State, cpu: CpuId) -> Vec<String> {
    let w = &state.world;
    let mut pending = Vec::new();
    for (number, thread) in setting.program.threads.iter().enumerate() {
        if let Next::Each(_, site, cpus) = state.next(number)
            && cpus >> cpu.0 & 1 == 1
        {
            pending.push(format!("{}, asked by {}", site.function(), thread.name));
        }
        if thread.cpu == cpu && w.tasks[number].unmap_batch.flush_required {
            pending.push(format!("{} owes the flush of its batch of unmapped pages", thread.name));
        }
    }
    let deferred = &w.deferred.batch;
    if deferred.flush_required && deferred.cpus.contains(cpu) {
        pending.push("a deferred flush".to_owned());
    }
    let here = &w.cpus[cpu.index()];
    let latest = w.mms[here.loaded.index()].tlb_gen;
    if w.arch.tlb_code == TlbCode::X86 && here.local_gen() < latest {
        pending.push(format!("flushed up to generation {} of {latest}", here.local_gen()));
    }
    pending
}

/// Who uses a frame, and what it holds.
fn frame(state: &State, pfn: Pfn, frame: Frame) -> String {
    let flags = [
        (FrameFlags::DIRTY, ", dirty"),
        (FrameFlags::SWAP_CACHE, ", in the swap cache"),
        (FrameFlags::EXCLUSIVE, ", exclusive"),
    ];
    let flags = flags.iter().filter(|(flag, _)| frame.flags.has(*flag)).map(|(_, word)| *word);
    let holds = written(state.world.ghost.load(pfn));
    let (refs, maps) = (frame.refs, frame.maps);
    format!("refcount {refs}, mapcount {maps}{}; holds {holds}", flags.collect::<String>())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::explore::{check, replay};
    use needless_scenario::{Settings, litmus, load};

    fn mutant() -> (Program, KernelRow) {
        let (program, _) = litmus(&load("pageout-read").unwrap(), &Settings::default()).unwrap();
        let row = KernelRow::parse("6.12,mutant=unmap-not-flushed").unwrap();
        (program, row)
    }

    /// Scenes and steps tell the same PTEs, and the last scene shows what the violation is about.
    #[test]
    fn scenes_go_with_the_steps_of_a_counterexample() {
        let (program, row) = mutant();
        let options = Options::default();
        let found = check(&program, &row, &options).unwrap().counterexample.unwrap();
        let mut scenes_seen = Vec::new();
        scenes(&program, &row, &options, &found.schedule, &mut |scene| scenes_seen.push(scene))
            .unwrap();
        let (steps, _) = replay(&program, &row, &options, &found.schedule).unwrap();
        assert_eq!(scenes_seen.len(), steps.len() + 1);
        for (step, pair) in steps.iter().zip(scenes_seen.windows(2)) {
            for changed in &step.changed {
                let told = pair[1].pages.iter().find(|(name, _)| *name == changed.page).unwrap();
                assert_eq!(told.1, changed.pte, "{}", step.label);
            }
            let (before, after) = (&pair[0].pages, &pair[1].pages);
            let others = before.iter().zip(after).filter(|(old, new)| old != new);
            for (_, (name, _)) in others {
                assert!(step.changed.iter().any(|changed| changed.page == *name), "{name}");
            }
            if let Some(site) = pair[1].site {
                assert!(step.label.contains(site.function()), "{}", step.label);
            }
        }
        let cached = scenes_seen.iter().flat_map(|scene| &scene.cpus).any(|c| !c.cached.is_empty());
        let owed = scenes_seen.iter().flat_map(|scene| &scene.cpus).any(|c| !c.pending.is_empty());
        assert!(cached && owed, "the mutant leaves a flush out, which somebody owed");
    }
}
