//! Applies patches to a tree. Only files whose contents change are written, so the compiler's
//! output for the others stays valid.
//!
//! `git apply` applies a patch as a whole or refuses it. It handles quoted names, empty files,
//! links and modes. It refuses what it cannot make (binary files without their contents). A patch
//! is first tried on copies of the files that it names, in their state before any patch. The tree
//! changes only when all patches apply. `originals/` keeps the state of each file before its first
//! change. `touched.json` says for each such file whether it existed.

use super::Text;
use super::error::BuildError;
use super::git;
use crate::cache::at;
use crate::error::FetchError;
use needless_model::foreign;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::{Output, Stdio};

/// Files that some patch has changed, and whether they existed before.
type Touched = BTreeMap<String, bool>;

/// The least number of context lines that must fit if not all three do: `patch` needs as many with
/// its usual fuzz.
const LEAST_CONTEXT: &str = "-C1";

/// Gives the tree in `folder` its state with these patches applied, and no others. Returns notes
/// about hunks that were applied at another place or not exactly.
pub fn apply(folder: &Path, patches: &[Text]) -> Result<Vec<String>, BuildError> {
    let mut work = Work::open(folder)?;
    let named = named(patches)?;
    let scratch =
        tempfile::Builder::new().prefix(".new-").tempdir_in(folder).map_err(at(folder))?;
    for file in &named {
        if let Some(original) = work.original(file)? {
            original.write(scratch.path(), file)?;
        }
    }
    let mut told = Vec::new();
    for patch in patches {
        told.extend(try_patch(patch, scratch.path())?);
    }
    for file in &named {
        work.change(file, Entry::read(scratch.path(), file)?.as_ref())?;
    }
    let others: Vec<String> =
        work.touched.keys().filter(|file| !named.contains(*file)).cloned().collect();
    for file in others {
        let original = work.original(&file)?;
        work.change(&file, original.as_ref())?;
    }
    Ok(told)
}

/// The files that these patches name. A text that names none is no patch.
pub fn named(patches: &[Text]) -> Result<BTreeSet<String>, BuildError> {
    let mut all = BTreeSet::new();
    for patch in patches {
        let refused = |what: String| BuildError::Patch { patch: patch.name.clone(), what };
        if let Some(line) = beside(&patch.bytes) {
            return Err(refused(format!("it lacks the contents that `{line}` stands for")));
        }
        let listed = git_apply(&std::env::temp_dir(), &["--numstat", "-z"], patch)?;
        if !listed.status.success() {
            return Err(refused(reason(&listed)));
        }
        // This output has only the new name of a file that moves.
        let lines = listed.stdout.split(|byte| *byte == 0).filter(|line| !line.is_empty());
        let new = lines.filter_map(|line| line.splitn(3, |byte| *byte == b'\t').nth(2));
        for name in new.map(<[u8]>::to_vec).chain(sources(&patch.bytes)) {
            let odd = || {
                refused(format!("it names {}, which is outside the source", foreign::lossy(&name)))
            };
            let text = std::str::from_utf8(&name).map_err(|_| odd())?;
            match is_inside(text) {
                true => _ = all.insert(text.to_owned()),
                false => return Err(odd()),
            }
        }
    }
    Ok(all)
}

/// Whether a name lies in the tree.
fn is_inside(name: &str) -> bool {
    !name.is_empty()
        && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// A line in which `diff -r` says that files differ, but not how. git ignores such a line, like the
/// text of a letter.
fn beside(patch: &[u8]) -> Option<String> {
    patch.split(|byte| *byte == b'\n').map(foreign::said).find(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let only_in = matches!(words[..], ["Only", "in", folder, _] if folder.ends_with(':'));
        let files = ["Binary files ", "Files "].iter().any(|start| line.starts_with(start));
        // In git's own patches such a line follows a header, and git refuses it for that reason.
        only_in || (files && line.contains(" and ") && line.trim_end().ends_with(" differ"))
    })
}

/// The files that other files are made of: `rename from` and `copy from`.
fn sources(patch: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    patch.split(|byte| *byte == b'\n').filter_map(|line| {
        let name =
            [&b"rename from "[..], b"copy from "].iter().find_map(|m| line.strip_prefix(*m))?;
        Some(unquoted(name.trim_ascii_end()))
    })
}

