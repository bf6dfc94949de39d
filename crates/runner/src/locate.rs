//! Finds the project's other files from the place of the running command.

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
    /// Its file name.
    pub name: &'static str,
    /// The environment variable that may name another file.
    pub variable: &'static str,
}

/// Finds the runner for this machine.
pub fn find() -> Result<PathBuf, String> {
    find_file(RUNNER)
}

/// The folder of an installed command's files, from the folder above `bin/`.
const INSTALLED: &str = "lib/needless";

/// The folder of a release build, from the folder above that of the command: `make build` fills
/// target/release, which target/demo/needless uses, too.
const BUILT: &str = "release";

/// Finds a file: the one that its variable names, or one beside this program, or one directory up,
/// or where it is when installed, or in the release build. If there is none, the error lists these
/// places.
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
    in_places(&program, name)
}

/// Finds the file of this name for a program.
fn in_places(program: &Path, name: &str) -> Result<PathBuf, String> {
    let near = program.ancestors().skip(1).take(2).map(Path::to_owned);
    let above = program.ancestors().nth(2).into_iter();
    let others = above.flat_map(|above| [INSTALLED, BUILT].map(|folder| above.join(folder)));
    let others = others.filter(|place| program.parent() != Some(place.as_path()));
    let places: Vec<PathBuf> = near.chain(others).collect();
    let found = places.iter().map(|place| place.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let places: Vec<String> = places.iter().map(foreign::path).collect();
        places.join(" and ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_found_beside_the_program_above_it_where_it_is_installed_or_built() {
        let folder = std::env::temp_dir().join(format!("needless-locate-{}", std::process::id()));
        let program = folder.join("bin/needless");
        let places = ["release", "lib/needless", ".", "bin"].map(|place| folder.join(place));
        places.iter().for_each(|place| fs::create_dir_all(place).unwrap());
        let missing = in_places(&program, "runner").unwrap_err();
        for place in ["bin", "lib/needless", "release"] {
            assert!(
                missing.contains(&format!("{place} and")) || missing.ends_with(place),
                "{missing}"
            );
        }
        // The nearest one is found.
        for place in &places {
            fs::write(place.join("runner"), "").unwrap();
            let found = in_places(&program, "runner").unwrap();
            assert_eq!(found.canonicalize().unwrap(), place.join("runner").canonicalize().unwrap());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
