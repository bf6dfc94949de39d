//! A page fault, from the exception to the PTE.
//!
//! [`handle`] looks at the mapping and the PTE and dispatches:
//!
//! - [`anon`]: the first touch of anonymous memory.
//! - [`swapin`]: the page is in swap.
//! - [`file`]: a file or shared memory. It tries [`fault_around`], then the page cache ([`shmem`]
//!   or [`filemap`]). A store ends in [`dirty`].
//! - [`hint`]: NUMA balancing sampled the page.
//! - [`cow`]: a store to a read-only page.
//! - [`access_flags`]: the PTE already allows the access.

pub mod access_flags;
pub mod anon;
pub mod cow;
mod dirty;
pub mod fault_around;
pub mod file;
pub mod filemap;
pub mod handle;
pub mod hint;
pub mod new_page;
pub mod outcome;
pub mod refault;
pub mod shmem;
pub mod swapin;

pub use handle::{exc_page_fault, handle_mm_fault, retry_page_fault, try_mm_fault};
pub use outcome::{Fault, Outcome};
