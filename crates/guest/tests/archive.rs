//! The errors if the archive cannot be reached, or has no such kernel.
#![allow(clippy::unwrap_used)]

use needless_guest::{FetchError, GuestError, kernels};
use std::fs;
use std::process::Command;

/// This is not a test by itself. The next test starts it with a cache and an archive of its own,
/// which the environment names.
#[test]
#[ignore = "started by the next test"]
fn fetch_from_the_archive_of_the_environment() {
    let error = kernels::ready("6.12").unwrap_err();
    assert!(matches!(error, GuestError::Fetch(FetchError::Unreachable { .. })), "{error:?}");
    println!("refused: {}", miette::Report::new(error).root_cause());
    let listing = kernels::list(needless_guest::Arch::X86_64).unwrap();
    assert!(listing.cached.is_empty() && listing.fetchable.is_err());
}

#[test]
fn an_archive_out_of_reach_is_named_as_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // No program listens on port 1.
    fs::write(path("sources.list"), "deb http://127.0.0.1:1/debian bookworm main\n").unwrap();
    let sources = path("sources.list");
    let configuration = format!(
        "Dir::Etc::main \"/dev/null\";\nDir::Etc::parts \"/dev/null\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\nDir::Etc::sourcelist \"{}\";\n",
        sources.to_str().unwrap()
    );
    fs::write(path("apt.conf"), configuration).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "fetch_from_the_archive_of_the_environment"])
        .env("XDG_CACHE_HOME", path("cache"))
        .env("APT_CONFIG", path("apt.conf"))
        .env_remove("http_proxy")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("refused: Debian's archive cannot be reached"), "{text}");
    assert!(text.contains("127.0.0.1"), "apt's own words are missing: {text}");
}

/// This needs the archive.
#[test]
fn a_build_that_is_gone_is_answered_with_those_that_are_there() {
    let error = kernels::ready("6.12.1+deb13").unwrap_err();
    let GuestError::Fetch(FetchError::Gone { wanted, available, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(wanted, "6.12.1+deb13");
    assert!(available.starts_with("of 6.12 it has 6.12."), "{available}");
}
