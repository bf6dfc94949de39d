//! The tests of the language and of the model by scenarios: one program, since each links all that they need, and since
//! both processors have something to do as long as one test is left.
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
