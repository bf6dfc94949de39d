//! Tests that take long, in the module `long`. `make test-kernels` runs them.
#![allow(clippy::unwrap_used)]

mod long {
    mod arm64;
    mod boot;
    mod nodes;
    mod own;
    mod own_arm64;
}
