//! The command as users meet it, where no real kernel runs a scenario. These tests are one program,
//! because each program is linked by itself.
#![allow(clippy::unwrap_used)]

mod cache;
mod check;
mod cli;
mod foreign;
mod input;
mod own;
mod readme;
mod schemas;
mod streams;
mod tables;
mod widths;
