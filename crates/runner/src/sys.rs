//! The system calls and instructions of scenarios, each in a small function.

use crate::wire::Failure;
use needless_model::addr::{CpuId, PAGE_SIZE, PageRange, Vpn};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Pins the calling thread to `cpu`.
pub fn pin(cpu: CpuId) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu.index());
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Pins the task `tid` to `cpu`.
pub fn pin_task(tid: i32, cpu: CpuId) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu.index());
    Ok(rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(tid), &set)?)
}

/// The calling thread's id.
pub fn tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Nanoseconds from one tick of the clock to the next.
///
/// Source: kernel/time/posix-timers.c:posix_get_coarse_res (5.10 to 7.2).
pub fn tick_ns() -> u64 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
}

/// Nanoseconds of CLOCK_MONOTONIC_RAW, the clock of the event rings.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec. libc uses the vDSO, without a system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reads the time stamp counter before a measured block. Nothing later starts before the read.
#[cfg(target_arch = "x86_64")]
pub fn cycles_before() -> u64 {
    // SAFETY: every x86-64 processor has these instructions.
    unsafe {
        std::arch::x86_64::_mm_lfence();
        let cycles = std::arch::x86_64::_rdtsc();
        std::arch::x86_64::_mm_lfence();
        cycles
    }
}

/// Reads the time stamp counter after a measured block. Everything earlier is done before the read.
#[cfg(target_arch = "x86_64")]
pub fn cycles_after() -> u64 {
    let mut cpu = 0;
    // SAFETY: every x86-64 processor that Linux 5.10 and later run on has rdtscp.
    unsafe {
        let cycles = std::arch::x86_64::__rdtscp(&mut cpu);
        std::arch::x86_64::_mm_lfence();
        cycles
    }
}

/// Reads the virtual counter before a measured block.
#[cfg(target_arch = "aarch64")]
pub fn cycles_before() -> u64 {
    let cycles: u64;
    // SAFETY: Linux lets user space read the virtual counter.
    unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) cycles) };
    cycles
}

/// Reads the virtual counter after a measured block.
#[cfg(target_arch = "aarch64")]
pub fn cycles_after() -> u64 {
    cycles_before()
}

/// What a process has used.
#[derive(Copy, Clone, Debug, Default)]
pub struct Usage {
    /// The number of minor faults.
    pub minor_faults: u64,
    /// The number of major faults.
    pub major_faults: u64,
    /// How often a thread lost its CPU while it was still runnable.
    pub involuntary_switches: u64,
}

impl Usage {
    /// What all threads of this process have used together. Threads that only hold a CPU take no
    /// faults.
    pub fn now() -> Usage {
        // SAFETY: rusage is plain numbers; all zero is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is valid for writing.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        Usage {
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// The sum of this usage and `more`.
    pub fn plus(self, more: Usage) -> Usage {
        Usage {
            minor_faults: self.minor_faults + more.minor_faults,
            major_faults: self.major_faults + more.major_faults,
            involuntary_switches: self.involuntary_switches + more.involuntary_switches,
        }
    }

    /// The difference between this usage and an earlier one.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            minor_faults: self.minor_faults - earlier.minor_faults,
            major_faults: self.major_faults - earlier.major_faults,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
        }
    }
}

/// The address of a page.
pub fn pointer(page: Vpn) -> *mut libc::c_void {
    page.address() as *mut libc::c_void
}

/// The length of a range in bytes.
pub fn bytes(range: PageRange) -> usize {
    (range.pages() * PAGE_SIZE) as usize
}

/// Calls `MADV_NOHUGEPAGE`, for memory that must consist of base pages. If the kernel does not know
/// the advice, it has no huge pages. So an error means nothing.
pub fn forbid_huge_pages(range: PageRange) {
    // SAFETY: the range lies in the scenario's areas, and no object of the runner lives there.
    unsafe { libc::madvise(pointer(range.start), bytes(range), libc::MADV_NOHUGEPAGE) };
}

/// Loads the page's first byte.
#[inline]
pub fn load(page: Vpn) -> u8 {
    // SAFETY: the page lies in the scenario's areas. If it is not mapped, the signal handler of
    // `crash` ends the run.
    unsafe { std::ptr::read_volatile(page.address() as *const u8) }
}

