//! `needless bisect --tree`, on a tree with a small makefile. Its image is that of a stock kernel,
//! and from some commit on that of another one.

use needless_guest::kernels;
use needless_testing::{skip, turn};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The makefile's work: it configures, and makes the image that the file `image` names.
const MAKEFILE: &str = "VERSION = 6
PATCHLEVEL = 12
include image
allnoconfig:
\tcp $(KCONFIG_ALLCONFIG) $(O)/.config
\techo CONFIG_EVENT_TRACING=y >> $(O)/.config
bzImage:
\tmkdir -p $(O)/arch/x86/boot
\tcp $(IMAGE) $(O)/arch/x86/boot/bzImage
";

fn git(tree: &Path, words: &[&str]) {
    let own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
    let done = Command::new("git").arg("-C").arg(tree).args(own).args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A tree with a commit for each image.
fn tree(folder: &Path, images: &[(&str, &Path)]) {
    git(folder, &["init", "--quiet"]);
    fs::write(folder.join("Makefile"), MAKEFILE).unwrap();
    for (subject, image) in images {
        fs::write(
            folder.join("image"),
            format!("# {subject}\nIMAGE = {}\n", image.to_str().unwrap()),
        )
        .unwrap();
        git(folder, &["add", "--all"]);
        git(folder, &["commit", "--quiet", "-m", subject]);
    }
}

/// MADV_DONTNEED frees page tables since 6.16: tests/regressions/dontneed-table.kdl.
#[test]
fn the_commit_that_changed_a_sequence_is_found() {
    if std::env::var_os("NEEDLESS_NO_KERNELS").is_some() {
        skip!("NEEDLESS_NO_KERNELS is set");
    }
    let _turn = turn();
    let [old, new] = ["6.12", "7.3"].map(|name| kernels::ready(name).unwrap().image());
    let nothing = Path::new("/nowhere/bzImage");
    let bisect = |images: &[(&str, &Path)]| {
        let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        tree(folder.path(), images);
        let good = format!("HEAD~{}", images.len() - 1);
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
        let scenario =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/regressions/dontneed-table.kdl");
        command.args(["bisect", scenario, "--good", &good, "--bad", "HEAD", "--tree"]);
        command.arg(folder.path()).env("XDG_CACHE_HOME", cache.path());
        let done = command.output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8_lossy(&text).into_owned())
    };

    let (status, told) = bisect(&[("one", &old), ("two", &old), ("three", &new), ("four", &new)]);
    assert_eq!(status, Some(0), "{told}");
    let after = |words: &str| told.split(words).nth(1).unwrap().lines().next().unwrap().to_owned();
    assert!(after("last good").ends_with("two") && after("first bad").ends_with("three"), "{told}");

    let (status, told) = bisect(&[("one", &old), ("broken", nothing), ("three", &new)]);
    assert_eq!(status, Some(125), "{told}");
    assert!(told.contains("broken") || told.contains("does not compile"), "{told}");
}
