//! The command line: what can be asked for, and how help shows it (examples first).

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use needless_check::Schedule;
use needless_guest::Arch;
use needless_report::expect::{self, Expectation};
use needless_report::style::Detail;
use needless_scenario::random::Optional;
use needless_watch::functions::Asked;
use std::path::PathBuf;
use std::time::Duration;

/// Finds the page faults, page copies and TLB flushes that a workload did not need.
#[derive(Debug, Parser)]
#[command(
    name = "needless",
    version = env!("NEEDLESS_VERSION"),
    propagate_version = true,
    help_template = crate::groups::template(),
    before_help = "Examples:
  needless compare cow-reuse -t live -t model:6.1   side by side
  needless run cow-reuse -t model:5.10              one target, every counter
  needless explain cow-reuse -t model:6.12          one round, event by event
  needless stat -- sort -n numbers                  any program: who costs what
  needless agree -t live                            is the model right here?
  needless doctor                                   what can this machine show?
  needless help run                                 how to use a verb"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// Whether to use colour (NO_COLOR and CLICOLOR_FORCE are obeyed, too).
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a scenario on one target and print every counter.
    #[command(before_help = "Examples:
  needless run cow-reuse                       on this kernel
  needless run cow-reuse -t model:6.1          in the model of Linux 6.1
  needless run cow-reuse --set pages=8 --format json
  needless scenario random 7 | needless run - -t model:6.12
  needless run dirty-tracking                  a study's comparison")]
    Run(RunArgs),
    /// Run a scenario on several targets and compare event by event.
    #[command(before_help = "Examples:
  needless compare cow-reuse                    this kernel and every model row
  needless compare cow-reuse -t live -t model:5.10 -t model:6.12
  needless compare cow-reuse -t kernel:6.1 -t kernel:6.12,cpus=4
                                                real kernels, booted under QEMU
  needless compare cow-reuse -t model:6.12 -t model:6.12,reuse=page-count
  needless compare cow-reuse -t live --expect   status 1 if the model is wrong
  needless compare cow-reuse -t kernel:./bzImage --expect 'shootdowns<=2'
                                                a kernel of one's own
  needless compare cow-reuse -t kernel:./bzImage,row=6.12 --format junit
  needless compare cow-reuse --format html -o cow-reuse.html
                                                a page to look at and to share
  needless compare old.json new.json            two saved results: what differs
  needless compare before.json after.json --per 100
                                                two results of `needless stat`")]
    Compare(CompareArgs),
    /// Find between which kernels a scenario, or a condition, changed.
    #[command(before_help = "Examples:
  needless bisect cow-reuse --good kernel:6.1 --bad kernel:6.12
                                               where its sequence changed
  needless bisect cow-reuse --good kernel:6.12 --bad kernel:5.10 --expect 'copies=0'
                                               where a condition came to hold
  needless bisect cow-reuse --tree linux --good v6.12 --bad HEAD
                                               the same among commits, each compiled")]
    Bisect(BisectArgs),
    /// List the events of one round with kernel functions and verdicts.
    #[command(before_help = "Examples:
  needless explain cow-reuse -t model:5.10              the first round
  needless explain cow-reuse -t live --round 7
  needless explain cow-reuse -t model:5.10 --format html -o round.html
                                                        step by step")]
    Explain(ExplainArgs),
    /// Hold real kernels against their model rows, exactly.
    #[command(before_help = "Examples:
  needless agree -t live                       every built-in scenario
  needless agree -t live cow-reuse z_munmap_1  only these
  needless agree -t live --random 2000         random ones, of seeds 1 to 2000
  needless agree -t live -t kernel:6.12 --random 500 --report agreement.md
  needless agree -t kernel:6.1 -t kernel:7.3,cpus=3 --random 500
  needless agree -t live --random 2000 --seeds seeds.tsv   those that come next
  needless agree -t live --format json")]
    Agree(AgreeArgs),
    /// Try every interleaving of a small scenario: is the rule safe?
    #[command(before_help = "Examples:
  needless check pageout-read                        every row it names
  needless check pageout-read -t model:5.10          property by property
  needless check pageout-read -t model:6.12,mutant=unmap-not-flushed
                                                     a mutant must fail: how
  needless check pageout-read --format html -o race.html
                                                     the mutant's race, step by step
  needless check mprotect-reclaim -t model:7.3 --cpus 3
  needless check --catalogue                         every litmus test
  needless check --catalogue --larger                each with one more CPU
  needless check big.kdl -t model:6.12 --key-bits 64 --checkpoint big.checkpoint
                                                     days, in half the memory")]
    Check(CheckArgs),
    /// Watch a command, a process or CPUs: what was needless, and why.
    #[command(before_help = "Examples:
  needless stat -- sort -n numbers             a command and all it starts
  needless stat --by mapping -- sort -n numbers
                                               figures by mapping
  needless stat -r 5 -- make -j2               five times: medians, ranges
  needless stat -o stat.json --format json -- ./server
  needless stat -p 1234                        a process, until Ctrl-C
  needless stat -p 1234 -- sleep 10            the same for ten seconds
  needless stat -a -- sleep 10                 everything on the machine
  needless stat -a --format openmetrics -o needless.om -- sleep 10
  needless stat --by-actor -p 1234 -- sleep 10
                                               what the kernel does to it by itself
  needless stat --perfetto trace.pftrace -- ./server
                                               event by event, for ui.perfetto.dev
  needless stat --victims 2-5                  what reaches these CPUs
  needless stat --victims 2-5 --fail-on interrupt -- ./neighbour
                                               status 1 if an interrupt does")]
    Stat(StatArgs),
    /// Answer a published question: its figures beside ours.
    #[command(before_help = "Examples:
  needless study                               which there are
  needless study cow-reuse                     all of it, guests as well
  needless study cow-reuse -t model -t live -t check   without guests
  needless study cow-reuse --part cost         one part, with all its figures
  needless study cow-reuse -v                  all parts with all their figures
  needless study wp-unpopulated --part order --size 256M   in less time, with less memory
  needless study cow-reuse --format md -o cow-reuse.md
  needless study mine.kdl                      a study of one's own")]
    Study(StudyArgs),
    /// Say what this machine can show and what would help.
    #[command(before_help = "Examples:
  needless doctor
  needless doctor --clean                      undo what killed runs left behind
  needless doctor --format json")]
    Doctor(DoctorArgs),
    /// List, fetch, build or remove the kernels that targets boot.
    #[command(before_help = "Examples:
  needless kernels list
  needless kernels fetch                       those with a model row
  needless kernels fetch 6.12 6.17             the newest build of each series
  needless kernels fetch 6.12.94+deb13         this build
  needless kernels build 6.12 --patch fix.patch   one of one's own
  needless kernels remove 6.17")]
    Kernels(KernelsArgs),
    /// List, show, check or format scenarios.
    #[command(before_help = "Examples:
  needless scenario list
  needless scenario show cow-reuse > mine.kdl
  needless scenario check mine.kdl
  needless scenario random 7 | needless scenario check -
  needless scenario fmt --write mine.kdl")]
    Scenario(ScenarioArgs),
    /// List the kernel rows and the policies in which they differ.
    #[command(before_help = "Examples:
  needless policies
  needless policies --format json")]
    Policies(FormatArgs),
    /// Print a shell's completions.
    #[command(before_help = "Examples:
  needless completions bash > /etc/bash_completion.d/needless
  needless completions zsh > ~/.zfunc/_needless
  needless completions fish > ~/.config/fish/completions/needless.fish")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for each verb.
    #[command(before_help = "Examples:
  needless man | man -l -
  needless man /usr/local/share/man/man1       then: man needless-compare")]
    Man {
        /// An existing directory; without it the page of `needless` itself is printed.
        directory: Option<PathBuf>,
    },
}

