//! Patches on a tree, so that only the files change whose contents do: what was compiled from the others stays good.
//!
//! A patch is tried on copies of the files that it names, as they were before any patch. Only when all of them
//! apply does anything in the tree change. What a file was before its first change is kept in `originals/`, and
//! `touched.json` says of each such file whether it was there at all.

use super::Text;
use super::error::BuildError;
use crate::cache::at;
use crate::error::FetchError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

/// Files that were changed by some patch, and whether they were there before.
type Touched = BTreeMap<String, bool>;

/// Makes the tree in `folder` what it is with these patches, and no others, applied.
pub fn apply(folder: &Path, patches: &[Text]) -> Result<(), BuildError> {
    let mut work = Work::open(folder)?;
    let named = named(patches)?;
    let scratch =
        tempfile::Builder::new().prefix(".new-").tempdir_in(folder).map_err(at(folder))?;
    for file in &named {
        work.copy_original(file, scratch.path())?;
    }
    patches.iter().try_for_each(|patch| try_patch(patch, scratch.path()))?;
    for file in &named {
        let wanted = read(&scratch.path().join(file))?;
        work.change(file, wanted.as_deref())?;
    }
    let others: Vec<String> =
        work.touched.keys().filter(|file| !named.contains(*file)).cloned().collect();
    for file in others {
        let original = work.original(&file)?;
        work.change(&file, original.as_deref())?;
    }
    Ok(())
}

/// The files that these patches name. One that names none is no patch.
pub fn named(patches: &[Text]) -> Result<BTreeSet<String>, BuildError> {
    let mut named = BTreeSet::new();
    for patch in patches {
        let files = files(&patch.bytes);
        if files.is_empty() {
            let what = "it names no file".to_owned();
            return Err(BuildError::Patch { patch: patch.name.clone(), what });
        }
        named.extend(files);
    }
    Ok(named)
}

/// The files that a patch names, below the folder that git puts in front. Names that lead out of the tree are none.
fn files(patch: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(patch);
    let file = |line: &str| {
        let (name, strip) = match ["--- ", "+++ "].iter().find_map(|mark| line.strip_prefix(mark)) {
            Some(name) => (name, true),
            None => {
                let marks = ["rename from ", "rename to ", "copy from ", "copy to "];
                (marks.iter().find_map(|mark| line.strip_prefix(mark))?, false)
            }
        };
        let name = name.split('\t').next()?.trim_end();
        let name = if strip { name.split_once('/')?.1 } else { name };
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        (inside && !name.is_empty() && name != "dev/null").then(|| name.to_owned())
    };
    // `--- /dev/null` has nothing in front of it that could be cut off.
    text.lines().filter(|line| !line.ends_with("/dev/null")).filter_map(file).collect()
}

fn try_patch(patch: &Text, scratch: &Path) -> Result<(), BuildError> {
    let cannot = |error| FetchError::Program { program: "patch".to_owned(), error };
    let mut child = Command::new("patch")
        .args(["-p1", "--force", "--no-backup-if-mismatch", "--reject-file=-", "-d"])
        .arg(scratch)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let (input, bytes) = (child.stdin.take(), patch.bytes.clone());
    // It may talk before it has read everything.
    let writer = std::thread::spawn(move || input.map(|mut input| input.write_all(&bytes)));
    let output = child.wait_with_output().map_err(cannot)?;
    let _ = writer.join();
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(BuildError::Patch {
        patch: patch.name.clone(),
        what: first_failure(&String::from_utf8_lossy(&text)),
    })
}

/// The first hunk that failed with its file, as `patch` tells them.
fn first_failure(text: &str) -> String {
    let mut file = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("patching file ") {
            file = Some(name);
        } else if line.contains("FAILED") {
            return format!("{}: {line}", file.unwrap_or("a file"));
        }
    }
    let odd = text.lines().find(|line| !line.starts_with("patching file "));
    odd.unwrap_or("`patch` gives no reason").to_owned()
}

struct Work {
    tree: PathBuf,
    originals: PathBuf,
    list: PathBuf,
    touched: Touched,
}

impl Work {
    fn open(folder: &Path) -> Result<Work, FetchError> {
        let list = folder.join("touched.json");
        let touched = match read(&list)? {
            Some(text) => {
                serde_json::from_slice(&text).map_err(io::Error::other).map_err(at(&list))?
            }
            None => Touched::new(),
        };
        let (tree, originals) = (folder.join("tree"), folder.join("originals"));
        Ok(Work { tree, originals, list, touched })
    }

    /// A file as it was before any patch; `None` if it was not there.
    fn original(&self, file: &str) -> Result<Option<Vec<u8>>, FetchError> {
        match self.touched.get(file) {
            Some(true) => read(&self.originals.join(file)),
            Some(false) => Ok(None),
            None => read(&self.tree.join(file)),
        }
    }

    fn copy_original(&self, file: &str, to: &Path) -> Result<(), FetchError> {
        match self.original(file)? {
            Some(bytes) => write(&to.join(file), &bytes),
            None => Ok(()),
        }
    }

