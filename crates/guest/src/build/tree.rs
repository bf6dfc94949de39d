//! Compiles commits of a git tree, one after the other.
//!
//! The tree is read, never changed ([`super::git`]). Commits are checked out in a clone that shares
//! its objects, `builds/tree-HASH/` in the cache. So each build compiles only what differs from the
//! one before. git gets the path of the clone explicitly: a damaged clone is an error, and git does
//! not turn to a repository around it.

use super::error::BuildError;
use super::git::{failed, git};
use super::make::{self, Make};
use super::{Text, configure, lines, lock};
use crate::cache::{Cache, at, hash};
use crate::platform::Arch;
use needless_model::foreign;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A git tree whose commits can be compiled. No other build runs meanwhile.
pub struct Tree {
    /// The folder with the repository's objects. For a worktree or a submodule it lies elsewhere.
    repository: PathBuf,
    /// The folder that the user named. A worktree has a HEAD of its own.
    named: PathBuf,
    folder: PathBuf,
    fragment: Option<Text>,
    lock: File,
}

impl Tree {
    /// Opens the tree in `repository`. The lines of `config` are added to the configuration of
    /// guests.
    pub fn open(
        repository: &Path,
        config: Option<&Path>,
        progress: &dyn Fn(&str),
    ) -> Result<Tree, BuildError> {
        let there = fs::canonicalize(repository);
        let words = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let named = there.map_err(|error| failed(repository, &words, error.to_string()))?;
        let repository = PathBuf::from(OsString::from_vec(git(&named, &words)?));
        let fragment = config.map(Text::read).transpose()?;
        let cache = Cache::open()?;
        let name = format!("tree-{}", &hash(named.as_os_str().as_encoded_bytes())[..16]);
        let folder = cache.folder("builds")?.join(name);
        let lock = lock(&cache, progress)?;
        Ok(Tree { repository, named, folder, fragment, lock })
    }

