//! Where the runner's binary is, seen from the command that starts it.

use std::path::{Path, PathBuf};

/// The binary's name.
pub const NAME: &str = "needless-runner";

/// Finds the binary: `$NEEDLESS_RUNNER`, else beside this program, else one directory up. If it is
/// nowhere, the places that were looked at.
pub fn find() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("NEEDLESS_RUNNER") {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!("$NEEDLESS_RUNNER ({})", path.display())),
        };
    }
    let program = std::env::current_exe().unwrap_or_default();
    let places: Vec<&Path> = program.ancestors().skip(1).take(2).collect();
    let found = places.iter().map(|place| place.join(NAME)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        places.join(" and ")
    })
}
