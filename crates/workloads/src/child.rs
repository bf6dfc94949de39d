//! Child processes that share chosen memory and touch none of it.
//!
//! A child runs a few instructions that use registers only, from a page that is copied with its
//! page table. All memory but that page and the areas under test is left out of it
//! (`MADV_DONTFORK`), so the parent's own stack and data are not write-protected by the fork.
//! Hence neither side takes a fault that the workload does not mean. (The start sees to it that
//! no restartable sequence is registered, to which the kernel would write.)

use crate::area::Area;
use crate::sys::{check, number};
use std::io;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    // (number, first argument, second argument, the child's call) -> the child's number
    ".pushsection .text",
    ".globl needless_fork_begin, needless_fork_end",
    "needless_fork_begin:",
    "mov eax, edi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov r9d, ecx",
    "xor edx, edx",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    "mov eax, r9d",
    "xor edi, edi",
    "syscall",
    "jmp 2b",
    "needless_fork_end:",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text",
    ".globl needless_fork_begin, needless_fork_end",
    "needless_fork_begin:",
    "mov x8, x0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x9, x3",
    "mov x2, 0",
    "mov x3, 0",
    "mov x4, 0",
    "svc 0",
    "cbz x0, 2f",
    "ret",
    "2:",
    "mov x8, x9",
    "mov x0, 0",
    "mov x1, 0",
    "svc 0",
    "b 2b",
    "needless_fork_end:",
    ".popsection",
);

/// Sleeps for good: an architecture without pause has a ppoll that waits for nothing.
#[cfg(target_arch = "x86_64")]
const SLEEP: libc::c_long = libc::SYS_pause;
#[cfg(target_arch = "aarch64")]
const SLEEP: libc::c_long = libc::SYS_ppoll;

/// An architecture without fork has it as a clone.
#[cfg(target_arch = "x86_64")]
const FORK: (libc::c_long, u64) = (libc::SYS_fork, 0);
#[cfg(target_arch = "aarch64")]
const FORK: (libc::c_long, u64) = (libc::SYS_clone, libc::SIGCHLD as u64);

unsafe extern "C" {
    static needless_fork_begin: u8;
    static needless_fork_end: u8;
}

/// What a child does for all its life.
#[derive(Copy, Clone, Debug)]
pub enum Life {
    /// It ends at once.
    Exit,
    /// It sleeps until it is killed.
    Pause,
}

/// The system call that makes a child.
#[derive(Copy, Clone, Debug)]
pub enum Birth {
    /// `fork`
    Fork,
    /// `clone`
    Clone,
    /// `clone3`
    Clone3,
}

/// Makes children.
pub struct Nursery {
    code: usize,
    /// `struct clone_args`: the exit signal is the fifth.
    arguments: Box<[u64; 8]>,
}

impl Nursery {
    /// Leaves all memory but `shared` out of the children that come.
    pub fn new(shared: &[Area]) -> io::Result<Nursery> {
        let page = Area::anonymous(9, 1)?;
        let (begin, end) = (&raw const needless_fork_begin, &raw const needless_fork_end);
        let size = end as usize - begin as usize;
        // SAFETY: the instructions are fewer than a page has bytes, and the page is writable.
        unsafe { std::ptr::copy_nonoverlapping(begin, page.address() as *mut u8, size) };
        page.protect(libc::PROT_READ | libc::PROT_EXEC)?;

        let mut arguments = Box::new([0; 8]);
        arguments[4] = libc::SIGCHLD as u64;
        let nursery = Nursery { code: page.address(), arguments };
        let kept: Vec<usize> =
            shared.iter().map(|area| area.address()).chain([nursery.code]).collect();
        for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
            let Some((from, to)) = addresses(line) else { continue };
            if !kept.contains(&from) {
                // SAFETY: the advice changes nothing for this process. Mappings of the kernel's
                // own refuse it, which does not matter.
                unsafe { libc::madvise(from as *mut _, to - from, libc::MADV_DONTFORK) };
            }
        }
        Ok(nursery)
    }

    /// Makes a child.
    pub fn bear(&self, birth: Birth, life: Life) -> io::Result<Child> {
        type Code = extern "C" fn(u64, u64, u64, u64) -> i64;
        // SAFETY: the page holds a function of this type, and is never written again.
        let code: Code = unsafe { std::mem::transmute(self.code as *const ()) };
        let (call, first, second) = match birth {
            Birth::Fork => (FORK.0, FORK.1, 0),
            Birth::Clone => (libc::SYS_clone, libc::SIGCHLD as u64, 0),
            Birth::Clone3 => {
                let arguments: &[u64; 8] = &self.arguments;
                (libc::SYS_clone3, arguments.as_ptr() as u64, size_of_val(arguments) as u64)
            }
        };
        let then = match life {
            Life::Exit => libc::SYS_exit_group,
            Life::Pause => SLEEP,
        };
        match code(call as u64, first, second, then as u64) {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error as i32)),
            id => Ok(Child { id: id as i32 }),
        }
    }
}

/// A child process.
pub struct Child {
    id: i32,
}

impl Child {
    /// Waits for its end: its memory is free then.
    pub fn wait(self) -> io::Result<()> {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: null pointers ask for no results.
        let waited = unsafe { libc::syscall(libc::SYS_wait4, self.id, nothing, 0, nothing) };
        number(waited).map(drop)
    }

    /// Kills it and waits for its end.
    pub fn kill(self) -> io::Result<()> {
        // SAFETY: the child has not been waited for, so the number is its own.
        check(unsafe { libc::kill(self.id, libc::SIGKILL) })?;
        self.wait()
    }
}

fn addresses(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}
