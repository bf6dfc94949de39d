//! What a scenario asks of userfaultfd: which accesses it watches, how it is answered.

use serde::{Deserialize, Serialize};

/// How pages are registered, and with which features the userfaultfd was made: a process has one, so that these are
/// the same wherever it registers something.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Registration {
    /// Which accesses are watched.
    pub mode: Watch,
    /// The features.
    pub features: Features,
}

/// Which accesses userfaultfd watches in a mapping (`VM_UFFD_MISSING`, `VM_UFFD_WP`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Watch {
    /// Those to pages that are not there.
    pub missing: bool,
    /// Stores to pages that are write-protected.
    pub write_protect: bool,
}

impl Watch {
    /// Each with the word that scenarios use.
    pub const ALL: [(&'static str, Watch); 3] = [
        ("missing", Watch { missing: true, write_protect: false }),
        ("wp", Watch { missing: false, write_protect: true }),
        ("missing-wp", Watch { missing: true, write_protect: true }),
    ];

    /// Whether all that the other watches is watched.
    pub const fn includes(self, other: Watch) -> bool {
        (self.missing || !other.missing) && (self.write_protect || !other.write_protect)
    }

    /// Whether anything is watched (`userfaultfd_armed`).
    pub const fn armed(self) -> bool {
        self.missing || self.write_protect
    }
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
/// (`UFFDIO_WRITEPROTECT` without `UFFDIO_WRITEPROTECT_MODE_WP`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answer {
    /// Nothing: there are none.
    Unprotect,
    /// The zero page is mapped (`UFFDIO_ZEROPAGE`).
    ZeroPage,
    /// A page of zeros is copied there (`UFFDIO_COPY`).
    Copy,
}

impl Answer {
    /// Each with the word that scenarios use.
    pub const ALL: [(&'static str, Answer); 3] =
        [("unprotect", Answer::Unprotect), ("zeropage", Answer::ZeroPage), ("copy", Answer::Copy)];
}
