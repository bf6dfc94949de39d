//! The process's userfaultfd.
//!
//! There is one at a time. The first one is made before the scenario's threads start. If the kernel
//! lacks a feature, that shows where a scenario registers a range. If a scenario asks for other
//! features, the userfaultfd is closed, and a new one takes over its descriptor. A thread that
//! serves it sleeps until an event can be read from it, or until it is interrupted.

use crate::sys::{bytes, pointer};
use linux_raw_sys::general::{
    UFFD_API, UFFD_FEATURE_MINOR_SHMEM, UFFD_FEATURE_MOVE, UFFD_FEATURE_PAGEFAULT_FLAG_WP,
    UFFD_FEATURE_POISON, UFFD_FEATURE_WP_ASYNC, UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
    UFFD_FEATURE_WP_UNPOPULATED, UFFDIO_REGISTER_MODE_MINOR, UFFDIO_REGISTER_MODE_MISSING,
    UFFDIO_REGISTER_MODE_WP, uffdio_api, uffdio_continue, uffdio_copy, uffdio_move, uffdio_poison,
    uffdio_range, uffdio_register, uffdio_writeprotect, uffdio_zeropage,
};
use linux_raw_sys::ioctl::{
    UFFDIO_API, UFFDIO_CONTINUE, UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_UNREGISTER,
    UFFDIO_WRITEPROTECT, UFFDIO_ZEROPAGE,
};
use needless_model::addr::{PAGE_SIZE, PageRange, Vpn};
use needless_model::call::Extent;
use needless_model::feature::Feature;
use needless_model::userfaultfd::{Answer, Features, Fill, Registration, Told, Watch, source};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

static OPEN: OnceLock<OwnedFd> = OnceLock::new();
/// Why there is no userfaultfd: the error number if the kernel has none (`ENOSYS`), or lacks the
/// features (`EOPNOTSUPP`).
static LACKING: OnceLock<i32> = OnceLock::new();
/// The features that this kernel has.
static FEATURES: OnceLock<u64> = OnceLock::new();
/// The features that the userfaultfd was opened with.
static ASKED: Mutex<Features> = Mutex::new(Features { unpopulated: false, asynchronous: false });
/// An eventfd that wakes the thread that serves the userfaultfd.
static INTERRUPT: OnceLock<OwnedFd> = OnceLock::new();
/// The contents that are copied to missing pages.
static ZEROS: Page = Page([0; PAGE_SIZE as usize]);

#[repr(align(4096))]
struct Page([u8; PAGE_SIZE as usize]);

// include/uapi/linux/userfaultfd.h: _UFFDIO_MOVE, _UFFDIO_POISON, which linux-raw-sys lacks.
const UFFDIO_MOVE: Opcode = opcode::read_write::<uffdio_move>(0xaa, 5);
const UFFDIO_POISON: Opcode = opcode::read_write::<uffdio_poison>(0xaa, 8);
// include/uapi/linux/userfaultfd.h: UFFDIO_WRITEPROTECT_MODE_WP
const MODE_WP: u64 = 1;
// include/uapi/linux/userfaultfd.h: UFFD_EVENT_PAGEFAULT
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
// include/uapi/linux/userfaultfd.h: UFFD_PAGEFAULT_FLAG_WP
const UFFD_PAGEFAULT_FLAG_WP: u32 = 2;
// include/uapi/linux/userfaultfd.h: UFFD_PAGEFAULT_FLAG_MINOR
const UFFD_PAGEFAULT_FLAG_MINOR: u32 = 4;

