//! Tells the command, and the Python package, from which commit it is built: what git says in a clone, what `git archive`
//! wrote in an archive. Where neither is, it is the version alone. Neither the machine nor the time
//! goes in, so one commit gives one program.

use std::path::Path;
use std::process::Command;

/// What programs are made from: a changed document makes no other program.
const SOURCES: [&str; 6] = [".cargo", "Cargo.lock", "Cargo.toml", "crates", "scenarios", "studies"];

/// Digits of a commit that are shown.
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

/// Cargo runs this again when the path changes. What is not there would have it run each time.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.to_string_lossy());
    }
}

/// The commit that an archive is of.
fn archived() -> Option<String> {
    short(include_str!("COMMIT").trim())
}

/// The commit of a clone, and whether what is built differs from it.
fn in_clone(root: &Path) -> Option<String> {
    // An archive within another repository is not that one's.
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

/// What git says about the repository in this folder, whichever one hooks or wrappers name, without
/// writing anything.
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
