//! What can go wrong, with the remedy.

use miette::Diagnostic;
use needless_model::foreign;
use needless_runner::limits::{self, NO_PROC};
use needless_runner::wire::{Failure, FailureKind};
use std::ops::Range;
use std::path::PathBuf;
use thiserror::Error;

/// Why a kernel cannot be had.
#[derive(Debug, Error, Diagnostic)]
pub enum FetchError {
    /// There is no home for the cache.
    #[error("there is no place for the cache")]
    #[diagnostic(help("set XDG_CACHE_HOME, or HOME"))]
    NoCache,
    /// A file or folder of the cache.
    #[error("{}: {}", foreign::path(path), limits::words(error))]
    #[diagnostic(help(
        "{}",
        limits::remedy_of(error).unwrap_or("the cache is in XDG_CACHE_HOME, or in ~/.cache")
    ))]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The place for the cache is not understood.
    #[error("{variable} is `{}`, which is not an absolute path", foreign::path(path))]
    #[diagnostic(help(
        "name an absolute path, or unset it; nothing was changed (the XDG base directory specification ignores relative paths)"
    ))]
    RelativeCache {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// The place for the cache has a name that other programs would misread.
    #[error("{variable} is `{}`, which has a control character in it", foreign::path(path))]
    #[diagnostic(help("name another folder, or unset it; nothing was changed"))]
    OddCache {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// Somebody else could put into the cache what we would run.
    #[error("{} {why}, but what is in the cache runs as user {own}", foreign::path(folder))]
    #[diagnostic(help(
        "name a folder of your own in XDG_CACHE_HOME; with sudo, `sudo -H` sets HOME to root's; nothing was changed"
    ))]
    NotOurs {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        why: String,
        /// Who we are.
        own: u32,
    },
    /// The disk is full.
    #[error("the disk that {} lies on is full", foreign::path(folder))]
    #[diagnostic(help(
        "free some space (fetching takes up to 500 MB there), or set XDG_CACHE_HOME to a folder on another disk; partial downloads were removed"
    ))]
    Full {
        /// Where.
        folder: PathBuf,
    },
    /// apt's lists cannot be read.
    #[error("apt cannot tell what the archive has: {detail}")]
    #[diagnostic(help("try again; `needless kernels list` shows what is cached"))]
    Lists {
        /// What apt complains of.
        detail: String,
    },
    /// A program does not come to an end.
    #[error("`{program}` was ended: it made no progress for {seconds} s")]
    #[diagnostic(help("try again; `needless kernels list` shows what is cached"))]
    Stuck {
        /// Which.
        program: String,
        /// How long.
        seconds: u64,
    },
    /// A kernel in the cache is not what was fetched.
    #[error("kernel {name} in the cache is damaged: {}: {what}", foreign::path(file))]
    #[diagnostic(help("{remedy}"))]
    Damaged {
        /// Which.
        name: String,
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What makes it whole.
        remedy: String,
    },
    /// A program that is needed.
    #[error("`{program}` cannot be run: {error}")]
    #[diagnostic(help("kernels come from Debian's archive, and apt and dpkg fetch them"))]
    Program {
        /// Which.
        program: String,
        /// Why.
        error: std::io::Error,
    },
    /// This machine knows no Debian archive.
    #[error("this machine's apt configuration names no Debian archive ({found})")]
    #[diagnostic(help(
        "kernels come from Debian's archive: add a row for a Debian release to the apt sources"
    ))]
    NoArchive {
        /// What it names.
        found: String,
    },
    /// The archive cannot be reached.
    #[error("Debian's archive cannot be reached: {detail}")]
    #[diagnostic(help("{}", remedy_or(detail, cached)))]
    Unreachable {
        /// What apt says.
        detail: String,
        /// What there is without it.
        cached: String,
    },
    /// The archive does not have the kernel.
    #[error("Debian's archive has no kernel {}; {available}", foreign::short(wanted))]
    #[diagnostic(help("{cached}"))]
    Gone {
        /// What was asked for.
        wanted: String,
        /// What is to be had.
        available: String,
        /// What there is without the archive.
        cached: String,
    },
    /// A package did not come.
    #[error("`apt-get download` failed: {detail}")]
    #[diagnostic(help(
        "{}",
        remedy_or(detail, "try again; `needless kernels list` shows what is available")
    ))]
    Download {
        /// What apt says.
        detail: String,
    },
    /// A package holds something else than expected.
    #[error("package {package}: {what}")]
    #[diagnostic(help(
        "`needless kernels list` shows other builds; name one instead of the series"
    ))]
    Package {
        /// Which.
        package: String,
        /// What is wrong.
        what: String,
    },
    /// It is not in the cache.
    #[error("kernel {} is not cached", foreign::short(name))]
    #[diagnostic(help("{cached}"))]
    NotCached {
        /// Which.
        name: String,
        /// What is.
        cached: String,
    },
}

