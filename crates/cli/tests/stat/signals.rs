//! Signals, processes that are watched while they run, and that watching leaves nothing behind.

use super::*;

/// A process that ends when this value is dropped.
pub(super) struct Started(pub(super) Child);

impl Started {
    pub(super) fn new(command: &mut Command) -> Started {
        Started(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for the end. Returns status, standard output and standard error.
    pub(super) fn end(mut self) -> (i32, String, String) {
        until("it to end", || self.0.try_wait().unwrap());
        let mut texts = [String::new(), String::new()];
        std::io::Read::read_to_string(&mut self.0.stdout.take().unwrap(), &mut texts[0]).unwrap();
        std::io::Read::read_to_string(&mut self.0.stderr.take().unwrap(), &mut texts[1]).unwrap();
        let [stdout, stderr] = texts;
        (self.0.wait().unwrap().code().unwrap(), stdout, stderr)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(super) fn send(signal: &str, pid: u32) {
    let status = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status();
    assert!(status.unwrap().success());
}

/// A line of a process's status: `Name`, `PPid` …
fn status_line(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned())
}

/// Whether there is such a process, and it runs.
pub(super) fn alive(pid: u32) -> bool {
    status_line(pid, "State").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// The child of this name that a process has or will have.
fn child_of(parent: u32, name: &str) -> u32 {
    until(&format!("{name}, child of {parent}"), || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.find(|pid| {
            status_line(*pid, "PPid") == Some(parent.to_string())
                && status_line(*pid, "Name").as_deref() == Some(name)
        })
    })
}

/// The number of perf events that a process holds open.
fn perf_events(pid: u32) -> usize {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let links = folder.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link == Path::new("anon_inode:[perf_event]")).count()
}

#[test]
fn signals_reach_the_command() {
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let watching = Started::new(&mut stat(&["-r", "2", "--", "sleep", "100"]));
        let sleep = child_of(watching.pid(), "sleep");
        send(signal, watching.pid());
        let (given, stdout, stderr) = watching.end();
        assert!(!alive(sleep), "SIG{signal} ends the command");
        assert_eq!((given, &*stdout), (status, ""), "SIG{signal}: {stderr}");
        assert!(stderr.contains("sleep 100: "), "SIG{signal}, the report: {stderr}");
        assert!(!stderr.contains("2 runs"), "SIG{signal}, no further run: {stderr}");
    }
}

/// A command that goes on after a signal is waited for.
#[test]
fn a_command_may_ignore_signals() {
    let script = "trap '' INT; echo ready; read line; exit 5";
    let mut watching = Started::new(stat(&["--", "sh", "-c", script]).stdin(Stdio::piped()));
    let mut ready = [0; 6];
    std::io::Read::read_exact(watching.0.stdout.as_mut().unwrap(), &mut ready).unwrap();
    for _ in 0..3 {
        send("INT", watching.pid());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(alive(watching.pid()));
    drop(watching.0.stdin.take());
    let (status, _, stderr) = watching.end();
    assert_eq!(status, 5, "{stderr}");
}

/// The command ignores the signals that are ignored when `stat` starts, as it would without `stat`.
#[test]
fn ignored_signals_stay_ignored() {
    let ignored = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let line = text(&output.stdout);
        let bits = line.strip_prefix("SigIgn:").unwrap_or_else(|| panic!("{output:?}")).trim();
        u64::from_str_radix(bits, 16).unwrap()
    };
    let look = ["grep", "SigIgn", "/proc/self/status"];
    let hup_int_quit = 0b111;
    for setting in ["--ignore-signal=INT,QUIT,HUP", "--default-signal=INT,QUIT,HUP"] {
        let mut watched = Command::new("env");
        watched.arg(setting).arg(binary()).args(["stat", "--"]).args(look);
        let without = ignored(Command::new("env").arg(setting).args(look));
        assert_eq!(ignored(&mut watched) & hup_int_quit, without & hup_int_quit, "{setting}");
    }
}

#[test]
fn a_watched_process_lives_on() {
    let sleep = Started::new(Command::new("sleep").arg("1000"));
    let watching = Started::new(&mut stat(&["-p", &sleep.pid().to_string()]));
    until("perf events", || (perf_events(watching.pid()) > 0).then_some(()));
    send("INT", watching.pid());
    let (status, stdout, stderr) = watching.end();
    assert_eq!((status, &*stderr), (0, ""));
    assert!(stdout.contains(&format!("process {}: ", sleep.pid())), "{stdout}");
    assert!(alive(sleep.pid()));
}

#[test]
fn a_watched_process_that_ends_ends_watching() {
    let mut sleep = Started::new(Command::new("sleep").arg("1000"));
    let watching = Started::new(&mut stat(&["-p", &sleep.pid().to_string()]));
    until("perf events", || (perf_events(watching.pid()) > 0).then_some(()));
    sleep.0.kill().unwrap();
    sleep.0.wait().unwrap();
    let (status, stdout, stderr) = watching.end();
    assert_eq!((status, &*stderr), (0, ""));
    assert!(stdout.starts_with("process "), "{stdout}");
}

/// The processes that the two tests below watch: with threads that touch memory, or that come and
/// go.
#[test]
#[ignore = "is started by others"]
fn many_threads() {
    let Ok(how) = std::env::var("NEEDLESS_TEST_THREADS") else { return };
    let touch = |pause| {
        // The C library keeps freed memory only up to a smaller size, so this faults every time.
        let mut memory = vec![0_u8; 64 << 20];
        memory[..1 << 16].fill(1);
        std::hint::black_box(memory);
        std::thread::sleep(Duration::from_millis(pause));
    };
    if how == "many" {
        for _ in 0..100 {
            std::thread::spawn(move || {
                loop {
                    touch(100)
                }
            });
        }
    } else {
        for _ in 0..4 {
            std::thread::spawn(move || {
                loop {
                    let _ = std::thread::spawn(move || touch(5)).join();
                }
            });
        }
    }
    println!("\nready");
    std::thread::sleep(PATIENCE);
}

fn threads(how: &str) -> Started {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "signals::many_threads", "--ignored", "--nocapture"]);
    let mut started = Started::new(command.env("NEEDLESS_TEST_THREADS", how));
    let lines = std::io::BufReader::new(started.0.stdout.as_mut().unwrap());
    let mut lines = std::io::BufRead::lines(lines).map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"));
    started
}