/// What every verb that runs a scenario takes.
#[derive(Debug, Args)]
pub struct ScenarioChoice {
    /// A built-in scenario's name, a file, or `-` for standard input.
    #[arg(value_parser = to_load())]
    pub scenario: String,
    /// Set a parameter of the scenario (repeatable).
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    pub settings: Vec<(String, String)>,
    /// Rounds that count, instead of the scenario's own number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
}

/// How much memory runs of the model may take.
#[derive(Clone, Copy, Debug, Args)]
pub struct MemoryArgs {
    /// Give up when the process takes this much memory, in MiB (exit status 3); by default half of
    /// what is free, or of what a control group or `ulimit` leaves.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_memory: Option<u64>,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Args)]
pub struct FormatArgs {
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// How results are printed that can be a page, and where they go.
#[derive(Clone, Debug, Args)]
pub struct PageArgs {
    /// Write the result to a file, whole or not at all.
    #[arg(short, long, value_name = "FILE", value_parser = to_write())]
    pub output: Option<PathBuf>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = PageFormat::Text)]
    pub format: PageFormat,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Undo what killed runs left behind (swap space, settings, mounts) instead.
    #[arg(long)]
    pub clean: bool,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub choice: ScenarioChoice,
    /// Where to run it: live (the default), live,cpus=2,5, kernel:6.12, kernel:6.12,cpus=4, model:6.12,
    /// model:6.12,mglru=off …
    #[arg(short, long)]
    pub target: Option<String>,
    /// Write the events to a file, as JSON Lines.
    #[arg(long, value_name = "FILE", value_parser = to_write())]
    pub events: Option<PathBuf>,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub detail: DetailArgs,
    #[command(flatten)]
    pub page: PageArgs,
}