/// The name in git's notation: quoted with C escapes, or plain.
fn unquoted(name: &[u8]) -> Vec<u8> {
    let Some(inner) = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")) else {
        return name.to_vec();
    };
    let (mut out, mut rest) = (Vec::new(), inner);
    while let [first, tail @ ..] = rest {
        rest = tail;
        let (b'\\', [escape, tail @ ..]) = (first, rest) else {
            out.push(*first);
            continue;
        };
        let digits = rest.iter().take(3).take_while(|digit| (b'0'..=b'7').contains(digit)).count();
        if digits > 0 {
            let value =
                rest[..digits].iter().fold(0_u32, |n, digit| n * 8 + u32::from(digit - b'0'));
            out.push(value as u8);
            rest = &rest[digits..];
            continue;
        }
        rest = tail;
        out.push(match escape {
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            other => *other,
        });
    }
    out
}

/// Applies a patch to the files in `scratch`, and returns git's remarks. Each hunk has to fit with
/// its whole context, if need be at another place. If one does not, less context is enough, which
/// the remarks say.
fn try_patch(patch: &Text, scratch: &Path) -> Result<Vec<String>, BuildError> {
    let exact = git_apply(scratch, &["--verbose"], patch)?;
    if exact.status.success() {
        return Ok(remarks(patch, &exact));
    }
    let loose = git_apply(scratch, &["--verbose", LEAST_CONTEXT], patch)?;
    match loose.status.success() {
        true => Ok(remarks(patch, &loose)),
        false => Err(BuildError::Patch { patch: patch.name.clone(), what: reason(&exact) }),
    }
}

/// Runs `git apply` for a patch in a folder. No surrounding repository and no setting of the user
/// affects it.
fn git_apply(folder: &Path, options: &[&str], patch: &Text) -> Result<Output, BuildError> {
    let cannot = |error| FetchError::Program { program: "git".to_owned(), error };
    let words = ["apply"].iter().chain(options).chain(&["-"]).map(AsRef::as_ref);
    let mut child = git::command(folder, words)
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(Path::new("/")))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let (input, bytes) = (child.stdin.take(), patch.bytes.clone());
    // git may write output before it has read the whole patch.
    let writer = std::thread::spawn(move || input.map(|mut input| input.write_all(&bytes)));
    let output = child.wait_with_output().map_err(cannot)?;
    let _ = writer.join();
    Ok(output)
}

/// The lines of git's error output.
fn said(output: &Output) -> Vec<String> {
    output.stderr.split(|byte| *byte == b'\n').map(foreign::said).collect()
}

/// Why a patch does not apply: its first hunk that fits nowhere, or git's first reason.
fn reason(output: &Output) -> String {
    let lines = said(output);
    let mut errors = lines.iter().filter_map(|line| line.strip_prefix("error: "));
    let hunk =
        errors.clone().find_map(|error| error.strip_prefix("patch failed: ")?.rsplit_once(':'));
    match hunk {
        Some((file, line)) => format!("{file}: the hunk for line {line} fits nowhere"),
        None => match errors.find(|error| *error != "while searching for:") {
            Some(error) if error.starts_with("No valid patches") => "it names no file".to_owned(),
            Some(error) => error.to_owned(),
            None => git::complaint(output),
        },
    }
}

/// git's remarks about hunks that it applied at another place, or with less context, with their
/// files.
fn remarks(patch: &Text, output: &Output) -> Vec<String> {
    let mut file = String::new();
    let mut told = Vec::new();
    for line in said(output) {
        if let Some(name) = line.strip_prefix("Checking patch ") {
            file = name.trim_end_matches("...").to_owned();
        } else if ["Hunk #", "Context reduced", "warning: "].iter().any(|w| line.starts_with(w)) {
            told.push(format!("{}: {file}: {line}", patch.name));
        }
    }
    told
}

/// A file or a link in the tree.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    /// The contents of a file, and whether it is executable.
    File(Vec<u8>, bool),
    /// A symbolic link.
    Link(PathBuf),
}

