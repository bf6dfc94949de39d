//! The command line: what can be asked for, and how help shows it (examples first).

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use needless_check::Schedule;
use needless_guest::Arch;
use needless_report::expect::{self, Expectation};
use needless_report::style::Detail;
use needless_scenario::random::Optional;
use needless_watch::functions::Asked;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Find the page faults, page copies and TLB flushes that a workload did not need.
#[derive(Debug, Parser)]
#[command(
    name = "needless",
    version = env!("NEEDLESS_VERSION"),
    propagate_version = true,
    help_template = crate::groups::template(),
    before_help = "Examples:
  needless compare cow-reuse -t live -t model:6.1   two targets, event by event
  needless run cow-reuse -t model:5.10              one target and its counters
  needless explain cow-reuse -t model:6.12          one round, event by event
  needless stat -- sort -n numbers                  what a program did not need
  needless agree -t live                            is the model exact here?
  needless doctor                                   what can this machine show?
  needless help run                                 how to use a verb"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// When to use colour
    ///
    /// With auto, NO_COLOR and CLICOLOR_FORCE are obeyed.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a scenario on one target and print its counters.
    #[command(before_help = "Examples:
  needless run cow-reuse                       on this kernel
  needless run cow-reuse -t model:6.1          in the model of Linux 6.1
  needless run cow-reuse --set pages=8 --format json
  needless run cow-reuse -t model:6.12 --format parquet > rounds.parquet
  needless scenario random 7 | needless run - -t model:6.12
  needless run dirty-tracking                  all parts of a study")]
    Run(RunArgs),
    /// Run a scenario on several targets and compare their events.
    #[command(before_help = "Examples:
  needless compare cow-reuse                    this kernel and every model row
  needless compare cow-reuse -t live -t model:5.10 -t model:6.12
  needless compare cow-reuse -t kernel:6.1 -t kernel:6.12,cpus=4
                                                real kernels, booted under QEMU
  needless compare cow-reuse -t model:6.12 -t model:6.12,reuse=page-count
  needless compare cow-reuse -t live --expect   status 1 if the model is wrong
  needless compare cow-reuse -t kernel:./bzImage --expect 'shootdowns<=2'
                                                a kernel of your own
  needless compare cow-reuse -t kernel:./bzImage,row=6.12 --format junit
  needless compare cow-reuse --format html -o cow-reuse.html
                                                a page to look at and to share
  needless compare old.json new.json            two saved results: what differs
  needless compare before.json after.json --per 100
                                                two results of `needless stat`")]
    Compare(CompareArgs),
    /// Find the kernel or commit where a scenario's result changed.
    #[command(before_help = "Examples:
  needless bisect cow-reuse --good kernel:6.1 --bad kernel:6.12
                                               where its sequence changed
  needless bisect cow-reuse --good kernel:6.12 --bad kernel:5.10 --expect 'copies=0'
                                               where a condition came to hold
  needless bisect cow-reuse --tree linux --good v6.12 --bad HEAD
                                               among commits, each compiled")]
    Bisect(BisectArgs),
    /// List the events of one round with kernel functions and verdicts.
    #[command(before_help = "Examples:
  needless explain cow-reuse -t model:5.10              the first round
  needless explain cow-reuse -t live --round 7
  needless explain cow-reuse -t model:5.10 --format html -o round.html
                                                        step by step")]
    Explain(ExplainArgs),
    /// Test whether real kernels match their model rows exactly.
    #[command(before_help = "Examples:
  needless agree -t live                       every built-in scenario
  needless agree -t live cow-reuse z_munmap_1  only these two
  needless agree -t live --random 2000         random scenarios, seeds 1 to 2000
  needless agree -t live -t kernel:6.12 --random 500 --report agreement.md
  needless agree -t kernel:6.1 -t kernel:7.3,cpus=3 --random 500
  needless agree -t live --random 2000 --seeds seeds.tsv   the file's next seeds
  needless agree -t live --format json")]
    Agree(AgreeArgs),
    /// Check every interleaving of a small scenario for violations.
    #[command(before_help = "Examples:
  needless check pageout-read                        every row that it names
  needless check pageout-read -t model:5.10          property by property
  needless check pageout-read -t model:6.12,mutant=unmap-not-flushed
                                                     how this mutant fails
  needless check pageout-read --format html -o race.html
                                                     the mutant's race, step by step
  needless check mprotect-reclaim -t model:7.3 --cpus 3
  needless check --catalogue                         every litmus test
  needless check --catalogue --larger                each with one more CPU
  needless check big.kdl -t model:6.12 --key-bits 64 --checkpoint big.checkpoint
                                                     days, with half the memory")]
    Check(CheckArgs),
    /// Watch a command, a process or CPUs and report needless work.
    #[command(before_help = "Examples:
  needless stat -- sort -n numbers             a command and its children
  needless stat --by mapping -- sort -n numbers
                                               figures by mapping
  needless stat -r 5 -- make -j2               five times: medians, ranges
  needless stat -o stat.json --format json -- ./server
  needless stat -p 1234                        a process, until Ctrl-C
  needless stat -p 1234 -- sleep 10            this process, for ten seconds
  needless stat -a -- sleep 10                 every task of the machine
  needless stat -a --format openmetrics -o needless.om -- sleep 10
  needless stat --by-actor -p 1234 -- sleep 10
                                               what the kernel does by itself
  needless stat --perfetto trace.pftrace -- ./server
                                               a trace for ui.perfetto.dev
  needless stat --victims 2-5                  what reaches these CPUs
  needless stat --victims 2-5 --fail-on interrupt -- ./neighbour
                                               status 1 if an interrupt comes")]
    Stat(StatArgs),
    /// Answer a published question, with its figures beside ours.
    #[command(before_help = "Examples:
  needless study                               list the studies
  needless study cow-reuse                     all parts, on guests as well
  needless study cow-reuse -t model -t live -t check   without guests
  needless study cow-reuse --part cost         one part, with all figures
  needless study cow-reuse -v                  all parts, with all figures
  needless study wp-unpopulated --part order --size 256M   less time and memory
  needless study cow-reuse --format md -o cow-reuse.md
  needless study mine.kdl                      a study of your own")]
    Study(StudyArgs),
    /// Report what this machine can show and what would help.
    #[command(before_help = "Examples:
  needless doctor
  needless doctor --clean                      undo what killed runs left behind
  needless doctor --format json")]
    Doctor(DoctorArgs),
    /// List, fetch, build or remove the kernels that targets boot.
    #[command(before_help = "Examples:
  needless kernels list
  needless kernels fetch                       every series with a model row
  needless kernels fetch 6.12 6.17             the newest build of each series
  needless kernels fetch 6.12.94+deb13         this build
  needless kernels build 6.12 --patch fix.patch   a kernel of your own
  needless kernels remove 6.17")]
    Kernels(KernelsArgs),
    /// List, show, draw, check or format scenarios.
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
  needless policies reuse shootdown
  needless policies --format json")]
    Policies(PoliciesArgs),
    /// Print shell completions.
    #[command(before_help = "Examples:
  needless completions bash > /etc/bash_completion.d/needless
  needless completions zsh > ~/.zfunc/_needless
  needless completions fish > ~/.config/fish/completions/needless.fish")]
    Completions {
        /// Shell that the completions are for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for each verb.
    #[command(before_help = "Examples:
  needless man | man -l -
  needless man /usr/local/share/man/man1       then: man needless-compare")]
    Man {
        /// Existing directory to write the pages to
        ///
        /// Without it, the page of `needless` itself is printed.
        directory: Option<PathBuf>,
    },
}