/// How much a text tells.
#[derive(Copy, Clone, Debug, Default, Args)]
pub struct DetailArgs {
    /// Show every counter, those that are 0 as well.
    #[arg(short, long)]
    pub verbose: bool,
}

impl DetailArgs {
    /// What the text is to tell.
    pub fn detail(self) -> Detail {
        if self.verbose { Detail::All } else { Detail::Answer }
    }
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub choice: ScenarioChoice,
    /// A second saved result: nothing is run, and both files (of `--format json`) are compared.
    #[arg(value_name = "SAVED", conflicts_with_all = ["targets", "expect", "settings", "rounds", "events", "max_memory", "git_bisect"])]
    pub other: Option<PathBuf>,
    /// Divide the figures of two results of `stat` by this number of operations (requests, rounds) in a run.
    #[arg(long, value_name = "N", requires = "other", value_parser = clap::value_parser!(u64).range(1..))]
    pub per: Option<u64>,
    /// A target (repeatable); without any: live and every model row.
    #[arg(short, long = "target", value_name = "TARGET")]
    pub targets: Vec<String>,
    /// End with status 1 unless this holds on every target (repeatable): COUNTER<=NUMBER (or <, =, !=, >, >=)
    /// in every round, or `exact` (if nothing is given): every real kernel equals its model row.
    #[arg(long, value_name = "CONDITION", num_args = 0..=1, default_missing_value = expect::EXACT)]
    pub expect: Vec<Expectation>,
    /// Exit statuses for `git bisect run`: 0 as expected, 1 not, 125 (skip) for everything else.
    #[arg(long, requires = "expect")]
    pub git_bisect: bool,
    /// Write the events of all targets to a file, as JSON Lines.
    #[arg(long, value_name = "FILE", value_parser = to_write())]
    pub events: Option<PathBuf>,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub detail: DetailArgs,
    /// Write the result to a file, whole or not at all.
    #[arg(short, long, value_name = "FILE", value_parser = to_write())]
    pub output: Option<PathBuf>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    pub format: CompareFormat,
}

