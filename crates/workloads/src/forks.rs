//! Children that are made and end. The parent flushes once for each child (kernel/fork.c: dup_mmap,
//! flush_tlb_mm), whether or not anything was writable. The end of a child with one thread shows no
//! flush: the task is lazy by then, and only a switch of address spaces is reported. If the child
//! was on another CPU before, that CPU still has its address space loaded, lazily. It is
//! interrupted, because page tables are freed (arch/x86/mm/tlb.c: native_flush_tlb_multi).

use crate::child::{Birth, Life, Nursery};
use crate::program;
use crate::rounds::Rounds;
use crate::table::{Expectation, Need, Workload, cause, class, expect};
use std::io;
use std::os::fd::AsRawFd;

/// The workloads of this group.
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
    Workload::new(
        "exit_sent",
        "forks a child that visits CPU 1, comes back and ends",
        |rounds| bear_to(rounds, Birth::Fork, Life::Visit),
        expect(&[], &[(cause::FORK, 0, 1), (cause::EXIT, 1, 0)]),
    )
    .needs(&[Need::SecondCpu]),
    Workload::new(
        "killed_sent",
        "the same, but the child is killed",
        |rounds| bear_to(rounds, Birth::Fork, Life::VisitAndDie),
        expect(&[], &[(cause::FORK, 0, 1), (cause::EXIT, 1, 0)]),
    )
    .needs(&[Need::SecondCpu]),
    Workload::new(
        "execveat_sent",
        "forks a child that visits CPU 1, comes back and executes a program of one page, which ends",
        execute,
        Expectation {
            without_exception: 1,
            ..expect(&[(class::FAULT_AROUND, 1)], &[(cause::FORK, 0, 1), (cause::EXECVEAT, 1, 0)])
        },
    )
    .older(&[(
        (5, 10),
        Expectation {
            without_exception: 1,
            ..expect(
                &[(class::FAULT_AROUND, 1), (class::REUSE, 1)],
                &[(cause::FORK, 0, 1), (cause::EXECVEAT, 1, 1)],
            )
        },
    )])
    .needs(&[Need::SecondCpu, Need::FourLevels]),
];

fn bear(rounds: &mut Rounds, birth: Birth) -> io::Result<()> {
    bear_to(rounds, birth, Life::Exit)
}

fn bear_to(rounds: &mut Rounds, birth: Birth, life: Life) -> io::Result<()> {
    let nursery = Nursery::new(life, &[])?;
    rounds.each(|meeting| {
        meeting.meet();
        nursery.bear(birth)?.wait()
    })
}

/// fs/exec.c: exec_mmap drops the old address space, as an end does. The new stack is written
/// before the program runs (copy_strings, a fault without an exception). When the stack gets its
/// final rights, 5.10 protects that page again (setup_arg_pages, mprotect_fixup), flushes, and
/// reuses the page at the next write.
fn execute(rounds: &mut Rounds) -> io::Result<()> {
    let program = program::that_ends()?;
    bear_to(rounds, Birth::Fork, Life::VisitAndExecute(program.as_raw_fd()))
}
