//! Programs with a known number of page faults of each class and of TLB flushes of each cause.
//!
//! What a tool counts in N rounds, minus what it counts in none, is N times what [`table`] says.
//! Each workload is a function in the file of its group. [`rounds`] runs it. [`start`] makes sure
//! that nothing else happens. [`second`] is the thread to which flushes are sent. [`child`] is a
//! process that shares memory and touches none.
//!
//! The invariant of a round: it allocates nothing, makes no system call and touches no page for the
//! first time, except those that the workload is about.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "its output is for tests")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod area;
mod calls;
mod check;
mod child;
mod cow;
mod files;
mod flush;
mod forked;
mod forks;
mod guard;
mod huge;
mod kernel;
mod khugepaged;
mod numa;
mod page_fault3;
mod program;
mod reclaim;
mod rounds;
mod second;
mod stale_read;
mod start;
mod swap;
mod switches;
mod sys;
mod table;
mod touch;
mod uffd;
mod witness;

use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Programs with a known number of page faults and TLB flushes.
#[derive(Parser)]
#[command(name = "needless-workload", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Name the workloads, what each does, and what it needs
    List {
        /// What each round costs as well, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a workload
    Run {
        /// Its name
        name: String,
        /// How many rounds; 0 does everything else
        #[arg(long, default_value_t = 100)]
        rounds: u32,
        /// Print what getrusage counted in the rounds; status 1 if it is not as expected
        #[arg(long)]
        verify: bool,
        /// Write a line before the rounds and one after them, and go on when a line can be read
        #[arg(long)]
        gate: bool,
    },
    /// Watch the rounds of workloads and compare with what they cost; status 1 if one is wrong, 3
    /// if one is undecided because others took its CPUs
    Check {
        /// Which; otherwise all
        names: Vec<String>,
        /// How many rounds
        #[arg(long, default_value_t = 100)]
        rounds: u32,
        /// Everything that was counted, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Guard a CPU while a workload runs, or a thread that computes there, and print what reached
    /// it, as JSON
    Guard {
        /// The CPU
        cpu: u16,
        /// The workload; otherwise a thread computes on the CPU for as many milliseconds as there
        /// are rounds
        name: Option<String>,
        /// How many rounds
        #[arg(long, default_value_t = 100)]
        rounds: u32,
    },
    /// Computes on a CPU for so many milliseconds
    #[command(hide = true)]
    Hold {
        /// The CPU
        cpu: u16,
        /// How long
        milliseconds: u64,
    },
    /// Look for reads that return what a page held before it was paged out, brought back and stored
    /// to; a control beside it. docs/findings/stale-read.md
    StaleRead(stale_read::Arguments),
    /// Run the loop of will-it-scale's page_fault3 in several tasks at once, and print their faults
    /// and how fast they were: each maps a file of its own shared, writes its pages and unmaps it
    #[command(name = "page-fault3")]
    PageFault3(page_fault3::Arguments),
    /// Say what khugepaged makes huge pages of, on either side of its limits: it is waited for
    Khugepaged(khugepaged::Arguments),
    /// Opens the gate of `run` that is its output, and waits for the next
    #[command(hide = true)]
    Gate,
    /// The second start of `run`: pinned, and without randomization of addresses
    #[command(hide = true)]
    Execute {
        /// As for `run`
        name: String,
        /// As for `run`, always as long
        rounds: u32,
        /// As for `run`, always as long
        #[arg(action = clap::ArgAction::Set)]
        verify: bool,
        /// As for `run`, always as long
        #[arg(action = clap::ArgAction::Set)]
        gate: bool,
    },
}

fn main() -> ExitCode {
    match act(Arguments::parse().verb) {
        Ok(status) => status,
        Err(error) => {
            let _ = writeln!(io::stderr(), "needless-workload: {error}");
            ExitCode::from(2)
        }
    }
}

fn act(verb: Verb) -> io::Result<ExitCode> {
    match verb {
        Verb::List { json } => table::list(json).map(|()| ExitCode::SUCCESS),
        Verb::Check { names, rounds, json } => check::check(&names, rounds, json),
        Verb::Guard { cpu, name: Some(name), rounds } => guard::guard(cpu, &name, rounds),
        Verb::Guard { cpu, name: None, rounds } => {
            guard::guard_held(cpu, Duration::from_millis(rounds.into()))
        }
        Verb::Hold { cpu, milliseconds } => guard::hold(cpu, Duration::from_millis(milliseconds)),
        Verb::StaleRead(arguments) => stale_read::stale_read(arguments),
        Verb::PageFault3(arguments) => page_fault3::page_fault3(arguments),
        Verb::Khugepaged(arguments) => khugepaged::khugepaged(arguments),
        Verb::Gate => check::open_gate().map(|()| ExitCode::SUCCESS),
        Verb::Run { name, rounds, verify, gate } => {
            Err(start::again(table::find(&name)?, rounds, verify, gate))
        }
        Verb::Execute { name, rounds, verify, gate } => {
            rounds::execute(table::find(&name)?, rounds, verify, gate)
        }
    }
}