/// Arguments of `bisect`.
#[derive(Debug, Args)]
pub struct BisectArgs {
    #[command(flatten)]
    pub choice: ScenarioChoice,
    /// A kernel that is as it should be: kernel:6.1, kernel:6.1,cpus=3 …; with --tree a revision.
    #[arg(long, value_name = "TARGET")]
    pub good: String,
    /// A kernel that is not, older or newer; with --tree a newer revision.
    #[arg(long, value_name = "TARGET")]
    pub bad: String,
    /// Look among the commits of this git tree of the kernel, which is only read: each is compiled in the cache.
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// Lines of a configuration for the commits, on top of what guests need.
    #[arg(long, value_name = "FILE", requires = "tree")]
    pub config: Option<PathBuf>,
    /// A kernel is good if this holds in every round (repeatable): COUNTER<=NUMBER (or <, =, !=, >, >=), or `exact`.
    /// Without: if it has the good kernel's sequence.
    #[arg(long, value_name = "CONDITION")]
    pub expect: Vec<Expectation>,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub choice: ScenarioChoice,
    /// Where to run it.
    #[arg(short, long, default_value = "live")]
    pub target: String,
    /// Which round, counted from 0 after the warm-up.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub round: u32,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub page: PageArgs,
}

/// Arguments of `agree`.
#[derive(Debug, Args)]
pub struct AgreeArgs {
    /// A real kernel to hold the model against: live, kernel:6.12 … (repeatable).
    #[arg(short, long = "target", value_name = "TARGET", default_value = "live")]
    pub targets: Vec<String>,
    /// Built-in scenarios, files, or `-` for standard input; without any, and without --random: every
    /// built-in scenario.
    #[arg(value_parser = to_load())]
    pub scenarios: Vec<String>,
    /// Every built-in scenario, beside the random ones.
    #[arg(long)]
    pub builtin: bool,
    /// Random scenarios.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub random: Option<u32>,
    /// Random scenarios on the running kernel, if another number than on the others.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub random_live: Option<u32>,
    /// The seed of the first random scenario; the next one has the next seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Take the seeds that come next in this file, and note them there before they run: evidence.
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    pub seeds: Option<PathBuf>,
    /// What random scenarios are drawn of.
    #[arg(long, value_enum, default_value_t = Draw::There)]
    pub draw: Draw,
    /// Booted kernels that run side by side; the running kernel runs alone, before them. Each keeps as
    /// many processors busy as scenarios have CPUs there: where there are fewer, one at a time is faster
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Write into this directory the smallest scenario of every difference, and each that stays undecided.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Write the results and the rules as a Markdown document.
    #[arg(long, value_name = "FILE", value_parser = to_write())]
    pub report: Option<PathBuf>,
    /// Rounds of each, instead of the scenario's own number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub page: PageArgs,
}

/// Arguments of `kernels`.
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: KernelsVerb,
}

