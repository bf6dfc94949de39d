//! What a user without root gets by following `doctor`'s advice. Access to other users' files is
//! not part of it. Root runs these tests, gives capabilities to copies of the programs, and starts
//! them as user 65534.
#![allow(clippy::unwrap_used)]

use needless_testing::{skip, turn};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const NOBODY: &str = "65534";

/// A folder that everybody may read, with copies of both programs that have these capabilities.
fn programs(capabilities: &str) -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        skip!("root gives capabilities");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let needless = assert_cmd::cargo::cargo_bin("needless");
    let runner = std::env::var_os("NEEDLESS_RUNNER")
        .map_or_else(|| needless.with_file_name("needless-runner"), Into::into);
    for (from, name) in [(needless, "needless"), (runner, "needless-runner")] {
        let to = folder.path().join(name);
        if let Err(error) = fs::copy(&from, &to) {
            skip!("{}: {error}", from.to_str().unwrap());
        }
        if !capabilities.is_empty() {
            match Command::new("setcap").arg(capabilities).arg(&to).status() {
                Ok(status) if status.success() => {}
                given => skip!("setcap {capabilities}: {given:?}"),
            }
        }
    }
    Some(folder)
}

/// Runs a script as root in a mount namespace of its own, with `$N` as the command run by user
/// 65534.
fn script(folder: &Path, text: &str) -> Output {
    let as_nobody = format!(
        "N='setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {}/needless'; {text}",
        folder.to_str().unwrap()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &as_nobody]).current_dir(folder).env_remove("NEEDLESS_RUNNER");
    command.env("NO_COLOR", "1").output().unwrap()
}

fn told(output: &Output) -> String {
    let all = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8(all).unwrap();
    text.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

#[test]
fn no_capability_of_the_file_gives_files_away() {
    for capabilities in [
        "cap_dac_read_search+ep",
        "cap_perfmon,cap_dac_read_search+ep",
        "cap_dac_override,cap_fowner,cap_perfmon+eip",
    ] {
        let Some(folder) = programs(capabilities) else { return };
        let secret = folder.path().join("secret");
        for text in ["scenario \"secretword\" { thread \"main\" cpu=0 { } }\n", "secretword\n"] {
            fs::write(&secret, text).unwrap();
            fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
            for verb in [
                "scenario check secret",
                "scenario show secret",
                "compare secret secret",
                "run cow-reuse -t kernel:./secret",
                "kernels build 6.12 --patch secret",
                "kernels build 6.12 --config secret",
            ] {
                let output = script(folder.path(), &format!("HOME=/nowhere $N {verb}"));
                let shown = told(&output);
                assert!(!output.status.success(), "{capabilities}: {verb}: {shown}");
                assert!(shown.contains("Permission denied"), "{capabilities}: {verb}: {shown}");
                assert!(!shown.contains("secretword"), "{capabilities}: {verb}: {shown}");
            }
        }
    }
}

/// The two ways that `doctor` names besides root.
#[test]
fn what_doctor_recommends_shows_events() {
    let _turn = turn();
    let tracefs = format!("mount -t tracefs -o gid={NOBODY},mode=750 tracefs /sys/kernel/tracing");
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let mut disturbed = None;
    for (capabilities, paranoid) in [("cap_perfmon,cap_ipc_lock+ep", "2"), ("", "-1")] {
        let Some(folder) = programs(capabilities) else { return };
        let mounted =
            script(folder.path(), &format!("{tracefs} && ls /sys/kernel/tracing/events/tlb"));
        if !mounted.status.success() {
            skip!("{}", told(&mounted));
        }
        fs::write("/proc/sys/kernel/perf_event_paranoid", paranoid).unwrap();
        let ran = |verb: &str| script(folder.path(), &format!("{tracefs} && $N {verb}"));
        let [doctor, stat, run] =
            [ran("doctor"), ran("stat -- sleep 0.1"), ran("run z_munmap_34 -t live --rounds 3")];
        fs::write("/proc/sys/kernel/perf_event_paranoid", level.trim()).unwrap();
        let (doctor, stat, live) = (told(&doctor), told(&stat), told(&run));
        let how = format!("{capabilities:?}, perf_event_paranoid {paranoid}");
        assert!(doctor.contains("ok event rings"), "{how}: {doctor}");
        assert!(doctor.contains("runs with events, but not of scenarios that swap"), "{doctor}");
        assert!(!doctor.contains("what works everything"), "{how}: {doctor}");
        assert!(stat.contains("first touch"), "{how}: {stat}");
        assert!(!stat.contains("not visible: classes"), "{how}: {stat}");
        // Only events show that another task disturbs.
        match live.contains("could not be had undisturbed") {
            true => disturbed = Some(live),
            false => {
                assert_eq!(run.status.code(), Some(0), "{how}: {live}");
                assert!(live.contains("34 first-touch"), "{how}: {live}");
            }
        }
    }
    if let Some(live) = disturbed {
        skip!("every round was disturbed: {} …", live.split("INVALID").nth(1).unwrap_or_default());
    }
}

/// Without any of these, `doctor` says so, for the runner as well as for itself.
#[test]
fn who_has_no_privilege_is_told() {
    let _turn = turn();
    let Some(folder) = programs("") else { return };
    let doctor = told(&script(folder.path(), "$N doctor"));
    for part in ["gid=GROUP,mode=750", "cap_perfmon,cap_ipc_lock+ep", "needless-runner"] {
        assert!(doctor.contains(part), "{part}: {doctor}");
    }
    assert!(!doctor.contains("dac_read_search"), "{doctor}");
    // One program without the other is not enough.
    let Some(folder) = programs("cap_perfmon,cap_ipc_lock+ep") else { return };
    let bare = folder.path().join("needless-runner");
    assert!(Command::new("setcap").arg("-r").arg(bare).status().unwrap().success());
    let tracefs = format!("mount -t tracefs -o gid={NOBODY},mode=750 tracefs /sys/kernel/tracing");
    let doctor = told(&script(folder.path(), &format!("{tracefs} && $N doctor")));
    assert!(doctor.contains("missing event rings"), "{doctor}");
}