/// Every thread has its own events, more than the limit of open files. The command still gets its
/// own limit.
#[test]
fn a_process_of_many_threads_is_watched() {
    let threads = threads("many");
    let script = "ulimit -Sn 256; exec \"$0\" stat --format json -p $1 -r 2 -- \
        sh -c 'ulimit -Sn; sleep 0.5'";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(binary()).arg(threads.pid().to_string());
    let (status, stdout, stderr) = told(&command.output().unwrap());
    assert_eq!((status, &*stdout), (0, "256\n256\n"));
    let document: Value = serde_json::from_str(&stderr).unwrap();
    let run = &document["runs"][1];
    assert!(run["events"]["counted"]["faults"].as_u64().unwrap_or(0) > 100, "{document:#}");
    assert_eq!(wrong(&document), Vec::<String>::new(), "{document:#}");
}

#[test]
fn threads_that_come_and_go_are_no_obstacle() {
    let threads = threads("short");
    for _ in 0..3 {
        let (status, document) = json(&["-p", &threads.pid().to_string()], &["sleep", "0.1"]);
        assert_eq!(status, 0);
        assert!(!document["runs"][0]["events"].is_null(), "{document:#}");
    }
}

#[test]
fn everything_is_watched_for_a_while() {
    let (status, document) = json(&["-a"], &["sleep", "1"]);
    assert_eq!(status, 0);
    assert_eq!(wrong(&document), Vec::<String>::new(), "{document:#}");
    let run = &document["runs"][0];
    assert!(run["elapsed_ns"].as_u64().unwrap() >= 1_000_000_000 && run["usage"].is_null());
    assert!(run["events"]["counted"]["faults"].as_u64().unwrap() > 0, "sleep's at least");
    assert_eq!(document["subject"], "every task");
}

/// The tracing files that say whether anything is switched on, wherever tracefs is mounted.
fn switched_on() -> String {
    let script = "test -d /sys/kernel/tracing/events || mount -t tracefs none /sys/kernel/tracing
        cd /sys/kernel/tracing
        cat events/enable events/tlb/enable events/tlb/tlb_flush/enable \\
            events/exceptions/enable events/exceptions/page_fault_user/enable \\
            events/raw_syscalls/sys_enter/enable
        cat set_event tlb_flush/filter 2> /dev/null
        cat current_tracer";
    let output = Command::new("unshare").args(["-m", "sh", "-c", script]).output().unwrap();
    text(&output.stdout)
}

#[test]
fn nothing_stays_when_it_is_killed() {
    let off = "0\n0\n0\n0\n0\n0\nnop\n";
    assert_eq!(switched_on(), off, "somebody else is tracing");
    let mut watching = Started::new(&mut stat(&["--", "sleep", "100"]));
    let (pid, sleep) = (watching.pid(), child_of(watching.pid(), "sleep"));
    assert!(perf_events(pid) > 10);
    assert_eq!(switched_on(), off, "nothing is written to tracefs");
    watching.0.kill().unwrap();
    watching.0.wait().unwrap();
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap() && perf_events(sleep) == 0);
    assert_eq!(switched_on(), off);
    assert!(alive(sleep), "the command is not the one that was killed");
    send("KILL", sleep);
    until("the end of sleep", || (!alive(sleep)).then_some(()));
}
