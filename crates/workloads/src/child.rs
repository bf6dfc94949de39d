//! Child processes that share chosen memory and touch none of it.
//!
//! A child runs a few instructions. They read the system calls of its life ([`Life`]) from the page
//! that they lie in, which is copied with its page table. All memory but that page and the areas
//! under test is left out of the child (`MADV_DONTFORK`), so the fork does not write-protect the
//! parent's own stack and data. Hence neither side takes a fault that the workload does not mean.
//! (The start makes sure that no restartable sequence is registered, because the kernel would write
//! to it.)

use crate::area::Area;
use crate::sys::{check, number};
use std::io;
use std::os::fd::RawFd;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    // (number, first argument, second argument, the child's calls) -> the child's number
    ".pushsection .text",
    ".globl needless_fork_begin, needless_fork_end",
    "needless_fork_begin:",
    "mov eax, edi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov r9, rcx",
    "xor edx, edx",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    "mov rbx, r9",
    "3:",
    "mov rax, [rbx]",
    "cmp rax, -1",
    "je 2b",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "syscall",
    "add rbx, 48",
    "jmp 3b",
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
    "mov x10, x3",
    "mov x2, 0",
    "mov x3, 0",
    "mov x4, 0",
    "svc 0",
    "cbz x0, 2f",
    "ret",
    "2:",
    "mov x9, x10",
    "3:",
    "ldr x8, [x9], 8",
    "cmn x8, 1",
    "b.eq 2b",
    "ldp x0, x1, [x9], 16",
    "ldp x2, x3, [x9], 16",
    "ldr x4, [x9], 8",
    "svc 0",
    "b 3b",
    "needless_fork_end:",
    ".popsection",
);

/// The call that sleeps forever. An architecture without pause has a ppoll that waits for nothing.
#[cfg(target_arch = "x86_64")]
const SLEEP: libc::c_long = libc::SYS_pause;
#[cfg(target_arch = "aarch64")]
const SLEEP: libc::c_long = libc::SYS_ppoll;

/// The call that forks. An architecture without fork has clone.
#[cfg(target_arch = "x86_64")]
const FORK: (libc::c_long, u64) = (libc::SYS_fork, 0);
#[cfg(target_arch = "aarch64")]
const FORK: (libc::c_long, u64) = (libc::SYS_clone, libc::SIGCHLD as u64);

unsafe extern "C" {
    static needless_fork_begin: u8;
    static needless_fork_end: u8;
}

/// What a child does in its whole life.
#[derive(Copy, Clone, Debug)]
pub enum Life {
    /// It ends at once.
    Exit,
    /// It sleeps until it is killed or its parent ends.
    Pause,
    /// It goes to CPU 1 and back to CPU 0, and ends.
    Visit,
    /// It goes to CPU 1 and back to CPU 0, and ends by a signal.
    VisitAndDie,
    /// It goes to CPU 1 and back to CPU 0, and executes the program in a file.
    VisitAndExecute(RawFd),
    /// It reads a byte to a page and writes the byte from there, until it is killed or its parent
    /// ends.
    Echo {
        /// The descriptor that it reads from.
        from: RawFd,
        /// The descriptor that it writes to.
        to: RawFd,
        /// The address of the page.
        page: usize,
    },
}

/// A system call: its number and its arguments.
type Call = [u64; 6];
/// The number of system calls of one life.
const CALLS: usize = 4;

/// An entry in place of a call: the first call follows again.
const AGAIN: Call = [u64::MAX, 0, 0, 0, 0, 0];

/// Data that calls can point to: the sets of CPU 1 and of CPU 0, and a zero.
const DATA: [u64; 3] = [1 << 1, 1 << 0, 0];

