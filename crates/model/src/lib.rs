//! An executable model of Linux virtual memory.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod account;
pub mod addr;
pub mod agreement;
pub mod arch;
pub mod backing;
pub mod call;
pub mod compared;
pub mod counters;
pub mod env;
pub mod event;
pub mod feature;
pub mod final_pages;
pub mod fold;
pub mod foreign;
pub mod ignored;
pub mod instructions;
pub mod kernel;
pub mod kernels;
pub mod lock;
pub mod machine;
pub mod notation;
pub mod numa;
pub mod order;
pub mod policy;
pub mod program;
pub mod property;
pub mod pte;
pub mod resolved;
pub mod rng;
pub mod run;
pub mod sequence;
pub mod sim;
pub mod site;
pub mod tiering;
pub mod userfaultfd;
pub mod verdict;
pub mod wait;
