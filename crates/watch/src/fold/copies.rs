//! Pages that a read brought back from swap and that nobody else can have: a copy of one of them
//! is needless.

use super::Class;
use rustc_hash::FxHashSet;

/// No more pages are remembered: beyond that a needless copy may be missed.
const MOST: usize = 1 << 16;

/// The pages of one process that a read has swapped in since its last fork.
#[derive(Debug, Default)]
pub struct SwappedIn {
    pages: FxHashSet<u64>,
}

impl SwappedIn {
    /// Remembers or forgets a page; true if it was a page of this kind before.
    pub fn fault(&mut self, class: Class, page: u64, code: u8) -> bool {
        const WRITE: u8 = 2;
        let known = !self.pages.is_empty() && self.pages.remove(&page);
        if class == Class::SwapIn && code & WRITE == 0 && self.pages.len() < MOST {
            self.pages.insert(page);
        }
        known
    }

    /// A fork shares all pages.
    pub fn clear(&mut self) {
        self.pages.clear();
    }
}
