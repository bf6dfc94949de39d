//! Pages: one file for each result, for people who look at it, share it or print it.
//!
//! A page needs nothing but itself: no request leaves it. Its first screen is the answer, in the
//! sentences of the text report. Below it are the picture, the tables, and what is needed to make
//! it again. The JSON document is embedded, and a figure of a table names its place in it.
//!
//! Text that others chose stays text. Templates escape it, the embedded JSON has no `<`, and
//! scripts set text only.

mod agree;
mod chart;
mod check;
mod compare;
mod embed;
mod explain;
mod frame;
mod run;
mod stat;
mod stepper;
mod study;

pub use agree::agree;
pub use check::{Follower, checked, litmus, replayed};
pub use compare::compare;
pub use explain::{Held, explain};
pub use frame::Made;
pub use run::run;
pub use stat::stat;
pub use stepper::Walk;
pub use study::study;
