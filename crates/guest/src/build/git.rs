//! Runs git on one repository only, and never lets it change that repository.
//!
//! Hooks and wrappers set variables that name another repository, index or work tree (`GIT_DIR`,
//! `GIT_INDEX_FILE`, `GIT_WORK_TREE`). git obeys them more than the folder that it is started in.
//! So no child process of ours gets them.

use super::error::BuildError;
use crate::error::FetchError;
use needless_model::foreign;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Variables that name git's settings files. They name no repository.
const SETTINGS: [&str; 3] = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];

/// The number of lines of git's output that are shown.
const MOST_LINES: usize = 6;

/// Removes from a command's environment what would lead git to another repository. Makefiles of
/// kernels call git as well (scripts/setlocalversion).
pub fn without_git(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let is_gits = name.as_encoded_bytes().starts_with(b"GIT_");
        if is_gits && !SETTINGS.iter().any(|setting| name == *setting) {
            command.env_remove(name);
        }
    }
    command
}

/// A git command in `folder`. It writes only what reading needs, and fetches nothing.
pub fn command<'a>(folder: &Path, words: impl IntoIterator<Item = &'a OsStr>) -> Command {
    let mut command = Command::new("git");
    without_git(&mut command).arg("-C").arg(folder).args(words);
    // git does not refresh the index on the way. In a partial clone it does not fetch missing
    // objects.
    command.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_NO_LAZY_FETCH", "1").env("LC_ALL", "C");
    command.stdin(Stdio::null());
    command
}

/// Runs git and returns its output, without the end of the last line.
pub fn git<S: AsRef<OsStr>>(folder: &Path, words: &[S]) -> Result<Vec<u8>, BuildError> {
    let output = command(folder, words.iter().map(AsRef::as_ref)).output();
    let output =
        output.map_err(|error| FetchError::Program { program: "git".to_owned(), error })?;
    match output.status.success() {
        true => Ok(output.stdout.trim_ascii_end().to_vec()),
        false => Err(failed(folder, words, complaint(&output))),
    }
}

/// Makes the error of a failed git command.
pub fn failed<S: AsRef<OsStr>>(folder: &Path, words: &[S], what: String) -> BuildError {
    let command = words.first().map(foreign::path).unwrap_or_default();
    BuildError::Git { command, folder: folder.to_owned(), what }
}

/// git's complaint. It is shown as a whole, because the reason comes first and the remedy last.
pub fn complaint(output: &Output) -> String {
    let lines =
        output.stderr.split(|byte| *byte == b'\n').map(|line| foreign::said(line.trim_ascii()));
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).take(MOST_LINES).collect();
    match lines.is_empty() {
        true => "no reason is given".to_owned(),
        false => lines.join("\n  "),
    }
}
