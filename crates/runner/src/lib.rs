//! The runner: executes one scenario on the running kernel, and reports what happened.
//!
//! One static binary does several jobs, chosen by its arguments:
//!
//! - none: reads a [`needless_model::run::RunRequest`] from standard input, pins the process to the
//!   CPU of the scenario's first thread and executes itself again ([`start`]);
//! - `--run FD TIME`: the second start, at `TIME`; runs the request in the memory file `FD`
//!   ([`session`]);
//! - `--watch`: makes changes to the machine on request and undoes them when standard input closes,
//!   however the requester ended ([`keeper`]);
//! - `--image`: is the program that `exec` of a scenario starts, and ends ([`image`]);
//! - `--huge-tlb`: says how the processor holds huge pages ([`huge_tlb`]);
//! - `--guard COMMAND…`: runs a command and kills it when standard input closes ([`guard`]);
//! - as `/init` of a guest: serves requests from the host ([`guest`]).
//!
//! [`collect`] is the other side: it reads the runner's answers. [`interrupt`] tells it of signals.
//!
//! Invariant of every module that acts while a round runs: it allocates nothing, makes no system
//! call and touches no page for the first time, unless the scenario asks for it.
#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "it is a program of its own, and a guest's process 1"
)]

pub mod calls;
pub mod classify;
pub mod collect;
pub mod crash;
pub mod decode;
pub mod disk;
pub mod environment;
pub mod exec;
pub mod files;
pub mod flushes;
mod folios;
pub mod guard;
pub mod guest;
pub mod huge_tlb;
pub mod image;
pub mod interrupt;
pub mod ioctl;
pub mod journal;
pub mod kallsyms;
pub mod keeper;
pub mod limits;
pub mod locate;
pub mod lock;
pub mod log;
pub mod look;
pub mod lru;
pub mod marks;
pub mod minders;
pub mod needs;
pub mod numa;
pub mod pagemap;
pub mod pagemap_scan;
pub mod pages;
pub mod perf;
pub mod privilege;
pub mod processes;
pub mod rounds;
pub mod run;
pub mod session;
pub mod shared;
pub mod sigsegv;
pub mod start;
pub mod swap;
pub mod swapping;
pub mod sys;
pub mod team;
pub mod threads;
pub mod tids;
pub mod tracefs;
pub mod userfaultfd;
pub mod validate;
pub mod vmstat;
pub mod wire;
pub mod witness;
pub mod zram;
