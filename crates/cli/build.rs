//! Tells the command, and the Python package, from which commit it is built. In a clone git says
//! it; in an archive `git archive` wrote it. Where there is neither, there is the version alone.
//! Neither the machine nor the time is included, so one commit gives one program.

use std::path::Path;
use std::process::Command;

/// What programs are made from. A changed document makes no other program.
const SOURCES: [&str; 6] = [".cargo", "Cargo.lock", "Cargo.toml", "crates", "scenarios", "studies"];

/// The number of digits of a commit that are shown.
const DIGITS: usize = 12;

fn main() {
    let package = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let above = Path::new(&folder).ancestors().find(|above| above.join("crates").is_dir());
    let root = above.unwrap_or(Path::new(&folder)).to_owned();
    for source in SOURCES {
        watch(&root.join(source));
    }
    let version = match archived().or_else(|| in_clone(&root)) {
        Some(commit) => format!("{package} ({commit})"),
        None => package,
    };
    println!("cargo::rustc-env=NEEDLESS_VERSION={version}");
}

/// Makes cargo run this again when the path changes. A missing path would make cargo run it each
/// time.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.to_string_lossy());
    }
}

/// The commit that an archive was made from.
fn archived() -> Option<String> {
    short(include_str!("COMMIT").trim())
}

/// The commit of a clone, and whether the sources differ from it.
fn in_clone(root: &Path) -> Option<String> {
    // An archive inside another repository does not belong to that one.
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        watch(&root.join(git(root, &["rev-parse", "--git-path", file])?));
    }
    let commit = short(&git(root, &["rev-parse", "HEAD"])?)?;
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changes = git(root, &[&status[..], &SOURCES].concat())?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, changed") })
}

fn short(commit: &str) -> Option<String> {
    let is_commit = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| commit[..DIGITS].to_owned())
}

/// What git says about the repository in this folder, whichever one the variables of hooks or
/// wrappers name. It writes nothing.
fn git(folder: &Path, words: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let named = std::env::vars_os().map(|(name, _)| name);
    for name in named.filter(|name| name.as_encoded_bytes().starts_with(b"GIT_")) {
        git.env_remove(name);
    }
    let output = git.env("GIT_OPTIONAL_LOCKS", "0").arg("-C").arg(folder).args(words).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
