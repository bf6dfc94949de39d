//! The program that `exec` of a scenario starts: the runner itself, which ends at once.
//!
//! No figure includes what it does. Its start fills and empties the LRU batches of its CPU. It
//! leaves them empty, as the model has them.

use crate::lru;
use crate::run::Run;
use crate::wire::Failure;
use std::ffi::CStr;
use std::io;
use std::process::ExitCode;

/// The argument that makes the runner this program.
pub const VERB: &str = "--image";
const ARGUMENTS: [&CStr; 2] = [c"needless-runner", c"--image"];

/// Makes the process of thread `me` go on with this program. Returns the exit status if that fails.
/// Allocates nothing.
pub fn execute(run: &Run, me: usize) -> i32 {
    let [name, verb] = ARGUMENTS.map(CStr::as_ptr);
    let (arguments, environment) = ([name, verb, std::ptr::null()], [std::ptr::null()]);
    let path = c"/proc/self/exe".as_ptr();
    // SAFETY: the path and the null-terminated lists of C strings are valid.
    unsafe { libc::execve(path, arguments.as_ptr(), environment.as_ptr()) };
    let error = io::Error::last_os_error();
    let name = &run.program.threads[me].name;
    run.team.fail(Failure::internal(&format!("exec in process `{name}`"), &error));
    1
}

/// Drains the LRU batches of its CPU, and ends.
pub fn run() -> ExitCode {
    match lru::map_spare(0).and_then(|()| lru::drain(0)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
