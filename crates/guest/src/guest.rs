//! A booted kernel that runs one program after the other.
//!
//! QEMU runs under the runner's guard ([`needless_runner::guard`]). The guard's standard input is
//! the lifeline, its standard output a socket to the guest's port, and its standard error the
//! console. None of these has a name in the file system. Dropping a [`Guest`] closes the lifeline,
//! and the guard kills QEMU. If this process dies in any other way, the kernel closes the lifeline.

use crate::cache::Kernel;
use crate::config;
use crate::diagnosis::{self, Told, lacking};
use crate::emulator::Emulator;
use crate::error::GuestError;
use crate::initramfs;
use crate::nodes::Nodes;
use crate::options::{GuestOptions, Limits};
use crate::patches::{Patched, patched};
use crate::patience::Patience;
use crate::platform::Arch;
use crate::runners;
use crate::tally::{self, Tally};
use needless_model::foreign;
use needless_model::kernels::{CHANGE, KernelRow, NOT_MODELLED};
use needless_model::program::{MachineNeeds, Program};
use needless_model::run::{INSTRUCTIONS, INSTRUCTIONS_OF_PROCESSES, RunRequest, TargetRun};
use needless_model::sim;
use needless_runner::collect::{self, AnswerError, Collected, rounds_asked};
use needless_runner::guest::{Booted, Job, Order};
use needless_runner::needs::{Needed, Part};
use needless_runner::wire::{self, Executed, Message, PROTOCOL_VERSION};
use needless_runner::{interrupt, limits};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a guest may take to boot before it is booted once more.
const FIRST_BOOT: Duration = Duration::from_secs(60);

/// How often a program is started for missing rounds.
const MOST_STARTS: u32 = 5;

/// Pages of each CPU's event ring: some five thousand records. More pages would cost time at each
/// start. A round that needs more is marked.
const RING_PAGES: u32 = 128;

/// The number of lines of the console that errors show.
const CONSOLE_LINES: usize = 20;

/// A booted kernel.
pub struct Guest {
    target: String,
    arch: Arch,
    /// Whether its processor sets the accessed bit and the dirty bit itself.
    sets_bits: bool,
    release: String,
    cpus: u16,
    nodes: Nodes,
    limits: Limits,
    environment: BTreeMap<String, String>,
    /// The model row that the target names.
    row: Option<KernelRow>,
    /// The parts that the kernel lacks and that runs may need.
    absent: Vec<Part>,
    /// Whether it is a user's own image or was built here. Anything may be wrong with it.
    own: bool,
    /// The plugin's counts, or why there are none; `None` if no plugin is used.
    tally: Option<Result<Tally, String>>,
    guard: Child,
    lifeline: Option<ChildStdin>,
    port: BufReader<Limited>,
    console: Arc<Mutex<Console>>,
    listener: Option<JoinHandle<()>>,
}

impl Guest {
    /// Boots `kernel` and waits until it accepts programs. A guest that ends while it boots is
    /// booted again, up to [`Limits::boots`] times in all. Kernels patch their own code while they
    /// boot. An emulator with a thread for each CPU was seen to run code that had been patched away
    /// (QEMU 7.2, a stray `int3`, one boot in about twenty on a machine with five times its load).
    pub fn boot(kernel: &Kernel, options: &GuestOptions) -> Result<Guest, GuestError> {
        if !limits::has_proc() {
            return Err(GuestError::NoProc);
        }
        kernel.check()?;
        let arch = kernel.arch;
        let emulator = Emulator::find(arch.platform(), options)?;
        let runners = runners::find(arch.platform(), options.runner.as_deref())?;
        let initramfs = initramfs::prepare(kernel, &runners.init, options)?;
        let mut boots = 1;
        loop {
            interrupt::go_on()?;
            let mut guest =
                Guest::start_emulator(&emulator, &runners.guard, &initramfs, kernel, options)?;
            let again = boots < options.limits.boots;
            // The emulator was seen to hang, and a boot takes only seconds. So the first boot does
            // not get its full time.
            let first = boots == 1 && again;
            let whole = options.limits.boot;
            match guest.greet(if first { whole.min(FIRST_BOOT) } else { whole }) {
                Ok(()) => {
                    guest.environment.insert("guest.boots".to_owned(), boots.to_string());
                    return Ok(guest);
                }
                Err(Greeting::Ended) => {
                    let error = guest.stopped("ended while it booted", None);
                    // If process 1 found a part missing, it would find it missing again.
                    let same_again = matches!(error, GuestError::Lacks { .. });
                    if same_again || !again {
                        return Err(error);
                    }
                }
                Err(Greeting::Late(_)) if first => {}
                Err(Greeting::Late(error)) => {
                    return Err(guest.stopped("did not boot", Some(error)));
                }
                Err(Greeting::Confused(what)) => return Err(GuestError::Confused { what }),
            }
            boots += 1;
        }
    }