    /// Makes a file of the tree what it is to be, if it is something else. What it was before the first time is kept
    /// before anything changes.
    fn change(&mut self, file: &str, wanted: Option<&[u8]>) -> Result<(), FetchError> {
        let path = self.tree.join(file);
        let found = read(&path)?;
        if found.as_deref() == wanted {
            return Ok(());
        }
        if !self.touched.contains_key(file) {
            if let Some(bytes) = &found {
                write(&self.originals.join(file), bytes)?;
            }
            self.touched.insert(file.to_owned(), found.is_some());
            let list = serde_json::to_vec_pretty(&self.touched).map_err(io::Error::other);
            write(&self.list, &list.map_err(at(&self.list))?)?;
        }
        match wanted {
            Some(bytes) => write(&path, bytes),
            None => fs::remove_file(&path).map_err(at(&path)),
        }
    }
}

/// A file's bytes; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, FetchError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(at(path)),
    }
}

/// Writes a file whole or not at all, and the folders that it lies in.
fn write(path: &Path, bytes: &[u8]) -> Result<(), FetchError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mode = fs::metadata(path).ok().map(|there| there.permissions());
    let written = fs::create_dir_all(folder)
        .and_then(|()| tempfile::NamedTempFile::new_in(folder))
        .and_then(|mut file| {
            file.write_all(bytes)?;
            if let Some(mode) = mode {
                file.as_file().set_permissions(mode)?;
            }
            file.persist(path).map(drop).map_err(|error| error.error)
        });
    written.map_err(at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RMAP: &str = "one\ntwo\nthree\nfour\n";

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("tree/mm/rmap.c"), RMAP.as_bytes()).unwrap();
        write(&folder.path().join("tree/mm/old.c"), b"gone\n").unwrap();
        folder
    }

    fn patch(name: &str, text: &str) -> Text {
        Text { name: name.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    fn change(to: &str) -> Text {
        patch(
            "fix.patch",
            &format!(
                "--- a/mm/rmap.c\n+++ b/mm/rmap.c\n@@ -1,4 +1,4 @@\n one\n-two\n+{to}\n three\n four\n"
            ),
        )
    }

    fn files_of(folder: &Path) -> (Option<String>, Option<String>, Option<String>) {
        let text = |name: &str| {
            read(&folder.join("tree/mm").join(name))
                .unwrap()
                .map(|bytes| String::from_utf8(bytes).unwrap())
        };
        (text("rmap.c"), text("old.c"), text("new.c"))
    }

    #[test]
    fn a_tree_is_what_its_last_patches_make_it() {
        let folder = tree();
        let moved = patch(
            "move.patch",
            "--- a/mm/old.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n--- /dev/null\n+++ b/mm/new.c\n@@ -0,0 +1 @@\n+come\n",
        );
        let state = || files_of(folder.path());
        let before = state();
        apply(folder.path(), &[change("2"), moved]).unwrap();
        let two = Some("one\n2\nthree\nfour\n".to_owned());
        assert_eq!(state(), (two, None, Some("come\n".to_owned())));
        let time =
            || fs::metadata(folder.path().join("tree/mm/rmap.c")).unwrap().modified().unwrap();
        apply(folder.path(), &[change("zwei")]).unwrap();
        assert_eq!(state(), (Some("one\nzwei\nthree\nfour\n".to_owned()), before.1.clone(), None));
        let written = time();
        apply(folder.path(), &[change("zwei")]).unwrap();
        assert_eq!(time(), written, "what is as it should be is not touched");
        apply(folder.path(), &[]).unwrap();
        assert_eq!(state(), before);
    }

    #[test]
    fn a_patch_that_fails_changes_nothing_and_says_where() {
        let folder = tree();
        apply(folder.path(), &[change("2")]).unwrap();
        let before = files_of(folder.path());
        let late = patch(
            "late.patch",
            "--- a/mm/rmap.c\n+++ b/mm/rmap.c\n@@ -1,3 +1,3 @@\n five\n-six\n+6\n seven\n",
        );
        for (patches, part) in [
            (vec![change("zwei"), late], "mm/rmap.c: Hunk #1 FAILED"),
            (vec![patch("none.patch", "no patch at all\n")], "names no file"),
            (
                vec![patch("out.patch", "--- a/../../x\n+++ b/../../x\n@@ -0,0 +1 @@\n+x\n")],
                "names no file",
            ),
        ] {
            let told = apply(folder.path(), &patches).unwrap_err().to_string();
            assert!(told.contains(part) && told.contains(".patch does not apply"), "{told}");
            assert_eq!(files_of(folder.path()), before);
        }
        let left = fs::read_dir(folder.path()).unwrap().flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".new-"));
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn files_are_those_that_headers_name() {
        let text = "diff --git a/x b/y\nrename from mm/x.c\nrename to mm/y.c\n--- a/mm/z.c\t2026\n+++ b/mm/z.c\n--- /dev/null\n--- /etc/passwd\n+++ b//etc/passwd\n";
        let names: Vec<String> = files(text.as_bytes()).into_iter().collect();
        assert_eq!(names, ["etc/passwd", "mm/x.c", "mm/y.c", "mm/z.c"]);
    }
}
