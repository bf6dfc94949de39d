//! git, asked about one repository and nothing else, and never allowed to change it.
//!
//! Hooks and wrappers set variables that name another repository, index or work tree (`GIT_DIR`, `GIT_INDEX_FILE`,
//! `GIT_WORK_TREE`), and git believes them more than the folder that it is started in. So no child of ours sees them.

use super::error::BuildError;
use crate::error::FetchError;
use needless_model::foreign;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Variables that say which files of settings are read: they name no repository.
const SETTINGS: [&str; 3] = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];

/// Lines of what git says that are shown.
const MOST_LINES: usize = 6;

/// Takes from a command's environment what would lead git to another repository. Kernels' makefiles ask git as well
/// (scripts/setlocalversion).
pub fn without_git(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let is_gits = name.as_encoded_bytes().starts_with(b"GIT_");
        if is_gits && !SETTINGS.iter().any(|setting| name == *setting) {
            command.env_remove(name);
        }
    }
    command
}

/// git with these words, in `folder`: nothing is written that reading does not need, and nothing fetched.
pub fn command<'a>(folder: &Path, words: impl IntoIterator<Item = &'a OsStr>) -> Command {
    let mut command = Command::new("git");
    without_git(&mut command).arg("-C").arg(folder).args(words);
    // No index is refreshed by the way, and a partial clone does not fetch what it lacks.
    command.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_NO_LAZY_FETCH", "1").env("LC_ALL", "C");
    command.stdin(Stdio::null());
    command
}

/// What git says, without the end of the last line.
pub fn git<S: AsRef<OsStr>>(folder: &Path, words: &[S]) -> Result<Vec<u8>, BuildError> {
    let output = command(folder, words.iter().map(AsRef::as_ref)).output();
    let output =
        output.map_err(|error| FetchError::Program { program: "git".to_owned(), error })?;
    match output.status.success() {
        true => Ok(output.stdout.trim_ascii_end().to_vec()),
        false => Err(failed(folder, words, complaint(&output))),
    }
}

/// That git did not do what it was asked for.
pub fn failed<S: AsRef<OsStr>>(folder: &Path, words: &[S], what: String) -> BuildError {
    let command = words.first().map(foreign::path).unwrap_or_default();
    BuildError::Git { command, folder: folder.to_owned(), what }
}

/// What git complains of: all of it, for the reason comes first and the remedy last.
pub fn complaint(output: &Output) -> String {
    let lines =
        output.stderr.split(|byte| *byte == b'\n').map(|line| foreign::said(line.trim_ascii()));
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).take(MOST_LINES).collect();
    match lines.is_empty() {
        true => "no reason is given".to_owned(),
        false => lines.join("\n  "),
    }
}
