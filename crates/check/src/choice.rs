//! One choice of an exploration: who goes on, and how.

/// What happens next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A thread goes on.
    Go {
        /// The thread.
        thread: u8,
        /// By which of the ways offered.
        way: u8,
    },
    /// Explicit mode: a CPU caches the translation of a page.
    Fill {
        /// The CPU.
        cpu: u8,
        /// The page.
        page: u8,
    },
    /// Explicit mode: a CPU forgets one of its translations.
    Evict {
        /// The CPU.
        cpu: u8,
        /// Which, in the order of the set.
        entry: u8,
    },
}