/// The verbs of `kernels`.
#[derive(Debug, Subcommand)]
pub enum KernelsVerb {
    /// List the kernels that are cached and those that Debian's archive has.
    #[command(
        before_help = "Examples:\n  needless kernels list\n  needless kernels list --arch arm64"
    )]
    List {
        /// The architecture whose kernels in the archive are listed: x86-64 or arm64.
        #[arg(long, value_name = "ARCH", default_value = "x86-64", value_parser = architecture)]
        arch: Arch,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Fetch kernels from Debian's archive, with apt's signature checks.
    #[command(before_help = "Examples:
  needless kernels fetch                  those with a model row
  needless kernels fetch 6.12 6.17        the newest build of each series
  needless kernels fetch 6.12.94+deb13    this build
  needless kernels fetch 6.12/arm64       the same series for arm64")]
    Fetch {
        /// Series or builds; without any: every series that the model has a row for.
        kernels: Vec<String>,
    },
    /// Compile a kernel for guests from Debian's source of a series, patched.
    #[command(before_help = "Examples:
  needless kernels build 6.12 --patch fix.patch               then: -t kernel:6.12+fix
  needless kernels build 6.12 --patch a.patch --patch b.patch --name mine
  needless kernels build 6.12 --config debug.config           CONFIG_ lines on top of the guests' own
  needless kernels build 6.12/arm64 --patch fix.patch         for arm64")]
    Build {
        /// The series, for arm64 with /arm64.
        series: String,
        /// A patch, as `git diff` writes it (repeatable, applied in this order).
        #[arg(long = "patch", value_name = "FILE")]
        patches: Vec<PathBuf>,
        /// Lines of a configuration, as in CONFIG_DEBUG_VM=y, on top of what guests need.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// What the kernel is called; otherwise SERIES+PATCH, or SERIES+guest.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Remove kernels from the cache.
    #[command(before_help = "Examples:\n  needless kernels remove 6.12 6.17")]
    Remove {
        /// Names as `needless kernels list` shows them.
        #[arg(required = true)]
        kernels: Vec<String>,
    },
}

/// What makes an exploration shorter (docs/checker.md).
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Reduction {
    /// Orders of steps that commute.
    SleepSets,
    /// Threads that do the same.
    Symmetry,
    /// Steps that were taken before from the same parts of the world.
    Recall,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A litmus test (`needless scenario list` shows them), a built-in scenario, a file, or `-` for
    /// standard input.
    #[arg(value_parser = to_load())]
    pub scenario: Option<String>,
    /// A model row (repeatable); without: those that the scenario's `litmus` node names.
    #[arg(short, long = "target", value_name = "TARGET", conflicts_with = "catalogue")]
    pub targets: Vec<String>,
    /// Every litmus test on every row that it names.
    #[arg(long, conflicts_with = "scenario")]
    pub catalogue: bool,
    /// Every litmus test with one more CPU, on which a thread does what another one does. A test that
    /// must fail may fail by another property then.
    #[arg(long, requires = "catalogue")]
    pub larger: bool,
    /// Set a parameter of the scenario (repeatable).
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment, conflicts_with = "catalogue")]
    pub settings: Vec<(String, String)>,
    /// How many CPUs, for scenarios with a parameter `cpus`.
    #[arg(long, value_name = "N", conflicts_with = "catalogue")]
    pub cpus: Option<u16>,
    /// Give up after this many states (exit status 3).
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    pub max_states: usize,
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Give up after this many seconds (exit status 3).
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub deadline: Option<Duration>,
    /// Keep only so many bits of each state's key (64 take half the memory); the output says how likely
    /// it is that a state was missed.
    #[arg(long, value_name = "BITS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(16..=128))]
    pub key_bits: u32,
    /// Leave a reduction out (repeatable). The verdict is the same, and takes longer.
    #[arg(long, value_name = "REDUCTION")]
    pub without: Vec<Reduction>,
    /// Write to this file every minute how far the exploration is. If the file is there, go on from it.
    #[arg(long, value_name = "FILE", requires = "targets", conflicts_with = "replay")]
    pub checkpoint: Option<PathBuf>,
    /// Follow one schedule, as a counterexample prints it, and show its steps.
    #[arg(long, value_name = "SCHEDULE", requires = "targets")]
    pub replay: Option<Schedule>,
    /// How many threads work; one for each CPU if not given. The result is the same.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    #[command(flatten)]
    pub page: PageArgs,
}

/// A positive number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, as in 60".to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|d| !d.is_zero());
    duration.ok_or_else(|| "a number of seconds above 0, as in 60".to_owned())
}

