//! System calls that take pages or rights away, and therefore flush.

use crate::area::{Area, RW};
use crate::rounds::Rounds;
use crate::sys::PAGE;
use crate::table::{Workload, cause, class, expect};
use std::io;

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "munmap_local",
        "maps and writes 1 page, then munmap",
        |rounds| munmap(rounds, 1),
        expect(&[(class::FIRST_TOUCH, 1)], &[(cause::MUNMAP, 0, 1)]),
    ),
    Workload::new(
        "munmap_sent",
        "the same with a second thread on CPU 1",
        |rounds| munmap(rounds, 1),
        expect(&[(class::FIRST_TOUCH, 1)], &[(cause::MUNMAP, 1, 0)]),
    )
    .second(),
    Workload::new(
        "munmap_34",
        "maps and writes 34 pages, then munmap: the least that flushes everything",
        |rounds| munmap(rounds, 34),
        expect(&[(class::FIRST_TOUCH, 34)], &[(cause::MUNMAP, 0, 1)]),
    ),
    Workload::new(
        "munmap_untouched",
        "maps 4 pages, then munmap: nothing to flush",
        munmap_untouched,
        expect(&[], &[]),
    ),
    Workload::new(
        "mmap_fixed",
        "writes 4 pages, then maps others in their place",
        mmap_fixed,
        expect(&[(class::FIRST_TOUCH, 4)], &[(cause::MMAP_FIXED, 0, 1)]),
    ),
    Workload::new(
        "mprotect",
        "mprotect of 4 dirty pages to read-only and back, then writes them",
        |rounds| mprotect(rounds, libc::PROT_READ),
        expect(&[], &[(cause::PROTECT_READ, 0, 1), (cause::PROTECT_WRITE, 0, 1)]),
    )
    .older(&[(
        (5, 10),
        expect(&[(class::REUSE, 4)], &[(cause::PROTECT_READ, 0, 1), (cause::PROTECT_WRITE, 0, 1)]),
    )]),
    Workload::new(
        "mprotect_sent",
        "the same with a second thread on CPU 1",
        |rounds| mprotect(rounds, libc::PROT_READ),
        expect(&[], &[(cause::PROTECT_READ, 1, 0), (cause::PROTECT_WRITE, 1, 0)]),
    )
    .older(&[(
        (5, 10),
        expect(&[(class::REUSE, 4)], &[(cause::PROTECT_READ, 1, 0), (cause::PROTECT_WRITE, 1, 0)]),
    )])
    .second(),
    Workload::new(
        "mprotect_none",
        "mprotect of 4 dirty pages to no access and back, then writes them",
        |rounds| mprotect(rounds, libc::PROT_NONE),
        expect(&[], &[(cause::PROTECT_NONE, 0, 1)]),
    )
    .older(&[(
        (5, 10),
        expect(&[(class::REUSE, 4)], &[(cause::PROTECT_NONE, 0, 1), (cause::PROTECT_WRITE, 0, 1)]),
    )]),
    Workload::new(
        "mprotect_toggle",
        "mprotect of 1 dirty page to no access and back, as a barrier to a second thread on CPU 1",
        mprotect_toggle,
        expect(&[], &[(cause::PROTECT_NONE, 1, 0)]),
    )
    .older(&[((5, 10), expect(&[], &[(cause::PROTECT_NONE, 1, 0), (cause::PROTECT_WRITE, 1, 0)]))])
    .second(),
    Workload::new(
        "mremap",
        "mremap of 4 pages to another place and back",
        mremap,
        expect(&[], &[(cause::MREMAP, 0, 2)]),
    ),
    Workload::new(
        "mremap_sent",
        "the same with a second thread on CPU 1",
        mremap,
        expect(&[], &[(cause::MREMAP, 2, 0)]),
    )
    .second(),
    Workload::new(
        "brk",
        "moves the end of the heap 4 pages up, writes them, and moves it back",
        heap,
        expect(&[(class::FIRST_TOUCH, 4)], &[(cause::BRK, 0, 1)]),
    ),
    Workload::new(
        "brk_sent",
        "the same with a second thread on CPU 1",
        heap,
        expect(&[(class::FIRST_TOUCH, 4)], &[(cause::BRK, 1, 0)]),
    )
    .second(),
    Workload::new(
        "dontneed_untouched",
        "MADV_DONTNEED of 4 pages never touched: nothing to flush",
        dontneed_untouched,
        expect(&[], &[]),
    ),
    Workload::new(
        "free",
        "writes 4 pages, then MADV_FREE twice: the second finds them clean",
        |rounds| age(rounds, libc::MADV_FREE),
        expect(&[], &[(cause::FREE, 0, 1)]),
    ),
    Workload::new(
        "cold",
        "writes 4 pages, then MADV_COLD twice: the second finds them old",
        |rounds| age(rounds, libc::MADV_COLD),
        expect(&[], &[(cause::COLD, 0, 1)]),
    ),
];

