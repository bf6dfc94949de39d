//! Threads that a scenario does not tell apart: states that differ only in which of them did what
//! are explored once.
//!
//! A [`Renaming`] exchanges threads, and the CPUs that they are pinned to, so that the program
//! stays as it is. Each state has a mirror image by each renaming: the state that the renamed
//! schedule leads to. The explorer takes every step in a state and its mirror images at once, so
//! that nothing in the world has to be renamed, and takes states for the same if one is a mirror
//! image of the other. docs/checker.md has the argument.

use crate::observe::Watching;
use crate::unroll::{Act, Action};
use needless_model::addr::CpuId;
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use std::collections::HashMap;

/// Threads that exchange their parts, and their CPUs with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renaming {
    /// By thread: whose part it takes.
    threads: Vec<usize>,
    /// By CPU: whose part it takes.
    cpus: Vec<usize>,
}

/// Most mirror images of a state, itself included.
const MOST: usize = 24;

impl Renaming {
    /// Whose part the thread takes.
    pub fn thread(&self, thread: usize) -> usize {
        self.threads[thread]
    }

    /// Whose part the CPU takes.
    pub fn cpu(&self, cpu: CpuId) -> CpuId {
        CpuId(self.cpus[cpu.index()] as u16)
    }

    fn new(program: &Program, threads: Vec<usize>) -> Renaming {
        let cpu = |thread: usize| program.threads[thread].cpu.index();
        let count = (0..threads.len()).map(|thread| cpu(thread) + 1).max().unwrap_or(0);
        let mut cpus: Vec<usize> = (0..count).collect();
        for (thread, other) in threads.iter().enumerate() {
            cpus[cpu(thread)] = cpu(*other);
        }
        Renaming { threads, cpus }
    }
}

/// The renamings that leave the program as it is, but for the one that changes nothing.
pub fn renamings(
    program: &Program,
    acts: &[Vec<Act>],
    row: &KernelRow,
    watching: &Watching,
) -> Vec<Renaming> {
    // One flush of one thread is left out: that tells the thread apart. Nodes tell CPUs apart.
    if row.config.skip_needed.is_some() || program.machine.nodes.is_some() {
        return Vec::new();
    }
    let alike = |one: usize, other: usize| are_alike(program, acts, watching, one, other);
    let mut all = vec![(0..acts.len()).collect::<Vec<usize>>()];
    let mut done = vec![false; acts.len()];
    for first in 0..acts.len() {
        if std::mem::replace(&mut done[first], true) {
            continue;
        }
        let mut class = vec![first];
        for (other, done) in done.iter_mut().enumerate().skip(first + 1) {
            // Some of them are enough: fewer states are taken for the same then.
            if alike(first, other) && all.len() * factorial(class.len() + 1) <= MOST {
                *done = true;
                class.push(other);
            }
        }
        all = all.iter().flat_map(|map| permuted(map, &class)).collect();
    }
    all.retain(|map| map.iter().enumerate().any(|(thread, other)| thread != *other));
    all.into_iter().map(|threads| Renaming::new(program, threads)).collect()
}

fn factorial(n: usize) -> usize {
    (1..=n).product()
}

/// `map` with the threads of `class` in every order.
fn permuted(map: &[usize], class: &[usize]) -> Vec<Vec<usize>> {
    let mut maps = vec![map.to_vec()];
    for at in 0..class.len() {
        let exchanged = |map: &Vec<usize>| {
            let exchange = |with: usize| {
                let mut map = map.clone();
                map.swap(class[at], class[with]);
                map
            };
            (at..class.len()).map(exchange).collect::<Vec<_>>()
        };
        maps = maps.iter().flat_map(exchanged).collect();
    }
    maps
}

/// Whether two threads can take each other's part.
fn are_alike(
    program: &Program,
    acts: &[Vec<Act>],
    watching: &Watching,
    one: usize,
    other: usize,
) -> bool {
    let (a, b) = (&program.threads[one], &program.threads[other]);
    let on = |cpu: CpuId| program.threads.iter().filter(|thread| thread.cpu == cpu).count();
    // Whoever else is on a CPU would have to go with it.
    let cpus = a.cpu != b.cpu && on(a.cpu) == 1 && on(b.cpu) == 1;
    let watched = |thread: usize| watching.mentions(thread, &acts[thread]);
    cpus && (a.process, a.kernel) == (b.process, b.kernel)
        && !watched(one)
        && !watched(other)
        && do_alike(&acts[one], &acts[other])
}

/// Whether both do the same, but for the values that they store.
fn do_alike(one: &[Act], other: &[Act]) -> bool {
    let mut ops = HashMap::new();
    let mut same_op = |a: u32, b: u32| {
        *ops.entry((false, a)).or_insert(b) == b && *ops.entry((true, b)).or_insert(a) == a
    };
    let does_alike = |(a, b): (&Act, &Act)| {
        same_op(a.op, b.op)
            && match (&a.action, &b.action) {
                (
                    Action::Access { page, store },
                    Action::Access { page: of_other, store: by_other },
                ) => page == of_other && kind(*store) == kind(*by_other),
                (a, b) => a == b,
            }
    };
    one.len() == other.len() && one.iter().zip(other).all(does_alike)
}

/// A load, a store of zero, or a store of a value of the thread's own.
fn kind(store: Option<u32>) -> Option<bool> {
    store.map(|value| value == 0)
}

#[cfg(test)]
mod tests;
