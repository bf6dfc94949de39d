//! Reports: the results of a run, a comparison or an agreement run, as text, as JSON and as
//! pages.
//!
//! Reports only arrange what accounts hold. All forms are made from the same values. All keep the
//! rule that an unknown figure is shown as unknown, with its reason, and never as zero.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod agree;
pub mod answer;
pub mod avoided;
pub mod bisect;
pub mod check;
pub mod ci;
pub mod compare;
pub mod cost;
pub mod doctor;
pub mod expect;
pub mod explain;
pub mod groups;
pub mod html;
pub mod json;
pub mod jsonl;
pub mod notes;
pub mod perfetto;
pub mod policies;
pub mod run;
pub mod saved;
pub mod stat;
pub mod stats;
pub mod steps;
pub mod study;
pub mod style;
pub mod table;

pub use compare::{Comparison, Outcome, Ran, Reference, Target};
pub use style::Style;

/// Version of every JSON document, raised whenever a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;