/// The scenario of a verb that runs one.
#[derive(Debug, Args)]
pub struct ScenarioChoice {
    /// Built-in scenario, file, or `-` for standard input.
    #[arg(value_parser = to_load())]
    pub scenario: String,
    /// Set a parameter of the scenario (repeatable).
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    pub settings: Vec<(String, String)>,
    /// Number of rounds that count, in place of the scenario's own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
}

/// How much memory runs of the model may take.
#[derive(Clone, Copy, Debug, Args)]
pub struct MemoryArgs {
    /// Memory that the process may take, in MiB
    ///
    /// A run that needs more is given up (exit status 3). Default: half of the free memory, or of
    /// what a control group or `ulimit` leaves.
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

/// Arguments of `policies`.
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// Policies to list (default: all)
    #[arg(value_name = "POLICY")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub format: FormatArgs,
}

impl Verb {
    /// The files that it writes, with the options that name them.
    pub fn written(&self) -> Vec<(&'static str, &Path)> {
        let files = match self {
            Verb::Run(RunArgs { result, events, .. }) => {
                vec![("--output", &result.output), ("--events", events)]
            }
            Verb::Compare(CompareArgs { output, events, .. }) => {
                vec![("--output", output), ("--events", events)]
            }
            Verb::Agree(AgreeArgs { result, report, seeds, .. }) => {
                vec![("--output", &result.output), ("--report", report), ("--seeds", seeds)]
            }
            Verb::Stat(StatArgs { output, perfetto, .. }) => {
                vec![("--output", output), ("--perfetto", perfetto)]
            }
            _ => Vec::new(),
        };
        files.into_iter().filter_map(|(option, file)| Some((option, file.as_deref()?))).collect()
    }
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

/// How results are printed that can be a page or a table, and where they go.
#[derive(Clone, Debug, Args)]
pub struct ResultArgs {
    /// Write the result to a file, whole or not at all.
    #[arg(short, long, value_name = "FILE", value_parser = to_write())]
    pub output: Option<PathBuf>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = ResultFormat::Text)]
    pub format: ResultFormat,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Undo what killed runs left behind: swap space, settings, mounts
    ///
    /// The machine is not examined then.
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
    /// Target to run the scenario on
    ///
    /// As in live, live,cpus=2,5, kernel:6.12, kernel:6.12,cpus=4, model:6.12 or
    /// model:6.12,mglru=off. Default: live; for a study, all of its targets.
    #[arg(short, long)]
    pub target: Option<String>,
    /// Write the events to a file: as a table if its name ends in .parquet or .arrow, else as JSON
    /// Lines.
    #[arg(long, value_name = "FILE", value_parser = to_write())]
    pub events: Option<PathBuf>,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub detail: DetailArgs,
    #[command(flatten)]
    pub result: ResultArgs,
}

