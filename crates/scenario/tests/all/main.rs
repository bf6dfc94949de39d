//! The tests of the language, and of the model by scenarios. They are one program, because each
//! links everything they need, and because both processors are then busy until the last test.
#![allow(clippy::unwrap_used)]

mod agreed;
mod arm64;
mod broadcast;
mod captures;
mod common;
mod diagnostics;
mod disks;
mod docs;
mod files;
mod fork;
mod mlock;
mod model;
mod mutations;
mod nodes;
mod pins;
mod programs;
mod references;
mod regressions;
mod rehearsal;
mod shared;
mod sizes;
mod userfaultfd;
mod verdicts;
