//! Writes to pages that are write-protected because they are, or were, shared with a child.

use crate::area::Area;
use crate::child::{Birth, Life, Nursery};
use crate::rounds::Rounds;
use crate::table::{Workload, cause, class, expect};
use std::io;

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "cow_fork",
        "forks a child that sleeps, writes 4 pages it shares with it, kills it",
        cow_fork,
        expect(&[(class::COW_COPY, 4)], &[(cause::FORK, 0, 1), (cause::FAULT_COW, 0, 4)]),
    ),
    Workload::new(
        "cow_fork_sent",
        "the same with a second thread on CPU 1",
        cow_fork,
        expect(&[(class::COW_COPY, 4)], &[(cause::FORK, 1, 0), (cause::FAULT_COW, 4, 0)]),
    )
    .second(),
    Workload::new(
        "reuse",
        "forks a child, waits for its end, writes the 4 pages it shared with it",
        reuse,
        expect(&[(class::REUSE, 4)], &[(cause::FORK, 0, 1)]),
    ),
];

const PAGES: usize = 4;

/// The fork write-protects the pages and flushes everything (kernel/fork.c: dup_mmap,
/// flush_tlb_mm). Each write copies and flushes its page (mm/memory.c: wp_page_copy,
/// ptep_clear_flush). In the next round, the copies belong to the parent alone.
fn cow_fork(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    area.write_all();
    let nursery = Nursery::new(Life::Pause, &[area])?;
    rounds.each(|meeting| {
        meeting.meet();
        let child = nursery.bear(Birth::Fork)?;
        for page in 0..PAGES {
            meeting.meet();
            area.write(page);
        }
        child.kill()
    })
}

/// The child has ended, so the parent is the only owner: mm/memory.c: wp_can_reuse_anon_folio,
/// wp_page_reuse, without a flush on x86.
fn reuse(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    area.write_all();
    let nursery = Nursery::new(Life::Exit, &[area])?;
    rounds.each(|meeting| {
        meeting.meet();
        nursery.bear(Birth::Fork)?.wait()?;
        area.write_all();
        Ok(())
    })
}
