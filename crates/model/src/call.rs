//! What threads ask of the kernel: each call once, with what its users have to know of it.
//!
//! A scenario holds a [`CallExpr`], whose pages and numbers are expressions. When its turn comes these have values,
//! and it is a [`Call`]. Parser, model, checker, runner and generator each name every case.

use crate::addr::{PageRange, ProcessId};
use crate::program::{Advice, Backing, Expr, MAX_OTHERS, Prot, RangeExpr};
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use strum::EnumDiscriminants;

/// A call: `P` says which pages, `A` which area as a whole, `N` how many of something.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(CallKind), derive(strum::EnumIter), doc = "Which call it is.")]
pub enum Asked<P, A, N> {
    /// `madvise`
    Advise {
        /// What.
        pages: P,
        /// Which advice.
        advice: Advice,
    },
    /// `mprotect`
    Protect {
        /// What.
        pages: P,
        /// The new protection.
        prot: Prot,
    },
    /// `munmap`
    Unmap {
        /// What.
        pages: P,
    },
    /// `mmap` of a whole area (`MAP_FIXED_NOREPLACE`).
    Map {
        /// Where.
        area: A,
        /// With which protection.
        prot: Prot,
    },
    /// `mremap(MREMAP_MAYMOVE | MREMAP_FIXED)`: the pages move to the start of another area.
    Remap {
        /// What.
        pages: P,
        /// Where to.
        to: A,
    },
    /// Reclaims the pages as if memory were short.
    Reclaim {
        /// What is taken for old.
        pages: P,
    },
    /// Other processes run on the CPU, one after the other, before the thread goes on.
    Switch {
        /// How many: 1 to [`MAX_OTHERS`].
        others: N,
    },
    /// `fork`: another process of the scenario begins, with a copy of this one's memory.
    Fork {
        /// Which.
        process: ProcessId,
    },
    /// `wait4`: until that process has ended.
    Wait {
        /// Which.
        process: ProcessId,
    },
}

/// A call as a scenario holds it: pages by expressions, areas by their index in [`crate::program::Program::areas`].
pub type CallExpr = Asked<RangeExpr, u16, Expr>;

/// A call whose turn has come.
pub type Call = Asked<PageRange, Extent, u64>;

/// An area as a whole.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Where it lies.
    pub pages: PageRange,
    /// What is mapped there.
    pub backing: Backing,
}

/// What a number of a call may be.
#[derive(Copy, Clone, Debug)]
pub struct Bounds {
    /// What is counted.
    pub what: &'static str,
    /// The least.
    pub least: i64,
    /// The most.
    pub most: i64,
}

/// How many processes run in between.
pub const OTHERS: Bounds = Bounds { what: "the number of processes", least: 1, most: MAX_OTHERS };

/// What a call does to pages, as far as it can be told before it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Purpose {
    /// It takes them away from whoever uses them.
    pub revokes: SmallVec<[PageRange; 2]>,
    /// What they hold is not needed any more, until they are stored to again.
    pub gives_up: Option<PageRange>,
}

impl<P, A, N> Asked<P, A, N> {
    /// The same call with its parts made into something else, or checked.
    #[inline]
    pub fn try_map<Q, B, M, E>(
        &self,
        pages: impl Fn(&P) -> Result<Q, E>,
        area: impl Fn(&A) -> Result<B, E>,
        number: impl Fn(&N, Bounds) -> Result<M, E>,
    ) -> Result<Asked<Q, B, M>, E> {
        Ok(match self {
            Asked::Map { area: a, prot } => Asked::Map { area: area(a)?, prot: *prot },
            Asked::Unmap { pages: p } => Asked::Unmap { pages: pages(p)? },
            Asked::Protect { pages: p, prot } => Asked::Protect { pages: pages(p)?, prot: *prot },
            Asked::Remap { pages: p, to } => Asked::Remap { pages: pages(p)?, to: area(to)? },
            Asked::Advise { pages: p, advice } => {
                Asked::Advise { pages: pages(p)?, advice: *advice }
            }
            Asked::Reclaim { pages: p } => Asked::Reclaim { pages: pages(p)? },
            Asked::Switch { others } => Asked::Switch { others: number(others, OTHERS)? },
            Asked::Fork { process } => Asked::Fork { process: *process },
            Asked::Wait { process } => Asked::Wait { process: *process },
        })
    }

