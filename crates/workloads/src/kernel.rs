//! Faults that the kernel takes itself, with and without an exception, and faults that fail.

use crate::area::{Area, RW};
use crate::rounds::Rounds;
use crate::sys::check;
use crate::table::{Expectation, Need, Workload, cause, class, expect};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "populate_read",
        "MADV_POPULATE_READ of 8 fresh pages, then MADV_DONTNEED",
        |rounds| populate(rounds, libc::MADV_POPULATE_READ),
        Expectation { without_exception: 8, ..expect(&[], &[(cause::DONTNEED, 0, 1)]) },
    )
    .needs(&[Need::Populate]),
    Workload::new(
        "populate_write",
        "MADV_POPULATE_WRITE of 8 fresh pages, then MADV_DONTNEED",
        |rounds| populate(rounds, libc::MADV_POPULATE_WRITE),
        Expectation { without_exception: 8, ..expect(&[], &[(cause::DONTNEED, 0, 1)]) },
    )
    .needs(&[Need::Populate]),
    Workload::new(
        "mlock",
        "mlock of 8 fresh pages, munlock, then MADV_DONTNEED",
        mlock,
        Expectation { without_exception: 8, ..expect(&[], &[(cause::DONTNEED, 0, 1)]) },
    ),
    Workload::new(
        "kernel_fault",
        "read(2) of /dev/zero into 1 fresh page, then MADV_DONTNEED",
        kernel_fault,
        expect(&[(class::FIRST_TOUCH, 1)], &[(cause::DONTNEED, 0, 1)]),
    ),
    Workload::new(
        "segv",
        "reads memory that allows no access, and handles SIGSEGV",
        segv,
        expect(&[(class::FAILED, 1)], &[]),
    ),
    Workload::new(
        "efault",
        "a system call with a pointer to memory that allows no access: EFAULT",
        efault,
        expect(&[(class::FAILED, 1)], &[]),
    ),
];

const PAGES: usize = 8;

/// mm/gup.c: faultin_page_range: handle_mm_fault for each page, without an exception. The process
/// counts it as a fault.
fn populate(rounds: &mut Rounds, advice: i32) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|meeting| {
        area.advise(advice)?;
        area.drop_pages(meeting)
    })
}

/// mm/mlock.c: __mm_populate, for a write because the mapping is writable. Neither call flushes.
fn mlock(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|meeting| {
        // SAFETY: no object lives in areas.
        check(unsafe { libc::mlock(area.pointer(), area.bytes()) })?;
        // SAFETY: no object lives in areas.
        check(unsafe { libc::munlock(area.pointer(), area.bytes()) })?;
        area.drop_pages(meeting)
    })
}

/// drivers/char/mem.c: read_iter_zero: clear_user faults in the kernel, as a write.
fn kernel_fault(rounds: &mut Rounds) -> io::Result<()> {
    let zeros = File::open("/dev/zero")?;
    let area = Area::anonymous(0, 1)?;
    rounds.each(|meeting| {
        // SAFETY: no object lives in areas; the kernel writes within this one.
        let read = unsafe { libc::read(zeros.as_raw_fd(), area.pointer(), area.bytes()) };
        if read != area.bytes() as isize {
            return Err(io::Error::last_os_error());
        }
        area.drop_pages(meeting)
    })
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text",
    ".globl needless_probe, needless_probe_after",
    "needless_probe:",
    "mov al, [rdi]",
    "needless_probe_after:",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text",
    ".globl needless_probe, needless_probe_after",
    "needless_probe:",
    "ldrb w1, [x0]",
    "needless_probe_after:",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn needless_probe(address: *const libc::c_void);
    fn needless_probe_after();
}

extern "C" fn go_on(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let after = needless_probe_after as *const ();
    // SAFETY: the kernel passes a ucontext to handlers with SA_SIGINFO. Only the probe above causes
    // the signal while the handler is set, and going on after its load is harmless.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    {
        machine.gregs[libc::REG_RIP as usize] = after as i64;
    }
    #[cfg(target_arch = "aarch64")]
    {
        machine.pc = after as u64;
    }
}

/// arch/x86/mm/fault.c: bad_area_access_error: a signal, and no page. The handler goes on behind
/// the load.
fn segv(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::anonymous(0, 1)?;
    area.protect(libc::PROT_NONE)?;
    // SAFETY: sigaction is plain numbers, for which zero is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = go_on as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler touches nothing but the context that it gets.
    check(unsafe { libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) })?;
    rounds.each(|_| {
        // SAFETY: the load faults, and the handler skips it.
        unsafe { needless_probe(area.pointer()) };
        Ok(())
    })
}

/// fs/ioctl.c: ioctl_fionbio: one load, which is fixed up (arch/x86/mm/fault.c:
/// kernelmode_fixup_or_oops) and not tried again. (How often a copy faults depends on the
/// processor.)
fn efault(rounds: &mut Rounds) -> io::Result<()> {
    let file = File::open("/dev/zero")?;
    let area = Area::anonymous(0, 1)?;
    area.protect(libc::PROT_NONE)?;
    rounds.each(|_| {
        // SAFETY: the kernel reads a number there, and fails.
        let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::FIONBIO, area.pointer()) };
        if status != -1 {
            return Err(io::Error::other("ioctl could read memory that allows no access"));
        }
        Ok(())
    })?;
    area.protect(RW)
}
