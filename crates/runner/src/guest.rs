//! The runner as `/init` of a guest, that is, of a kernel that was booted to run scenarios.
//!
//! Process 1 mounts what the runner needs, loads the modules in `/modules` in the order of their
//! names, mounts the disk if it was booted with one, and opens the virtio port [`PORT`]. There it
//! sends [`Booted`] once. Then it reads one [`Order`] after the other and answers each errand with
//! the runner's messages, `Hello` to `Done` or `Failed`. Only the host can say how long an errand
//! may take, because the host's load decides how fast the guest is. So the host stops an errand
//! that takes too long.
//!
//! Each errand runs in a process of its own, which pins and executes itself as it does on the
//! running kernel. Its answer is kept in memory and sent when the errand has ended, so that process
//! 1 sleeps while rounds run. At the end of input, process 1 ends the machine. It also does so
//! after any failure, which it prints on the console.

use crate::disk;
use crate::environment::{environment, setting};
use crate::journal::{PAGE_CLUSTER, lacks_mthp, mthp_enabled};
use crate::kallsyms;
use crate::marks::Mark;
use crate::needs::{self, LACKS, Needed, Part};
use crate::numa;
use crate::perf::{Place, Rings};
use crate::swap::ZramSwap;
use crate::sys::shell_status;
use crate::tracefs;
use crate::wire::{self, Executed, Failure, FailureKind, Message, PROTOCOL_VERSION};
use needless_model::addr::CpuId;
use needless_model::foreign;
use needless_model::numa::NumaNeeds;
use needless_model::program::{MachineNeeds, Mthp, SwapKind, SwapNeed, ThpMode};
use needless_model::run::RunRequest;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::mount::MountFlags;
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The name of the virtio port that errands come from.
pub const PORT: &str = "needless";

/// The path of this program in a guest, where the kernel finds it.
pub const INIT: &str = "/init";

const THP_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Seconds between two foldings of a CPU's statistics. Each takes the CPU for a moment.
const STAT_INTERVAL: (&str, &str) = ("/proc/sys/vm/stat_interval", "3600");

/// Turns multi-generational LRU off. The kernel's own command line has no word for that.
const LRU_GEN: (&str, &str) = ("/sys/kernel/mm/lru_gen/enabled", "n");

/// Whether the command line asks to turn multi-generational LRU off.
fn without_mglru(line: &str) -> bool {
    line.split_ascii_whitespace().any(|word| word == "needless.mglru=off")
}

/// The first message of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booted {
    /// [`PROTOCOL_VERSION`] of the runner.
    pub version: u32,
    /// The environment, by name.
    pub environment: BTreeMap<String, String>,
    /// What its kernel lacks among the things that runs may need.
    pub absent: Vec<Part>,
}

/// An order from the host.
#[expect(clippy::large_enum_variant, reason = "one at a time is held")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Does one errand, and answers it.
    Do(Job),
    /// Ends an errand that takes too long. If the errand has just ended, this changes nothing.
    Stop {
        /// The time that the errand had, for the answer.
        after_seconds: u32,
    },
}

/// An errand.
#[expect(clippy::large_enum_variant, reason = "one at a time is held")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Job {
    /// Runs a scenario's program. The answer is the runner's messages, `Hello` to `Done`.
    Scenario(RunRequest),
    /// Executes a file that the guest was booted with. The answer is [`Message::Executed`].
    Command {
        /// Its path in the guest, and its arguments.
        words: Vec<String>,
        /// What the machine must have ready for it.
        machine: MachineNeeds,
    },
}

impl Job {
    fn machine(&self) -> &MachineNeeds {
        match self {
            Job::Scenario(request) => &request.program.machine,
            Job::Command { machine, .. } => machine,
        }
    }
}

/// Whether this process is the first process of a guest.
pub fn is_init() -> bool {
    std::process::id() == 1 && std::env::args().next().as_deref() == Some(INIT)
}

