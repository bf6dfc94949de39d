//! Runs scenarios on real kernels that are booted under QEMU: Debian's stock kernels, and users'
//! own images.
//!
//! - [`KernelTarget`]: which kernel is booted, and how.
//! - [`kernels`]: the kernels that are cached or can be fetched; fetches and removes them.
//! - [`Guest`]: a booted kernel that runs one program after the other.
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

/// Runs programs in order in one boot of the target's kernel. The kernel is fetched if it is not
/// cached.
///
/// `progress` is called with the number of programs that have ended. [`Batch`] says what happens to
/// programs that crash the guest.
///
/// # Errors
/// The outer error means that nothing can run: there is no kernel or no QEMU, or the boot failed.
/// Every other failure is the result of its program.
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