/// Opens the userfaultfd, unless this kernel lacks the features. `serves`: whether a thread waits
/// for its events.
pub fn prepare(features: Features, serves: bool) -> io::Result<()> {
    match open(features) {
        Ok(descriptor) => {
            OPEN.get_or_init(|| descriptor);
            *asked() = features;
        }
        Err(error) => match error.raw_os_error() {
            Some(lacking @ (libc::ENOSYS | libc::EOPNOTSUPP)) => {
                LACKING.get_or_init(|| lacking);
            }
            Some(libc::EPERM) => {
                let what = "it takes root, CAP_SYS_PTRACE or sysctl vm.unprivileged_userfaultfd=1";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            _ => return Err(error),
        },
    }
    if serves {
        let new = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        INTERRUPT.get_or_init(|| new);
    }
    Ok(())
}

/// Wakes the thread that serves the userfaultfd.
pub fn interrupt() {
    if let Some(interrupt) = INTERRUPT.get() {
        // The eventfd counts up to 2^64 - 2.
        let _ = rustix::io::write(interrupt, &1_u64.to_ne_bytes());
    }
}

/// Sleeps until the userfaultfd reports accesses, and answers them, or until it is interrupted.
/// Calls `tell` for each access before it answers. Allocates nothing.
pub fn serve(answer: Answer<Extent>, tell: impl Fn(Vpn, Told)) -> io::Result<()> {
    let interrupt = INTERRUPT.get().ok_or_else(nothing)?;
    let mut wakes = [PollFd::new(interrupt, PollFlags::IN), PollFd::new(interrupt, PollFlags::IN)];
    if let Some(open) = OPEN.get() {
        wakes[0] = PollFd::new(open, PollFlags::IN);
    }
    match poll(&mut wakes, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    if !wakes[1].revents().is_empty() {
        let _ = rustix::io::read(interrupt, &mut [0; 8]);
    }
    while let Some((page, told)) = next()? {
        tell(page, told);
        let page = PageRange::one(page);
        match (told, answer) {
            (Told::Protected, _) => write_protect(page, false)?,
            (Told::Minor, _) => fill(page, Fill::Continue)?,
            (Told::Missing, Answer::Nothing) => {
                return Err(io::Error::other("a page is not there (by=\"copy\")"));
            }
            (Told::Missing, Answer::ZeroPage) => fill(page, Fill::ZeroPage)?,
            (Told::Missing, Answer::Copy) => fill(page, Fill::Copy)?,
            (Told::Missing, Answer::Move { to, from }) => {
                let source = source(to.pages, from.pages, page.start);
                let source = source.ok_or_else(|| {
                    io::Error::other("a page is not there that lies outside of to= (by=\"move\")")
                })?;
                move_pages(PageRange::one(source), page.start)?;
            }
        }
    }
    Ok(())
}

/// The page and the kind of the next access that the userfaultfd reports.
fn next() -> io::Result<Option<(Vpn, Told)>> {
    let Some(open) = OPEN.get() else { return Ok(None) };
    let mut message = [0_u64; 4];
    // SAFETY: any bytes are valid values of these numbers.
    let bytes = unsafe { message.align_to_mut::<u8>().1 };
    match rustix::io::read(open, bytes) {
        // The event and 7 bytes, the flags, the address (include/uapi/linux/userfaultfd.h: struct
        // uffd_msg).
        Ok(32) if message[0] as u8 == UFFD_EVENT_PAGEFAULT => {
            let flag = |flag: u32| message[1] & u64::from(flag) != 0;
            let told = match (flag(UFFD_PAGEFAULT_FLAG_WP), flag(UFFD_PAGEFAULT_FLAG_MINOR)) {
                (true, _) => Told::Protected,
                (false, true) => Told::Minor,
                (false, false) => Told::Missing,
            };
            Ok(Some((Vpn::containing(message[2]), told)))
        }
        Ok(_) => Err(io::Error::other("userfaultfd reports an event that was not asked for")),
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Maps pages where none are mapped yet. A call that ends in the middle says how far it came, and
/// is an error here.
pub fn fill(pages: PageRange, how: Fill) -> io::Result<()> {
    let descriptor = opened()?;
    let range = range(pages);
    match how {
        Fill::ZeroPage => {
            let mut request = uffdio_zeropage { range, mode: 0, zeropage: 0 };
            // SAFETY: the kernel takes this structure. The pages lie in the scenario's areas, and
            // no object of the runner lives there.
            unsafe { ioctl(descriptor, Updater::<UFFDIO_ZEROPAGE, _>::new(&mut request)) }?;
        }
        // Each page is copied from the same source, which is one page.
        Fill::Copy => pages.iter().try_for_each(copy)?,
        Fill::Continue => {
            let mut request = uffdio_continue { range, mode: 0, mapped: 0 };
            // SAFETY: the kernel takes this structure. The pages lie in the scenario's areas, and
            // no object of the runner lives there.
            unsafe { ioctl(descriptor, Updater::<UFFDIO_CONTINUE, _>::new(&mut request)) }?;
        }
        Fill::Poison => {
            let mut request = uffdio_poison { range, mode: 0, updated: 0 };
            // SAFETY: the kernel takes this structure. The pages lie in the scenario's areas, and
            // no object of the runner lives there.
            unsafe { ioctl(descriptor, Updater::<{ UFFDIO_POISON }, _>::new(&mut request)) }?;
        }
    }
    Ok(())
}

fn copy(page: Vpn) -> io::Result<()> {
    let mut request = uffdio_copy {
        dst: pointer(page) as u64,
        src: ZEROS.0.as_ptr() as u64,
        len: PAGE_SIZE,
        mode: 0,
        copy: 0,
    };
    // SAFETY: the kernel takes this structure. The page lies in the scenario's areas, and no object
    // of the runner lives there.
    unsafe { ioctl(opened()?, Updater::<UFFDIO_COPY, _>::new(&mut request)) }?;
    Ok(())
}

/// Moves the pages to `to`.
pub fn move_pages(pages: PageRange, to: Vpn) -> io::Result<()> {
    let (source, target) = (range(pages), range(PageRange::new(to, pages.pages())));
    let mut request =
        uffdio_move { dst: target.start, src: source.start, len: source.len, mode: 0, move_: 0 };
    // SAFETY: the kernel takes this structure. The pages lie in the scenario's areas, and no object
    // of the runner lives there.
    unsafe { ioctl(opened()?, Updater::<{ UFFDIO_MOVE }, _>::new(&mut request)) }?;
    Ok(())
}

/// Registers the pages. The error is `ENOSYS` if this kernel has no userfaultfd, and `EOPNOTSUPP`
/// if it lacks the features.
pub fn register(pages: PageRange, registration: Registration) -> io::Result<()> {
    let lacks = |_| match LACKING.get() {
        Some(&lacking) => io::Error::from_raw_os_error(lacking),
        None => nothing(),
    };
    let descriptor = opened().map_err(lacks)?;
    if *asked() != registration.features {
        reopen(descriptor, registration.features)?;
    }
    let Watch { missing, minor, write_protect } = registration.mode;
    let mode = flag(missing, UFFDIO_REGISTER_MODE_MISSING)
        | flag(minor, UFFDIO_REGISTER_MODE_MINOR)
        | flag(write_protect, UFFDIO_REGISTER_MODE_WP);
    let mut register = uffdio_register { range: range(pages), mode: mode.into(), ioctls: 0 };
    // SAFETY: the kernel takes this structure. The pages lie in the scenario's areas, and no object
    // of the runner lives there.
    unsafe { ioctl(descriptor, Updater::<UFFDIO_REGISTER, _>::new(&mut register)) }?;
    Ok(())
}

/// Closes the userfaultfd, and opens another one with its descriptor.
fn reopen(descriptor: BorrowedFd<'_>, features: Features) -> io::Result<()> {
    let other = open(features)?;
    // SAFETY: the descriptor stays open, and refers to the same kind of file.
    let duplicated =
        unsafe { libc::dup3(other.as_raw_fd(), descriptor.as_raw_fd(), libc::O_CLOEXEC) };
    if duplicated < 0 {
        return Err(io::Error::last_os_error());
    }
    *asked() = features;
    Ok(())
}

fn asked() -> MutexGuard<'static, Features> {
    ASKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unregisters the pages.
pub fn unregister(pages: PageRange) -> io::Result<()> {
    // SAFETY: the kernel takes this structure. The pages lie in the scenario's areas, and no object
    // of the runner lives there.
    unsafe { ioctl(opened()?, Setter::<UFFDIO_UNREGISTER, _>::new(range(pages))) }?;
    Ok(())
}

/// Protects pages from stores, or ends their protection.
pub fn write_protect(pages: PageRange, on: bool) -> io::Result<()> {
    let mode = if on { MODE_WP } else { 0 };
    let mut request = uffdio_writeprotect { range: range(pages), mode };
    // SAFETY: the kernel takes this structure. The pages lie in the scenario's areas, and no object
    // of the runner lives there.
    unsafe { ioctl(opened()?, Updater::<UFFDIO_WRITEPROTECT, _>::new(&mut request)) }?;
    Ok(())
}

/// The feature that a kernel lacks if it refuses these features.
pub const fn missing(features: Features) -> &'static str {
    match (features.asynchronous, features.unpopulated) {
        (true, _) => Feature::UffdAsync.words(),
        (_, true) => Feature::UffdUnpopulated.words(),
        _ => Feature::UffdProtect.words(),
    }
}

/// The feature that this kernel lacks, if it refused to register a range because of that.
pub fn lacks_mode(registration: Registration) -> Option<&'static str> {
    let Watch { minor, write_protect, .. } = registration.mode;
    if minor && !knows(UFFD_FEATURE_MINOR_SHMEM) {
        return Some(Feature::UffdMinor.words());
    }
    let lacks = write_protect && !knows(UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
    lacks.then_some(Feature::UffdProtectShared.words())
}

/// The feature that this kernel lacks, if it refused to fill pages because of that.
pub fn lacks_fill(how: Fill) -> Option<&'static str> {
    match how {
        Fill::Continue if !knows(UFFD_FEATURE_MINOR_SHMEM) => Some(Feature::UffdContinue.words()),
        Fill::Poison if !knows(UFFD_FEATURE_POISON) => Some(Feature::UffdPoison.words()),
        Fill::ZeroPage | Fill::Copy | Fill::Continue | Fill::Poison => None,
    }
}

/// The feature that this kernel lacks, if it refused to move pages because of that.
pub fn lacks_move() -> Option<&'static str> {
    (!knows(UFFD_FEATURE_MOVE)).then_some(Feature::UffdMove.words())
}

/// The feature that this kernel lacks, if an answer failed with `error` because of that.
pub fn lacks_answer(answer: Answer<Extent>, error: &io::Error) -> Option<&'static str> {
    let moves = matches!(answer, Answer::Move { .. });
    (moves && error.raw_os_error() == Some(libc::EINVAL)).then(lacks_move)?
}

