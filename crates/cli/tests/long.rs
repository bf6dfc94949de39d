//! Tests that take long, which `make test-kernels` runs: those in the module `long`.
#![allow(clippy::unwrap_used)]

mod long {
    mod bisect;
    mod killed;
    mod own;
    mod study;
}
