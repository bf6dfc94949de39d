//! Runs scenarios on real kernels, booted under QEMU: Debian's stock kernels, and images of one's own.
//!
//! - [`KernelTarget`]: which kernel, and how it is booted;
//! - [`kernels`]: which kernels are cached, which can be fetched; fetching and removing them;
//! - [`Guest`]: one booted kernel that runs one program after the other;
//! - [`Batch`], [`run_batch`]: many programs in one boot.
//!
//! The guest's `/init` is the runner that `-t live` executes. No process, socket or temporary file
//! outlives this process, however it ends.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apt;
mod batch;
mod build;
mod cache;
mod catalog;
mod config;
mod diagnosis;
mod disk;
mod emulator;
mod error;
mod fetch;
mod guarded;
mod guest;
mod image;
mod initramfs;
pub mod kernels;
mod modules;
mod nodes;
mod options;
mod own;
mod owner;
mod patches;
mod patience;
mod platform;
mod runners;
mod tally;
mod target;
mod version;
mod watched;

pub use batch::Batch;
pub use build::{BuildError, Built, Order as BuildOrder, Tree, build};
pub use cache::{BuiltFrom, Hashed, Kernel, Manifest, Package};
pub use error::{FetchError, GuestError};
pub use guest::Guest;
pub use needless_runner::wire::Executed;
pub use nodes::{Node, Nodes};
pub use options::{GuestFile, GuestOptions, Limits};
pub use platform::Arch;
pub use target::{Choice, KernelTarget, OwnImage};

use needless_model::program::Program;
use needless_model::run::TargetRun;

/// Runs programs in order in one boot of the target's kernel, which is fetched if it is not cached.
///
/// `progress` is called with the number of programs that are done. See [`Batch`] for what becomes
/// of programs that bring the guest down.
///
/// # Errors
/// The outer error is that nothing can run: no kernel, no QEMU, no boot. Everything else is the
/// result of its program.
pub fn run_batch(
    target: &KernelTarget,
    programs: &[Program],
    progress: &dyn Fn(usize),
) -> Result<Vec<Result<TargetRun, GuestError>>, GuestError> {
    let first = programs.first().map(|program| program.machine.clone()).unwrap_or_default();
    let mut batch = Batch::open(target, &first)?;
    let run = |(at, program)| {
        let result = batch.run(program);
        progress(at + 1);
        result
    };
    Ok(programs.iter().enumerate().map(run).collect())
}
