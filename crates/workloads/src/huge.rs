//! Huge pages: transparent ones, and those of hugetlb.

use crate::area::Area;
use crate::child::{Birth, Life, Nursery};
use crate::rounds::Rounds;
use crate::table::{Need, Workload, cause, class, expect};
use procfs::Current;
use std::io;

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "huge",
        "writes to a fresh 2 MiB region with MADV_HUGEPAGE, then MADV_DONTNEED",
        huge,
        expect(&[(class::HUGE_PAGE, 1)], &[(cause::DONTNEED, 0, 1)]),
    )
    .needs(&[Need::Thp]),
    Workload::new(
        "huge_sent",
        "the same with a second thread on CPU 1",
        huge,
        expect(&[(class::HUGE_PAGE, 1)], &[(cause::DONTNEED, 1, 0)]),
    )
    .needs(&[Need::Thp])
    .second(),
    Workload::new(
        "huge_zero",
        "reads and then writes the same region: the huge zero page, then a huge page",
        huge_zero,
        expect(
            &[(class::ZERO_PAGE, 1), (class::HUGE_PAGE, 1)],
            &[(cause::FAULT_HUGE, 0, 1), (cause::DONTNEED, 0, 1)],
        ),
    )
    .older(&[(
        (6, 12),
        expect(
            &[(class::ZERO_PAGE, 1), (class::ZERO_UPGRADE, 1)],
            &[(cause::FAULT_ZERO, 0, 1), (cause::DONTNEED, 0, 1)],
        ),
    )])
    .needs(&[Need::Thp]),
    Workload::new(
        "hugetlb",
        "maps and writes a page of hugetlb, then munmap",
        hugetlb,
        expect(&[(class::HUGE_PAGE, 1)], &[(cause::MUNMAP, 0, 1)]),
    )
    .needs(&[Need::Hugetlb]),
    Workload::new(
        "hugetlb_cow",
        "forks a child that sleeps, writes a page of hugetlb it shares with it, kills it",
        hugetlb_cow,
        expect(&[(class::HUGE_PAGE, 1)], &[(cause::FORK, 0, 1), (cause::FAULT_HUGE, 0, 1)]),
    )
    .needs(&[Need::Hugetlb]),
];

/// The number of free pages of hugetlb.
pub fn free_pages() -> u64 {
    let memory = procfs::Meminfo::current().ok();
    memory.and_then(|memory| memory.hugepages_free).unwrap_or(0)
}

fn region() -> io::Result<Area> {
    let area = Area::table(0)?;
    area.advise(libc::MADV_HUGEPAGE)?;
    Ok(area)
}

/// mm/huge_memory.c: do_huge_pmd_anonymous_page, zap_huge_pmd. The count is exact as long as the
/// machine has a free huge page, or can make one at once.
fn huge(rounds: &mut Rounds) -> io::Result<()> {
    let area = region()?;
    rounds.each(|meeting| {
        area.write(0);
        area.drop_pages(meeting)
    })
}

/// mm/huge_memory.c: do_huge_zero_wp_pmd (6.18; 6.12 and before map base pages): one flush of
/// everything, because pmdp_huge_clear_flush counts base pages.
fn huge_zero(rounds: &mut Rounds) -> io::Result<()> {
    let area = region()?;
    rounds.each(|meeting| {
        area.read(0);
        meeting.meet();
        area.write(0);
        area.drop_pages(meeting)
    })
}

/// mm/hugetlb.c: hugetlb_no_page, __unmap_hugepage_range.
fn hugetlb(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::hugetlb(0)?;
    area.unmap()?;
    rounds.each(|meeting| {
        area.map_hugetlb()?;
        area.write(0);
        meeting.meet();
        area.unmap()
    })
}

/// mm/hugetlb.c: copy_hugetlb_page_range, hugetlb_wp: huge_ptep_clear_flush.
fn hugetlb_cow(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::hugetlb(0)?;
    area.write(0);
    let nursery = Nursery::new(Life::Pause, &[area])?;
    rounds.each(|meeting| {
        let child = nursery.bear(Birth::Fork)?;
        meeting.meet();
        area.write(0);
        child.kill()
    })
}