const PAGES: usize = 4;

/// mm/vma.c: vms_clear_ptes: one gather. The neighbour keeps the page table.
fn munmap(rounds: &mut Rounds, pages: usize) -> io::Result<()> {
    let area = Area::place(0, pages)?;
    rounds.each(|meeting| {
        area.map_anonymous()?;
        area.write_all();
        meeting.meet();
        area.unmap()
    })
}

/// mm/mmu_gather.c: tlb_flush_mmu_tlbonly: nothing was cleared.
fn munmap_untouched(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::place(0, PAGES)?;
    rounds.each(|meeting| {
        area.map_anonymous()?;
        meeting.meet();
        area.unmap()
    })
}

/// mm/vma.c: vms_clear_ptes, as for munmap.
fn mmap_fixed(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|meeting| {
        area.write_all();
        meeting.meet();
        area.replace()
    })
}

/// mm/mprotect.c: change_pte_range; x86's pte_flags_need_flush asks for a flush in both directions,
/// but for none if the page could not be accessed. The pages are exclusive, so the call makes them
/// writable (can_change_pte_writable) and the writes do not fault. 5.10 has neither: every change
/// flushes, and the writes make the pages writable.
fn mprotect(rounds: &mut Rounds, prot: i32) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|meeting| {
        area.write_all();
        meeting.meet();
        area.protect(prot)?;
        meeting.meet();
        area.protect(RW)
    })
}

/// No task touches the page between the two calls.
fn mprotect_toggle(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, 1)?;
    area.write_all();
    rounds.each(|meeting| {
        meeting.meet();
        area.protect(libc::PROT_NONE)?;
        meeting.meet();
        area.protect(RW)
    })
}

/// mm/mremap.c: move_ptes: flush_tlb_range, once for each page table.
fn mremap(rounds: &mut Rounds) -> io::Result<()> {
    let (here, there) = (Area::anonymous(0, PAGES)?, Area::place(1, PAGES)?);
    here.write_all();
    rounds.each(|meeting| {
        meeting.meet();
        here.move_to(there)?;
        meeting.meet();
        there.move_to(here)
    })
}

/// mm/mmap.c: brk: one gather. The page below keeps the page table. If the pages begin the next
/// table, that table is freed with them, in the same flush.
fn heap(rounds: &mut Rounds) -> io::Result<()> {
    let end = set_heap_end(0)?;
    let first = end.next_multiple_of(PAGE);
    let after = set_heap_end(first + (PAGES + 1) * PAGE)?;
    let low = after - PAGES * PAGE;
    write(low - PAGE);
    rounds.each(|meeting| {
        set_heap_end(after)?;
        (0..PAGES).for_each(|page| write(low + page * PAGE));
        meeting.meet();
        set_heap_end(low).map(drop)
    })?;
    set_heap_end(end).map(drop)
}

/// Calls brk directly. The C library's heap is not affected, because no round allocates.
fn set_heap_end(address: usize) -> io::Result<usize> {
    // SAFETY: only pages above the heap's original end are added, written and taken away.
    let end = unsafe { libc::syscall(libc::SYS_brk, address) } as usize;
    if address != 0 && end != address { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(end) }
}

fn write(address: usize) {
    // SAFETY: the page is above the heap that the C library knows of, and belongs to nobody.
    unsafe { std::ptr::write_volatile(address as *mut u8, 1) };
}

/// mm/mmu_gather.c: tlb_flush_mmu_tlbonly: nothing was cleared.
fn dontneed_untouched(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|meeting| area.drop_pages(meeting))
}

/// mm/madvise.c: madvise_free_pte_range and madvise_cold_or_pageout_pte_range clear the bits, and
/// flush if any was set. The writes set the bits again without a fault.
fn age(rounds: &mut Rounds, advice: i32) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|meeting| {
        area.write_all();
        meeting.meet();
        area.advise(advice)?;
        area.advise(advice)
    })
}
