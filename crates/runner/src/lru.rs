//! Drains the LRU batches of the scenario's CPUs. On kernels before 5.18 these decide whether a
//! page is copied. `MADV_COLD` begins by draining the batch of its CPU. The runner calls it for a
//! spare page of the thread that is never touched, so that the call does nothing else.

use crate::calls;
use crate::wire::Failure;
use needless_model::addr::{PageRange, Vpn};
use needless_model::program::{Advice, Prot};

/// The address of the spare pages, one for each thread.
const SPARES_AT: Vpn = Vpn(0x0f00_0000_0000 / 4096);

/// Maps the spare page of thread `me`.
pub fn map_spare(me: usize) -> Result<(), Failure> {
    calls::map_anonymous(spare_page(me), Prot::ReadWrite)
        .map_err(|e| Failure::internal("a spare page", &e))
}

/// Drains the LRU batches of the CPU of the calling thread, which is thread `me`.
pub fn drain(me: usize) -> Result<(), Failure> {
    calls::advise(spare_page(me), Advice::Cold).map_err(|e| Failure::internal("MADV_COLD", &e))
}

/// Whether a mapping consists of spare pages.
pub fn is_spare(range: PageRange) -> bool {
    range.overlaps(PageRange::new(SPARES_AT, 1 << 16))
}

fn spare_page(me: usize) -> PageRange {
    PageRange::one(SPARES_AT.add(me as u64))
}
