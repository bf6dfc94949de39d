//! The checker: every interleaving of a small scenario, over the simulator's own kernel functions.
//!
//! Protocol: the explorer ([`explore`]) takes a state and lets each thread take one step, in every
//! way that is open to it ([`state`]), except for orders that make no difference ([`footprint`]). A
//! thread is brought back to its place by returning the same answers to it again ([`env`]). Its
//! operations are the simulator's ([`threads`]). Its loads and stores go through every translation
//! that a TLB may hold ([`access`]). What the kernel cannot see (page contents, freed frames,
//! cached translations) is kept beside the world ([`shadow`]), and [`judge`] compares it with the
//! properties ([`property`]).
//!
//! Steps are sequentially consistent and programs bounded: weak-memory bugs are out of reach.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod access;
mod checkpoint;
mod choice;
mod drive;
mod env;
mod error;
mod expand;
mod explore;
mod footprint;
mod frontier;
mod history;
mod judge;
mod key;
mod larger;
pub mod litmus;
mod locks;
mod memo;
mod observe;
mod parts;
mod persistent;
mod place;
mod print;
mod property;
mod report;
mod scene;
mod schedule;
mod seen;
mod setting;
mod shadow;
mod shared;
mod state;
mod symmetry;
mod threads;
mod tlb;
mod trace;
mod unroll;

pub use access::Way;
pub use checkpoint::Checkpoint;
pub use choice::Choice;
pub use drive::{Driven, Offer, drive};
pub use env::Next;
pub use error::CheckError;
pub use explore::{check, reaches, replay};
pub use larger::larger;
pub use observe::{Observed, Watching};
pub use place::place;
pub use print::write_steps;
pub use property::{Property, PropertySet, Violation};
pub use report::{Bound, Counterexample, Report};
pub use scene::{CpuScene, Scene, scenes};
pub use schedule::{BadSchedule, Schedule};
pub use setting::{Options, Progress};
pub use tlb::Entry;
pub use trace::{PageState, StepTaken};
