//! Tests that take long, which `make test-kernels` runs: those in the module `long`. They boot
//! guests, with kernels that are fetched where they are not cached.
#![allow(clippy::unwrap_used)]

mod common;

mod long {
    mod guests;
    mod khugepaged;
    mod page_fault3;
    mod program;
    mod stale_read;
}