/// How detailed a text is.
#[derive(Copy, Clone, Debug, Default, Args)]
pub struct DetailArgs {
    /// Show every counter, also those that are 0.
    #[arg(short, long)]
    pub verbose: bool,
}

impl DetailArgs {
    /// How detailed the text is.
    pub fn detail(self) -> Detail {
        if self.verbose { Detail::All } else { Detail::Answer }
    }
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub choice: ScenarioChoice,
    /// Second saved result, to be compared with the first
    ///
    /// Both are files that `run`, `compare` or `stat` wrote with --format json. Nothing is run.
    #[arg(value_name = "SAVED", conflicts_with_all = ["targets", "expect", "settings", "rounds", "events", "max_memory", "git_bisect"])]
    pub other: Option<PathBuf>,
    /// Divide the figures of two results of `stat` by N
    ///
    /// N is the number of requests, rounds or other operations in a run.
    #[arg(long, value_name = "N", requires = "other", value_parser = clap::value_parser!(u64).range(1..))]
    pub per: Option<u64>,
    /// Target to run the scenario on (repeatable)
    ///
    /// Default: live and every model row.
    #[arg(short, long = "target", value_name = "TARGET")]
    pub targets: Vec<String>,
    /// End with status 1 unless this holds on every target (repeatable)
    ///
    /// COUNTER<=NUMBER (or <, =, !=, >, >=) has to hold in every round. `exact`, the default if no
    /// condition is given: every real kernel equals its model row. Status 3: not decided.
    #[arg(long, value_name = "CONDITION", num_args = 0..=1, default_missing_value = expect::EXACT)]
    pub expect: Vec<Expectation>,
    /// End with the exit statuses that `git bisect run` expects
    ///
    /// 0: as expected. 1: not as expected. 125 (skip): anything else.
    #[arg(long, requires = "expect")]
    pub git_bisect: bool,
    /// Write the events of all targets to a file, as JSON Lines; to one named *.parquet or *.arrow
    /// as a table.
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
    /// Good kernel, as in kernel:6.1 or kernel:6.1,cpus=3
    ///
    /// With --tree, a revision.
    #[arg(long, value_name = "TARGET")]
    pub good: String,
    /// Bad kernel, older or newer than the good one
    ///
    /// With --tree, a revision that is newer than the good one.
    #[arg(long, value_name = "TARGET")]
    pub bad: String,
    /// Search the commits of this git tree of the kernel
    ///
    /// Each commit is compiled in the cache. The tree is only read.
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// File of configuration lines for the commits
    ///
    /// They come on top of what guests need.
    #[arg(long, value_name = "FILE", requires = "tree")]
    pub config: Option<PathBuf>,
    /// Condition that holds in every round of a good kernel (repeatable)
    ///
    /// COUNTER<=NUMBER (or <, =, !=, >, >=), or `exact`: the kernel equals its model row. Without a
    /// condition, a kernel is good if it has the good kernel's sequence.
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
    /// Target to run the scenario on.
    #[arg(short, long, default_value = "live")]
    pub target: String,
    /// Round to list, counted from 0 after the warm-up.
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
    /// Real kernel to compare with its model row (repeatable)
    ///
    /// As in live, kernel:6.12 or kernel:6.12,cpus=3.
    #[arg(short, long = "target", value_name = "TARGET", default_value = "live")]
    pub targets: Vec<String>,
    /// Built-in scenarios, files, or `-` for standard input
    ///
    /// Default: every built-in scenario, unless random ones are asked for.
    #[arg(value_parser = to_load())]
    pub scenarios: Vec<String>,
    /// Run every built-in scenario, besides the others.
    #[arg(long)]
    pub builtin: bool,
    /// Number of random scenarios.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub random: Option<u32>,
    /// Number of random scenarios on the running kernel
    ///
    /// Default: that of --random.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub random_live: Option<u32>,
    /// Seed of the first random scenario
    ///
    /// Each further scenario has the next seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Take the next seeds of this file
    ///
    /// They are noted in the file before they run, so that no seed counts as evidence twice.
    #[arg(long, value_name = "FILE", value_parser = to_write(), conflicts_with = "seed")]
    pub seeds: Option<PathBuf>,
    /// What random scenarios may ask for.
    #[arg(long, value_enum, default_value_t = Draw::There)]
    pub draw: Draw,
    /// Number of booted kernels that run side by side
    ///
    /// Each keeps as many processors busy as its scenarios have CPUs. On a machine with fewer
    /// processors, one kernel at a time is faster. The running kernel runs alone, before them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Directory for the scenarios that differ or stay undecided
    ///
    /// Of a scenario that differs, the smallest one that still differs is written.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Write the results and the rules to a file, as Markdown.
    #[arg(long, value_name = "FILE", value_parser = to_write())]
    pub report: Option<PathBuf>,
    /// Number of rounds that count, in place of each scenario's own
    ///
    /// Random scenarios keep theirs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub result: ResultArgs,
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
    /// List the kernels in the cache and those in Debian's archive.
    #[command(
        before_help = "Examples:\n  needless kernels list\n  needless kernels list --arch arm64"
    )]
    List {
        /// Architecture of the archive's kernels: x86-64 or arm64.
        #[arg(long, value_name = "ARCH", default_value = "x86-64", value_parser = architecture)]
        arch: Arch,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Fetch kernels from Debian's archive, with apt's signature checks.
    #[command(before_help = "Examples:
  needless kernels fetch                  every series with a model row
  needless kernels fetch 6.12 6.17        the newest build of each series
  needless kernels fetch 6.12.94+deb13    this build
  needless kernels fetch 6.12/arm64       a series for arm64")]
    Fetch {
        /// Series or builds
        ///
        /// Default: every series that has a model row and that Debian has a kernel of.
        kernels: Vec<String>,
    },
    /// Compile a kernel for guests from Debian's source, with patches.
    #[command(before_help = "Examples:
  needless kernels build 6.12 --patch fix.patch         then: -t kernel:6.12+fix
  needless kernels build 6.12 --patch a.patch --patch b.patch --name mine
  needless kernels build 6.12 --config debug.config     more CONFIG_ lines
  needless kernels build 6.12/arm64 --patch fix.patch   for arm64")]
    Build {
        /// Series, as in 6.12 or 6.12/arm64.
        series: String,
        /// Patch, as `git diff` writes it (repeatable)
        ///
        /// Patches are applied in the order given.
        #[arg(long = "patch", value_name = "FILE")]
        patches: Vec<PathBuf>,
        /// File of configuration lines, as in CONFIG_DEBUG_VM=y
        ///
        /// They come on top of what guests need.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Name of the kernel
        ///
        /// Default: SERIES+PATCH, or SERIES+guest without a patch.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Remove kernels from the cache.
    #[command(before_help = "Examples:\n  needless kernels remove 6.12 6.17")]
    Remove {
        /// Kernels, by the names that `needless kernels list` shows.
        #[arg(required = true)]
        kernels: Vec<String>,
    },
}

/// What makes an exploration shorter (docs/checker.md).
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Reduction {
    /// Take steps that commute in one order only.
    SleepSets,
    /// Treat threads that do the same as interchangeable.
    Symmetry,
    /// Recall steps that were taken before from the same parts of the world.
    Recall,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Litmus test, built-in scenario, file, or `-` for standard input
    ///
    /// `needless scenario list` shows the litmus tests.
    #[arg(value_parser = to_load())]
    pub scenario: Option<String>,
    /// Model row to check, as in model:6.12 (repeatable)
    ///
    /// Default: the rows that the scenario's `litmus` node names.
    #[arg(short, long = "target", value_name = "TARGET", conflicts_with = "catalogue")]
    pub targets: Vec<String>,
    /// Check every litmus test on every row that it names.
    #[arg(long, conflicts_with = "scenario")]
    pub catalogue: bool,
    /// Give each litmus test one more thread, on a CPU of its own
    ///
    /// The thread does what another one does, or else loads from a page. A test that must fail may
    /// then fail by another property.
    #[arg(long, requires = "catalogue")]
    pub larger: bool,
    /// Set a parameter of the scenario (repeatable).
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment, conflicts_with = "catalogue")]
    pub settings: Vec<(String, String)>,
    /// Number of CPUs, for a scenario with a parameter `cpus`.
    #[arg(long, value_name = "N", conflicts_with = "catalogue")]
    pub cpus: Option<u16>,
    /// Number of states after which to give up (exit status 3).
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    pub max_states: usize,
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Number of seconds after which to give up (exit status 3).
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub deadline: Option<Duration>,
    /// Number of bits to keep of each state's key, from 16 to 128
    ///
    /// 64 bits take half the memory of 128. With fewer than 128, the output says how likely it is
    /// that a state was missed.
    #[arg(long, value_name = "BITS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(16..=128))]
    pub key_bits: u32,
    /// Let a thread go alone where no other one will ever notice its next step
    ///
    /// There are fewer states, and the verdict and the counterexample are the same. Steps that
    /// commute are taken in every order then.
    #[arg(long, conflicts_with = "checkpoint")]
    pub persistent_sets: bool,
    /// Leave out a reduction (repeatable)
    ///
    /// The verdict is the same, but takes longer.
    #[arg(long, value_name = "REDUCTION")]
    pub without: Vec<Reduction>,
    /// Save the progress of the exploration in this file
    ///
    /// It is written at most once a minute, and removed at the end. If it exists, the exploration
    /// goes on from it.
    #[arg(long, value_name = "FILE", requires = "targets", conflicts_with = "replay")]
    pub checkpoint: Option<PathBuf>,
    /// Show the steps of one schedule, as a counterexample prints it.
    #[arg(long, value_name = "SCHEDULE", requires = "targets")]
    pub replay: Option<Schedule>,
    /// Number of worker threads
    ///
    /// Default: one for each CPU. The result does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    #[command(flatten)]
    pub page: PageArgs,
}

