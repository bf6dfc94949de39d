//! Shares the runner's own memory between processes, so that a fork does no work for it.
//!
//! A fork takes away the right to store to every private page of the process. The next store copies
//! the page. The runner's own pages would add a fault and a flush each to those of the scenario. So
//! before any process is forked, all of the runner's memory that is written (data, heap, stacks)
//! moves into shared mappings at the same addresses. A fork does not copy the page tables of these
//! (mm/memory.c:vma_needs_copy) and protects nothing in them. Memory that stays private is never
//! written: the program's text, constants, and what the linker made read-only.
//!
//! Parent and child use the runner's memory as threads do. Each process has only its own copy of
//! the scenario's areas. The child's first access to each page of the runner's memory faults,
//! without a flush. The child makes these accesses before its first turn ([`visit`]).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};

/// A stretch of the runner's address space: its first byte, and the byte after its last.
pub type Stretch = (usize, usize);

/// The contents of a line of `/proc/self/maps`.
struct Mapping<'a> {
    place: Stretch,
    rights: &'a str,
    name: &'a str,
}

fn mapping(line: &str) -> Option<Mapping<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let place = (address(start)?, address(end)?);
    let rights = words.next()?;
    Some(Mapping { place, rights, name: words.nth(3).unwrap_or("") })
}

/// Moves the runner's writable memory into shared mappings. Called while there is one thread.
pub fn share_all() -> io::Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for mapping in maps.lines().filter_map(mapping) {
        if mapping.rights.starts_with("rw") && mapping.rights.ends_with('p') {
            share(mapping.place)?;
        }
    }
    Ok(())
}

/// Loads from every page of the program that is never written. So code that first runs in a round
/// takes no fault.
pub fn load_text() -> io::Result<()> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let ours = |mapping: &Mapping<'_>| program.as_os_str() == mapping.name;
    for Mapping { place, rights, .. } in maps.lines().filter_map(mapping).filter(ours) {
        if rights.starts_with("r-") {
            for page in (place.0..place.1).step_by(PAGE) {
                // SAFETY: the mapping allows loads, and it stays.
                unsafe { std::ptr::read_volatile(page as *const u8) };
            }
        }
    }
    Ok(())
}

/// The end of the heap when it was last shared. Heap behind it is private.
pub struct HeapEnd(usize);

impl HeapEnd {
    /// The current end of the heap.
    pub fn now() -> HeapEnd {
        HeapEnd(heap_end())
    }

    /// Shares heap that was added since the last call. Returns whether there was any.
    pub fn follow(&mut self) -> io::Result<bool> {
        let end = heap_end();
        let added = (std::mem::replace(&mut self.0, end), end);
        if added.0 >= added.1 {
            return Ok(false);
        }
        replace_fresh(added).map(|()| true)
    }
}