/// Stores to the page's first byte.
#[inline]
pub fn store(page: Vpn, value: u8) {
    // SAFETY: the page lies in the scenario's areas, and no Rust object lives there. If it is not
    // mapped, the signal handler of `crash` ends the run.
    unsafe { std::ptr::write_volatile(page.address() as *mut u8, value) };
}

/// Stores zeros to the whole page. (A page that was copied from a file contains more than was
/// stored to it.)
pub fn store_zeros(page: Vpn) {
    let words = page.address() as *mut u64;
    for word in 0..PAGE_SIZE as usize / size_of::<u64>() {
        // SAFETY: the page lies in the scenario's areas, and no Rust object lives there. If it is
        // not mapped, the signal handler of `crash` ends the run.
        unsafe { std::ptr::write_volatile(words.wrapping_add(word), 0) };
    }
}

/// Sleeps while `word` has the value `value`, for `most` at most. Returns early on signals and
/// wake-ups. The word may lie in memory that processes share.
pub fn futex_wait(word: &AtomicU32, value: u32, most: Option<Duration>) {
    let timeout = most.map(|most| libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: most.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `word` and the timeout live as long as the call; a null timeout means none.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, timeout) };
}

/// Wakes all threads that sleep on `word`.
pub fn futex_wake_all(word: &AtomicU32) {
    // SAFETY: `word` is valid; the kernel only uses its address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps (`nanosleep`), without allocation.
pub fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// Keeps the allocator from giving memory back and from mapping more. Blocks grow only the heap,
/// and the heap never shrinks.
pub fn tame_allocator(headroom: usize) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_MAX, 0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, headroom as i32);
    }
    warm_heap(headroom);
}

/// Touches `size` bytes of free heap.
pub fn warm_heap(size: usize) {
    let warm: Vec<u8> = vec![1; size];
    std::hint::black_box(&warm);
}

/// Makes an empty vector whose memory has been written to. A page that is first touched while the
/// scenario runs would join the scenario's pages in the CPU's LRU batch.
pub fn roomy<T: Clone>(room: usize, value: T) -> Vec<T> {
    let mut vector = vec![value; room];
    std::hint::black_box(&mut vector).clear();
    vector
}

/// Grows the heap by `size` bytes, without touching them.
pub fn widen_heap(size: usize) {
    let room: Vec<u8> = Vec::with_capacity(size);
    std::hint::black_box(&room);
}

/// Bytes of its stack that a thread touches beforehand.
pub const STACK_TOUCHED: usize = 256 * 1024;

/// Touches the stack below the current frame, so that it does not fault later.
#[inline(never)]
pub fn prefault_stack() {
    let mut room = [0_u8; STACK_TOUCHED];
    for at in (0..room.len()).step_by(4096) {
        // SAFETY: `at` is inside the array.
        unsafe { std::ptr::write_volatile(room.as_mut_ptr().add(at), 1) };
    }
    std::hint::black_box(&room);
}

/// Makes the stack as deep as it may ever have to be. A shared stack does not grow.
#[inline(never)]
pub fn deepen_stack() {
    let mut room = [0_u8; 2 << 20];
    for at in (0..room.len()).step_by(4096).rev() {
        // SAFETY: `at` is inside the array.
        unsafe { std::ptr::write_volatile(room.as_mut_ptr().add(at), 1) };
    }
    std::hint::black_box(&room);
}

/// The exit status that a shell would give.
pub fn shell_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128_u8.wrapping_add(signal as u8),
        (None, None) => 125,
    }
}

/// Switches huge pages off or on for this process, whatever the machine's setting
/// (`PR_SET_THP_DISABLE`).
pub fn disable_huge_pages(disable: bool) -> Result<(), Failure> {
    let zero: libc::c_ulong = 0;
    // SAFETY: the call gets no address.
    match unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(disable), zero, zero, zero)
    } {
        0 => Ok(()),
        _ => Err(Failure::internal("PR_SET_THP_DISABLE", &io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_the_shells() {
        assert_eq!(shell_status(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(shell_status(ExitStatus::from_raw(9)), 137);
    }
}