    /// The id of the commit that a revision names.
    pub fn commit(&self, revision: &str) -> Result<String, BuildError> {
        let wanted = format!("{revision}^{{commit}}");
        self.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted]).map_err(|_| {
            let what = format!("there is no revision `{}`", foreign::short(revision));
            failed(&self.named, &["rev-parse"], what)
        })
    }

    /// A commit's short id and subject, for messages.
    pub fn text(&self, commit: &str) -> Result<(String, String), BuildError> {
        let line = self.ask(&["log", "-1", "--format=%h %s", commit])?;
        let (number, subject) = line.split_once(' ').unwrap_or((&line, ""));
        Ok((number.to_owned(), subject.to_owned()))
    }

    /// The commits that are in `bad` and in none of `good`, including `bad` itself. Those that
    /// halve the rest best come first.
    pub fn between(&self, good: &[String], bad: &str) -> Result<Vec<String>, BuildError> {
        let mut words = vec!["rev-list", "--bisect-all", bad, "--not"];
        words.extend(good.iter().map(String::as_str));
        let text = git(&self.named, &words)?;
        let lines = text.split(|byte| *byte == b'\n').map(foreign::lossy);
        Ok(lines.filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect())
    }

    /// Runs git on the repository, and returns one line of output.
    fn ask(&self, words: &[&str]) -> Result<String, BuildError> {
        git(&self.named, words).map(|line| foreign::lossy(&line))
    }

    /// Compiles a commit for x86-64, and returns the path of the image.
    pub fn build(&self, commit: &str, progress: &dyn Fn(&str)) -> Result<PathBuf, BuildError> {
        make::tools(Arch::X86_64, progress)?;
        let tree = self.check_out(commit)?;
        let (obj, log) = (self.folder.join("obj"), self.folder.join("log"));
        let make =
            Make { tree, obj, log, arch: Arch::X86_64, label: "bisect", lock: Some(&self.lock) };
        let fragment = self.fragment.as_ref();
        let lines = lines(&make.source_release()?, Arch::X86_64, fragment);
        configure(&make, &lines, fragment)?;
        make.compile(progress)?;
        Ok(make.image())
    }

    fn check_out(&self, commit: &str) -> Result<PathBuf, BuildError> {
        let tree = self.folder.join("tree");
        if !tree.join(".git").is_dir() {
            self.clone_to(&tree)?;
        }
        let git_dir = tree.join(".git");
        let own =
            ["--git-dir".as_ref(), git_dir.as_os_str(), "--work-tree".as_ref(), tree.as_ref()];
        let checkout = ["checkout", "--quiet", "--detach", "--force", commit].map(OsStr::new);
        git(&tree, &[&own[..], &checkout].concat())?;
        Ok(tree)
    }

    /// Makes a clone that shares the repository's objects. The clone appears whole or not at all.
    fn clone_to(&self, tree: &Path) -> Result<(), BuildError> {
        let new = self.folder.join(".new-tree");
        for left in [tree, &new] {
            let _ = fs::remove_dir_all(left);
        }
        fs::create_dir_all(&self.folder).map_err(at(&self.folder))?;
        let words = ["clone", "--quiet", "--shared", "--no-checkout", "--"].map(OsStr::new);
        git(&self.folder, &[&words[..], &[self.repository.as_ref(), new.as_ref()]].concat())?;
        Ok(fs::rename(&new, tree).map_err(at(tree))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a repository of eight commits.
    fn repository(folder: &Path) -> Vec<String> {
        fs::create_dir_all(folder).unwrap();
        run(folder, &["init", "--quiet"]);
        let commit = |number: usize| {
            fs::write(folder.join("file"), number.to_string()).unwrap();
            run(folder, &["add", "file"]);
            run(folder, &["commit", "--quiet", "-m", &format!("number {number}")]);
            run(folder, &["rev-parse", "HEAD"])
        };
        (0..8).map(commit).collect()
    }

    fn run(folder: &Path, words: &[&str]) -> String {
        let own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
        let file = ["-c", "protocol.file.allow=always"];
        String::from_utf8(git(folder, &[&own[..], &file, words].concat()).unwrap()).unwrap()
    }

    fn tree(folder: &Path, named: &Path) -> Tree {
        let lock = tempfile::tempfile().unwrap();
        let words = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let repository = PathBuf::from(OsString::from_vec(git(named, &words).unwrap()));
        let (named, folder) = (named.to_owned(), folder.join("builds"));
        Tree { repository, named, folder, fragment: None, lock }
    }

    #[test]
    fn commits_between_are_listed_and_checked_out_apart() {
        let folder = tempfile::tempdir().unwrap();
        let repository_of = folder.path().join("repository");
        let commits = repository(&repository_of);
        let tree = tree(folder.path(), &repository_of);
        assert_eq!(tree.commit("HEAD~7").unwrap(), commits[0]);
        assert!(tree.commit("nothing").unwrap_err().to_string().contains("no revision `nothing`"));
        assert_eq!(tree.text(&commits[3]).unwrap().1, "number 3");
        let between = tree.between(&[commits[0].clone()], &commits[7]).unwrap();
        assert_eq!(between.len(), 7);
        assert!([&commits[3], &commits[4]].contains(&&between[0]), "the middle comes first");
        let rest = tree.between(&[commits[0].clone(), commits[5].clone()], &commits[6]).unwrap();
        assert_eq!(rest, [commits[6].clone()]);
        for at in [2, 5] {
            let place = tree.check_out(&commits[at]).unwrap();
            assert_eq!(fs::read_to_string(place.join("file")).unwrap(), at.to_string());
        }
        let own = fs::read_to_string(repository_of.join("file")).unwrap();
        assert_eq!(own, "7", "the tree itself is as it was");
    }

    #[test]
    fn a_commits_subject_steers_no_terminal() {
        let folder = tempfile::tempdir().unwrap();
        repository(folder.path());
        let hostile = "escape \u{1b}]0;t\u{7} \u{9b}2J \u{202e}";
        run(folder.path(), &["commit", "--allow-empty", "-qm", hostile]);
        let subject = tree(folder.path(), folder.path()).text("HEAD").unwrap().1;
        assert_eq!(subject, "escape \\u{1b}]0;t\\u{7} \\u{9b}2J \\u{202e}");
    }

    /// All files below a folder, with contents: what git must not change in a repository.
    fn all_of(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut all = Vec::new();
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => all.extend(all_of(&path)),
                false => all.push((path.clone(), fs::read(&path).unwrap())),
            }
        }
        all.sort();
        all
    }

    #[test]
    fn no_kind_of_repository_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = |name: &str| at(name).to_str().unwrap().to_owned();
        let commits = repository(&at("repository"));
        run(&at("repository"), &["worktree", "add", "-q", "--detach", &text("worktree"), "HEAD~2"]);
        run(folder.path(), &["clone", "-q", "--bare", "repository", "bare"]);
        repository(&at("super"));
        run(&at("super"), &["submodule", "--quiet", "add", &text("repository"), "inside"]);
        fs::create_dir(at("repository/mm")).unwrap();
        // A staged file and a changed one. Both must stay so.
        fs::write(at("repository/staged"), "s").unwrap();
        run(&at("repository"), &["add", "staged"]);
        fs::write(at("repository/file"), "changed").unwrap();
        let head = |name: &str| if name == "worktree" { 5 } else { 7 };
        for name in ["repository", "worktree", "bare", "super/inside", "repository/mm"] {
            let before = ["repository", "worktree", "bare", "super"].map(|name| all_of(&at(name)));
            let builds = tempfile::tempdir().unwrap();
            let tree = tree(builds.path(), &at(name));
            assert_eq!(tree.commit("HEAD").unwrap(), commits[head(name)], "{name}");
            let place = tree.check_out(&commits[3]).unwrap();
            assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "3", "{name}");
            let after = ["repository", "worktree", "bare", "super"].map(|name| all_of(&at(name)));
            assert!(before == after, "{name}: something in a repository changed");
        }
    }

    #[test]
    fn a_clone_within_another_repository_is_never_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let commits = repository(folder.path());
        let tree = tree(folder.path(), folder.path());
        let place = tree.check_out(&commits[3]).unwrap();
        fs::remove_file(place.join(".git/HEAD")).unwrap();
        assert!(tree.check_out(&commits[4]).is_err());
        assert_eq!(run(folder.path(), &["symbolic-ref", "HEAD"]), "refs/heads/main");
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "7");
    }
}