/// Reads a positive number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.parse().map_err(|_| "expected a number of seconds, as in 60".to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|d| !d.is_zero());
    duration.ok_or_else(|| "expected a number of seconds above 0, as in 60".to_owned())
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
    /// Watch this process and all that it starts from now on.
    #[arg(short, long, value_name = "PID", conflicts_with = "all", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Watch every task of the machine.
    #[arg(short, long)]
    pub all: bool,
    /// Number of times to run the command.
    #[arg(short, long, value_name = "N", default_value_t = 1, requires = "command", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Write the report to a file
    ///
    /// Default: standard output, or standard error if a command is given.
    #[arg(short, long, value_name = "FILE", value_parser = to_write())]
    pub output: Option<PathBuf>,
    /// Record every interrupt from one CPU to another
    ///
    /// Interrupts for wake-ups and rescheduling are then recorded too, so that all lines of
    /// /proc/interrupts can be accounted for. Costs two to five records for each wake-up.
    #[arg(long)]
    pub every_interrupt: bool,
    /// Report how long faults waited off their CPU, and for what
    ///
    /// For userfaultfd's answer, page migration, a page read, a page lock, dirty throttling, free
    /// memory or another lock. Costs three records for each context switch.
    #[arg(long)]
    pub waits: bool,
    /// Report what the kernel does of its own accord, by actor
    ///
    /// Actors are khugepaged, compaction, NUMA balancing, kswapd, KSM and writeback. The report has
    /// their flushes, interrupts and faults, and the time that these took.
    #[arg(long)]
    pub by_actor: bool,
    /// Write single events to a file, as a Perfetto trace for ui.perfetto.dev
    ///
    /// The trace has tracks of CPUs and threads, faults with their class, and interrupts with
    /// arrows from their senders. It contains addresses.
    #[arg(long, value_name = "FILE", value_parser = to_write(), conflicts_with = "repeat")]
    pub perfetto: Option<PathBuf>,
    /// Guard these CPUs, as in 2-5,8
    ///
    /// Only what reaches them is reported, in order of time, with its cause and what keeps it away.
    /// Without a command, until Ctrl-C.
    #[arg(long, value_name = "CPUS", value_parser = cpu_list, conflicts_with_all = ["pid", "all", "every_interrupt", "waits", "by_actor", "repeat"])]
    pub victims: Option<Cpus>,
    /// End with status 1 if an interrupt reached a guarded CPU
    ///
    /// If causes are given, only these count, as in interrupt=tlb-flush,table-sync. The cause
    /// lru-drain is the run of a kernel thread.
    #[arg(long, value_name = "interrupt[=CAUSE,…]", requires = "victims", value_parser = fail_on)]
    pub fail_on: Option<FailOn>,
    /// Add up all figures by this, in one table in place of the others.
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "victims")]
    pub by: Option<StatBy>,
    /// Also print rules, start-up classes, call stacks and kernel counts
    ///
    /// These are the rules of the classes, each start-up class, the stacks of calls that flushed,
    /// and the kernel's own counts.
    #[arg(short, long)]
    pub verbose: bool,
    /// Size of each CPU's ring of events, in MiB: a power of two up to 1024.
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = ring_size)]
    pub buffer: u32,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = StatFormat::Text)]
    pub format: StatFormat,
    /// Command to run, with its arguments
    ///
    /// With -p, -a or --victims, it only says how long to watch.
    #[arg(last = true, required_unless_present_any = ["pid", "all", "victims"])]
    pub command: Vec<std::ffi::OsString>,
}

