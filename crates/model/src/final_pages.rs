//! The state of each page at the end of a run, in words: [`crate::run::TargetRun::final_pages`].
//!
//! The words say what `/proc/self/pagemap` shows of a page
//! (Documentation/admin-guide/mm/pagemap.rst). A further entry for each process says how many of
//! its pages huge entries map (`AnonHugePages` of `/proc/self/smaps`). Every target uses equal
//! words, because they are compared.

use crate::program::Program;
use std::collections::BTreeMap;

/// Programs with more pages than this are not listed.
pub const MOST_PAGES: u64 = 4096;

/// The contents of a page-table entry.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The entry is empty.
    Nothing,
    /// The entry is neither empty nor a translation.
    Swapped,
    /// A translation to this frame number.
    Frame(u64),
}

/// The state of one page.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PageState {
    /// The contents of the page's entry.
    pub holds: Holds,
    /// Whether no other entry maps the frame.
    pub exclusive: bool,
    /// Whether the page was written since soft-dirty bits were last cleared.
    pub soft_dirty: bool,
    /// Whether userfaultfd write-protects the page.
    pub uffd_wp: bool,
}

impl PageState {
    fn words(self) -> String {
        let word = match self.holds {
            Holds::Nothing => "none",
            Holds::Swapped => "swapped",
            Holds::Frame(_) => "present",
        };
        let flags = [
            (self.exclusive, " exclusive"),
            (self.soft_dirty, " soft-dirty"),
            (self.uffd_wp, " uffd-wp"),
        ];
        let set = flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word);
        std::iter::once(word).chain(set).collect()
    }
}

/// The number of pages of a program, if it is too large to list them.
pub fn too_many(program: &Program) -> Option<u64> {
    let pages = program.areas.iter().map(|area| area.range.pages()).sum();
    (pages > MOST_PAGES).then_some(pages)
}

/// Collects the states of pages.
#[derive(Default)]
pub struct FinalPages {
    states: BTreeMap<String, String>,
    /// The first page of each frame.
    first_of: BTreeMap<u64, String>,
}

impl FinalPages {
    /// Adds a page with its state. The words name the first earlier page that has the same frame.
    pub fn tell(&mut self, name: String, state: PageState) {
        let mut words = state.words();
        if let Holds::Frame(frame) = state.holds {
            match self.first_of.get(&frame) {
                Some(first) => words += &format!(" same-as:{first}"),
                None => {
                    self.first_of.insert(frame, name.clone());
                }
            }
        }
        self.states.insert(name, words);
    }

    /// Adds the NUMA node of a page that was added before.
    pub fn tell_node(&mut self, name: &str, node: u16) {
        if let Some(words) = self.states.get_mut(name) {
            *words += &format!(" node{node}");
        }
    }

    /// Adds the number of pages that huge entries map in a process, if it is not 0. `process` is
    /// the process's name with a colon; empty for the first process.
    pub fn tell_huge(&mut self, process: &str, pages: u64) {
        if pages > 0 {
            self.states.insert(format!("{process}AnonHugePages"), format!("{pages} pages"));
        }
    }

    /// The words for each page, by the page's name.
    pub fn by_name(self) -> BTreeMap<String, String> {
        self.states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_in_words() {
        let plain =
            |holds| PageState { holds, exclusive: false, soft_dirty: false, uffd_wp: false };
        let mut pages = FinalPages::default();
        let all = PageState {
            exclusive: true,
            soft_dirty: true,
            uffd_wp: true,
            ..plain(Holds::Frame(1))
        };
        let states = [
            ("a", plain(Holds::Frame(77))),
            ("b", plain(Holds::Frame(77))),
            ("c", all),
            ("d", plain(Holds::Swapped)),
            ("e", PageState { soft_dirty: true, ..plain(Holds::Nothing) }),
        ];
        states.into_iter().for_each(|(name, state)| pages.tell(name.to_owned(), state));
        pages.tell_node("a", 1);
        pages.tell_node("not told", 1);
        let words: Vec<String> = pages.by_name().into_values().collect();
        assert_eq!(
            words,
            [
                "present node1",
                "present same-as:a",
                "present exclusive soft-dirty uffd-wp",
                "swapped",
                "none soft-dirty",
            ]
        );
    }
}
