//! What made the kernel flush.

use super::PAGE_BITS;
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
    Reclaim,
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
    /// As a report names it.
    pub fn name(&self) -> String {
        match self {
            Cause::Fault(class) => format!("fault: {}", class.title()),
            Cause::Call(number, detail) => syscalls::name(*number, *detail),
            Cause::Reclaim => "direct reclaim".to_owned(),
            Cause::Exit => "exit".to_owned(),
            Cause::Stranger => "tasks that are not watched".to_owned(),
            Cause::Unknown => "unknown".to_owned(),
            Cause::Elsewhere => "elsewhere in the kernel".to_owned(),
        }
    }
}

/// A system call that is under way.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number.
    pub number: i32,
    /// Its first arguments.
    pub args: [u64; 4],
    /// Whether it has flushed a batch of unmapped pages.
    pub batch_flushed: bool,
}

impl Call {
    /// A system call that begins.
    pub fn new(number: i32, args: [u64; 4]) -> Call {
        Call { number, args, batch_flushed: false }
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
        let protects =
            [libc::SYS_mprotect, libc::SYS_pkey_mprotect].contains(&i64::from(self.number));
        let [start, bytes, protection, _] = self.args;
        (protects && (1..=1 << PAGE_BITS).contains(&bytes))
            .then_some((start >> PAGE_BITS, protection))
    }

    /// As a cause.
    pub fn cause(&self) -> Cause {
        Cause::Call(self.number, syscalls::detail(self.number, &self.args))
    }
}