/// What the figures of `stat` are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StatBy {
    /// By mapping.
    Mapping,
    /// By call site, or by instruction that took the fault.
    Site,
    /// By thread.
    Thread,
    /// By process.
    Process,
    /// By system call that was made, or that had taken the page.
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

/// A list of CPUs, in order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(pub Vec<u16>);

/// Reads a list of CPUs as the kernel writes it. All of them must be online.
fn cpu_list(text: &str) -> Result<Cpus, String> {
    let listed = needless_watch::rings::cpus(text).filter(|cpus| !cpus.is_empty());
    let mut cpus = listed.ok_or_else(|| "expected a list of CPUs, as in 2-5,8".to_owned())?;
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
        return Err("expected `interrupt` or `interrupt=CAUSE,…`".to_owned());
    }
    let Some(causes) = causes else { return Ok(FailOn(None)) };
    let known = || Asked::all().map(Asked::slug).collect::<Vec<_>>().join(", ");
    let cause = |name: &str| {
        Asked::named(name)
            .ok_or_else(|| format!("there is no cause `{name}`; the causes are {}", known()))
    };
    Ok(FailOn(Some(causes.split(',').map(cause).collect::<Result<_, _>>()?)))
}

/// Arguments of `study`.
#[derive(Debug, Args)]
pub struct StudyArgs {
    /// Built-in study, or a file
    ///
    /// Without it, the studies are listed.
    pub study: Option<String>,
    /// Run only this part, and print all of its figures.
    #[arg(long, value_name = "PART", requires = "study")]
    pub part: Option<String>,
    /// Print all figures, runs, relations and checks, not only the answer.
    #[arg(short, long, requires = "study")]
    pub verbose: bool,
    /// Memory that the study works on, as in 256M or 4G
    ///
    /// For studies that have a size. Default: the size that the study names.
    #[arg(long, value_name = "SIZE", value_parser = memory_size, requires = "study")]
    pub size: Option<u64>,
    /// Run only on this target (repeatable)
    ///
    /// One of model, live, kernel (guests), check (the checker), or one of the study's own targets.
    /// The report names what would need the other targets.
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
        /// Built-in scenario, file, or `-` for standard input.
        #[arg(value_parser = to_load())]
        scenario: String,
    },
    /// Print the random scenario that `agree --random` draws for a seed.
    #[command(before_help = "Examples:
  needless scenario random 1742 > random-1742.kdl
  needless scenario random 1742 --kernel 5.10   only operations that 5.10 has
  needless scenario random 1742 --cpus 3        as drawn for kernel:7.3,cpus=3
  needless scenario random 1742 --without soft-dirty
                                                for a kernel without these bits")]
    Random {
        /// Seed of the scenario.
        seed: u64,
        /// Kernel series that the scenario is drawn for
        ///
        /// Older series lack some operations.
        #[arg(long, value_name = "RELEASE", default_value = "7.3", value_parser = release)]
        kernel: (u32, u32),
        /// Number of CPUs that the scenario is drawn for
        ///
        /// With fewer CPUs, fewer threads and processes run beside the main thread.
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
        cpus: u16,
        /// Feature that the kernel or the machine lacks (repeatable)
        ///
        /// One of soft-dirty, huge-pages, userfaultfd and nodes.
        #[arg(long, value_name = "FEATURE", value_parser = optional)]
        without: Vec<Optional>,
    },
    /// Read scenarios and report their mistakes.
    #[command(before_help = "Examples:\n  needless scenario check mine.kdl --set pages=64")]
    Check {
        /// Built-in scenarios, files, or `-` for standard input.
        #[arg(required = true, value_parser = to_load())]
        scenarios: Vec<String>,
        /// Set a parameter of the scenarios (repeatable).
        #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
        settings: Vec<(String, String)>,
    },
    /// Print scenarios in the standard layout, with their comments.
    #[command(before_help = "Examples:
  needless scenario fmt mine.kdl           print
  needless scenario fmt --write mine.kdl   change the file")]
    Fmt {
        /// Built-in scenarios, files, or `-` for standard input.
        #[arg(required = true, value_parser = to_load())]
        scenarios: Vec<String>,
        /// Write the result back to the file, in place of printing it.
        #[arg(long)]
        write: bool,
    },
}

