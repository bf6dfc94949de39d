//! userfaultfd: accesses to missing pages, and stores to write-protected pages, are reported to the
//! reader of a descriptor.
//!
//! - [`register`] sets what is watched in a mapping.
//! - [`protect`] write-protects pages.
//! - [`fault`] has the accesses that wait for an answer, and those that the kernel lets go on and
//!   notes (`UFFD_FEATURE_WP_ASYNC`).
//! - [`answer`] answers an access.
//! - [`fill`] maps missing pages, and [`move_pages`] moves pages there from elsewhere.
//!
//! The protection is a bit of the entry. It goes where the page goes: into swap and back, and to
//! another frame. Where there is no page, a marker has the bit: in files and shared memory, and in
//! private memory if the userfaultfd was made with that feature.
//! [`pagemap_scan`](crate::kernel::pagemap_scan) reports which pages were written.

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

/// Whether a missing page of the mapping counts as not written, without a marker that says so.
pub(super) fn holes_are_clean<M: Mode>(w: &World<M>, mm: MmId, vma: &Vma) -> bool {
    vma.uffd.write_protect
        && w.policies.uffd_async == UffdAsync::Inverted
        && w.mms[mm.index()].uffd.features.asynchronous
}
