//! Tests that take long, which `make test-kernels` runs: those in the module `long`.
#![allow(clippy::unwrap_used)]

mod long {
    mod arm64;
    mod boot;
    mod nodes;
    mod own;
    mod own_arm64;
}