/// What random scenarios may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Draw {
    /// What the target has: its release, its CPUs, and what it was built with.
    There,
    /// Everything; what a target lacks is not applicable there.
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

/// How runs and agreements are printed, which can be a page or a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// For people.
    Text,
    /// For programs; the schemas are in docs/schema.
    Json,
    /// A page for people: one HTML file that needs nothing else (docs/pages.md).
    Html,
    /// A table in a Parquet file: a row for each round or scenario (docs/tables.md).
    Parquet,
    /// The table in an Arrow file.
    Arrow,
}

impl ResultFormat {
    /// The kind of table that the user asks for; `None`: no table.
    pub fn table(self) -> Option<needless_tables::Format> {
        match self {
            ResultFormat::Parquet => Some(needless_tables::Format::Parquet),
            ResultFormat::Arrow => Some(needless_tables::Format::Arrow),
            _ => None,
        }
    }
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
    /// TAP 14: a line for each of these test cases.
    Tap,
    /// A page for people: one HTML file that needs nothing else (docs/pages.md).
    Html,
    /// A table in a Parquet file: a row for each round (docs/tables.md).
    Parquet,
    /// The table in an Arrow file.
    Arrow,
}

impl CompareFormat {
    /// The kind of table that the user asks for; `None`: no table.
    pub fn table(self) -> Option<needless_tables::Format> {
        match self {
            CompareFormat::Parquet => Some(needless_tables::Format::Parquet),
            CompareFormat::Arrow => Some(needless_tables::Format::Arrow),
            _ => None,
        }
    }
}

