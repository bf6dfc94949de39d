//! What is known of a process's private pages: in which frame a page is, and whether it is fresh
//! from swap. A copy is needless if the old frame is freed in the same fault, or if nobody else can
//! have had the page.

use needless_model::event::FaultClass;
use rustc_hash::FxHashMap;

/// No more pages are remembered: beyond that a needless copy may be missed.
const MOST: usize = 1 << 16;

#[derive(Copy, Clone, Debug)]
struct Page {
    frame: u64,
    from_swap: bool,
}

/// The pages of one process that got their frame in a fault.
#[derive(Debug, Default)]
pub struct Pages {
    known: FxHashMap<u64, Page>,
}

impl Pages {
    /// The frame that a page has, if known, and whether a read brought it from swap.
    pub fn before(&self, page: u64) -> Option<(u64, bool)> {
        self.known.get(&page).map(|page| (page.frame, page.from_swap))
    }

    /// A fault of a class that ended, and the frame that was allocated in it.
    pub fn fault(&mut self, class: FaultClass, page: u64, write: bool, frame: Option<u64>) {
        let from_swap = class == FaultClass::SwapIn && !write;
        match frame {
            Some(frame) if self.known.len() < MOST || self.known.contains_key(&page) => {
                self.known.insert(page, Page { frame, from_swap });
            }
            Some(_) => {}
            // It is writable now, or another page.
            None => {
                self.known.remove(&page);
            }
        }
    }

    /// A fork shares all pages: none is only this process's.
    pub fn shared(&mut self) {
        self.known.values_mut().for_each(|page| page.from_swap = false);
    }
}
