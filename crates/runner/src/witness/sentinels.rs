//! Sentinels: pages of our own that are read after rounds. The fault comes after everything that
//! the round recorded, so that a ring in which it does not arrive has lost something.

use crate::{calls, sys};
use needless_model::addr::{PageRange, Vpn};
use needless_model::program::Prot;

/// How many: one is read after each round. Address space only.
const PAGES: u64 = 1 << 20;

/// Where they lie, far from where scenarios are laid out and where Linux maps things.
const AT: Vpn = Vpn(0x1000_0000_0000 / 4096);

/// Those that were not read yet.
pub(super) struct Sentinels(PageRange);

/// Whether a mapping is of sentinels.
pub fn is_sentinel(range: PageRange) -> bool {
    range.overlaps(PageRange::new(AT, PAGES))
}

impl Sentinels {
    /// None at all.
    pub(super) fn none() -> Sentinels {
        Sentinels(PageRange::new(AT, 0))
    }

    /// Address space whose reading faults map the zero page, which leaves the LRU alone.
    pub(super) fn map() -> Sentinels {
        let range = PageRange::new(AT, PAGES);
        if calls::map_anonymous(range, Prot::Read).is_err() {
            return Sentinels::none();
        }
        sys::forbid_huge_pages(range);
        Sentinels(range)
    }

    /// Reads the next one, if there is one left: which page faulted.
    pub(super) fn read(&mut self) -> Option<Vpn> {
        if self.0.is_empty() {
            return None;
        }
        let page = self.0.start;
        self.0.start = page.add(1);
        sys::load(page);
        Some(page)
    }
}
