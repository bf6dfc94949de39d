//! Commits of a git tree, compiled one after the other.
//!
//! The tree is read, never changed: commits are checked out in a clone that shares its objects, `builds/tree-HASH/` in
//! the cache, so that each compiles what differs from the one before.

use super::error::BuildError;
use super::make::{self, Make};
use super::{Text, configure, lines, lock};
use crate::cache::{Cache, at, hash};
use crate::error::FetchError;
use crate::platform::Arch;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A git tree whose commits can be compiled. Nobody else builds meanwhile.
pub struct Tree {
    repository: PathBuf,
    folder: PathBuf,
    fragment: Option<Text>,
    lock: File,
}

impl Tree {
    /// The tree in `repository`, with lines of a configuration on top of the guests' own.
    pub fn open(
        repository: &Path,
        config: Option<&Path>,
        progress: &dyn Fn(&str),
    ) -> Result<Tree, BuildError> {
        let there = fs::canonicalize(repository);
        let words = ["rev-parse", "--git-dir"];
        let repository = there.map_err(|error| failed(repository, &words, error.to_string()))?;
        git(&repository, &words)?;
        let fragment = config.map(Text::read).transpose()?;
        let cache = Cache::open()?;
        let name = format!("tree-{}", &hash(repository.as_os_str().as_encoded_bytes())[..16]);
        let folder = cache.folder("builds")?.join(name);
        let lock = lock(&cache, progress)?;
        Ok(Tree { repository, folder, fragment, lock })
    }

    /// The commit that a revision names.
    pub fn commit(&self, revision: &str) -> Result<String, BuildError> {
        let wanted = format!("{revision}^{{commit}}");
        git(&self.repository, &["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted])
            .map_err(|_| self.bad(&["rev-parse"], format!("there is no revision `{revision}`")))
    }

    /// A commit's number and subject, for people.
    pub fn text(&self, commit: &str) -> Result<(String, String), BuildError> {
        let line = git(&self.repository, &["log", "-1", "--format=%h %s", commit])?;
        let (number, subject) = line.split_once(' ').unwrap_or((&line, ""));
        Ok((number.to_owned(), subject.to_owned()))
    }

    /// The commits that `bad` has and none of `good`, itself among them, those first that tell most.
    pub fn between(&self, good: &[String], bad: &str) -> Result<Vec<String>, BuildError> {
        let mut words = vec!["rev-list", "--bisect-all", bad, "--not"];
        words.extend(good.iter().map(String::as_str));
        let text = git(&self.repository, &words)?;
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        Ok(text.lines().filter_map(first).collect())
    }

    /// Compiles a commit for x86-64; gives the image.
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
            let _ = fs::remove_dir_all(&tree);
            fs::create_dir_all(&self.folder).map_err(at(&self.folder))?;
            let (from, to) = (self.repository.to_string_lossy(), tree.to_string_lossy());
            git(&self.folder, &["clone", "--quiet", "--shared", "--no-checkout", &from, &to])?;
        }
        git(&tree, &["checkout", "--quiet", "--detach", "--force", commit])?;
        Ok(tree)
    }

    fn bad(&self, words: &[&str], what: String) -> BuildError {
        failed(&self.repository, words, what)
    }
}

fn failed(folder: &Path, words: &[&str], what: String) -> BuildError {
    let command = words.first().copied().unwrap_or_default().to_owned();
    BuildError::Git { command, folder: folder.to_owned(), what }
}

/// What git says, without the end of the last line.
fn git(folder: &Path, words: &[&str]) -> Result<String, BuildError> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(words).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| FetchError::Program { program: "git".to_owned(), error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or("no reason is given").to_owned();
    Err(failed(folder, words, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(folder: &Path) -> Vec<String> {
        let run = |words: &[&str]| {
            let own =
                ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
            git(folder, &[&own[..], words].concat()).unwrap()
        };
        run(&["init", "--quiet"]);
        let commit = |number: usize| {
            fs::write(folder.join("file"), number.to_string()).unwrap();
            run(&["add", "file"]);
            run(&["commit", "--quiet", "-m", &format!("number {number}")]);
            run(&["rev-parse", "HEAD"])
        };
        (0..8).map(commit).collect()
    }

    fn tree(folder: &Path) -> Tree {
        let lock = tempfile::tempfile().unwrap();
        let (repository, folder) = (folder.join("repository"), folder.join("builds"));
        Tree { repository, folder, fragment: None, lock }
    }

    #[test]
    fn commits_between_are_listed_and_checked_out_apart() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("repository")).unwrap();
        let commits = repository(&folder.path().join("repository"));
        let tree = tree(folder.path());
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
        let own = fs::read_to_string(folder.path().join("repository/file")).unwrap();
        assert_eq!(own, "7", "the tree itself is as it was");
    }
}
