//! TLB code of x86: how a flush reaches the CPUs, and how a CPU switches address spaces.

pub(super) mod broadcast;
pub(super) mod flush;
pub(super) mod latr;
pub(super) mod switch;
mod verdict;
