//! A signal to the command alone, not to its process group, while it waits for something that does
//! not end: a guest that does not boot, an archive that does not answer, the lock of another
//! process. And what the command inherits about signals. QEMU and apt are scripts here, so nothing
//! is booted or fetched.

use super::own::bzimage;
use needless_testing::{until, until_true};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Notes its process id and sleeps, except for questions that have an answer at once. Where there
/// is a file `ENDS` beside it, it ends with that file's text as its complaint.
const SLEEPS: &str = r#"#!/bin/sh
case "$*" in
    --version) echo QEMU emulator version 9.9; exit;;
    *--print-uris*) echo "'http://x.test/debian/dists/bookworm/InRelease' x 0"; exit;;
    dump) exit;;
esac
echo $$ >> "$0.started"
cat "${0%/*}/ENDS" >&2 2> /dev/null && exit 100
exec sleep 600
"#;

/// A folder with a cache, an image that looks bootable, and the programs that sleep.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("bin")).unwrap();
        for name in ["qemu-system-x86_64", "apt-get", "apt-config"] {
            let path = folder.path().join("bin").join(name);
            fs::write(&path, SLEEPS).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(folder.path().join("bzImage"), bzimage(0)).unwrap();
        Place(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Starts the command. Its signals are not ignored, whatever this process has inherited.
    fn start(&self, words: &[&str]) -> Running {
        self.start_with("--default-signal=INT,TERM,HUP", words)
    }

    /// Starts the command with an option of `env` about signals.
    fn start_with(&self, inherited: &str, words: &[&str]) -> Running {
        let path = std::env::var_os("PATH").unwrap();
        let own = std::iter::once(self.path().join("bin"));
        let path = std::env::join_paths(own.chain(std::env::split_paths(&path))).unwrap();
        let mut command = Command::new("env");
        command.arg(inherited).arg(assert_cmd::cargo::cargo_bin!("needless"));
        command.args(words).env("PATH", path).env("XDG_CACHE_HOME", self.path().join("cache"));
        command.env("LC_ALL", "C.UTF-8").current_dir(self.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    /// The process ids of a program's runs that slept or sleep.
    fn started(&self, program: &str) -> Vec<String> {
        let notes = self.path().join("bin").join(format!("{program}.started"));
        let text = fs::read_to_string(notes).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The command, which ends with its test.
struct Running(Child);

impl Running {
    /// Waits until something holds, which has to be before the command ends.
    fn until(&mut self, what: &str, holds: impl Fn(u32) -> bool) {
        until_true(what, || {
            let ended = self.0.try_wait().unwrap();
            assert_eq!(ended, None, "{what}: {}", self.errors());
            holds(self.0.id())
        });
    }

    /// Sends a signal to this process alone, and returns the exit status as a shell shows it.
    fn end_by(&mut self, signal: &str) -> i32 {
        let sent = Command::new("kill").args(["-s", signal, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let status = until(format!("the end by {signal}"), || self.0.try_wait().unwrap());
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
    }

    fn errors(&mut self) -> String {
        self.0.stderr.take().map(|text| std::io::read_to_string(text).unwrap()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process runs. A zombie has no words.
fn runs(process: &str) -> bool {
    fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|words| !words.is_empty())
}

fn has_runner() -> bool {
    let needless = assert_cmd::cargo::cargo_bin!("needless");
    needless.with_file_name("needless-runner").exists()
}

#[test]
fn one_signal_ends_the_command_and_what_it_waits_for() {
    if !has_runner() {
        needless_testing::skip!("the runner is not built");
    }
    let agree = ["agree", "--random", "20", "-t"];
    let (image, archive) = ("kernel:./bzImage", "kernel:6.12");
    let (emulator, apt) = ("qemu-system-x86_64", "apt-get");
    for (words, waits_for, signal, status) in [
        ([&agree[..], &[image]].concat(), emulator, "INT", 130),
        ([&agree[..], &[image]].concat(), emulator, "TERM", 143),
        ([&agree[..], &[archive]].concat(), apt, "INT", 130),
        ([&agree[..], &[archive]].concat(), apt, "HUP", 129),
        (vec!["run", "cow-reuse", "-t", image], emulator, "INT", 130),
        (vec!["compare", "cow-reuse", "-t", archive], apt, "TERM", 143),
        (vec!["kernels", "fetch", "6.12"], apt, "INT", 130),
    ] {
        let place = Place::new();
        let mut command = place.start(&words);
        command.until(waits_for, |_| !place.started(waits_for).is_empty());
        assert_eq!(command.end_by(signal), status, "{words:?}");
        let started = place.started(waits_for);
        assert_eq!(started.len(), 1, "{words:?}: it began again");
        until_true("what it waited for ends", || !started.iter().any(|process| runs(process)));
        if words[0] == "agree" {
            let told = command.errors();
            assert!(told.contains("interrupted: 0 run on 1 of 1 targets"), "{words:?}: {told}");
        }
    }
}

#[test]
fn one_signal_ends_the_wait_for_another_process() {
    let place = Place::new();
    let lock = place.path().join("cache/needless/apt/lock");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let held = File::create(&lock).unwrap();
    held.lock().unwrap();
    let mut command = place.start(&["agree", "--random", "20", "-t", "kernel:6.12"]);
    command.until("the lock", |process| {
        let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        open.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|path| path == lock))
    });
    assert_eq!(command.end_by("TERM"), 143);
    assert!(place.started("apt-get").is_empty());
}

#[test]
fn a_blocked_signal_ends_the_command_as_well() {
    if !has_runner() {
        needless_testing::skip!("the runner is not built");
    }
    let place = Place::new();
    let words = ["agree", "--random", "20", "-t", "kernel:./bzImage"];
    let mut command = place.start_with("--block-signal=TERM", &words);
    command.until("the emulator", |_| !place.started("qemu-system-x86_64").is_empty());
    assert_eq!(command.end_by("TERM"), 143);
}

/// With SIGCHLD ignored the kernel reaps children, and nobody learns how they ended.
#[test]
fn an_ignored_sigchld_hides_no_reason() {
    if !has_runner() {
        needless_testing::skip!("the runner is not built");
    }
    let place = Place::new();
    fs::write(place.path().join("bin/ENDS"), "E: qemu or apt says why\n").unwrap();
    for words in
        [&["run", "cow-reuse", "-t", "kernel:./bzImage"][..], &["kernels", "fetch", "6.12"]]
    {
        let mut command = place.start_with("--ignore-signal=CHLD", words);
        let status = until("the end", || command.0.try_wait().unwrap());
        let told = command.errors();
        assert_eq!(status.code(), Some(125), "{words:?}: {told}");
        assert!(told.contains("says why"), "{words:?}: {told}");
    }
}
