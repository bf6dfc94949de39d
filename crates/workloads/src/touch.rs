//! First accesses of private anonymous memory.
//!
//! What follows each round's accesses: `MADV_DONTNEED` zaps the pages in one gather (mm/memory.c:
//! zap_pte_range, mm/mmu_gather.c: tlb_finish_mmu), and so flushes once.

use crate::area::Area;
use crate::rounds::Rounds;
use crate::table::{Need, Workload, cause, class, expect};
use std::io;

const PAGES: usize = 8;

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "first_touch",
        "writes 8 fresh pages, then MADV_DONTNEED",
        first_touch,
        expect(&[(class::FIRST_TOUCH, 8)], &[(cause::DONTNEED, 0, 1)]),
    ),
    Workload::new(
        "first_touch_sent",
        "the same with a second thread on CPU 1",
        first_touch,
        expect(&[(class::FIRST_TOUCH, 8)], &[(cause::DONTNEED, 1, 0)]),
    )
    .second(),
    Workload::new(
        "raced",
        "writes 1 fresh page at the same time as a second thread on CPU 1, then MADV_DONTNEED",
        raced,
        expect(&[(class::FIRST_TOUCH, 1)], &[(cause::DONTNEED, 1, 0)]),
    )
    .races(),
    Workload::new(
        "zero_page",
        "reads 8 fresh pages, then MADV_DONTNEED",
        zero_page,
        expect(&[(class::ZERO_PAGE, 8)], &[(cause::DONTNEED, 0, 1)]),
    ),
    Workload::new(
        "zero_upgrade",
        "reads and then writes 8 fresh pages, then MADV_DONTNEED",
        zero_upgrade,
        expect(
            &[(class::ZERO_PAGE, 8), (class::ZERO_UPGRADE, 8)],
            &[(cause::FAULT_ZERO, 0, 8), (cause::DONTNEED, 0, 1)],
        ),
    ),
    Workload::new(
        "zero_upgrade_sent",
        "the same with 1 page and a second thread on CPU 1",
        zero_upgrade_sent,
        expect(
            &[(class::ZERO_PAGE, 1), (class::ZERO_UPGRADE, 1)],
            &[(cause::FAULT_ZERO, 1, 0), (cause::DONTNEED, 1, 0)],
        ),
    )
    .needs(&[Need::SecondCpu])
    .second(),
];

/// mm/memory.c: do_anonymous_page: each thread allocates a page, and the thread that finds the PTE
/// taken frees its own page again. If it comes so late that the PTE is there, it does not fault at
/// all.
fn raced(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, 1)?;
    rounds.each(|meeting| {
        meeting.meet_to_write(area.address());
        area.write(0);
        area.drop_pages(meeting)
    })
}

/// mm/memory.c: do_anonymous_page. A page that was not present needs no flush.
fn first_touch(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|meeting| {
        area.write_all();
        area.drop_pages(meeting)
    })
}

/// mm/memory.c: do_anonymous_page maps the zero page for a read.
fn zero_page(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|meeting| {
        area.read_all();
        area.drop_pages(meeting)
    })
}

/// mm/memory.c: do_wp_page, wp_page_copy: ptep_clear_flush of the zero page, once for each page.
fn zero_upgrade(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|meeting| {
        area.read_all();
        area.write_all();
        area.drop_pages(meeting)
    })
}

/// Like `zero_upgrade`, but the second thread is met before either flush.
fn zero_upgrade_sent(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, 1)?;
    rounds.each(|meeting| {
        area.read(0);
        meeting.meet();
        area.write(0);
        area.drop_pages(meeting)
    })
}