/// Serves until the input ends, and switches the machine off.
pub fn init() -> ! {
    let end = match serve() {
        Ok(()) => libc::RB_POWER_OFF,
        Err((what, error)) => {
            say(&format!("{what}: {error}"));
            // A kernel that lacks something may not be able to switch off. A restart ends the
            // emulator, too.
            libc::RB_AUTOBOOT
        }
    };
    loop {
        // SAFETY: reboot(2) only ends the machine; there is nothing else left to do.
        unsafe { libc::reboot(end) };
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The stream of orders.
type Orders = BufReader<File>;

/// A failed action in words, and its error.
type Failed = (String, io::Error);

fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failed {
    move |error| (what.into(), error)
}

fn serve() -> Result<(), Failed> {
    mount_all()?;
    load_modules();
    let absent = needs::absent();
    refuse_to_lack(&absent)?;
    disk::mount_temporary().map_err(|failed| (failed.what, failed.error))?;
    // If this fails, the guest only disturbs more rounds.
    let _ = fs::write(STAT_INTERVAL.0, STAT_INTERVAL.1);
    if fs::read_to_string("/proc/cmdline").is_ok_and(|line| without_mglru(&line)) {
        fs::write(LRU_GEN.0, LRU_GEN.1).map_err(at(LRU_GEN.0))?;
    }
    let port = open_port()?;
    let mut orders = BufReader::new(port.try_clone().map_err(at("the port"))?);
    let mut answers = BufWriter::with_capacity(1 << 16, port);
    // This is part of booting, because the kernel patches its own code for it.
    let mut machine = Machine { _events: hold_events(), ..Machine::default() };
    clear_cpus();
    // SAFETY: this is the only thread.
    unsafe { kallsyms::remember(kallsyms::DRAIN) };
    let booted = Booted { version: PROTOCOL_VERSION, environment: environment(), absent };
    wire::write_message(&mut answers, &booted).map_err(at("the port"))?;
    while let Some(order) = wire::read_message(&mut orders).map_err(at("reading an order"))? {
        let Order::Do(job) = order else { continue };
        let messages = machine.run(&job, &mut orders);
        Mark::ErrandEnds.make();
        for message in messages {
            wire::write_message(&mut answers, &message).map_err(at("answering"))?;
        }
    }
    Ok(())
}

fn mount_all() -> Result<(), Failed> {
    let places = [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tracefs", tracefs::PLACES[0]),
        ("cgroup2", "/sys/fs/cgroup"),
        ("debugfs", "/sys/kernel/debug"),
    ];
    for (kind, place) in places {
        // Where the kernel lacks one of these, its folder is missing too. The run reports that
        // later.
        let optional = matches!(kind, "tracefs" | "cgroup2" | "debugfs");
        if !optional {
            fs::create_dir_all(place).map_err(at(place))?;
        }
        match rustix::mount::mount(kind, place, kind, MountFlags::empty(), None) {
            Ok(()) | Err(rustix::io::Errno::BUSY) => {}
            // `needs` reports a file system that the kernel lacks.
            Err(error @ rustix::io::Errno::NODEV) => say(&format!("mounting {kind}: {error}")),
            Err(error) if optional => say(&format!("mounting {kind}: {error}")),
            Err(error) => return Err(at(format!("mounting {kind}"))(error.into())),
        }
    }
    Ok(())
}

/// Writes a line on the console.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "needless-runner: {what}");
}

/// Names on the console what nothing works without: there may be no other way to tell the host.
fn refuse_to_lack(absent: &[Part]) -> Result<(), Failed> {
    let vital: Vec<Part> =
        absent.iter().copied().filter(|part| part.needed() == Needed::Always).collect();
    for part in &vital {
        let _ = writeln!(io::stderr(), "{LACKS}{}", part.name());
    }
    match vital.is_empty() {
        true => Ok(()),
        false => Err(at("this kernel")(io::Error::other("cannot be a guest's"))),
    }
}

/// Loads every module. A failure is printed on the console; whatever needs the module fails later
/// and says so.
fn load_modules() {
    let entries = fs::read_dir("/modules").into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if let Err(error) = load_module(&path) {
            say(&format!("{}: {error}", foreign::path(path)));
        }
    }
}