    fn start_emulator(
        emulator: &Emulator,
        guard: &Path,
        initramfs: &Path,
        kernel: &Kernel,
        options: &GuestOptions,
    ) -> Result<Guest, GuestError> {
        let tally = emulator.counts().then(Tally::open);
        let plugin = tally.as_ref().and_then(|tally| tally.as_ref().ok());
        let plugin = plugin.map(|tally| tally.argument.as_str());
        let cannot = |error: io::Error| {
            GuestError::stopped(format!("could not be started: {error}"), String::new())
        };
        let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
        let mut guard = Command::new(guard)
            .arg("--guard")
            .args(emulator.command(kernel, initramfs, options, plugin))
            .stdin(Stdio::piped())
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let console = Arc::default();
        let patience = Patience::with(guard.id());
        Ok(Guest {
            arch: kernel.arch,
            sets_bits: kernel
                .arch
                .platform()
                .processor(options.processor.as_deref())
                .is_none_or(|processor| processor.sets_bits),
            release: kernel.manifest.release.clone(),
            target: format!("kernel:{}{options}", kernel.manifest.name),
            row: options.row.clone(),
            absent: Vec::new(),
            own: kernel.is_own() || kernel.manifest.built.is_some(),
            cpus: options.cpus,
            nodes: options.nodes.clone(),
            limits: options.limits,
            environment: environment(kernel, options, emulator),
            tally,
            lifeline: guard.stdin.take(),
            listener: guard.stderr.take().map(|lines| listen(lines, Arc::clone(&console))),
            guard,
            port: BufReader::with_capacity(1 << 16, Limited { stream: ours, patience, stop: None }),
            console,
        })
    }

    fn greet(&mut self, patience: Duration) -> Result<(), Greeting> {
        self.port.get_mut().patience.set(patience);
        match wire::read_message::<Booted>(&mut self.port) {
            Ok(Some(Booted { version: PROTOCOL_VERSION, environment, absent })) => {
                self.environment.extend(environment);
                self.absent = absent;
                if let Some(Ok(tally)) = &mut self.tally {
                    tally.close_door();
                }
                Ok(())
            }
            Ok(Some(Booted { version, .. })) => {
                let what = format!("speaks version {version}, not {PROTOCOL_VERSION}");
                Err(Greeting::Confused(what))
            }
            Ok(None) => Err(Greeting::Ended),
            Err(error) => Err(Greeting::Late(error)),
        }
    }

