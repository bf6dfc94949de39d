//! The cache of kernels in a hostile environment: odd variables, a full disk, damaged files. No
//! kernel is booted, and no archive is asked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn needless(args: &[&str], cache: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
    command.args(args).env("LC_ALL", "C.UTF-8").env("XDG_CACHE_HOME", cache);
    command
}

fn told(output: &Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    let words = text.split_whitespace().filter(|word| *word != "│");
    (output.status.code().unwrap(), words.collect::<Vec<_>>().join(" "))
}

/// Puts a kernel into the cache that nobody could boot.
fn keep(cache: &Path, hashes: &str, module: &str) {
    let folder = cache.join("needless/kernels/6.12");
    fs::create_dir_all(folder.join("modules")).unwrap();
    fs::write(folder.join("vmlinuz"), "image").unwrap();
    let manifest = format!(
        r#"{{"name":"6.12","release":"6.12.1","packages":[],"modules":["{module}"]{hashes}}}"#
    );
    fs::write(folder.join("manifest.json"), manifest).unwrap();
}

#[test]
fn a_relative_place_is_refused_and_nothing_is_touched() {
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join(".cache");
    keep(&cache, "", "zram.ko");
    for args in [
        &["kernels", "remove", "6.12"][..],
        &["kernels", "list"],
        &["kernels", "fetch", "6.12"],
        &["run", "cow-reuse", "-t", "kernel:6.12"],
    ] {
        for relative in ["cache", "./cache", "../cache"] {
            let mut command = needless(args, relative);
            let output =
                command.env("HOME", home.path()).current_dir(home.path()).output().unwrap();
            let (status, message) = told(&output);
            assert_eq!(status, 125, "{args:?}: {message}");
            for part in ["XDG_CACHE_HOME", relative, "absolute path"] {
                assert!(message.contains(part), "{args:?}: {message}");
            }
        }
    }
    assert!(cache.join("needless/kernels/6.12/vmlinuz").exists());
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    // An empty value counts as unset (XDG base directory specification).
    let mut command = needless(&["kernels", "remove", "6.12"], "");
    assert_eq!(told(&command.env("HOME", home.path()).output().unwrap()).0, 0);
    assert!(!cache.join("needless/kernels/6.12").exists());
}

#[test]
fn a_damaged_image_is_told_at_once() {
    let cache = tempfile::tempdir().unwrap();
    let hashes = format!(r#","hashes":{{"vmlinuz":"{}"}}"#, "0".repeat(32));
    keep(cache.path(), &hashes, "zram.ko");
    let start = Instant::now();
    let mut command =
        needless(&["run", "cow-reuse", "-t", "kernel:6.12"], cache.path().to_str().unwrap());
    let (status, message) = told(&command.output().unwrap());
    assert_eq!(status, 125, "{message}");
    for part in ["kernel 6.12 in the cache is damaged", "vmlinuz", "needless kernels fetch 6.12"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(start.elapsed() < Duration::from_secs(30));
}

/// A manifest whose modules lie elsewhere is no manifest. So the archive is asked, and there is
/// none.
#[test]
fn modules_lie_in_their_folder() {
    let cache = tempfile::tempdir().unwrap();
    keep(cache.path(), "", "../../../../../../../../../../etc/passwd");
    let place = cache.path().to_str().unwrap();
    let run = ["run", "cow-reuse", "-t", "kernel:6.12"];
    let (status, message) = told(&needless(&run, place).env("PATH", "").output().unwrap());
    assert_eq!(status, 125, "{message}");
    assert!(message.contains("apt-get` cannot be run"), "{message}");
    let (status, message) =
        told(&needless(&["kernels", "remove", "6.12"], place).output().unwrap());
    assert_eq!(status, 0, "{message}");
}

/// The beginning of a script that acts as apt: it knows where the archive is, and `$lists` is where
/// the lists go.
const APT: &str = r#"#!/bin/sh
case "$*" in
  *--print-uris*) echo "'http://deb.test/debian/dists/stable/InRelease' x 0"; exit ;;
esac
lists=$(printf '%s\n' "$@" | sed -n 's/^Dir::State::lists=//p')
"#;

/// A folder with scripts that act as apt. `updates` is what `apt-get update` does.
fn programs(folder: &Path, updates: &str) -> String {
    let programs = folder.join("programs");
    fs::create_dir_all(&programs).unwrap();
    for (name, text) in
        [("apt-get", APT.to_owned() + updates), ("apt-config", "#!/bin/sh\n".to_owned())]
    {
        let path = programs.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", programs.to_str().unwrap(), std::env::var("PATH").unwrap())
}

/// What apt was seen to do on a full disk: its parts wait for each other, forever. Or it says that
/// the disk is full, and ends.
#[test]
fn a_full_disk_is_no_empty_archive() {
    let fills = "cat /dev/zero > \"$lists/partial/Packages\" 2> /dev/null\n";
    let says = "echo 'E: Write error - write (28: No space left on device)' >&2; exit 100";
    for (verb, then, expected) in [
        ("kernels fetch 6.12", "exec sleep 1000", 125),
        ("kernels fetch 6.12", says, 125),
        ("kernels list", says, 0),
        ("run cow-reuse -t kernel:6.12", says, 125),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = programs(directory.path(), &(fills.to_owned() + then));
        let disk = directory.path().join("disk");
        fs::create_dir(&disk).unwrap();
        // The disk is ours alone and vanishes with the namespace that it is mounted in.
        let script = format!(
            "mount -t tmpfs -o size=2M none \"$1\" && XDG_CACHE_HOME=\"$1\" \"$0\" {verb}
             status=$?; find \"$1\" -type f -size +0; exit $status"
        );
        let start = Instant::now();
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .arg(assert_cmd::cargo::cargo_bin!("needless"))
            .arg(&disk)
            .env("PATH", path)
            .output()
            .unwrap();
        let (status, message) = told(&output);
        assert!(start.elapsed() < Duration::from_secs(60), "{message}");
        assert_eq!(status, expected, "{verb}: {message}");
        assert!(message.contains("is full"), "{verb}: {message}");
        assert!(status == 0 || message.contains("XDG_CACHE_HOME"), "{verb}: {message}");
        assert!(!message.contains("partial/"), "nothing half is left: {message}");
    }
}

/// apt reads its settings with a syntax of its own, in which a path could say more than a path.
#[test]
fn no_place_of_the_cache_is_a_setting_of_apts() {
    let directory = tempfile::tempdir().unwrap();
    let path = programs(directory.path(), "echo \"lists: $lists\" >&2; exit 100");
    let place = directory.path().join("a\"; APT::Get::Assume-Yes \"1");
    let mut command = needless(&["kernels", "fetch", "6.12"], place.to_str().unwrap());
    let (status, message) = told(&command.env("PATH", &path).output().unwrap());
    assert_eq!(status, 125, "{message}");
    // The message may be broken anywhere.
    let lists = "a\";APT::Get::Assume-Yes\"1/needless/apt/lists";
    assert!(message.replace(' ', "").contains(lists), "{message}");
    let settings = fs::read_to_string(place.join("needless/apt/apt.conf")).unwrap();
    assert!(!settings.contains("Assume-Yes"), "{settings}");

    let lines = format!("{}/a\nb", directory.path().to_str().unwrap());
    let (status, message) = told(&needless(&["kernels", "list"], &lines).output().unwrap());
    assert_eq!(status, 125, "{message}");
    assert!(message.contains("a control character"), "{message}");
    assert!(!Path::new(&lines).exists());
}