fn load_module(path: &Path) -> io::Result<()> {
    // zram devices are added one by one, as on a running kernel.
    let zram = path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("zram"));
    let parameters = if zram { c"num_devices=0" } else { c"" };
    match rustix::system::finit_module(File::open(path)?, parameters, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Moves all tasks that can be moved to the CPUs that process 1 may use. The kernel leaves the CPUs
/// of scenarios out of these. Kernel threads that were made before the scheduler knew that would
/// stay where they are: `rcu_preempt` and `kcompactd` took the CPUs of every third scenario with
/// two acting threads. Tasks that are bound to their CPU refuse.
fn clear_cpus() {
    let Ok(ours) = rustix::thread::sched_getaffinity(None) else { return };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let tasks = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for task in tasks.filter_map(Pid::from_raw) {
        let _ = rustix::thread::sched_setaffinity(Some(task), &ours);
    }
}

/// Opens the port, which appears once host and guest have shaken hands.
fn open_port() -> Result<File, Failed> {
    for _ in 0..3000 {
        if let Some(device) = find_port() {
            let file = File::options().read(true).write(true).open(&device);
            return file.map_err(at(foreign::path(&device)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(at("looking for the host")(io::Error::other(format!("there is no virtio port `{PORT}`"))))
}

fn find_port() -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/virtio-ports").ok()?;
    entries.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        let device = Path::new("/dev").join(entry.file_name());
        (name.trim() == PORT && device.exists()).then_some(device)
    })
}

/// Opens an idle event of every kind that runs record. Otherwise each run would wait until the
/// kernel has patched its code. Where an event is missing, the runs report it.
fn hold_events() -> Option<Rings> {
    Rings::open(&[Place { cpu: 0, on: CpuId(0), tids: vec![0] }], 1, &mut BTreeMap::new()).ok()
}

/// The guest's machine, made ready for one errand after the other. The swap device stays as long as
/// the next errand needs the same size and kind.
#[derive(Default)]
struct Machine {
    _events: Option<Rings>,
    swap: Option<(SwapNeed, ZramSwap)>,
    /// The device of the disk, if a scenario has asked for one.
    disk: Option<String>,
    thp_at_boot: Option<String>,
    /// The mode of each size of large folios at boot.
    mthp_at_boot: BTreeMap<u32, String>,
    /// The values at boot of NUMA settings that scenarios changed, by file.
    numa_at_boot: BTreeMap<String, String>,
}

impl Machine {
    fn run(&mut self, job: &Job, orders: &mut Orders) -> Vec<Message> {
        if let Some(what) = lacks_mthp(job.machine()).or_else(|| numa::lacks(&job.machine().numa)) {
            return vec![Message::Failed(Failure::new(FailureKind::Unsupported, what))];
        }
        let outcome = self.prepare(job.machine()).and_then(|()| match job {
            Job::Scenario(request) => {
                if numa::reclaims(&request.program) {
                    // If this fails, the run says what is missing.
                    let _ = numa::make_cgroup();
                }
                let disk = request.program.machine.disk.then(|| self.disk.clone()).flatten();
                run_apart(&RunRequest { disk, ..request.clone() }, orders)
            }
            Job::Command { words, .. } => execute(words, orders).map(|message| vec![message]),
        });
        outcome
            .unwrap_or_else(|(what, error)| vec![Message::Failed(Failure::internal(&what, &error))])
    }

    fn prepare(&mut self, needs: &MachineNeeds) -> Result<(), Failed> {
        self.set_thp(needs.thp)?;
        self.set_mthp(needs.mthp)?;
        self.set_numa(&needs.numa)?;
        if needs.disk && self.disk.is_none() {
            if !Path::new(disk::DISK).exists() {
                let why =
                    "the guest was booted without an image (mkfs.ext4, of e2fsprogs, makes it)";
                return Err(("a disk".to_owned(), io::Error::other(why)));
            }
            let device =
                disk::from_image(disk::DISK).map_err(|failed| (failed.what, failed.error))?;
            self.disk = Some(device);
        }
        let want = needs.swap;
        if self.swap.as_ref().map(|(need, _)| *need) == want {
            return Ok(());
        }
        if let Some((_, swap)) = self.swap.take() {
            swap.remove().map_err(|failed| (failed.what, failed.error))?;
        }
        if let Some(need) = want {
            let SwapKind::Zram = need.kind;
            if Path::new(PAGE_CLUSTER).exists() {
                fs::write(PAGE_CLUSTER, "0").map_err(at(PAGE_CLUSTER))?;
            }
            let swap =
                ZramSwap::add(need.size_bytes).map_err(|failed| (failed.what, failed.error))?;
            self.swap = Some((need, swap));
        }
        Ok(())
    }

    /// Sets the mode of transparent huge pages that is asked for, or the mode at boot.
    fn set_thp(&mut self, mode: Option<ThpMode>) -> Result<(), Failed> {
        let Some(now) = setting(THP_ENABLED) else { return Ok(()) };
        let at_boot = self.thp_at_boot.get_or_insert_with(|| now.clone());
        let word = match mode {
            Some(ThpMode::Always) => "always",
            Some(ThpMode::Madvise) => "madvise",
            Some(ThpMode::Never) => "never",
            None => at_boot,
        };
        if now == word {
            return Ok(());
        }
        fs::write(THP_ENABLED, word).map_err(at(format!("writing {word} to {THP_ENABLED}")))
    }

    /// Sets the NUMA settings that the scenario asks for, and the others to their values at boot.
    fn set_numa(&mut self, needs: &NumaNeeds) -> Result<(), Failed> {
        for (path, value) in numa_settings(needs, &self.numa_at_boot) {
            let Some(now) = setting(&path) else { continue };
            self.numa_at_boot.entry(path.clone()).or_insert_with(|| now.clone());
            if now != value {
                fs::write(&path, &value).map_err(at(format!("writing {value} to {path}")))?;
            }
        }
        Ok(())
    }

    /// Sets the mode of each size of large folios that the kernel has: the one that is asked for,
    /// or the mode at boot.
    fn set_mthp(&mut self, asked: Option<Mthp>) -> Result<(), Failed> {
        for (kib, mode) in asked.unwrap_or_default().sizes() {
            let path = mthp_enabled(kib);
            let Some(now) = setting(&path) else { continue };
            let at_boot = self.mthp_at_boot.entry(kib).or_insert_with(|| now.clone());
            let word = if asked.is_some() { mode.word() } else { at_boot };
            if now != word {
                fs::write(&path, word).map_err(at(format!("writing {word} to {path}")))?;
            }
        }
        Ok(())
    }
}

/// The values to write: what is asked for, and the value at boot of settings that were changed
/// before.
fn numa_settings(
    needs: &NumaNeeds,
    at_boot: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = at_boot.clone();
    all.extend(numa::settings(needs).into_iter().map(|setting| (setting.path, setting.value)));
    all
}

/// Runs the scenario in a process of its own and returns its messages.
fn run_apart(request: &RunRequest, orders: &mut Orders) -> Result<Vec<Message>, Failed> {
    let mut asked = memory(c"request").map_err(at("memory for the request"))?;
    wire::write_message(&mut asked, request).map_err(at("keeping the request"))?;
    asked.seek(SeekFrom::Start(0)).map_err(at("keeping the request"))?;
    let mut answer = memory(c"answer").map_err(at("memory for the answer"))?;
    let output = answer.try_clone().map_err(at("memory for the answer"))?;
    let mut runner = Command::new("/proc/self/exe");
    runner.stdin(asked).stdout(output);
    let ended = supervise(&mut runner, orders).map_err(at("starting the runner"))?;
    answer.seek(SeekFrom::Start(0)).map_err(at("the runner's answer"))?;
    let mut answer = BufReader::new(answer);
    let mut messages = Vec::new();
    while let Ok(Some(message)) = wire::read_message(&mut answer) {
        messages.push(message);
    }
    if !matches!(messages.last(), Some(Message::Done(_) | Message::Failed(_))) {
        let what = match ended {
            Ok(status) => format!("the runner stopped in the middle ({status})"),
            Err(stopped) => stopped.text("the scenario"),
        };
        messages.push(Message::Failed(Failure::new(FailureKind::Internal, what)));
    }
    Ok(messages)
}

/// Executes a file of the guest and returns how it ended.
fn execute(words: &[String], orders: &mut Orders) -> Result<Message, Failed> {
    let Some((program, arguments)) = words.split_first() else {
        let failure = Failure::new(FailureKind::BadRequest, "there is no command");
        return Ok(Message::Failed(failure));
    };
    let output = memory(c"output").map_err(at("memory for the output"))?;
    let errors = memory(c"errors").map_err(at("memory for the output"))?;
    let clone = |file: &File| file.try_clone().map_err(at("memory for the output"));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(clone(&output)?).stderr(clone(&errors)?);
    let ended = supervise(&mut command, orders).map_err(at(program.as_str()))?;
    let status = match ended {
        Ok(status) => status,
        Err(stopped) => {
            let failure = Failure::new(FailureKind::Internal, stopped.text(program));
            return Ok(Message::Failed(failure));
        }
    };
    let read = |mut file: File| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).map(|_| bytes)
    };
    Ok(Message::Executed(Executed {
        status: shell_status(status),
        output: read(output).map_err(at("reading the output"))?,
        errors: read(errors).map_err(at("reading the output"))?,
    }))
}

