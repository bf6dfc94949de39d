//! The runner: executes one scenario on the kernel it finds itself on, and says what happened.
//!
//! One static binary does several jobs, chosen by its arguments:
//! - none: read a [`needless_model::run::RunRequest`] from standard input, pin the process to the
//!   CPU of the scenario's first thread and execute itself again ([`start`]);
//! - `--run FD TIME`: the second start, at `TIME`; run the request found in the memory file `FD`
//!   ([`session`]);
//! - `--watch`: make changes to the machine on request and undo them when standard input
//!   closes, however the requester ended ([`keeper`]);
//! - `--image`: be the program that a process of the scenario goes on with, and end ([`image`]);
//! - `--huge-tlb`: say how the processor holds huge pages ([`huge_tlb`]);
//! - `--guard COMMAND…`: run a command and end it when standard input closes ([`guard`]);
//! - as `/init` of a guest: serve requests from the host ([`guest`]).
//!
//! [`collect`] is the other side: it reads the runner's answers.
//!
//! The invariant of every module that acts while a round runs: no allocation, no system call and
//! no page touched for the first time that the scenario did not ask for.
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