impl Life {
    /// The system calls of this life. `data` is the address of [`DATA`].
    fn calls(self, data: u64) -> [Call; CALLS] {
        let call = |number: libc::c_long, arguments: [u64; 5]| {
            let [a, b, c, d, e] = arguments;
            [number as u64, a, b, c, d, e]
        };
        let exit = call(libc::SYS_exit_group, [0; 5]);
        let (option, signal) = (libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64);
        let end_with_parent = call(libc::SYS_prctl, [option, signal, 0, 0, 0]);
        let to_cpu = |set| call(libc::SYS_sched_setaffinity, [0, 8, set, 0, 0]);
        match self {
            Life::Exit => [exit; CALLS],
            Life::Pause => [end_with_parent, call(SLEEP, [0; 5]), exit, exit],
            Life::Visit => [to_cpu(data), to_cpu(data + 8), exit, exit],
            Life::VisitAndDie => {
                // seccomp(2): after this call, every call but a few kills.
                let (option, mode) = (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT);
                let obey = call(libc::SYS_prctl, [option as u64, mode.into(), 0, 0, 0]);
                [to_cpu(data), to_cpu(data + 8), obey, call(libc::SYS_getpid, [0; 5])]
            }
            Life::VisitAndExecute(file) => {
                let (zero, this_file) = (data + 16, libc::AT_EMPTY_PATH as u64);
                let execute = [file as u64, zero, zero, zero, this_file];
                [to_cpu(data), to_cpu(data + 8), call(libc::SYS_execveat, execute), exit]
            }
            Life::Echo { from, to, page } => {
                let transfer = |number, file| call(number, [file as u64, page as u64, 1, 0, 0]);
                let (read, write) = (transfer(libc::SYS_read, from), transfer(libc::SYS_write, to));
                [end_with_parent, read, write, AGAIN]
            }
        }
    }
}

/// The system call that makes a child.
#[derive(Copy, Clone, Debug)]
pub enum Birth {
    /// The call `fork`.
    Fork,
    /// The call `clone`.
    Clone,
    /// The call `clone3`.
    Clone3,
}

/// Makes children that lead the same life.
pub struct Nursery {
    code: usize,
    /// The address of their system calls.
    calls: usize,
    /// The `struct clone_args`; the exit signal is its fifth number.
    arguments: Box<[u64; 8]>,
}

impl Nursery {
    /// Leaves all memory but `shared` out of the children to come.
    pub fn new(life: Life, shared: &[Area]) -> io::Result<Nursery> {
        let page = Area::anonymous(9, 1)?;
        let (begin, end) = (&raw const needless_fork_begin, &raw const needless_fork_end);
        let size = end as usize - begin as usize;
        // SAFETY: the instructions fit into the page, and the page is writable.
        unsafe { std::ptr::copy_nonoverlapping(begin, page.address() as *mut u8, size) };
        let calls = (page.address() + size).next_multiple_of(align_of::<u64>());
        let data = calls + size_of::<[Call; CALLS]>();
        // SAFETY: they lie behind the instructions, aligned, within the page.
        unsafe {
            (calls as *mut [Call; CALLS]).write(life.calls(data as u64));
            (data as *mut [u64; 3]).write(DATA);
        }
        page.protect(libc::PROT_READ | libc::PROT_EXEC)?;

        let mut arguments = Box::new([0; 8]);
        arguments[4] = libc::SIGCHLD as u64;
        let nursery = Nursery { code: page.address(), calls, arguments };
        let kept: Vec<usize> =
            shared.iter().map(|area| area.address()).chain([nursery.code]).collect();
        for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
            let Some((from, to)) = addresses(line) else { continue };
            if !kept.contains(&from) {
                // SAFETY: the advice changes nothing for this process. The kernel's own mappings
                // refuse it, which does not matter.
                unsafe { libc::madvise(from as *mut _, to - from, libc::MADV_DONTFORK) };
            }
        }
        Ok(nursery)
    }

    /// Makes a child by this call.
    pub fn bear(&self, birth: Birth) -> io::Result<Child> {
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
        match code(call as u64, first, second, self.calls as u64) {
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
    /// The child's process ID.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Waits for the child's end. After that its memory is free.
    pub fn wait(self) -> io::Result<()> {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: null pointers ask for no results.
        let waited = unsafe { libc::syscall(libc::SYS_wait4, self.id, nothing, 0, nothing) };
        number(waited).map(drop)
    }

    /// Kills the child and waits for its end.
    pub fn kill(self) -> io::Result<()> {
        // SAFETY: the child has not been waited for, so the number is its own.
        check(unsafe { libc::kill(self.id, libc::SIGKILL) })?;
        self.wait()
    }
}

/// The addresses at which the mapping of a line of `/proc/PID/maps` begins and ends.
pub fn addresses(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}