    /// Runs one program.
    pub fn run(&mut self, program: &Program) -> Result<TargetRun, GuestError> {
        if let Some(thread) = program.threads.iter().find(|thread| thread.cpu.0 >= self.cpus) {
            let what = format!(
                "thread `{}` needs {}; scenarios have {} CPUs in this guest",
                thread.name, thread.cpu, self.cpus
            );
            return Err(GuestError::Unsupported { what });
        }
        self.refuse(program)?;
        let request = RunRequest {
            program: program.clone(),
            events: true,
            ring_pages: RING_PAGES,
            cpus: Vec::new(),
            // The guest sets this.
            disk: None,
            alike_from: self.alike_from(program),
        };
        let asked = rounds_asked(program);
        let start = |request: &RunRequest| self.start(&Job::Scenario(request.clone()));
        let all = collect::gather(&request, MOST_STARTS, start, |_| {})?;
        let mut result = TargetRun {
            target: self.target.clone(),
            environment: self.environment.clone(),
            ..TargetRun::default()
        };
        let why = "time means nothing in emulation".to_owned();
        result.unseen.insert("cycles".to_owned(), why);
        if let Some(Err(why)) = &self.tally {
            result.unseen.insert(INSTRUCTIONS.to_owned(), why.clone());
        }
        if !self.sets_bits {
            let why = "this processor sets no dirty bits, so that forked processes flush pages of the runner's own";
            result.unseen.insert(INSTRUCTIONS_OF_PROCESSES.to_owned(), why.to_owned());
        }
        all.fill(&mut result, asked);
        diagnosis::explain_unseen(&mut result.unseen, &self.absent, self.arch);
        Ok(result)
    }

    /// Refuses a program that needs what the kernel or the guest lacks.
    fn refuse(&self, program: &Program) -> Result<(), GuestError> {
        let needs = &program.machine;
        let (wanted, has) = (needs.nodes.unwrap_or(1), self.nodes.count());
        if wanted > has || needs.numa.slow > self.nodes.slow() {
            let (name, slow) = (&program.name, needs.numa.slow);
            let (slow, has_slow) = match slow {
                0 => (String::new(), String::new()),
                slow => (
                    format!(", {slow} of them slow"),
                    format!(", {} of them slow", self.nodes.slow()),
                ),
            };
            let what = format!(
                "`{name}` needs {wanted} NUMA nodes{slow}; this guest has {has}{has_slow} (nodes={}); without nodes=, a guest has the nodes that its scenario needs",
                self.nodes
            );
            return Err(GuestError::Unsupported { what });
        }
        let wanted = [
            (needs.swap.is_some(), Needed::ForSwap, "swap space"),
            (needs.disk, Needed::ForDisks, "a file on a disk"),
        ];
        for (wanted, needed, word) in wanted {
            if wanted && let Some(parts) = lacking(&self.absent, needed, self.arch) {
                let what = format!("`{}` needs {word}, and {}", program.name, self.name());
                return Err(GuestError::Lacks { what, parts });
            }
        }
        Ok(())
    }

    /// The kernel, for messages.
    fn name(&self) -> String {
        format!("kernel {}", self.release)
    }

    /// The first round from which on all rounds are alike, by the model.
    fn alike_from(&self, program: &Program) -> u32 {
        match self.arch {
            Arch::X86_64 => {
                let named = self.row.as_ref();
                let (row, _) = KernelRow::held_against(named, &self.release, &self.environment);
                sim::alike_from(program, &row)
            }
            // On arm64 the model is not asked, and all rounds count as alike.
            Arch::Arm64 => 0,
        }
    }

