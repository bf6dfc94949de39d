//! What a scenario asks of userfaultfd: which accesses it watches, how it is answered.

use crate::addr::{PageRange, Vpn};
use crate::call::Extent;
use crate::program::Area;
use serde::{Deserialize, Serialize};

/// How pages are registered, and with which features the userfaultfd was made. A process has one: where these are
/// others than before, the one that it had is closed, and another is made.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Registration {
    /// Which accesses are watched.
    pub mode: Watch,
    /// The features.
    pub features: Features,
}

/// Which accesses userfaultfd watches in a mapping (`VM_UFFD_MISSING`, `VM_UFFD_MINOR`, `VM_UFFD_WP`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Watch {
    /// Those to pages that are not there.
    pub missing: bool,
    /// Those to pages of files in memory that are there, but not mapped.
    pub minor: bool,
    /// Stores to pages that are write-protected.
    pub write_protect: bool,
}

impl Watch {
    /// Nothing.
    pub const NONE: Watch = Watch { missing: false, minor: false, write_protect: false };

    /// Each with the word that scenarios use.
    pub const ALL: [(&'static str, Watch); 7] = [
        ("missing", Watch { missing: true, ..Watch::NONE }),
        ("minor", Watch { minor: true, ..Watch::NONE }),
        ("wp", Watch { write_protect: true, ..Watch::NONE }),
        ("missing-minor", Watch { missing: true, minor: true, ..Watch::NONE }),
        ("missing-wp", Watch { missing: true, write_protect: true, ..Watch::NONE }),
        ("minor-wp", Watch { minor: true, write_protect: true, ..Watch::NONE }),
        ("missing-minor-wp", Watch { missing: true, minor: true, write_protect: true }),
    ];

    /// Whether all that the other watches is watched.
    pub const fn includes(self, other: Watch) -> bool {
        (self.missing || !other.missing)
            && (self.minor || !other.minor)
            && (self.write_protect || !other.write_protect)
    }

    /// Whether anything is watched (`userfaultfd_armed`).
    pub const fn armed(self) -> bool {
        self.missing || self.minor || self.write_protect
    }

    /// Whether a read maps no more than the page that it reads.
    ///
    /// Source: include/linux/userfaultfd_k.h:uffd_disable_fault_around (6.1 to 7.2; 5.10 has neither mode for files).
    pub const fn disables_fault_around(self) -> bool {
        self.minor || self.write_protect
    }
}

/// What userfaultfd is told of an access.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// Its page is not there (`VM_UFFD_MISSING`).
    Missing,
    /// The file has its page, which is not mapped (`VM_UFFD_MINOR`).
    Minor,
    /// It is a store to a page that is protected (`VM_UFFD_WP`).
    Protected,
}

/// Features of a userfaultfd that change what the kernel does.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Features {
    /// What is not there can be write-protected (`UFFD_FEATURE_WP_UNPOPULATED`, 6.4 and later).
    pub unpopulated: bool,
    /// The kernel lets stores to protected pages go on and notes that they were written (`UFFD_FEATURE_WP_ASYNC`, 6.7 and
    /// later; it brings the other one with it).
    pub asynchronous: bool,
}

impl Features {
    /// Each with the word that scenarios use.
    pub const ALL: [(&'static str, Features); 3] = [
        ("none", Features { unpopulated: false, asynchronous: false }),
        ("unpopulated", Features { unpopulated: true, asynchronous: false }),
        ("async", Features { unpopulated: true, asynchronous: true }),
    ];

    /// The word that scenarios use.
    pub fn word(self) -> &'static str {
        Features::ALL.iter().find(|(_, features)| *features == self).map_or("", |(word, _)| word)
    }
}

/// What whoever reads an event does about a page that is not there. One that is protected may be stored to in any case
/// (`UFFDIO_WRITEPROTECT` without `UFFDIO_WRITEPROTECT_MODE_WP`), and one that its file has is mapped (`UFFDIO_CONTINUE`).
/// `A`: an area, by its number in a program, or where it lies.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answer<A> {
    /// Nothing: there are none.
    Nothing,
    /// The zero page is mapped (`UFFDIO_ZEROPAGE`).
    ZeroPage,
    /// A page of zeros is copied there (`UFFDIO_COPY`).
    Copy,
    /// A page of the process's own is moved there, from the same place in another area (`UFFDIO_MOVE`, 6.8 and later).
    Move {
        /// The area that is filled.
        to: A,
        /// That of the pages for it.
        from: A,
    },
}

impl<A> Answer<A> {
    /// The same with its areas made into something else, or checked.
    ///
    /// # Errors
    /// Those of `area`.
    pub fn try_map<B, E>(&self, area: impl Fn(&A) -> Result<B, E>) -> Result<Answer<B>, E> {
        Ok(match self {
            Answer::Nothing => Answer::Nothing,
            Answer::ZeroPage => Answer::ZeroPage,
            Answer::Copy => Answer::Copy,
            Answer::Move { to, from } => Answer::Move { to: area(to)?, from: area(from)? },
        })
    }
}

impl Answer<u16> {
    /// Each that has no areas, with the word that scenarios use.
    pub const ALL: [(&'static str, Answer<u16>); 4] = [
        ("unprotect", Answer::Nothing),
        ("continue", Answer::Nothing),
        ("zeropage", Answer::ZeroPage),
        ("copy", Answer::Copy),
    ];

    /// The same with where its areas lie.
    pub fn placed(self, areas: &[Area]) -> Answer<Extent> {
        let extent = |area: u16| areas[usize::from(area)].extent();
        match self {
            Answer::Nothing => Answer::Nothing,
            Answer::ZeroPage => Answer::ZeroPage,
            Answer::Copy => Answer::Copy,
            Answer::Move { to, from } => Answer::Move { to: extent(to), from: extent(from) },
        }
    }
}

/// Where the page is that is moved to `page`; `None`: there is none for it.
pub fn source(to: PageRange, from: PageRange, page: Vpn) -> Option<Vpn> {
    to.contains(page).then(|| from.start.add(page.0 - to.start.0))
}

/// What a call puts where nothing is mapped yet, asked or not.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fill {
    /// The zero page; in a shared mapping a new page of the file (`UFFDIO_ZEROPAGE`).
    ZeroPage,
    /// A copy of zeros; in a shared mapping it is a new page of the file (`UFFDIO_COPY`).
    Copy,
    /// The file's page (`UFFDIO_CONTINUE`, 5.14 and later).
    Continue,
    /// A marker: every access is a SIGBUS (`UFFDIO_POISON`, 6.6 and later).
    Poison,
}

impl Fill {
    /// Each with the word that scenarios use.
    pub const ALL: [(&'static str, Fill); 4] = [
        ("zeropage", Fill::ZeroPage),
        ("copy", Fill::Copy),
        ("continue", Fill::Continue),
        ("poison", Fill::Poison),
    ];
}
