//! Watches programs on the running kernel: faults by class, flushes by cause, which task interrupts
//! which, and which of these were needless.
//!
//! An event takes this path: a tracepoint of the table ([`tracepoints`]) writes it into a ring
//! ([`rings`]). It is decoded ([`record`]), put in order of time with those of the other CPUs
//! ([`session`]), and folded into totals ([`fold`]), which make up the [`observation`].
//!
//! Nothing is written to tracefs, and every event ends with its descriptor: nothing stays enabled,
//! however this process ends.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![allow(unsafe_code)]

pub mod actors;
pub mod attribution;
pub mod child;
pub mod counters;
pub mod doctor;
mod filter;
pub mod fold;
pub mod functions;
pub mod guarded;
pub mod inherited;
pub mod interrupts;
pub mod maps;
pub mod missing;
pub mod observation;
mod present;
pub mod price;
mod ranges;
pub mod record;
pub mod remedies;
pub mod rings;
pub mod session;
pub mod signals;
pub mod sites;
mod space;
pub mod stacks;
pub mod syscalls;
pub mod timeline;
pub mod tracefs;
pub mod tracepoints;
pub mod unseen;

pub use missing::Missing;
pub use observation::{Finding, Observation};
pub use session::{Options, Target, WatchError, watch};
