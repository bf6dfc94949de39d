//! TLB code of arm64: an instruction that all CPUs obey, and a barrier that waits until they have.

mod barrier;
pub(super) mod flush;
pub(super) mod switch;

pub use barrier::{table_linked, table_unlinked};
