//! userfaultfd. Where a fault waits, a second thread on CPU 1 answers it.

use crate::area::Area;
use crate::rounds::Rounds;
use crate::sys::{self, PAGE, check, number};
use crate::table::{Expectation, Need, Waits, Workload, cause, class, expect};
use needless_watch::stacks::For;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "uffd_missing",
        "writes 1 page that another thread provides by UFFDIO_COPY, then MADV_DONTNEED",
        uffd_missing,
        expect(&[(class::USERFAULTFD, 1)], &[(cause::DONTNEED, 1, 0)]),
    )
    .needs(&[Need::Userfaultfd, Need::SecondCpu]),
    Workload::new(
        "uffd_late",
        "the same, provided a millisecond after it was asked for",
        uffd_late,
        Expectation {
            waits: Some(Waits::Always(For::Userfaultfd, 1)),
            ..expect(&[(class::USERFAULTFD, 1)], &[(cause::DONTNEED, 1, 0)])
        },
    )
    .needs(&[Need::Userfaultfd, Need::SecondCpu]),
    Workload::new(
        "uffd_wp",
        "UFFDIO_WRITEPROTECT of 1 page, then writes it; another thread lifts the protection",
        uffd_wp,
        expect(&[(class::USERFAULTFD, 1)], &[(cause::WRITE_PROTECT, 2, 0)]),
    )
    .older(&[
        ((5, 10), expect(&[(class::USERFAULTFD, 1)], &[(cause::WRITE_PROTECT, 2, 0)])),
        ((6, 1), expect(&[(class::USERFAULTFD, 1)], &[(cause::WRITE_PROTECT, 1, 0)])),
    ])
    .needs(&[Need::Userfaultfd, Need::WriteProtect, Need::SecondCpu]),
    Workload::new(
        "uffd_wp_async",
        "UFFDIO_WRITEPROTECT of 4 pages, then writes them; the kernel lifts the protection",
        uffd_wp_async,
        expect(&[(class::REUSE, 4)], &[(cause::WRITE_PROTECT, 0, 1)]),
    )
    .needs(&[Need::Userfaultfd, Need::AsyncWriteProtect]),
];

// Source: include/uapi/linux/userfaultfd.h
const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const COPY: libc::c_ulong = 0xc028_aa03;
const WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
const VERSION: u64 = 0xaa;
const FEATURE_FLAG_WP: u64 = 1;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;

/// Whether this process may use userfaultfd.
pub fn available() -> bool {
    open(0).is_ok()
}

/// Whether userfaultfd can protect against writes.
pub fn protects() -> bool {
    open(FEATURE_FLAG_WP).is_ok()
}

/// Whether the kernel can lift protections itself.
pub fn lifts_protection() -> bool {
    open(FEATURE_FLAG_WP | FEATURE_WP_ASYNC).is_ok()
}

/// A descriptor whose reads block.
fn open(features: u64) -> io::Result<File> {
    // SAFETY: the call only makes a descriptor.
    let file = number(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) })?;
    // SAFETY: the descriptor is new and nobody else's.
    let file = unsafe { File::from_raw_fd(file) };
    request(file.as_raw_fd(), API, &mut [VERSION, features, 0])?;
    Ok(file)
}

fn request<const N: usize>(
    file: RawFd,
    number: libc::c_ulong,
    argument: &mut [u64; N],
) -> io::Result<()> {
    // SAFETY: each request of this file has as many numbers as its structure. It refers to areas,
    // in which no object lives, or to memory that stays.
    check(unsafe { libc::ioctl(file, number, argument.as_mut_ptr()) })
}

fn register(file: &File, area: Area, mode: u64) -> io::Result<()> {
    let mut argument = [area.address() as u64, area.bytes() as u64, mode, 0];
    request(file.as_raw_fd(), REGISTER, &mut argument)
}

fn write_protect(file: RawFd, area: Area, protect: bool) -> io::Result<()> {
    let mut argument = [area.address() as u64, area.bytes() as u64, u64::from(protect)];
    request(file, WRITEPROTECT, &mut argument)
}

/// Starts the thread that answers faults by `answer`, for as long as the process lives. Otherwise
/// the thread waits in the kernel. Its answers bring CPU 1 into `mm_cpumask`.
fn answer_by(
    file: &File,
    answer: impl Fn(RawFd) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    static READY: AtomicBool = AtomicBool::new(false);
    let mut events = file.try_clone()?;
    let thread: JoinHandle<io::Result<()>> =
        std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            sys::pin(1)?;
            READY.store(true, SeqCst);
            // The structure uffd_msg.
            let mut message = [0; 32];
            loop {
                events.read_exact(&mut message)?;
                answer(events.as_raw_fd())?;
            }
        })?;
    while !READY.load(SeqCst) {
        if thread.is_finished() {
            return Err(io::Error::other("the second thread could not have CPU 1"));
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// fs/userfaultfd.c: handle_userfault waits, and the fault is tried again in the same exception;
/// mm/userfaultfd.c: mfill_atomic_pte_copy. CPU 1 has run the other thread since the last flush, so
/// MADV_DONTNEED sends its flush.
fn uffd_missing(rounds: &mut Rounds) -> io::Result<()> {
    uffd_after(rounds, Duration::ZERO)
}

/// The answer comes so late that the fault waits for it.
fn uffd_late(rounds: &mut Rounds) -> io::Result<()> {
    uffd_after(rounds, LATE)
}

/// Longer than any fault takes until it waits.
const LATE: Duration = Duration::from_millis(1);

fn uffd_after(rounds: &mut Rounds, time: Duration) -> io::Result<()> {
    let file = open(0)?;
    let area = Area::anonymous(0, 1)?;
    let source = Area::anonymous(1, 1)?;
    source.write(0);
    register(&file, area, MODE_MISSING)?;
    answer_by(&file, move |file| {
        if !time.is_zero() {
            std::thread::sleep(time);
        }
        let (to, from) = (area.address() as u64, source.address() as u64);
        request(file, COPY, &mut [to, from, PAGE as u64, 0, 0])
    })?;
    rounds.each(|_| {
        area.write(0);
        area.advise(libc::MADV_DONTNEED)
    })
}

/// mm/memory.c: do_wp_page: handle_userfault waits. Both ioctls change the right to write of one
/// page and flush (mm/mprotect.c: change_pte_range; 6.12 and later restore the right in the
/// second). In the second, 6.1 only takes the mark away, which needs no flush
/// (pte_flags_need_flush). 5.10 flushes for every change.
fn uffd_wp(rounds: &mut Rounds) -> io::Result<()> {
    let file = open(FEATURE_FLAG_WP)?;
    let area = Area::anonymous(0, 1)?;
    area.write(0);
    register(&file, area, MODE_WP)?;
    answer_by(&file, move |file| write_protect(file, area, false))?;
    rounds.each(|_| {
        write_protect(file.as_raw_fd(), area, true)?;
        area.write(0);
        Ok(())
    })
}

/// mm/memory.c: do_wp_page lifts the protection itself and reuses the page, without a flush.
fn uffd_wp_async(rounds: &mut Rounds) -> io::Result<()> {
    let file = open(FEATURE_FLAG_WP | FEATURE_WP_ASYNC)?;
    let area = Area::anonymous(0, 4)?;
    area.write_all();
    register(&file, area, MODE_WP)?;
    rounds.each(|_| {
        write_protect(file.as_raw_fd(), area, true)?;
        area.write_all();
        Ok(())
    })
}