    /// Executes a file that the guest was booted with ([`GuestOptions::files`]), without input, on
    /// the CPU that scenarios do not use.
    pub fn execute(
        &mut self,
        words: &[&str],
        machine: MachineNeeds,
    ) -> Result<Executed, GuestError> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        self.send(&Job::Command { words, machine });
        let answer = match wire::read_message(&mut self.port) {
            Ok(Some(Message::Executed(executed))) => Ok(executed),
            Ok(Some(Message::Failed(failure))) => Err(AnswerError::Failed(failure)),
            Ok(_) => Err(AnswerError::Confused("did not answer a command".to_owned())),
            Err(error) => Err(AnswerError::Unreadable(error)),
        };
        self.answered(answer, |_| None)
    }

    fn start(&mut self, job: &Job) -> Result<Collected, GuestError> {
        self.send(job);
        let answer = Collected::read(&mut self.port);
        self.answered(answer, |collected| Some(collected))
    }

    /// Sends an errand. The guest's time for it begins now.
    fn send(&mut self, job: &Job) {
        let Limits { run_seconds, slack, .. } = self.limits;
        let port = self.port.get_mut();
        port.patience.set(Duration::from_secs(u64::from(run_seconds)));
        port.stop = Some((Order::Stop { after_seconds: run_seconds }, slack));
        // If the guest is gone, reading the answer fails.
        let _ = wire::write_message(&mut port.stream, &Order::Do(job.clone()));
    }

    /// Adds the plugin's counts to an answer, or turns a missing answer into an error.
    fn answered<T>(
        &mut self,
        answer: Result<T, AnswerError>,
        counted: impl Fn(&mut T) -> Option<&mut Collected>,
    ) -> Result<T, GuestError> {
        match answer {
            Ok(mut answer) => {
                self.count(counted(&mut answer))?;
                Ok(answer)
            }
            Err(AnswerError::Failed(failure)) => {
                self.count(None)?;
                Err(failure.into())
            }
            Err(error @ (AnswerError::Ended | AnswerError::Confused(_))) => match self.is_gone() {
                true => Err(self.stopped("ended in the middle of a request", None)),
                false => Err(GuestError::Confused { what: error.to_string() }),
            },
            Err(AnswerError::Unreadable(error)) => {
                Err(self.stopped("did not finish a request", Some(error)))
            }
        }
    }

    /// Takes the plugin's counts of the errand that was answered.
    fn count(&mut self, answer: Option<&mut Collected>) -> Result<(), GuestError> {
        let Some(Ok(tally)) = &self.tally else { return Ok(()) };
        let patience = &mut self.port.get_mut().patience;
        patience.set(self.limits.slack);
        let counted = tally.rounds(self.cpus, patience);
        let attached = counted.and_then(|counted| match answer {
            Some(answer) => tally::attach(answer.rounds.values_mut(), counted),
            None => Ok(()),
        });
        attached.map_err(|what| GuestError::Uncounted { what })
    }

    /// Whether the guest has ended, or is about to, because its port is closed.
    fn is_gone(&mut self) -> bool {
        matches!(self.port.fill_buf(), Ok([]))
    }

    /// Ends the guest, and returns the error that says how it ended.
    fn stopped(&mut self, what: &str, error: Option<io::Error>) -> GuestError {
        self.end();
        let told = self.told();
        if !told.absent.is_empty() {
            let what = format!("the guest {what}: {}", self.name());
            return GuestError::Lacks { what, parts: config::text(&told.absent, self.arch) };
        }
        let console = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = Vec::from(console.lines.clone());
        let text = match lines.is_empty() {
            true => "; its console is empty".to_owned(),
            false => format!("; its console ends with\n  {}", lines.join("\n  ")),
        };
        let error = error.map_or(String::new(), |error| format!(" ({error})"));
        let panic = told.panic.as_ref().map_or(String::new(), |why| format!(": panic: {why}"));
        let stopped = GuestError::stopped(format!("{what}{error}{panic}"), text);
        match self.own {
            true => stopped.with_remedy(told.remedy(lines.is_empty(), self.arch)),
            false => stopped,
        }
    }

    /// What the console has shown so far.
    fn told(&self) -> Told {
        self.console.lock().unwrap_or_else(PoisonError::into_inner).told.clone()
    }

    fn end(&mut self) {
        drop(self.lifeline.take());
        let _ = self.guard.wait();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

/// Why there was no valid greeting.
enum Greeting {
    /// The guest ended.
    Ended,
    /// No complete greeting came in time.
    Late(io::Error),
    /// The greeting is that of another runner.
    Confused(String),
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

fn environment(
    kernel: &Kernel,
    options: &GuestOptions,
    emulator: &Emulator,
) -> BTreeMap<String, String> {
    let entry = |name: &str, value: String| (name.to_owned(), value);
    let change = match patched(&kernel.manifest, kernel.arch) {
        Patched::Known(change) => Some(entry(CHANGE, change.to_owned())),
        Patched::Unknown(patches) if options.row.is_none() => Some(entry(NOT_MODELLED, patches)),
        Patched::Unknown(_) | Patched::Not => None,
    };
    let mut environment = BTreeMap::from([
        match kernel.is_own() {
            true => entry("kernel.image", kernel.text()),
            false => entry("kernel.package", kernel.text()),
        },
        entry("guest.cpus", format!("{} and one for the rest", options.cpus)),
        entry(
            "guest.memory",
            format!("{} MiB", options.nodes.memory_mib().unwrap_or(options.memory_mib)),
        ),
        entry("guest.nodes", options.nodes.to_string()),
        entry("guest.emulator", emulator.text()),
    ]);
    environment.extend(change);
    environment
}

/// The part of a console that is kept.
#[derive(Default)]
struct Console {
    /// Its last lines.
    lines: VecDeque<String>,
    /// What all its lines have shown.
    told: Told,
}

/// Reads the console, on a thread of its own.
fn listen(lines: ChildStderr, console: Arc<Mutex<Console>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(lines).split(b'\n').map_while(Result::ok) {
            let line = foreign::said(line.trim_ascii_end());
            let mut console = console.lock().unwrap_or_else(PoisonError::into_inner);
            console.told.hear(&line);
            if console.lines.len() == CONSOLE_LINES {
                console.lines.pop_front();
            }
            console.lines.push_back(line);
        }
    })
}

