//! Children that are made and end: the parent flushes once for each (kernel/fork.c: dup_mmap,
//! flush_tlb_mm), whether anything was writable or not. The end of a child with one thread flushes
//! nothing that is told: the task is lazy by then (only a switch of address spaces is).

use crate::child::{Birth, Life, Nursery};
use crate::rounds::Rounds;
use crate::table::{Workload, cause, expect};
use std::io;

/// The group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "fork_exit",
        "forks a child that ends at once, and waits for it",
        |rounds| bear(rounds, Birth::Fork),
        expect(&[], &[(cause::FORK, 0, 1)]),
    ),
    Workload::new(
        "fork_exit_sent",
        "the same with a second thread on CPU 1",
        |rounds| bear(rounds, Birth::Fork),
        expect(&[], &[(cause::FORK, 1, 0)]),
    )
    .second(),
    Workload::new(
        "clone_exit",
        "the same as fork_exit by clone",
        |rounds| bear(rounds, Birth::Clone),
        expect(&[], &[(cause::CLONE, 0, 1)]),
    ),
    Workload::new(
        "clone3_exit",
        "the same as fork_exit by clone3",
        |rounds| bear(rounds, Birth::Clone3),
        expect(&[], &[(cause::CLONE3, 0, 1)]),
    ),
];

fn bear(rounds: &mut Rounds, birth: Birth) -> io::Result<()> {
    let nursery = Nursery::new(&[])?;
    rounds.each(|meeting| {
        meeting.meet();
        nursery.bear(birth, Life::Exit)?.wait()
    })
}
