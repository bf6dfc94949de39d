//! Finds the class of a fault, from what can be seen of the fault and from earlier faults on its
//! page in this run.
//!
//! | exception | flush inside | page came from | class |
//! |---|---|---|---|
//! | not present, write, shared memory or a shared file | | | shared-dirty |
//! | present, write, a shared file on a disk | | | shared-dirty |
//! | not present, read, shared memory or a file | | | file-map |
//! | not present, write, a private file | | | cow-copy |
//! | present, write, a private file | one page | | cow-copy |
//! | any other, major | | | swap-in |
//! | not present | | a fault, where processes share what is swapped | unknown |
//! | not present, write | | | first-touch |
//! | not present, read | | | zero-page |
//! | present, write | one page | a zero-page fault | zero-upgrade |
//! | present, write | one page | any other fault | cow-copy |
//! | present, write | one page | not seen | unknown |
//! | present, write | none | | reuse |
//! | anything else | | | unknown |
//!
//! The origin of a page is its last fault on a non-present PTE. Origins are forgotten when pages
//! move, when pages are populated without an exception, and when events were lost. A forked process
//! begins with its parent's origins. If two processes have a page in swap, one of them reads it
//! back. The other's fault is minor and looks like a first touch.
//!
//! `needless stat` watches allocations instead and knows nothing about a page's past. It finds the
//! classes by rules of its own (crates/watch/src/fold/rules.rs).

use needless_model::addr::{ProcessId, Vpn};
use needless_model::event::{FaultClass, FaultCode};
use needless_model::program::{Backing, Program};
use std::collections::HashMap;

/// The origin of each page.
#[derive(Default)]
pub struct History {
    origin: HashMap<(ProcessId, Vpn), FaultClass>,
    /// Whether processes may share swapped pages.
    swaps_shared: bool,
}

/// A fault that has ended.
#[derive(Copy, Clone, Debug)]
pub struct Seen {
    /// The process that faulted.
    pub process: ProcessId,
    /// The page that faulted.
    pub page: Vpn,
    /// The exception's error code; `None` if no exception was seen.
    pub code: Option<FaultCode>,
    /// The backing of the page's area.
    pub backing: Backing,
    /// Whether the kernel counted the fault as major.
    pub major: bool,
    /// Whether userfaultfd reported the fault, so that it waited for an answer.
    pub asked: bool,
    /// Whether the fault itself flushed exactly one page; `None` if flushes are not visible.
    pub flushed_page: Option<bool>,
}

impl Seen {
    fn place(&self) -> (ProcessId, Vpn) {
        (self.process, self.page)
    }
}

impl History {
    /// Begins without origins for the pages of `program`.
    pub fn new(program: &Program) -> History {
        let swaps_shared = program.processes.len() > 1 && program.machine.swap.is_some();
        History { swaps_shared, ..History::default() }
    }

    /// Gives the child the origins of its parent's pages.
    pub fn fork(&mut self, parent: ProcessId, child: ProcessId) {
        self.origin.retain(|(process, _), _| *process != child);
        let parents = self.origin.iter().filter(|((process, _), _)| *process == parent);
        let copies: Vec<_> = parents.map(|((_, page), class)| ((child, *page), *class)).collect();
        self.origin.extend(copies);
    }

    /// Forgets all origins.
    pub fn forget(&mut self) {
        self.origin.clear();
    }

    /// Classifies a fault and remembers the origin of its page.
    pub fn classify(&mut self, seen: Seen) -> FaultClass {
        let class = self.class(seen);
        let waited =
            matches!(class, FaultClass::Reuse | FaultClass::FirstTouch | FaultClass::ZeroPage);
        if seen.code.is_some_and(|code| !code.present()) {
            self.origin.insert(seen.place(), class);
        } else if matches!(class, FaultClass::CowCopy | FaultClass::ZeroUpgrade) {
            self.origin.insert(seen.place(), FaultClass::FirstTouch);
        }
        if seen.asked && waited { FaultClass::Userfaultfd } else { class }
    }

