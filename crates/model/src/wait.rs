//! Waits of operations that cannot continue. Such an operation has given its locks back and begins
//! anew when the wait is over, as the kernel does with `VM_FAULT_RETRY`.
//!
//! The kernel operations do not contain the waiting itself. A driver keeps the operation and the
//! [`Wait`], lets others continue, and resumes the operation. In the simulator threads meet only at
//! barriers, so most waits are over at once.

use crate::addr::{MmId, Pfn, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::machine::mm::Life;
use crate::machine::world::{Ghost, Mode, World};
use crate::pte::Pte;
use crate::site::Site;
use std::fmt;

/// The condition that an operation waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The folio is unlocked. The waiting operation has a reference to it.
    ///
    /// Source: mm/filemap.c:__lock_page_or_retry (5.10), __folio_lock_or_retry (6.18); for files
    /// lock_page_maybe_drop_mmap (5.10), lock_folio_maybe_drop_mmap (6.1 to 7.2).
    Folio(Pfn),
    /// The page's migration entry is replaced.
    ///
    /// Source: mm/migrate.c:migration_entry_wait (5.10 to 7.3).
    Migration(MmId, Vpn),
    /// The process with that address space begins.
    Fork(MmId),
    /// The process with that address space ends.
    Exit(MmId),
    /// The access to the page is answered through the userfaultfd.
    ///
    /// Source: fs/userfaultfd.c:handle_userfault (5.10 to 7.3).
    Userfault(MmId, Vpn),
    /// An access waits for an answer.
    ///
    /// Source: fs/userfaultfd.c:userfaultfd_ctx_read (5.10 to 7.3).
    UffdEvent(MmId),
}

impl Wait {
    /// Whether the wait is over.
    pub fn is_over<M: Mode>(self, w: &World<M>) -> bool {
        match self {
            Wait::Folio(frame) => !w.ghost.is_locked(Lock::Folio(frame)),
            Wait::Migration(mm, page) => !matches!(w.page_entry(mm, page), Pte::Migration(_)),
            Wait::Fork(mm) => w.mms[mm.index()].life == Life::Running,
            Wait::Exit(mm) => w.mms[mm.index()].life == Life::None,
            Wait::Userfault(mm, page) => !w.mms[mm.index()].uffd.waits(page),
            Wait::UffdEvent(mm) => w.mms[mm.index()].uffd.waiting.iter().any(|one| !one.read),
        }
    }

    /// Releases what the operation held while it waited.
    pub fn end(self, env: &mut impl Env) {
        match self {
            Wait::Folio(frame) => env.step(Site::FolioPut, |w, at| w.put_frame(at, frame)),
            Wait::Migration(..)
            | Wait::Fork(_)
            | Wait::Exit(_)
            | Wait::Userfault(..)
            | Wait::UffdEvent(_) => {}
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Folio(frame) => write!(f, "the folio lock of f{}", frame.0),
            Wait::Migration(_, page) => write!(f, "the migration of {page}"),
            Wait::Fork(mm) => write!(f, "the start of process {}", mm.0 - 1),
            Wait::Exit(mm) => write!(f, "the end of process {}", mm.0 - 1),
            Wait::Userfault(_, page) => write!(f, "userfaultfd's answer about {page}"),
            Wait::UffdEvent(_) => f.write_str("an event of userfaultfd"),
        }
    }
}

/// The reason why a fault gave its lock back to be tried again (`VM_FAULT_RETRY`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It made a shared page dirty, and its thread is throttled.
    ///
    /// Source: mm/memory.c:fault_dirty_shared_page (5.10).
    Throttle,
    /// A page of a file had to be read first.
    ///
    /// Source: mm/filemap.c:filemap_fault (5.10 to 7.3).
    Read,
    /// It waits for a condition.
    Wait(Wait),
    /// It held only its mapping's lock and could not get `mmap_lock`.
    ///
    /// Source: mm/memory.c:__vmf_anon_prepare (6.12, 7.3).
    MmapLock,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Throttle => f.write_str("the throttling of the writer"),
            Cause::Read => f.write_str("a page that has to be read"),
            Cause::Wait(wait) => wait.fmt(f),
            Cause::MmapLock => f.write_str("mmap_lock"),
        }
    }
}

/// The end of an operation that may have to wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ended<T> {
    /// The operation is done.
    Done,
    /// The operation waits, and continues with this value.
    Blocked(Wait, T),
}

impl<T: std::hash::Hash + Copy + Send + Sync + 'static> Learnt for Ended<T> {
    fn nothing() -> Ended<T> {
        Ended::Done
    }
}
