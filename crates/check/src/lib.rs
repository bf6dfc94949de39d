//! The checker: every interleaving of a small scenario, over the simulator's own kernel functions.
//!
//! Protocol: each thread of the program runs in a coroutine that stops before every step
//! ([`env`]); the explorer ([`explore`]) picks who goes on, and where the processor may choose (which
//! cached translation an access uses), tries every choice. What the kernel cannot see (page
//! contents, freed frames, cached translations) is kept beside the world ([`shadow`]), and
//! [`property`] judges by it.
//!
//! Steps are sequentially consistent and programs bounded: weak-memory bugs are out of reach.
#![forbid(unsafe_code)]

mod access;
mod env;
mod explore;
mod key;
mod place;
mod print;
mod property;
mod shadow;
mod state;
mod threads;

pub use explore::{CheckError, Counterexample, Report, StepTaken, check};
pub use property::{Property, Violation};
