//! Swap, on a device that the kernel reads without the swap cache (zram).
//!
//! Up to 6.1, MADV_PAGEOUT flushes once more, for accessed bits of pages that are already unmapped
//! (mm/madvise.c: madvise_cold_or_pageout_pte_range).

use crate::area::Area;
use crate::rounds::Rounds;
use crate::table::{Need, Workload, cause, class, expect};
use std::io;

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "swap_in",
        "MADV_PAGEOUT of 1 page, then reads it",
        swap_in,
        expect(&[(class::SWAP_IN, 1)], &[(cause::PAGEOUT, 0, 1)]),
    )
    .older(&[((6, 1), expect(&[(class::SWAP_IN, 1)], &[(cause::PAGEOUT, 0, 2)]))])
    .needs(&[Need::Swap]),
    Workload::new(
        "swap_rw",
        "MADV_PAGEOUT of 1 page, reads it, writes it, with a second thread on CPU 1",
        swap_rw,
        expect(&[(class::SWAP_IN, 1)], &[(cause::PAGEOUT, 2, 0)]),
    )
    .older(&[
        (
            (5, 10),
            expect(
                &[(class::SWAP_IN, 1), (class::COW_COPY, 1)],
                &[(cause::PAGEOUT, 3, 0), (cause::FAULT_COW, 1, 0)],
            ),
        ),
        ((6, 1), expect(&[(class::SWAP_IN, 1), (class::REUSE, 1)], &[(cause::PAGEOUT, 3, 0)])),
    ])
    .needs(&[Need::Swap])
    .second(),
    Workload::new(
        "swap_write",
        "MADV_PAGEOUT of 4 pages, then writes them",
        swap_write,
        expect(&[(class::SWAP_IN, 4)], &[(cause::PAGEOUT, 0, 4)]),
    )
    .older(&[((6, 1), expect(&[(class::SWAP_IN, 4)], &[(cause::PAGEOUT, 0, 5)]))])
    .needs(&[Need::Swap]),
];

/// mm/rmap.c: try_to_unmap_one flushes the page at once, because no other CPU has to be flushed
/// (should_defer_flush); mm/memory.c: do_swap_page.
fn swap_in(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, 1)?;
    area.write(0);
    rounds.each(|_| {
        area.advise(libc::MADV_PAGEOUT)?;
        area.read(0);
        Ok(())
    })
}

/// Two flushes: first the one that the round before left pending (mm/rmap.c:
/// flush_tlb_batched_pending), then the batch before the page is written out
/// (try_to_unmap_flush_dirty). The read maps the page writable if it is exclusive (mm/memory.c:
/// do_swap_page, 6.12 and later), so the write does not fault; 6.1 reuses the page in a fault, 5.10
/// copies it (mm/memory.c: do_wp_page). The count is exact as long as no other task gets CPU 1
/// between the two flushes: the first one would make the CPU leave `mm_cpumask`.
fn swap_rw(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, 1)?;
    area.write(0);
    rounds.each(|meeting| {
        meeting.meet();
        area.advise(libc::MADV_PAGEOUT)?;
        area.read(0);
        area.write(0);
        Ok(())
    })
}

/// Like `swap_in`, with each page by itself.
fn swap_write(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, 4)?;
    area.write_all();
    rounds.each(|_| {
        area.advise(libc::MADV_PAGEOUT)?;
        area.write_all();
        Ok(())
    })
}