impl Entry {
    /// Reads the entry with this name; `None` if there is none. It follows no symbolic link, also
    /// not in a parent folder.
    fn read(root: &Path, file: &str) -> Result<Option<Entry>, FetchError> {
        let mut path = root.to_owned();
        let mut parts = Path::new(file).components().peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            let found = match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                found => found.map_err(at(&path))?,
            };
            let refused = |what: &str| at(&path)(io::Error::other(what.to_owned()));
            match (found.file_type(), parts.peek()) {
                (kind, Some(_)) if kind.is_symlink() => {
                    return Err(refused("a patch names a file behind this symbolic link"));
                }
                (kind, Some(_)) if kind.is_dir() => {}
                (_, Some(_)) => return Ok(None),
                (kind, None) if kind.is_symlink() => {
                    return fs::read_link(&path).map(|to| Some(Entry::Link(to))).map_err(at(&path));
                }
                (kind, None) if kind.is_file() => {
                    let executable = found.permissions().mode() & 0o100 != 0;
                    let bytes = fs::read(&path).map_err(at(&path))?;
                    return Ok(Some(Entry::File(bytes, executable)));
                }
                (_, None) => return Err(refused("a patch names it as a file, but it is not one")),
            }
        }
        Ok(None)
    }

    /// Writes the entry whole or not at all, and makes the folders above it.
    fn write(&self, root: &Path, file: &str) -> Result<(), FetchError> {
        let path = root.join(file);
        let folder = path.parent().unwrap_or(root);
        let written = fs::create_dir_all(folder).and_then(|()| match self {
            Entry::File(bytes, executable) => {
                let mut new = tempfile::NamedTempFile::new_in(folder)?;
                new.write_all(bytes)?;
                let mode = if *executable { 0o755 } else { 0o644 };
                new.as_file().set_permissions(Permissions::from_mode(mode))?;
                new.persist(&path).map(drop).map_err(|error| error.error)
            }
            Entry::Link(to) => {
                let new = tempfile::Builder::new().make_in(folder, |name| symlink(to, name))?;
                new.into_temp_path().persist(&path).map_err(|error| error.error)
            }
        });
        written.map_err(at(&path))
    }
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
        let touched = match fs::read(&list) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Touched::new(),
            read => read
                .and_then(|text| serde_json::from_slice(&text).map_err(io::Error::other))
                .map_err(at(&list))?,
        };
        let (tree, originals) = (folder.join("tree"), folder.join("originals"));
        Ok(Work { tree, originals, list, touched })
    }

    /// A file in its state before any patch; `None` if it did not exist.
    fn original(&self, file: &str) -> Result<Option<Entry>, FetchError> {
        match self.touched.get(file) {
            Some(true) => Entry::read(&self.originals, file),
            Some(false) => Ok(None),
            None => Entry::read(&self.tree, file),
        }
    }

    /// Gives a file of the tree its wanted state, if it has another one. Before the first change,
    /// the file's state is saved.
    fn change(&mut self, file: &str, wanted: Option<&Entry>) -> Result<(), FetchError> {
        let found = Entry::read(&self.tree, file)?;
        if found.as_ref() == wanted {
            return Ok(());
        }
        if !self.touched.contains_key(file) {
            if let Some(original) = &found {
                original.write(&self.originals, file)?;
            }
            self.touched.insert(file.to_owned(), found.is_some());
            let list = serde_json::to_vec_pretty(&self.touched).map_err(io::Error::other);
            let list = Entry::File(list.map_err(at(&self.list))?, false);
            let folder = self.list.parent().unwrap_or(Path::new("/"));
            list.write(folder, "touched.json")?;
        }
        let path = self.tree.join(file);
        match wanted {
            Some(entry) => entry.write(&self.tree, file),
            None => fs::remove_file(&path).map_err(at(&path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RMAP: &str = "one\ntwo\nthree\nfour\n";

    fn put(folder: &Path, name: &str, text: &str) {
        Entry::File(text.as_bytes().to_vec(), false).write(&folder.join("tree"), name).unwrap();
    }

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "mm/rmap.c", RMAP);
        put(folder.path(), "mm/old.c", "gone\n");
        folder
    }

    fn patch(name: &str, text: &str) -> Text {
        Text { name: name.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    /// A hunk with three lines of context, for a place in a file of numbered lines.
    fn hunk(first: u32, context: [&str; 2]) -> String {
        let [before, after] = context;
        let n = |at: u32| first + at;
        format!(
            "@@ -{0},7 +{0},7 @@\n {before}\n {1}\n {2}\n-{3}\n+here\n {4}\n {5}\n {after}\n",
            first,
            n(1),
            n(2),
            n(3),
            n(4),
            n(5)
        )
    }

    fn numbers() -> String {
        (1..=60).map(|n| format!("{n}\n")).collect()
    }

    fn change(to: &str) -> Text {
        patch(
            "fix.patch",
            &format!(
                "--- a/mm/rmap.c\n+++ b/mm/rmap.c\n@@ -1,4 +1,4 @@\n one\n-two\n+{to}\n three\n four\n"
            ),
        )
    }

    fn files_of(folder: &Path) -> [Option<Entry>; 3] {
        ["mm/rmap.c", "mm/old.c", "mm/new.c"]
            .map(|name| Entry::read(&folder.join("tree"), name).unwrap())
    }

    fn file(text: &str) -> Option<Entry> {
        Some(Entry::File(text.as_bytes().to_vec(), false))
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
        assert_eq!(apply(folder.path(), &[change("2"), moved]).unwrap(), [""; 0]);
        assert_eq!(state(), [file("one\n2\nthree\nfour\n"), None, file("come\n")]);
        let time =
            || fs::metadata(folder.path().join("tree/mm/rmap.c")).unwrap().modified().unwrap();
        apply(folder.path(), &[change("zwei")]).unwrap();
        assert_eq!(state(), [file("one\nzwei\nthree\nfour\n"), file("gone\n"), None]);
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
        let header = "--- a/mm/rmap.c\n+++ b/mm/rmap.c\n";
        let good = "@@ -1,4 +1,4 @@\n one\n-two\n+2\n three\n four\n";
        for (text, part) in [
            (
                format!("{header}@@ -1,3 +1,3 @@\n five\n-six\n+6\n seven\n"),
                "mm/rmap.c: the hunk for line 1",
            ),
            ("no patch at all\n".to_owned(), "names no file"),
            ("--- a/../../x\n+++ b/../../x\n@@ -0,0 +1 @@\n+x\n".to_owned(), "../../x"),
            ("--- a/x\n+++ b/.git/config\n@@ -0,0 +1 @@\n+x\n".to_owned(), ".git/config"),
            (
                format!("{header}{good}Binary files a/x.bin and b/x.bin differ\n"),
                "a/x.bin and b/x.bin differ",
            ),
            (format!("Only in new/mm: fresh.c\n{header}{good}"), "Only in new/mm: fresh.c"),
            (
                format!(
                    "diff --git a/x.bin b/x.bin\nindex 1234567..2345678 100644\n\
                     Binary files a/x.bin and b/x.bin differ\n{header}{good}"
                ),
                "x.bin",
            ),
            (format!("{header}{good}and something else\n@@ -9,3 +9,3 @@\n a\n"), "header"),
        ] {
            let told = apply(folder.path(), &[patch("late.patch", &text)]).unwrap_err().to_string();
            assert!(
                told.contains(part) && told.contains(".patch does not apply"),
                "{part}: {told}"
            );
            assert_eq!(files_of(folder.path()), before);
        }
        let left = fs::read_dir(folder.path()).unwrap().flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".new-"));
        assert_eq!(left.count(), 0);
    }

    /// Each case has a good hunk, and a part that `patch` dropped or changed into something else.
    #[test]
    fn every_part_of_a_patch_is_applied() {
        let folder = tree();
        for (name, text) in [
            ("mm/n\u{e4}.c", "x\n"),
            ("mm/empty.c", ""),
            ("mm/tool.sh", "echo\n"),
            ("mm/a b.c", "m\n"),
        ] {
            put(folder.path(), name, text);
        }
        let index = "index 000000000000..1234567\n";
        let whole = [
            &String::from_utf8(change("2").bytes).unwrap(),
            "diff --git \"a/mm/n\\303\\244.c\" \"b/mm/n\\303\\244.c\"\n--- \"a/mm/n\\303\\244.c\"\n\
             +++ \"b/mm/n\\303\\244.c\"\n@@ -1 +1 @@\n-x\n+y\n",
            "diff --git a/mm/fresh.c b/mm/fresh.c\nnew file mode 100644\n",
            "index 000000000000..e69de29bb2d1\n",
            "diff --git a/mm/empty.c b/mm/empty.c\ndeleted file mode 100644\n",
            "index e69de29bb2d1..000000000000\n",
            "diff --git a/mm/link b/mm/link\nnew file mode 120000\n",
            index,
            "--- /dev/null\n+++ b/mm/link\n@@ -0,0 +1 @@\n+/etc/hostname\n\\ No newline at end of file\n",
            "diff --git a/mm/new.sh b/mm/new.sh\nnew file mode 100755\n",
            index,
            "--- /dev/null\n+++ b/mm/new.sh\n@@ -0,0 +1 @@\n+echo\n",
            "diff --git a/mm/tool.sh b/mm/tool.sh\nold mode 100644\nnew mode 100755\n",
            "diff --git a/mm/a b.c \"b/mm/a\\tb.c\"\nsimilarity index 100%\nrename from mm/a b.c\n\
             rename to \"mm/a\\tb.c\"\n",
        ];
        let read = |name: &str| Entry::read(&folder.path().join("tree"), name).unwrap();
        let executable = |text: &str| Some(Entry::File(text.as_bytes().to_vec(), true));
        let told = apply(folder.path(), &[patch("whole.patch", &whole.concat())]).unwrap();
        assert_eq!(told, [""; 0]);
        for (name, wanted) in [
            ("mm/rmap.c", file("one\n2\nthree\nfour\n")),
            ("mm/n\u{e4}.c", file("y\n")),
            ("mm/fresh.c", file("")),
            ("mm/empty.c", None),
            ("mm/link", Some(Entry::Link("/etc/hostname".into()))),
            ("mm/new.sh", executable("echo\n")),
            ("mm/tool.sh", executable("echo\n")),
            ("mm/a b.c", None),
            ("mm/a\tb.c", file("m\n")),
        ] {
            assert_eq!(read(name), wanted, "{name}");
        }
        let mode = fs::metadata(folder.path().join("tree/mm/new.sh")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o755);
        apply(folder.path(), &[]).unwrap();
        for (name, wanted) in [
            ("mm/empty.c", file("")),
            ("mm/link", None),
            ("mm/tool.sh", file("echo\n")),
            ("mm/a b.c", file("m\n")),
            ("mm/a\tb.c", None),
            ("mm/fresh.c", None),
        ] {
            assert_eq!(read(name), wanted, "{name} without the patch");
        }
    }

    #[test]
    fn offsets_and_missing_context_are_told() {
        let folder = tree();
        put(folder.path(), "mm/long.c", &numbers());
        let patch = |first: u32, context| {
            let header = "--- a/mm/long.c\n+++ b/mm/long.c\n";
            patch("moved.patch", &format!("{header}{}", hunk(first, context)))
        };
        assert_eq!(apply(folder.path(), &[patch(20, ["20", "26"])]).unwrap(), [""; 0]);
        let mut moved = patch(20, ["20", "26"]);
        let text = String::from_utf8(moved.bytes).unwrap().replace("-20,7 +20,7", "-12,7 +12,7");
        moved.bytes = text.into_bytes();
        let told = apply(folder.path(), &[moved]).unwrap();
        assert_eq!(told, ["moved.patch: mm/long.c: Hunk #1 succeeded at 20 (offset 8 lines)."]);
        let told = apply(folder.path(), &[patch(20, ["other", "words"])]).unwrap();
        assert!(told.iter().any(|line| line.contains("Context reduced")), "{told:?}");
        assert!(Entry::read(&folder.path().join("tree"), "mm/long.c").unwrap() != file(&numbers()));
    }

    #[test]
    fn no_link_of_the_tree_is_followed() {
        let folder = tree();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), folder.path().join("tree/mm/out")).unwrap();
        let text = "--- /dev/null\n+++ b/mm/out/new.c\n@@ -0,0 +1 @@\n+x\n";
        let told = apply(folder.path(), &[patch("out.patch", text)]).unwrap_err().to_string();
        assert!(told.contains("behind this symbolic link"), "{told}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn names_are_unquoted_as_git_quotes_them() {
        for (quoted, name) in [
            (&b"mm/x.c"[..], &b"mm/x.c"[..]),
            (b"\"n\\303\\244.c\"", "n\u{e4}.c".as_bytes()),
            (b"\"a\\tb\\\\\\\"c\\n\"", b"a\tb\\\"c\n"),
            (b"\"\\", b"\"\\"),
        ] {
            assert_eq!(unquoted(quoted), name);
        }
    }
}