/// How `stat` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatFormat {
    /// For people.
    Text,
    /// For programs; the schema is docs/schema/stat.schema.json.
    Json,
    /// OpenMetrics, for Prometheus: one sample (docs/stat.md lists the families).
    Openmetrics,
    /// A page for people: one HTML file that needs nothing else (docs/pages.md).
    Html,
    /// A table in a Parquet file, with a row for each figure (docs/tables.md).
    Parquet,
    /// The table in an Arrow file.
    Arrow,
}

impl StatFormat {
    /// The kind of table that the user asks for; `None`: no table.
    pub fn table(self) -> Option<needless_tables::Format> {
        match self {
            StatFormat::Parquet => Some(needless_tables::Format::Parquet),
            StatFormat::Arrow => Some(needless_tables::Format::Arrow),
            _ => None,
        }
    }
}

/// How studies are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StudyFormat {
    /// For people.
    Text,
    /// For programs; the schema is docs/schema/study.schema.json.
    Json,
    /// Markdown, for documents.
    Md,
    /// A page for people: one HTML file that needs nothing else (docs/pages.md).
    Html,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// Use colour on a terminal.
    Auto,
    /// Always use colour.
    Always,
    /// Never use colour.
    Never,
}

/// Takes the name of a scenario, or the path of its file. It must be UTF-8, because JSON documents
/// contain it.
fn to_load() -> impl TypedValueParser<Value = String> {
    clap::builder::OsStringValueParser::new().try_map(|name| {
        name.into_string().map_err(|_| {
            "a scenario's path has to be UTF-8; rename the file, or pass its text with: - <FILE"
        })
    })
}

