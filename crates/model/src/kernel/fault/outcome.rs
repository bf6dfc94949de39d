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
    /// A store.
    pub write: bool,
    /// A load of a page that has to be the process's own (`FAULT_FLAG_UNSHARE`).
    pub unshare: bool,
    /// A store on somebody's behalf whom the mapping's protection does not stop (`FOLL_FORCE`): the page is its own afterwards, and grants none.
    pub forced: bool,
    /// How often it was tried.
    pub attempt: Attempt,
    /// Whether userfaultfd was told of it: then it was needed, whatever the last try finds.
    pub told: bool,
}

/// Which try of a fault it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// With the mapping's lock only (`FAULT_FLAG_VMA_LOCK`).
    VmaLock,
    /// With `mmap_lock`, which it gives back to wait.
    MmapLock,
    /// With locks that it must not give back: what it has to wait for it waits for with them (no `FAULT_FLAG_ALLOW_RETRY`).
    Held,
    /// It waited already, and waits for the same with its locks held now (`FAULT_FLAG_TRIED`).
    Tried,
}

impl Attempt {
    /// Whether it has to end without giving its locks back.
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

    /// The next try.
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
    /// The access may be tried again.
    Served,
    /// The access is not allowed.
    Signal,
    /// There is no memory left.
    OutOfMemory,
    /// It is to be taken up again, as this fault, when the wait is over (`VM_FAULT_RETRY`); no lock is held.
    Blocked(Wait, Fault),
}

/// What a fault turned out to be.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Served {
    /// Its class.
    pub class: FaultClass,
    /// Whether the page had to be read.
    pub major: bool,
    /// Whether it was needed.
    pub verdict: Verdict,
    /// Whether a huge page's entry served it.
    pub huge: bool,
    /// Whether it has given its lock back already, so that whoever dirties much waited without it.
    pub unlocked: bool,
}

impl Served {
    /// A minor fault.
    pub const fn judged(class: FaultClass, verdict: Verdict) -> Served {
        Served { class, major: false, verdict, huge: false, unlocked: false }
    }

    /// A minor fault that was needed because nothing could have been mapped before.
    pub const fn needed(class: FaultClass) -> Served {
        Served::judged(class, Verdict::new(Judgement::Needed, Reason::NewTranslation))
    }

    /// The same fault, of which userfaultfd was told, and which waited for its answer: by then there was nothing else to do, or little.
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

    /// A fault that only set what a processor could have set.
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
    /// The mapping does not allow the access, or there is none (SIGSEGV), or its file ends before the page (SIGBUS).
    NotAllowed,
    /// There is no memory left.
    OutOfMemory,
    /// It has to wait; `read`: after it has read the page, so that it is major whatever it comes to (`VM_FAULT_MAJOR`).
    Blocked {
        /// For what.
        wait: Wait,
        /// Whether it has read the page.
        read: bool,
    },
    /// What it needs was read, and it is to give its lock back and be tried again (`VM_FAULT_RETRY`).
    TryAgain(Served),
    /// The mapping's lock is not enough, and `mmap_lock` was not to be had.
    MmapLockNeeded,
}