/// Why a scenario has no result on a guest.
#[derive(Debug, Error, Diagnostic)]
pub enum GuestError {
    /// The kernel cannot be had.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Fetch(#[from] FetchError),
    /// A kernel or option that is not understood.
    #[error("kernel target `{}`: {what}", foreign::short(text))]
    #[diagnostic(help("{help}"))]
    BadTarget {
        /// What was asked for.
        text: String,
        /// What is wrong with it.
        what: String,
        /// What is right.
        help: String,
        /// Where in the text.
        at: Range<usize>,
    },
    /// An image that cannot be booted.
    #[error("`{}`: {what}", foreign::path(path))]
    #[diagnostic(help(
        "build one with `make bzImage` (arch/x86/boot/bzImage), for arm64 with `make Image` (arch/arm64/boot/Image)"
    ))]
    BadImage {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Modules that do not go with the image.
    #[error("modules in `{}`: {what}", foreign::path(folder))]
    #[diagnostic(help(
        "modules= names the folder with the image's own modules: the DIR of `make modules_install INSTALL_MOD_PATH=DIR`, or the tree that the image was built in. Without modules=, everything that is needed has to be built in"
    ))]
    BadModules {
        /// Where they lie.
        folder: PathBuf,
        /// What is wrong with them.
        what: String,
    },
    /// A kernel without something that is needed.
    #[error("{what} lacks {parts}")]
    #[diagnostic(help(
        "set these options (=y; =m only with modules=DIR) and build the kernel again; docs/own-kernels.md has all that a guest needs"
    ))]
    Lacks {
        /// Which kernel, or which run on it.
        what: String,
        /// What it lacks, with the options' names.
        parts: String,
    },
    /// There is no QEMU.
    #[error("`{program}` is missing{why}")]
    #[diagnostic(help("{}", remedy_or(why, &format!("install it: `apt-get install {package}`"))))]
    QemuMissing {
        /// The program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
        /// Why it could not be installed.
        why: String,
    },
    /// There is no image for the guest's disk.
    #[error("a guest's disk cannot be made: {why}")]
    #[diagnostic(help("{}", remedy_or(why, "install it: `apt-get install e2fsprogs`")))]
    NoDisk {
        /// Why.
        why: String,
    },
    /// There is no runner.
    #[error("`{name}` was not found in {places}")]
    #[diagnostic(help("build it with `make build`, or name it in the variable {variable}"))]
    RunnerMissing {
        /// Its name.
        name: &'static str,
        /// The variable that may name it.
        variable: &'static str,
        /// Where it was looked for.
        places: String,
    },
    /// The runner cannot be used in a guest.
    #[error("the runner cannot be a guest's /init: {what}")]
    #[diagnostic(help("build it with `make build`"))]
    Runner {
        /// What is wrong.
        what: String,
    },
    /// A file that the guest is made of.
    #[error("{}: {}", foreign::path(path), limits::words(error))]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The guest stopped.
    #[error("the guest {what}{console}")]
    #[diagnostic(help("{remedy}"))]
    Stopped {
        /// What it did.
        what: String,
        /// The end of its console.
        console: String,
        /// What helps.
        remedy: String,
    },
    /// There is no `/proc`.
    #[error("{}", NO_PROC.0)]
    #[diagnostic(help("{}", NO_PROC.1))]
    NoProc,
    /// A program that is there cannot be run.
    #[error("`{program}` cannot be run: {error}")]
    #[diagnostic(help(
        "{}",
        limits::remedy_of(error).unwrap_or("its package may be damaged: install it again")
    ))]
    Unusable {
        /// Which.
        program: &'static str,
        /// Why.
        error: std::io::Error,
    },
    /// The guest's runner does not keep to the protocol.
    #[error("the guest's runner {what}")]
    #[diagnostic(help("build `needless` and `needless-runner` together: `make build`"))]
    Confused {
        /// What it did.
        what: String,
    },
    /// The plugin's counts do not fit the guest's answer.
    #[error("instructions were not counted: {what}")]
    #[diagnostic(help("build `needless`, its runners and its QEMU plugin together: `make build`"))]
    Uncounted {
        /// What is wrong.
        what: String,
    },
    /// This kernel or guest lacks something.
    #[error("{what}")]
    #[diagnostic(help("model targets still run; cpus=N gives a guest more CPUs"))]
    Unsupported {
        /// What.
        what: String,
    },
    /// The scenario failed.
    #[error("the scenario failed: {0}")]
    #[diagnostic(help("the model shows the same failure if it is the scenario's fault"))]
    ProgramFailed(Failure),
}