/// An errand was stopped.
struct Stopped {
    after_seconds: u32,
}

impl Stopped {
    fn text(&self, what: &str) -> String {
        format!("{what} took longer than {} s", self.after_seconds)
    }
}

/// Runs a command. If the host says so, ends it with everything that it started.
fn supervise(
    command: &mut Command,
    orders: &mut Orders,
) -> io::Result<Result<ExitStatus, Stopped>> {
    let mut child = command.process_group(0).spawn()?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let stopped = stopped_before_end(&child, orders);
    if let Some(group) = group {
        // No process of the group may be left.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let status = child.wait()?;
    Ok(stopped?.map_or(Ok(status), Err))
}

fn memory(name: &std::ffi::CStr) -> io::Result<File> {
    let name = CString::from(name);
    Ok(File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?))
}

/// Waits until a process has ended (`None`) or has to be stopped.
fn stopped_before_end(child: &Child, orders: &mut Orders) -> io::Result<Option<Stopped>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a strange process id"))?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    while orders.buffer().is_empty() {
        let port = orders.get_ref();
        let mut both = [PollFd::new(&process, PollFlags::IN), PollFd::new(port, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) if both[0].revents().is_empty() => break,
            Ok(_) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match wire::read_message(orders)? {
        Some(Order::Stop { after_seconds }) => Ok(Some(Stopped { after_seconds })),
        Some(Order::Do(_)) => Err(io::Error::other("the host did not wait for an answer")),
        None => Err(io::Error::other("the host is gone")),
    }
}