/// Takes the path of a file to write, whatever bytes are in it.
fn to_write() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(file_to_write)
}

/// Reads the path of a file to write. `-` names standard output elsewhere, and would be a file of
/// that name here.
fn file_to_write(path: PathBuf) -> Result<PathBuf, String> {
    match path.as_os_str() == "-" {
        true => {
            Err("`-` is not a file here: write /dev/stdout, or ./- for a file of that name"
                .to_owned())
        }
        false => Ok(path),
    }
}

/// Reads an architecture: `x86-64` or `arm64`.
fn architecture(text: &str) -> Result<Arch, String> {
    let known = Arch::ALL.into_iter().find(|arch| arch.to_string() == text);
    known.ok_or_else(|| format!("expected {}", Arch::ALL.map(|arch| arch.to_string()).join(" or ")))
}

/// Reads an amount of memory and returns it in pages.
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
        .ok_or_else(|| "expected a multiple of 2M up to 1024G, as in 256M or 4G".to_owned())
}

/// Reads the size of a ring in MiB, such as `8`.
fn ring_size(text: &str) -> Result<u32, String> {
    let size: u32 = text.parse().map_err(|_| "expected a number of MiB, as in 8".to_owned())?;
    let fits = size.is_power_of_two() && size <= 1024;
    fits.then_some(size).ok_or_else(|| "expected a power of two from 1 to 1024".to_owned())
}

/// Reads the name of a feature that a target may lack: `soft-dirty`.
fn optional(text: &str) -> Result<Optional, String> {
    let known = || Optional::ALL.map(|feature| feature.to_string());
    text.parse().map_err(|_| format!("expected {}", known().join(", ")))
}

/// Reads a release: `6.12`.
fn release(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('.').map(|(major, minor)| (major.parse(), minor.parse()));
    match numbers {
        Some((Ok(major), Ok(minor))) => Ok((major, minor)),
        _ => Err("expected two numbers, as in 6.12".to_owned()),
    }
}

/// Reads an assignment: `name=value`.
fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("expected NAME=VALUE, as in pages=8".to_owned()),
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