/// Arguments of `scenario`.
#[derive(Debug, Args)]
pub struct ScenarioArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: ScenarioVerb,
}

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Watch this process and what it starts from now on.
    #[arg(short, long, value_name = "PID", conflicts_with = "all", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Watch every task.
    #[arg(short, long)]
    pub all: bool,
    /// Run the command this often.
    #[arg(short, long, value_name = "N", default_value_t = 1, requires = "command", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Write the report to a file. Without it the report of a command goes to standard error,
    /// since standard output is the command's.
    #[arg(short, long, value_name = "FILE", value_parser = to_write())]
    pub output: Option<PathBuf>,
    /// Record every interrupt from one CPU to another, wake-ups and rescheduling interrupts among them, so that
    /// all of /proc/interrupts' lines can be accounted for. Costs two to five records for each wake-up.
    #[arg(long)]
    pub every_interrupt: bool,
    /// How long faults waited off their CPU, and for what: userfaultfd's answer, migration, a read, a page's lock, throttling, memory,
    /// other locks. Costs three records for each context switch.
    #[arg(long)]
    pub waits: bool,
    /// What the kernel does to the program of its own accord, by who does it: khugepaged, compaction, NUMA balancing,
    /// kswapd, KSM, writeback: flushes, interrupts, faults, and the time these took.
    #[arg(long)]
    pub by_actor: bool,
    /// Write single events to this file as a Perfetto trace, for <https://ui.perfetto.dev>: tracks of CPUs and threads, faults with
    /// their class, interrupts with arrows from who sent them. Addresses are in it.
    #[arg(long, value_name = "FILE", value_parser = to_write(), conflicts_with = "repeat")]
    pub perfetto: Option<PathBuf>,
    /// Guard these CPUs, as in 2-5,8: only what reaches them, in order of time, with its cause and what keeps
    /// it away. Without a command until Ctrl-C.
    #[arg(long, value_name = "CPUS", value_parser = cpu_list, conflicts_with_all = ["pid", "all", "every_interrupt", "waits", "by_actor", "repeat"])]
    pub victims: Option<Cpus>,
    /// Status 1 if an interrupt reached a guarded CPU; with causes, one of these (lru-drain is a kernel thread's
    /// run).
    #[arg(long, value_name = "interrupt[=CAUSE,…]", requires = "victims", value_parser = fail_on)]
    pub fail_on: Option<FailOn>,
    /// Add all figures up by one of these, in one table in place of the others.
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "victims")]
    pub by: Option<StatBy>,
    /// Also print the rules of the classes, start-up classes one by one, stacks of calls that flushed, and
    /// the kernel's own counts.
    #[arg(short, long)]
    pub verbose: bool,
    /// Size of each CPU's ring of events, in MiB, a power of two.
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = ring_size)]
    pub buffer: u32,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = StatFormat::Text)]
    pub format: StatFormat,
    /// The command and its arguments; with -p or -a it only says how long to watch.
    #[arg(last = true, required_unless_present_any = ["pid", "all", "victims"])]
    pub command: Vec<std::ffi::OsString>,
}

/// By what the figures of `stat` are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StatBy {
    /// The mapping.
    Mapping,
    /// The call site, or the instruction that took the fault.
    Site,
    /// The thread.
    Thread,
    /// The process.
    Process,
    /// The system call that was made, or that had taken the page.
    Call,
}

impl From<StatBy> for needless_report::stat::By {
    fn from(by: StatBy) -> Self {
        match by {
            StatBy::Mapping => Self::Mapping,
            StatBy::Site => Self::Site,
            StatBy::Thread => Self::Thread,
            StatBy::Process => Self::Process,
            StatBy::Call => Self::Call,
        }
    }
}

/// CPUs, in order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(pub Vec<u16>);

