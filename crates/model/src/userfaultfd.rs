//! userfaultfd in scenarios: the accesses that it watches, and the answers to them.

use crate::addr::{PageRange, Vpn};
use crate::call::Extent;
use crate::program::Area;
use serde::{Deserialize, Serialize};

/// A registration of pages, with the features of the userfaultfd. A process has only one
/// userfaultfd: if the features differ from those before, the old one is closed and a new one is
/// created.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Registration {
    /// The accesses that are watched.
    pub mode: Watch,
    /// The features of the userfaultfd.
    pub features: Features,
}

/// The accesses that userfaultfd watches in a mapping (`VM_UFFD_MISSING`, `VM_UFFD_MINOR`,
/// `VM_UFFD_WP`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Watch {
    /// Accesses to pages that are not there.
    pub missing: bool,
    /// Accesses to pages that a file in memory has, but that are not mapped.
    pub minor: bool,
    /// Stores to write-protected pages.
    pub write_protect: bool,
}

impl Watch {
    /// No access is watched.
    pub const NONE: Watch = Watch { missing: false, minor: false, write_protect: false };

    /// All modes, each with its word in scenarios.
    pub const ALL: [(&'static str, Watch); 7] = [
        ("missing", Watch { missing: true, ..Watch::NONE }),
        ("minor", Watch { minor: true, ..Watch::NONE }),
        ("wp", Watch { write_protect: true, ..Watch::NONE }),
        ("missing-minor", Watch { missing: true, minor: true, ..Watch::NONE }),
        ("missing-wp", Watch { missing: true, write_protect: true, ..Watch::NONE }),
        ("minor-wp", Watch { minor: true, write_protect: true, ..Watch::NONE }),
        ("missing-minor-wp", Watch { missing: true, minor: true, write_protect: true }),
    ];

    /// Whether this includes every access that `other` watches.
    pub const fn includes(self, other: Watch) -> bool {
        (self.missing || !other.missing)
            && (self.minor || !other.minor)
            && (self.write_protect || !other.write_protect)
    }

    /// Whether any access is watched (`userfaultfd_armed`).
    pub const fn armed(self) -> bool {
        self.missing || self.minor || self.write_protect
    }

    /// Whether a read maps only the page that it reads.
    ///
    /// Source: include/linux/userfaultfd_k.h:uffd_disable_fault_around (6.1 to 7.2; 5.10 has
    /// neither mode for files).
    pub const fn disables_fault_around(self) -> bool {
        self.minor || self.write_protect
    }
}

/// The message of userfaultfd about an access.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// The access's page is not there (`VM_UFFD_MISSING`).
    Missing,
    /// The file has the access's page, which is not mapped (`VM_UFFD_MINOR`).
    Minor,
    /// The access is a store to a protected page (`VM_UFFD_WP`).
    Protected,
}

/// Features of a userfaultfd that change the kernel's behaviour.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Features {
    /// Empty entries can be write-protected (`UFFD_FEATURE_WP_UNPOPULATED`, 6.4 and later).
    pub unpopulated: bool,
    /// The kernel lets stores to protected pages continue, and records them
    /// (`UFFD_FEATURE_WP_ASYNC`, 6.7 and later). This feature includes the other one.
    pub asynchronous: bool,
}

impl Features {
    /// All sets of features, each with its word in scenarios.
    pub const ALL: [(&'static str, Features); 3] = [
        ("none", Features { unpopulated: false, asynchronous: false }),
        ("unpopulated", Features { unpopulated: true, asynchronous: false }),
        ("async", Features { unpopulated: true, asynchronous: true }),
    ];

    /// The word for the features in scenarios.
    pub fn word(self) -> &'static str {
        Features::ALL.iter().find(|(_, features)| *features == self).map_or("", |(word, _)| word)
    }
}

/// The answer to an access to a page that is not there. The answer to a store to a protected page
/// is always to end the protection (`UFFDIO_WRITEPROTECT` without `UFFDIO_WRITEPROTECT_MODE_WP`),
/// and the answer to a minor fault is to map the file's page (`UFFDIO_CONTINUE`). `A` is the type
/// of an area: its number in a program, or its extent.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answer<A> {
    /// There is no answer, because no such access occurs.
    Nothing,
    /// Maps the zero page (`UFFDIO_ZEROPAGE`).
    ZeroPage,
    /// Copies a page of zeros (`UFFDIO_COPY`).
    Copy,
    /// Moves a page of the process there, from the corresponding place in another area
    /// (`UFFDIO_MOVE`, 6.8 and later).
    Move {
        /// The area that is filled.
        to: A,
        /// The area that the pages come from.
        from: A,
    },
}

impl<A> Answer<A> {
    /// The answer with its areas converted or checked.
    ///
    /// # Errors
    ///
    /// The errors of `area`.
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
    /// All answers without areas, each with its word in scenarios.
    pub const ALL: [(&'static str, Answer<u16>); 4] = [
        ("unprotect", Answer::Nothing),
        ("continue", Answer::Nothing),
        ("zeropage", Answer::ZeroPage),
        ("copy", Answer::Copy),
    ];

    /// The answer with the extents of its areas.
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

/// The page that is moved to `page`; `None` if there is none for it.
pub fn source(to: PageRange, from: PageRange, page: Vpn) -> Option<Vpn> {
    to.contains(page).then(|| from.start.add(page.0 - to.start.0))
}

/// The content that a call puts where nothing is mapped, whether or not an access waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fill {
    /// The zero page; in a shared mapping, a new page of the file (`UFFDIO_ZEROPAGE`).
    ZeroPage,
    /// A copy of zeros; in a shared mapping, a new page of the file (`UFFDIO_COPY`).
    Copy,
    /// The file's page (`UFFDIO_CONTINUE`, 5.14 and later).
    Continue,
    /// A marker that makes every access end in SIGBUS (`UFFDIO_POISON`, 6.6 and later).
    Poison,
}

impl Fill {
    /// All kinds, each with its word in scenarios.
    pub const ALL: [(&'static str, Fill); 4] = [
        ("zeropage", Fill::ZeroPage),
        ("copy", Fill::Copy),
        ("continue", Fill::Continue),
        ("poison", Fill::Poison),
    ];
}
