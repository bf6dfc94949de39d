//! Where the project's other files are, seen from the command that uses them.

use needless_model::foreign;
use std::path::{Path, PathBuf};

/// The runner for this machine.
pub const RUNNER: Wanted = Wanted { name: "needless-runner", variable: "NEEDLESS_RUNNER" };

/// The runner for arm64 guests.
pub const ARM64_RUNNER: Wanted =
    Wanted { name: "needless-runner-arm64", variable: "NEEDLESS_RUNNER_ARM64" };

/// The plugin that makes QEMU count instructions.
pub const QEMU_PLUGIN: Wanted =
    Wanted { name: "libneedless_qemu_plugin.so", variable: "NEEDLESS_QEMU_PLUGIN" };

/// A file that is looked for.
#[derive(Copy, Clone, Debug)]
pub struct Wanted {
    /// Its name.
    pub name: &'static str,
    /// The environment variable that may name another.
    pub variable: &'static str,
}

/// Finds the runner for this machine.
pub fn find() -> Result<PathBuf, String> {
    find_file(RUNNER)
}

/// Finds a file: as its variable says, else beside this program, else one directory up. If it is
/// nowhere, the places that were looked at.
pub fn find_file(wanted: Wanted) -> Result<PathBuf, String> {
    let Wanted { name, variable } = wanted;
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!("${variable} ({})", foreign::path(path))),
        };
    }
    let program = std::env::current_exe().unwrap_or_default();
    let places: Vec<&Path> = program.ancestors().skip(1).take(2).collect();
    let found = places.iter().map(|place| place.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let places: Vec<String> = places.iter().map(foreign::path).collect();
        places.join(" and ")
    })
}
