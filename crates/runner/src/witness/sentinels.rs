//! Sentinels: pages of the runner's own that are read after rounds. The fault comes after
//! everything that the round recorded. If it does not arrive in a ring, that ring has lost records.

use crate::{calls, sys};
use needless_model::addr::{PageRange, Vpn};
use needless_model::program::Prot;

/// The number of sentinels. One is read after each round. They take only address space.
const PAGES: u64 = 1 << 20;

/// Their address, far from scenarios and from the mappings that Linux places.
const AT: Vpn = Vpn(0x1000_0000_0000 / 4096);

/// The sentinels that were not read yet.
pub(super) struct Sentinels(PageRange);

/// Whether a mapping consists of sentinels.
pub fn is_sentinel(range: PageRange) -> bool {
    range.overlaps(PageRange::new(AT, PAGES))
}

impl Sentinels {
    /// An empty set of sentinels.
    pub(super) fn none() -> Sentinels {
        Sentinels(PageRange::new(AT, 0))
    }

    /// Maps the sentinels. A read fault there maps the zero page, which does not affect the LRU.
    pub(super) fn map() -> Sentinels {
        let range = PageRange::new(AT, PAGES);
        if calls::map_anonymous(range, Prot::Read).is_err() {
            return Sentinels::none();
        }
        sys::forbid_huge_pages(range);
        Sentinels(range)
    }

    /// Reads the next sentinel, if one is left, and returns the page that faulted.
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
