//! Names and undoes the changes that killed runs left behind.

use needless_runner::journal::{self, Journal, Standing, Taken, Undone};
use std::path::PathBuf;

/// The lock file of runs.
pub const RUNS: &str = "needless.live";
/// The lock file of `needless doctor`, which only mounts tracefs.
pub const DOCTORS: &str = "needless.doctor";

/// The path of a lock file that this user takes: the machine's for root, otherwise the user's own.
pub fn lock_path(name: &str) -> String {
    let folder = folders().into_iter().next().unwrap_or_else(std::env::temp_dir);
    folder.join(name).to_string_lossy().into_owned()
}

/// The folders where lock files may lie, this user's first. The others can be read.
fn folders() -> Vec<PathBuf> {
    let machines = PathBuf::from("/run/lock");
    let users = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let users = users.into_iter().chain([std::env::temp_dir()]);
    let all: Vec<PathBuf> = match rustix::process::geteuid().is_root() {
        true => std::iter::once(machines).chain(users).collect(),
        false => users.chain([machines]).collect(),
    };
    all.into_iter().filter(|folder| folder.is_dir()).collect()
}

fn paths() -> impl Iterator<Item = String> {
    let folders = folders();
    let path = |folder: &PathBuf, name| folder.join(name).to_string_lossy().into_owned();
    let paths: Vec<String> =
        folders.iter().flat_map(|folder| [RUNS, DOCTORS].map(|name| path(folder, name))).collect();
    paths.into_iter()
}

/// The state of every lock file that is held or lists changes. If a file lists changes that the
/// machine no longer has, they are removed from it, if this user may do that. Somebody may set the
/// same values again later, and they are theirs then.
pub fn standing() -> Vec<Standing> {
    let look = |path: String| {
        let found = journal::look(&path);
        if found == Standing::Moot
            && let Ok(Taken::Yes(mut journal, left)) = Journal::take(&path)
            && left.is_empty()
        {
            journal.undo(&left);
        }
        found
    };
    let tells = |found: &Standing| !matches!(found, Standing::Clean | Standing::Moot);
    paths().map(look).filter(tells).collect()
}

/// Undoes what killed runs left behind. Changes of a run that still goes on stay.
pub fn clean() -> Undone {
    let mut all = Undone::default();
    for path in paths() {
        if !matches!(journal::look(&path), Standing::Left { .. } | Standing::Moot) {
            continue;
        }
        match Journal::take(&path) {
            Ok(Taken::Yes(mut journal, left)) => {
                let Undone { done, failed } = journal.undo(&left);
                all.done.extend(done);
                all.failed.extend(failed);
            }
            Ok(Taken::Busy { .. }) => {}
            Err(failed) => all.failed.push(failed),
        }
    }
    all
}