/// Replaces new heap by shared memory. Little of the new heap has been written to.
fn replace_fresh((start, end): Stretch) -> io::Result<()> {
    let new = map_shared(end - start)?;
    each_resident((start, end), |(from, to)| {
        // SAFETY: both mappings contain this stretch, and they do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(from as *const u8, new.add(from - start), to - from);
        }
    })?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let old = start as *mut libc::c_void;
    // SAFETY: the new mapping has the contents of the old one.
    let at = unsafe { libc::mremap(new.cast(), end - start, end - start, flags, old) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Calls `tell` for each part of a stretch that is in memory.
fn each_resident((start, end): Stretch, mut tell: impl FnMut(Stretch)) -> io::Result<()> {
    let mut resident = [0; 512];
    for part in (start..end).step_by(resident.len() * PAGE) {
        let size = (end - part).min(resident.len() * PAGE);
        // SAFETY: `resident` has a byte for each page.
        if unsafe { libc::mincore(part as *mut libc::c_void, size, resident.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        for run in resident[..size / PAGE].chunk_by(|a, b| a & 1 == b & 1) {
            let first = part + (run.as_ptr() as usize - resident.as_ptr() as usize) * PAGE;
            if run[0] & 1 == 1 {
                tell((first, first + run.len() * PAGE));
            }
        }
    }
    Ok(())
}

/// The end of the heap's last page.
fn heap_end() -> usize {
    // SAFETY: an increment of 0 changes nothing.
    let end = unsafe { libc::sbrk(0) } as usize;
    end.next_multiple_of(PAGE)
}

const PAGE: usize = needless_model::addr::PAGE_SIZE as usize;

/// Maps shared memory of `size` bytes, and touches the last `touched` of them.
pub fn memory(size: usize, touched: usize) -> io::Result<*mut u8> {
    let at = map_shared(size)?;
    for offset in (size - touched..size).step_by(PAGE) {
        // SAFETY: the mapping is new and has this size.
        unsafe { at.add(offset).write_volatile(0) };
    }
    Ok(at)
}

fn map_shared(size: usize) -> io::Result<*mut u8> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses a free place for the new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, prot, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// Replaces a private stretch by shared memory with equal contents.
fn share((start, end): Stretch) -> io::Result<()> {
    let new = map_shared(end - start)?;
    // SAFETY: `new` is an unused mapping of that size, and no other thread runs now.
    let status = unsafe { copy_and_replace(new as usize, start, end - start) };
    if status == start {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(-(status as isize) as i32))
    }
}

/// Copies `size` bytes (whole pages) from `old` to `new`, and moves the mapping at `new` to `old`.
/// Returns the result of `mremap`. The stretch may contain the current stack, so nothing is stored
/// to memory in between.
///
/// # Safety
/// Both are mappings of that size, and nothing else stores to the old one meanwhile.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_and_replace(new: usize, old: usize, size: usize) -> usize {
    let status: usize;
    // SAFETY: the caller guarantees it. The code after the call finds the copy of its stack.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            "mov rdi, r12",
            "mov rsi, r13",
            "mov rdx, r13",
            "syscall",
            inout("rdi") new => _,
            inout("rsi") old => _,
            inout("rcx") size => _,
            in("r12") new,
            in("r13") size,
            in("r8") old,
            in("r10") libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            inout("rax") libc::SYS_mremap as usize => status,
            out("rdx") _,
            out("r11") _,
            options(nostack),
        );
    }
    status
}

/// Copies `size` bytes (whole pages) from `old` to `new`, and moves the mapping at `new` to `old`.
/// Returns the result of `mremap`. The stretch may contain the current stack, so nothing is stored
/// to memory in between.
///
/// # Safety
/// Both are mappings of that size, and nothing else stores to the old one meanwhile.
#[cfg(target_arch = "aarch64")]
unsafe fn copy_and_replace(new: usize, old: usize, size: usize) -> usize {
    let status: usize;
    // SAFETY: the caller guarantees it. The code after the call finds the copy of its stack.
    unsafe {
        std::arch::asm!(
            "2:",
            "ldr x9, [x1], #8",
            "str x9, [x0], #8",
            "subs x2, x2, #8",
            "b.ne 2b",
            "mov x0, x10",
            "mov x1, x11",
            "mov x2, x11",
            "svc #0",
            inout("x0") new => status,
            inout("x1") old => _,
            inout("x2") size => _,
            in("x3") libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            in("x4") old,
            in("x8") libc::SYS_mremap,
            out("x9") _,
            in("x10") new,
            in("x11") size,
            options(nostack),
        );
    }
    status
}

/// A stretch of the runner's memory that a child accesses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ours {
    /// The addresses of the stretch.
    pub place: Stretch,
    /// Whether the child may store to it.
    pub writable: bool,
}

/// All of the runner's memory that a child may access: what is mapped and in memory, without the
/// mappings for which `own` is true.
pub fn ours(own: impl Fn(Stretch) -> bool) -> io::Result<Vec<Ours>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    // Every process has the kernel's own pages. Rings exist only in the process that opened them.
    let kernels = |name: &str| name.starts_with("[v") || name.starts_with("anon_inode:");
    let ours = maps.lines().filter_map(mapping).filter(|mapping| {
        mapping.rights.starts_with('r') && !kernels(mapping.name) && !own(mapping.place)
    });
    let mut all = Vec::new();
    for mapping in ours {
        let writable = mapping.rights.starts_with("rw");
        each_resident(mapping.place, |place| all.push(Ours { place, writable }))?;
    }
    Ok(all)
}