/// CPUs as the kernel lists them, of those that are online.
fn cpu_list(text: &str) -> Result<Cpus, String> {
    let listed = needless_watch::rings::cpus(text).filter(|cpus| !cpus.is_empty());
    let mut cpus = listed.ok_or_else(|| "a list of CPUs, as in 2-5,8".to_owned())?;
    let online = needless_watch::rings::online().map_err(|error| error.to_string())?;
    if let Some(cpu) = cpus.iter().find(|cpu| !online.contains(cpu)) {
        return Err(format!("CPU {cpu} is not online"));
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(Cpus(cpus))
}

/// What breaks a guard: any interrupt, or those of these causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailOn(pub Option<Vec<Asked>>);

fn fail_on(text: &str) -> Result<FailOn, String> {
    let (what, causes) = match text.split_once('=') {
        Some((what, causes)) => (what, Some(causes)),
        None => (text, None),
    };
    if what != "interrupt" {
        return Err("`interrupt`, or `interrupt=CAUSE,…`".to_owned());
    }
    let Some(causes) = causes else { return Ok(FailOn(None)) };
    let known = || Asked::all().map(Asked::slug).collect::<Vec<_>>().join(", ");
    let cause = |name: &str| {
        Asked::named(name)
            .ok_or_else(|| format!("no cause is named `{name}`; there are {}", known()))
    };
    Ok(FailOn(Some(causes.split(',').map(cause).collect::<Result<_, _>>()?)))
}

/// Arguments of `study`.
#[derive(Debug, Args)]
pub struct StudyArgs {
    /// A built-in study's name, or a file; without it the studies are listed.
    pub study: Option<String>,
    /// Only this part.
    #[arg(long, value_name = "PART", requires = "study")]
    pub part: Option<String>,
    /// All figures, runs, relations and checks, not only the answer; --part prints them of one part.
    #[arg(short, long, requires = "study")]
    pub verbose: bool,
    /// How much memory what is large in the study has, if not as much as it says: 256M, 4G.
    #[arg(long, value_name = "SIZE", value_parser = memory_size, requires = "study")]
    pub size: Option<u64>,
    /// Only these targets (repeatable): model, live, kernel (guests), check (the checker), or one of the study's.
    /// What needs the others is not to be had then, and said to be.
    #[arg(short, long = "target", value_name = "TARGET", requires = "study")]
    pub targets: Vec<String>,
    /// Write the report to a file, whole or not at all.
    #[arg(short, long, value_name = "FILE", value_parser = to_write())]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = StudyFormat::Text)]
    pub format: StudyFormat,
}

/// The verbs of `scenario`.
#[derive(Debug, Subcommand)]
pub enum ScenarioVerb {
    /// List the built-in scenarios.
    #[command(before_help = "Examples:\n  needless scenario list")]
    List(FormatArgs),
    /// Print a scenario's text.
    #[command(before_help = "Examples:\n  needless scenario show cow-reuse > mine.kdl")]
    Show {
        /// A built-in scenario's name, a file, or `-` for standard input.
        #[arg(value_parser = to_load())]
        scenario: String,
    },
    /// Print the random scenario that `needless agree --random` draws for a seed.
    #[command(before_help = "Examples:
  needless scenario random 1742 > random-1742.kdl
  needless scenario random 1742 --kernel 5.10   of the operations that 5.10 has
  needless scenario random 1742 --cpus 3        as drawn for kernel:7.3,cpus=3
  needless scenario random 1742 --without soft-dirty
                                                for a kernel without them")]
    Random {
        /// The seed.
        seed: u64,
        /// The kernel it is drawn for; older ones lack some operations.
        #[arg(long, value_name = "RELEASE", default_value = "7.3", value_parser = release)]
        kernel: (u32, u32),
        /// The CPUs of the machine that it is drawn for; with fewer there is less company.
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
        cpus: u16,
        /// What the kernel that it is drawn for was built without, or its machine lacks: soft-dirty, huge-pages,
        /// userfaultfd, nodes (repeatable).
        #[arg(long, value_name = "FEATURE", value_parser = optional)]
        without: Vec<Optional>,
    },
    /// Read scenarios and say what is wrong with them.
    #[command(before_help = "Examples:\n  needless scenario check mine.kdl --set pages=64")]
    Check {
        /// Built-in scenarios' names, files, or `-` for standard input.
        #[arg(required = true, value_parser = to_load())]
        scenarios: Vec<String>,
        /// Set a parameter (repeatable).
        #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
        settings: Vec<(String, String)>,
    },
    /// Print a scenario in the standard layout; comments stay.
    #[command(before_help = "Examples:
  needless scenario fmt mine.kdl           print
  needless scenario fmt --write mine.kdl   change the file")]
    Fmt {
        /// Built-in scenarios' names, files, or `-` for standard input.
        #[arg(required = true, value_parser = to_load())]
        scenarios: Vec<String>,
        /// Write the result back to the file.
        #[arg(long)]
        write: bool,
    },
}

/// What random scenarios are drawn of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Draw {
    /// What the target has: its release, its CPUs, and what it was built with.
    There,
    /// Everything, for every target alike; scenarios that need what a target lacks are not applicable there.
    All,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs; the schemas are in docs/schema.
    Json,
}

/// How results are printed that can be a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PageFormat {
    /// For people.
    Text,
    /// For programs; the schemas are in docs/schema.
    Json,
    /// A page for people: one HTML file that needs nothing else (docs/pages.md).
    Html,
}

