//! userfaultfd: whoever has the descriptor is asked about accesses to pages that are not there, or that it has protected
//! from stores.
//!
//! [`register`] says what is watched in a mapping, [`protect`] protects pages, [`fault`] is the way of an access that has to wait, or that
//! the kernel lets go on and notes (`UFFD_FEATURE_WP_ASYNC`), [`answer`] what becomes of it; [`fill`] maps what is not there, [`move_pages`] takes it from elsewhere. What is protected is a bit
//! of the entry, which goes where the page goes: into swap and back, to another frame; where there is no page a marker has its place: in files and shared memory,
//! and in private memory if the userfaultfd was made so. Which pages were written [`pagemap_scan`](crate::kernel::pagemap_scan) tells.

use crate::addr::MmId;
use crate::machine::vma::Vma;
use crate::machine::world::{Mode, World};
use crate::policy::UffdAsync;

pub mod answer;
pub mod fault;
pub mod fill;
pub mod move_pages;
pub mod protect;
pub mod register;

/// Whether a page of the mapping that is not there counts as not written, without anything that says so.
pub(super) fn holes_are_clean<M: Mode>(w: &World<M>, mm: MmId, vma: &Vma) -> bool {
    vma.uffd.write_protect
        && w.policies.uffd_async == UffdAsync::Inverted
        && w.mms[mm.index()].uffd.features.asynchronous
}
