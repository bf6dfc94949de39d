//! userfaultfd: whoever has the descriptor is asked about accesses to pages that are not there, or that it has protected
//! from stores.
//!
//! [`register`] says what is watched in a mapping, [`protect`] protects pages, [`fault`] is the way of an access that has to wait, or that
//! the kernel lets go on and notes (`UFFD_FEATURE_WP_ASYNC`), [`answer`] what becomes of it. What is protected is a bit of the entry, which
//! goes where the page goes: into swap and back, to another frame; where there is no page a marker has its place, if the
//! userfaultfd was made so. Which pages were written [`pagemap_scan`](crate::kernel::pagemap_scan) tells.

pub mod answer;
pub mod fault;
pub mod protect;
pub mod register;
