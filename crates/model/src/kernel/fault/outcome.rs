//! What a fault is, and how it ended.

use crate::addr::{MmId, Vpn};
use crate::event::FaultClass;
use crate::verdict::{Judgement, Reason, Verdict};
use crate::wait::Wait;

/// The access behind a fault.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The address space.
    pub mm: MmId,
    /// The page.
    pub page: Vpn,
    /// Whether it is a store.
    pub write: bool,
    /// Whether it is a load of a page that has to become the process's own (`FAULT_FLAG_UNSHARE`).
    pub unshare: bool,
    /// Whether it is a store on behalf of a caller whom the mapping's protection does not stop
    /// (`FOLL_FORCE`). The page becomes the process's own, and its PTE still grants no store.
    pub forced: bool,
    /// Which try it is.
    pub attempt: Attempt,
    /// Whether the fault was reported to userfaultfd. It was then needed, whatever the last try
    /// finds.
    pub told: bool,
}

/// Which try of a fault it is, and with which lock.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// The try holds only the mapping's lock (`FAULT_FLAG_VMA_LOCK`).
    VmaLock,
    /// The try holds `mmap_lock`, and gives it back to wait.
    MmapLock,
    /// The try holds locks that it must not give back, and waits with them held (no
    /// `FAULT_FLAG_ALLOW_RETRY`).
    Held,
    /// The fault has already waited, and this try waits with its locks held (`FAULT_FLAG_TRIED`).
    Tried,
}

impl Attempt {
    /// Whether the try has to end without giving its locks back.
    pub const fn keeps_locks(self) -> bool {
        matches!(self, Attempt::Held | Attempt::Tried)
    }
}

impl Fault {
    /// The first try with `mmap_lock`.
    pub const fn new(mm: MmId, page: Vpn, write: bool) -> Fault {
        Fault {
            mm,
            page,
            write,
            unshare: false,
            forced: false,
            attempt: Attempt::MmapLock,
            told: false,
        }
    }

    /// The next try of the fault.
    #[must_use]
    pub const fn again(self) -> Fault {
        let attempt = match self.attempt {
            Attempt::VmaLock => Attempt::MmapLock,
            Attempt::MmapLock | Attempt::Tried => Attempt::Tried,
            Attempt::Held => Attempt::Held,
        };
        Fault { attempt, ..self }
    }
}

/// How a fault ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The fault is served, and the access is repeated.
    Served,
    /// The access is not allowed, and the thread gets a signal.
    Signal,
    /// No memory is left.
    OutOfMemory,
    /// The fault holds no lock and waits. The driver resumes it as this fault when the wait is over
    /// (`VM_FAULT_RETRY`).
    Blocked(Wait, Fault),
}

/// What a fault turned out to be.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Served {
    /// The fault's class.
    pub class: FaultClass,
    /// Whether the page had to be read.
    pub major: bool,
    /// Whether the fault was needed, and why.
    pub verdict: Verdict,
    /// Whether a huge page's entry served the fault.
    pub huge: bool,
    /// Whether the fault has already given its lock back, so that a throttled thread waits without
    /// it.
    pub unlocked: bool,
}

impl Served {
    /// A minor fault with this class and verdict.
    pub const fn judged(class: FaultClass, verdict: Verdict) -> Served {
        Served { class, major: false, verdict, huge: false, unlocked: false }
    }

    /// A minor fault that was needed, because nothing could have been mapped before.
    pub const fn needed(class: FaultClass) -> Served {
        Served::judged(class, Verdict::new(Judgement::Needed, Reason::NewTranslation))
    }

    /// The outcome of a fault that was reported to userfaultfd and waited for its answer. The last
    /// try found little or nothing left to do, but the fault was needed.
    #[must_use]
    pub fn told(self) -> Served {
        let class = match self.class {
            FaultClass::Spurious | FaultClass::Reuse => FaultClass::Userfaultfd,
            class => class,
        };
        let verdict = match self.verdict.is_needless() {
            true => Verdict::new(Judgement::Needed, Reason::UserfaultfdTold),
            false => self.verdict,
        };
        Served { class, verdict, ..self }
    }

    /// A fault that only set a bit that a processor could have set.
    pub const fn access_flag() -> Served {
        let verdict = Verdict::new(Judgement::Needless, Reason::OnlySetBits);
        Served::judged(FaultClass::AccessFlag, verdict)
    }

    /// A fault that found its work done.
    pub const fn spurious() -> Served {
        let verdict = Verdict::new(Judgement::Needless, Reason::AlreadyGranted);
        Served::judged(FaultClass::Spurious, verdict)
    }
}

/// Why a fault could not be served.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unserved {
    /// The mapping does not allow the access or does not exist (SIGSEGV), or its file ends before
    /// the page (SIGBUS).
    NotAllowed,
    /// No memory is left.
    OutOfMemory,
    /// The fault has to wait.
    Blocked {
        /// What the fault waits for.
        wait: Wait,
        /// Whether the fault has read the page. It then counts as major, however it ends
        /// (`VM_FAULT_MAJOR`).
        read: bool,
    },
    /// The fault must be retried (`VM_FAULT_RETRY`): it has read its page, or it was served and has
    /// already given its lock back.
    TryAgain(Served),
    /// The fault needs `mmap_lock` as well as the mapping's lock, and could not get it.
    MmapLockNeeded,
}