/// How comparisons are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// For people.
    Text,
    /// For programs; the schema is docs/schema/compare.schema.json.
    Json,
    /// JUnit XML: each target's run and each expectation is a test case.
    Junit,
    /// TAP 14: the same, a line each.
    Tap,
    /// A page for people: one HTML file that needs nothing else (docs/pages.md).
    Html,
}

/// How `stat` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatFormat {
    /// For people.
    Text,
    /// For programs; the schema is docs/schema/stat.schema.json.
    Json,
    /// OpenMetrics, for Prometheus and its kin: one sample (docs/stat.md has the families).
    Openmetrics,
    /// A page for people: one HTML file that needs nothing else (docs/pages.md).
    Html,
}

/// How studies are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StudyFormat {
    /// For people.
    Text,
    /// For programs; the schema is docs/schema/study.schema.json.
    Json,
    /// Markdown, for people elsewhere.
    Md,
    /// A page for people: one HTML file that needs nothing else (docs/pages.md).
    Html,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `x86-64`, `arm64`
/// Takes the name of a scenario, or the path of its file. What is not UTF-8 has no place in JSON.
fn to_load() -> impl TypedValueParser<Value = String> {
    clap::builder::OsStringValueParser::new().try_map(|name| {
        name.into_string().map_err(|_| {
            "a scenario's path has to be UTF-8; name the file otherwise, or hand it over: - <FILE"
        })
    })
}

/// Takes the path of a file to write, whatever bytes are in it.
fn to_write() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(file_to_write)
}

/// A file to write. `-` names standard output elsewhere, and would be a file of that name here.
fn file_to_write(path: PathBuf) -> Result<PathBuf, String> {
    match path.as_os_str() == "-" {
        true => Err("`-` is no file: /dev/stdout is standard output, and ./- a file of that name"
            .to_owned()),
        false => Ok(path),
    }
}

fn architecture(text: &str) -> Result<Arch, String> {
    let known = Arch::ALL.into_iter().find(|arch| arch.to_string() == text);
    known.ok_or_else(|| format!("expected {}", Arch::ALL.map(|arch| arch.to_string()).join(" or ")))
}

/// `8`
/// So much memory, in pages.
fn memory_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let bytes = match &text[digits.len()..] {
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1_u64 << 30),
        _ => None,
    };
    let bytes = bytes.and_then(|unit| digits.parse::<u64>().ok()?.checked_mul(unit));
    let huge = needless_model::addr::PAGE_SIZE * 512;
    let fits = bytes.filter(|bytes| *bytes > 0 && bytes % huge == 0 && *bytes <= 1 << 40);
    fits.map(|bytes| bytes / needless_model::addr::PAGE_SIZE)
        .ok_or_else(|| "expected whole huge pages of 2M up to 1024G: 256M, 4G".to_owned())
}

fn ring_size(text: &str) -> Result<u32, String> {
    let size: u32 = text.parse().map_err(|_| "expected a number of MiB".to_owned())?;
    let fits = size.is_power_of_two() && size <= 1024;
    fits.then_some(size).ok_or_else(|| "expected a power of two from 1 to 1024".to_owned())
}

/// `soft-dirty`
fn optional(text: &str) -> Result<Optional, String> {
    let known = || Optional::ALL.map(|feature| feature.to_string());
    text.parse().map_err(|_| format!("expected {}", known().join(", ")))
}

/// `6.12`
fn release(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('.').map(|(major, minor)| (major.parse(), minor.parse()));
    match numbers {
        Some((Ok(major), Ok(minor))) => Ok((major, minor)),
        _ => Err("expected two numbers, as in 6.12".to_owned()),
    }
}

/// `name=value`
fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declaration_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn assignments_need_both_sides() {
        assert_eq!(assignment("pages=8=9"), Ok(("pages".into(), "8=9".into())));
        assert!(
            assignment("pages").is_err() && assignment("=8").is_err() && assignment("a=").is_err()
        );
    }
}
