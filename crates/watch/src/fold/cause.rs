//! What made the kernel flush.

use super::PAGE_BITS;
use super::memory::CallKey;
use crate::sites::SiteId;
use crate::syscalls;
use needless_model::event::FaultClass;

/// What made the kernel flush.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A fault of this class.
    Fault(FaultClass),
    /// A system call: its number, and the argument that matters.
    Call(i32, u64),
    /// Direct reclaim, whatever needed the memory.
    Reclaim(Reclaim),
    /// The end of a process, by a system call or a signal, or of a thread.
    Exit,
    /// A task that is not watched.
    Stranger,
    /// A task that could not be told.
    Unknown,
    /// Work in the kernel outside every system call that is watched.
    Elsewhere,
}

impl Cause {
    /// Whether it is the start of a program or the end of a process or thread, which every command
    /// has.
    pub fn starts_or_ends(&self) -> bool {
        let calls = [libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group];
        match self {
            Cause::Exit => true,
            Cause::Call(number, _) => calls.contains(&i64::from(*number)),
            _ => false,
        }
    }

    /// As a report names it.
    pub fn name(&self) -> String {
        match self {
            Cause::Fault(class) => format!("fault: {}", class.title()),
            Cause::Call(number, detail) => syscalls::name(*number, *detail),
            Cause::Reclaim(Reclaim::Machine) => "direct reclaim".to_owned(),
            Cause::Reclaim(Reclaim::Cgroup) => "direct reclaim of a memory cgroup".to_owned(),
            Cause::Exit => "exit".to_owned(),
            Cause::Stranger => "tasks that are not watched".to_owned(),
            Cause::Unknown => "unknown".to_owned(),
            Cause::Elsewhere => "elsewhere in the kernel".to_owned(),
        }
    }
}

/// Which memory was short when a task reclaimed pages itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reclaim {
    /// The machine's.
    Machine,
    /// A memory cgroup's, which was at its limit.
    Cgroup,
}

/// A system call that is under way.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number.
    pub number: i32,
    /// Its first arguments.
    pub args: [u64; 4],
    /// When it began.
    pub start: u64,
    /// Under what it is counted.
    pub key: CallKey,
    /// The time of faults in it so far, nanoseconds.
    pub faults_ns: u64,
    /// Whether it has flushed everything of the address space.
    pub flushed_all: bool,
    /// Whether it has flushed a batch of unmapped pages.
    pub batch_flushed: bool,
}

impl Call {
    /// A system call of a thread that begins.
    pub fn new(number: i32, args: [u64; 4], start: u64, tid: i32) -> Call {
        let cause = Cause::Call(number, syscalls::detail(number, &args));
        let (memory, site, starting) = (0, SiteId::NONE, false);
        let key = CallKey { cause, memory, site, tid, starting };
        let (faults_ns, flushed_all, batch_flushed) = (0, false, false);
        Call { number, args, start, key, faults_ns, flushed_all, batch_flushed }
    }

    /// Whether it made a process that shares the pages of its caller until either stores. A child
    /// that shares the address space itself has no pages to be protected, so nothing is flushed
    /// (kernel/fork.c: dup_mmap, 5.10 to 7.3).
    pub fn copies_memory(&self) -> bool {
        let shares =
            i64::from(self.number) == libc::SYS_clone && self.args[0] & libc::CLONE_VM as u64 != 0;
        !shares && self.flushed_all
    }

    /// Whether it walks page tables and may take pages away.
    pub fn walks(&self) -> bool {
        syscalls::walks(self.number)
    }

    /// Whether it pages out.
    pub fn pages_out(&self) -> bool {
        self.number == libc::SYS_madvise as i32 && self.args[2] == syscalls::MADV_PAGEOUT
    }

    /// The page whose protection it changes, if it is one alone, and the protection.
    pub fn one_page(&self) -> Option<(u64, u64)> {
        let (range, protection) = self.protects()?;
        let pages = (range.end - range.start) >> PAGE_BITS;
        (pages == 1).then_some((range.start >> PAGE_BITS, protection))
    }

    /// The range whose protection it changes, and the protection.
    pub fn protects(&self) -> Option<(std::ops::Range<u64>, u64)> {
        let protects =
            [libc::SYS_mprotect, libc::SYS_pkey_mprotect].contains(&i64::from(self.number));
        let [start, bytes, protection, _] = self.args;
        let end = start.saturating_add(bytes.next_multiple_of(1 << PAGE_BITS));
        protects.then_some((start..end, protection))
    }

    /// As a cause.
    pub fn cause(&self) -> Cause {
        self.key.cause.clone()
    }
}