/// A stream that gives up when its patience ends. Before that it may send one order.
struct Limited {
    stream: UnixStream,
    patience: Patience,
    /// The order to send first, and how much longer an answer may take after it.
    stop: Option<(Order, Duration)>,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(left) = self.patience.left() else {
                let late = || io::Error::new(io::ErrorKind::TimedOut, "it took too long");
                let (order, more) = self.stop.take().ok_or_else(late)?;
                self.patience.set(more);
                wire::write_message(&mut self.stream, &order)?;
                continue;
            };
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_guests_console_steers_no_terminal() {
        let says = r"printf '[ 1.0] a\033]0;t\007b\tc\r\n\302\2332J\0\342\200\256\n\233' >&2";
        let mut child =
            Command::new("sh").args(["-c", says]).stderr(Stdio::piped()).spawn().unwrap();
        let console = Arc::new(Mutex::new(Console::default()));
        listen(child.stderr.take().unwrap(), Arc::clone(&console)).join().unwrap();
        child.wait().unwrap();
        let lines = console.lock().unwrap().lines.clone();
        let shown = ["[ 1.0] a\\u{1b}]0;t\\u{7}b\tc", "\\u{9b}2J\\u{0}\\u{202e}", "\u{fffd}"];
        assert_eq!(lines, shown);
    }

    #[test]
    fn a_stream_says_so_and_then_gives_up() {
        let (mut there, here) = UnixStream::pair().unwrap();
        let mut patience = Patience::with(std::process::id());
        patience.set(Duration::from_millis(50));
        let stop = Order::Stop { after_seconds: 7 };
        let more = Some((stop.clone(), Duration::from_millis(50)));
        let mut limited = Limited { stream: here, patience, stop: more };
        there.write_all(b"x").unwrap();
        assert_eq!(limited.read(&mut [0; 4]).unwrap(), 1);
        assert_eq!(limited.read(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(wire::read_message(&mut there).unwrap(), Some(stop));
        assert_eq!(limited.read(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(limited);
        assert_eq!(wire::read_message::<Order>(&mut there).unwrap(), None, "once");
    }
}