/// How `kernel:` targets are written.
pub(crate) const USUAL_TARGETS: &str = "write kernel:SERIES[/arm64] or kernel:./IMAGE[,modules=DIR], then [,cpus=N][,mem=SIZE][,nodes=N or SIZE+SIZE:latency=NS…][,cpu=PROCESSOR][,thp=always|madvise|never][,row=MODEL ROW][,append=COMMAND LINE], as in kernel:6.12,cpus=4,mem=2G";

/// What QEMU's own words begin with.
const QEMU: &str = "qemu";

impl GuestError {
    /// A guest that stopped: what helps is told by its console, where QEMU speaks as well.
    pub(crate) fn stopped(what: String, console: String) -> GuestError {
        let mut lines = console.lines().map(str::trim_start);
        let remedy = match limits::remedy_in(&what).or_else(|| limits::remedy_in(&console)) {
            Some(remedy) => remedy,
            None if lines.any(|line| line.starts_with(QEMU)) => {
                "QEMU stopped, and its message says why"
            }
            None => {
                "run it again; guests take longer on a busy machine, and mem= gives them more memory"
            }
        };
        GuestError::Stopped { what, console, remedy: remedy.to_owned() }
    }

    /// The same with another remedy, where this is a guest that stopped.
    pub(crate) fn with_remedy(mut self, other: String) -> GuestError {
        if let GuestError::Stopped { remedy, .. } = &mut self {
            *remedy = other;
        }
        self
    }

    /// The exit status of a command that fails because of this.
    pub fn exit_status(&self) -> u8 {
        match self {
            GuestError::BadTarget { .. }
            | GuestError::BadImage { .. }
            | GuestError::BadModules { .. }
            | GuestError::Fetch(FetchError::Gone { .. }) => 2,
            GuestError::Unsupported { .. } | GuestError::Lacks { .. } => 121,
            _ => 125,
        }
    }

    /// Whether the guest is no longer there.
    pub fn is_end(&self) -> bool {
        matches!(
            self,
            GuestError::Stopped { .. } | GuestError::Confused { .. } | GuestError::Uncounted { .. }
        )
    }
}

impl From<Failure> for GuestError {
    fn from(failure: Failure) -> GuestError {
        match failure.kind {
            FailureKind::Unsupported => GuestError::Unsupported { what: failure.what },
            _ => GuestError::ProgramFailed(failure),
        }
    }
}

/// What helps against what another program said: against a limit that it met, else the usual.
fn remedy_or(said: &str, usual: &str) -> String {
    limits::remedy_in(said).unwrap_or(usual).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_tell_the_cause() {
        let failure = |kind| GuestError::from(Failure::new(kind, "x")).exit_status();
        assert_eq!(failure(FailureKind::Unsupported), 121);
        assert_eq!(failure(FailureKind::Operation), 125);
        let bad = GuestError::BadImage { path: "x".into(), what: "y".into() };
        assert_eq!(bad.exit_status(), 2);
        let lacks = GuestError::Lacks { what: "x".into(), parts: "y".into() };
        assert_eq!(lacks.exit_status(), 121);
    }

    #[test]
    fn a_limit_that_stops_an_installation_is_named() {
        let help = |why: &str| {
            let why = why.to_owned();
            let missing = GuestError::QemuMissing { program: "qemu", package: "qemu", why };
            missing.help().unwrap().to_string()
        };
        assert!(help("").contains("apt-get install qemu"));
        assert!(help(", and apt failed: E: pipe (24: Too many open files)").contains("ulimit -n"));
    }

    #[test]
    fn the_console_tells_what_helps() {
        let help = |console: &str| {
            let error = GuestError::stopped("ended".into(), console.into());
            error.help().map(|help| help.to_string()).unwrap_or_default()
        };
        assert!(
            help("ends with\n  qemu: open() failed: Too many open files").contains("ulimit -n")
        );
        assert!(help("\n  qemu-system-x86_64: Cannot allocate memory").contains("ulimit -v"));
        assert!(help("\n  qemu-system-x86_64: no such device").contains("QEMU stopped"));
        assert!(help("; its console is empty").contains("run it again"));
    }
}