    fn class(&self, seen: Seen) -> FaultClass {
        if let Some(class) = seen.code.and_then(|code| of_file(seen, code)) {
            return class;
        }
        // A fault that userfaultfd reports may count as major (mm/memory.c:mm_account_fault, 5.10
        // to 6.1).
        if seen.major && !seen.asked {
            return FaultClass::SwapIn;
        }
        let Some(code) = seen.code else { return FaultClass::Unknown };
        if self.swaps_shared && !code.present() && self.origin.contains_key(&seen.place()) {
            return FaultClass::Unknown;
        }
        match (code.present(), code.write(), seen.flushed_page) {
            (false, true, _) => FaultClass::FirstTouch,
            (false, false, _) => FaultClass::ZeroPage,
            (true, true, Some(true)) => match self.origin.get(&seen.place()) {
                None => FaultClass::Unknown,
                Some(FaultClass::ZeroPage) => FaultClass::ZeroUpgrade,
                Some(_) => FaultClass::CowCopy,
            },
            (true, true, Some(false)) => FaultClass::Reuse,
            (true, _, _) => FaultClass::Unknown,
        }
    }
}

/// The class of a fault on a file or on shared memory, where the area and the error code decide it.
/// (A process reuses its private copy in the way that it reuses anonymous memory.)
fn of_file(seen: Seen, code: FaultCode) -> Option<FaultClass> {
    let shared = match seen.backing {
        Backing::Anonymous => return None,
        backing => backing.is_shared(),
    };
    let on_disk = matches!(seen.backing, Backing::File(file) if file.fs.is_written_back());
    match (code.present(), code.write()) {
        (false, false) => Some(FaultClass::FileMap),
        (false, true) if shared => Some(FaultClass::SharedDirty),
        (true, true) if shared && on_disk => Some(FaultClass::SharedDirty),
        (false, true) => Some(FaultClass::CowCopy),
        (true, true) if !shared && seen.flushed_page == Some(true) => Some(FaultClass::CowCopy),
        (true, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::program::{FileMapping, FileSystem};

    const PAGE: Vpn = Vpn(5);

    fn fault(code: u8, major: bool, flushed: bool) -> Seen {
        let (process, code) = (ProcessId::FIRST, Some(FaultCode(code)));
        Seen {
            asked: false,
            process,
            page: PAGE,
            code,
            backing: Backing::Anonymous,
            major,
            flushed_page: Some(flushed),
        }
    }

    /// 5.10 counts a store that dirties shared memory as a major fault.
    #[test]
    fn shared_memory_is_told_by_its_area() {
        let mut history = History::default();
        let mut class = |code, major| {
            history.classify(Seen { backing: Backing::Shared, ..fault(code, major, false) })
        };
        assert_eq!(class(4, false), FaultClass::FileMap);
        assert_eq!(class(6, false), FaultClass::SharedDirty);
        assert_eq!(class(6, true), FaultClass::SharedDirty);
    }

    /// A page of a file needs no origin. The origin of a page that another page's fault mapped
    /// (fault around) is not seen.
    #[test]
    fn a_file_is_told_by_its_area() {
        let class = |code, flushed, shared| {
            let backing =
                Backing::File(FileMapping { file: 0, fs: FileSystem::Tmpfs, first: 0, shared });
            History::default().classify(Seen { backing, ..fault(code, false, flushed) })
        };
        assert_eq!(class(4, false, false), FaultClass::FileMap);
        assert_eq!(class(6, false, false), FaultClass::CowCopy);
        assert_eq!(class(7, true, false), FaultClass::CowCopy);
        assert_eq!(class(7, false, false), FaultClass::Reuse);
        assert_eq!(class(6, false, true), FaultClass::SharedDirty);
        assert_eq!(class(4, false, true), FaultClass::FileMap);
    }

    #[test]
    fn a_write_after_the_zero_page_upgrades_and_then_copies() {
        let mut history = History::default();
        assert_eq!(history.classify(fault(7, false, true)), FaultClass::Unknown);
        assert_eq!(history.classify(fault(4, false, false)), FaultClass::ZeroPage);
        assert_eq!(history.classify(fault(7, false, true)), FaultClass::ZeroUpgrade);
        assert_eq!(history.classify(fault(7, false, true)), FaultClass::CowCopy);
        assert_eq!(history.classify(fault(7, false, false)), FaultClass::Reuse);
    }

    #[test]
    fn a_major_fault_is_a_swap_in_and_a_later_write_copies_or_reuses() {
        let mut history = History::default();
        assert_eq!(history.classify(fault(4, true, false)), FaultClass::SwapIn);
        assert_eq!(history.classify(fault(7, false, true)), FaultClass::CowCopy);
        history.forget();
        assert_eq!(history.classify(fault(7, false, true)), FaultClass::Unknown);
    }

    #[test]
    fn without_flushes_a_write_to_a_present_page_stays_unknown() {
        let seen = Seen { flushed_page: None, ..fault(7, false, false) };
        assert_eq!(History::default().classify(seen), FaultClass::Unknown);
    }
}