    /// Its name if no real kernel can be asked for it.
    pub const fn model_only(&self) -> Option<&'static str> {
        match self {
            Asked::Reclaim { .. } => Some("reclaim"),
            Asked::Switch { .. } => Some("switch"),
            Asked::Fork { .. } => Some("fork"),
            Asked::Wait { .. } => Some("wait"),
            Asked::Map { .. }
            | Asked::Unmap { .. }
            | Asked::Protect { .. }
            | Asked::Remap { .. }
            | Asked::Advise { .. } => None,
        }
    }

    /// The row of tables over many scenarios in which it is counted. (All scenarios map; what only the model
    /// runs is in none of them.)
    pub const fn group(&self) -> Option<&'static str> {
        match self {
            Asked::Unmap { .. } => Some("munmap"),
            Asked::Protect { .. } => Some("mprotect"),
            Asked::Remap { .. } => Some("mremap"),
            Asked::Advise { advice, .. } => Some(match advice {
                Advice::DontNeed => "dontneed",
                Advice::Free => "free",
                Advice::Cold => "cold",
                Advice::PageOut => "pageout",
                Advice::PopulateRead | Advice::PopulateWrite => "populate",
            }),
            Asked::Map { .. }
            | Asked::Reclaim { .. }
            | Asked::Switch { .. }
            | Asked::Fork { .. }
            | Asked::Wait { .. } => None,
        }
    }

    /// Whether it leaves pages in a state that exceptions do not tell.
    pub const fn hides_state(&self) -> bool {
        match self {
            Asked::Remap { .. } | Asked::Fork { .. } => true,
            Asked::Advise { advice, .. } => match advice {
                Advice::PopulateRead | Advice::PopulateWrite => true,
                Advice::DontNeed | Advice::Free | Advice::Cold | Advice::PageOut => false,
            },
            Asked::Map { .. }
            | Asked::Unmap { .. }
            | Asked::Protect { .. }
            | Asked::Reclaim { .. }
            | Asked::Switch { .. }
            | Asked::Wait { .. } => false,
        }
    }
}

impl Call {
    /// The pages that it is about, if it is about any.
    #[inline]
    pub const fn pages(&self) -> Option<PageRange> {
        match *self {
            Asked::Unmap { pages }
            | Asked::Protect { pages, .. }
            | Asked::Remap { pages, .. }
            | Asked::Advise { pages, .. }
            | Asked::Reclaim { pages } => Some(pages),
            Asked::Map { area, .. } => Some(area.pages),
            Asked::Switch { .. } | Asked::Fork { .. } | Asked::Wait { .. } => None,
        }
    }

    /// What it is for.
    pub fn purpose(self) -> Purpose {
        let (revokes, gives_up) = match self {
            Asked::Unmap { pages }
            | Asked::Protect { pages, prot: Prot::None | Prot::Read }
            | Asked::Advise { pages, advice: Advice::DontNeed } => (smallvec![pages], None),
            Asked::Remap { pages, to } => {
                (smallvec![pages, PageRange::new(to.pages.start, pages.pages())], None)
            }
            Asked::Advise { pages, advice: Advice::Free } => (SmallVec::new(), Some(pages)),
            Asked::Map { .. }
            | Asked::Protect { prot: Prot::ReadWrite, .. }
            | Asked::Advise {
                advice:
                    Advice::Cold | Advice::PageOut | Advice::PopulateRead | Advice::PopulateWrite,
                ..
            }
            | Asked::Reclaim { .. }
            | Asked::Switch { .. }
            | Asked::Fork { .. }
            | Asked::Wait { .. } => (SmallVec::new(), None),
        };
        Purpose { revokes, gives_up }
    }
}