/// Whether this kernel's userfaultfd has the feature.
fn knows(feature: u32) -> bool {
    FEATURES.get().is_some_and(|features| features & u64::from(feature) != 0)
}

const fn flag(on: bool, bit: u32) -> u32 {
    if on { bit } else { 0 }
}

fn range(pages: PageRange) -> uffdio_range {
    uffdio_range { start: pointer(pages.start) as u64, len: bytes(pages) as u64 }
}

fn opened() -> io::Result<BorrowedFd<'static>> {
    OPEN.get().map(AsFd::as_fd).ok_or_else(nothing)
}

fn nothing() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "nothing is registered (uffdio_register)")
}

fn open(features: Features) -> io::Result<OwnedFd> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: the ranges that are registered with it lie in the scenario's areas.
    let descriptor = unsafe { userfaultfd(flags) }?;
    let wanted = UFFD_FEATURE_PAGEFAULT_FLAG_WP
        | flag(features.unpopulated && !features.asynchronous, UFFD_FEATURE_WP_UNPOPULATED)
        | flag(features.asynchronous, UFFD_FEATURE_WP_ASYNC);
    let mut api = uffdio_api { api: UFFD_API.into(), features: wanted.into(), ioctls: 0 };
    // SAFETY: the kernel takes this structure.
    match unsafe { ioctl(&descriptor, Updater::<UFFDIO_API, _>::new(&mut api)) } {
        Ok(()) => {
            FEATURES.get_or_init(|| api.features);
            Ok(descriptor)
        }
        Err(rustix::io::Errno::INVAL) => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        Err(error) => Err(error.into()),
    }
}