/// Makes the kernel mark each of these pages as accessed, twice. Then they are active.
///
/// When a process ends, the kernel marks each page of a file or of shared memory that it had mapped
/// as accessed. Without multi-generational LRU, the second mark puts an inactive page into a batch
/// of the CPU (mm/swap.c:folio_mark_accessed, folio_activate). The scenario's pages wait in that
/// batch, too, and so many pages of the runner would drain it. A read of `/proc/self/mem` marks the
/// page that it reads (FOLL_TOUCH).
pub fn activate(all: &[Ours]) -> io::Result<()> {
    let memory = File::open("/proc/self/mem")?;
    for _ in 0..2 {
        for Ours { place: (start, end), .. } in all {
            for page in (*start..*end).step_by(PAGE) {
                memory.read_exact_at(&mut [0], page as u64)?;
            }
        }
    }
    Ok(())
}

/// Reads from each page, so that it does not fault later. (Shared memory is mapped with all its
/// rights at once.) If the processor may leave the dirty bit to a fault, `writable` pages are
/// mapped dirty. A kernel that knows how (5.14) does that without a flush.
pub fn visit((start, end): Stretch, writable: bool) {
    let dirties = writable && cfg!(target_arch = "aarch64");
    if dirties {
        populate((start, end));
    }
    for page in (start..end).step_by(PAGE) {
        // SAFETY: the stretch is mapped in every process of the runner, and may be read.
        unsafe { std::ptr::read_volatile(page as *const u8) };
        // A page that was mapped by another page's fault is present and clean.
        if dirties {
            store_the_same(page);
        }
    }
}

/// Makes the kernel map the pages for stores, those that are not mapped yet.
fn populate((start, end): Stretch) {
    let (from, to) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
    let size = to.saturating_sub(from);
    // SAFETY: the contents of the pages stay.
    unsafe { libc::madvise(from as *mut libc::c_void, size, libc::MADV_POPULATE_WRITE) };
}

/// Stores the value that is there, while other tasks may use the page.
fn store_the_same(page: usize) {
    // SAFETY: the page is mapped in every process of the runner, and may be stored to. Others see
    // an atomic store of the value that is there already.
    let byte = unsafe { AtomicU8::from_ptr(page as *mut u8) };
    let same = |value| Some(value);
    // `fetch_update` stores with a compare-and-swap, which no compiler leaves out.
    let _ = byte.fetch_update(Ordering::Relaxed, Ordering::Relaxed, same);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let heap = mapping("00a0-00b0 rw-p 00000000 00:00 0                  [heap]").unwrap();
        assert_eq!((heap.place, heap.rights, heap.name), ((0xa0, 0xb0), "rw-p", "[heap]"));
        assert_eq!(mapping("1000-2000 r--s 00000000 00:00 0").unwrap().name, "");
        assert!(mapping("rubbish").is_none());
    }

    #[test]
    fn a_stretch_holds_the_same_when_it_is_shared() {
        let at = map_shared(2 * PAGE).unwrap();
        // SAFETY: the new private mapping takes the place of a new shared one.
        let at = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            libc::mmap(at.cast(), 2 * PAGE, prot, flags, -1, 0).cast::<u8>()
        };
        // SAFETY: the address lies in the mapping.
        unsafe { at.add(PAGE + 7).write_volatile(42) };
        let stretch = (at as usize, at as usize + 2 * PAGE);
        share(stretch).unwrap();
        visit(stretch, true);
        store_the_same(stretch.0);
        populate(stretch);
        // SAFETY: the address lies in the mapping.
        assert_eq!(unsafe { at.add(PAGE + 7).read_volatile() }, 42);
        activate(&[Ours { place: stretch, writable: true }]).unwrap();
        assert!(
            activate(&[Ours { place: (PAGE, 2 * PAGE), writable: false }]).is_err(),
            "nothing is mapped there"
        );
        // Other tests of this process map and unmap memory meanwhile. Before a round of the runner
        // no thread does.
        let ours = (0..100).find_map(|_| ours(|_| false).ok()).unwrap();
        assert!(ours.iter().any(|ours| {
            ours.writable && ours.place.0 <= stretch.0 && stretch.1 <= ours.place.1
        }));
    }
}
