//! Errors of this crate, with their remedies.

use miette::Diagnostic;
use needless_model::foreign;
use needless_runner::interrupt::Interrupted;
use needless_runner::limits::{self, NO_PROC};
use needless_runner::wire::{Failure, FailureKind};
use std::ops::Range;
use std::path::PathBuf;
use thiserror::Error;

/// Why a kernel is not available.
#[derive(Debug, Error, Diagnostic)]
pub enum FetchError {
    /// Neither XDG_CACHE_HOME nor HOME is set.
    #[error("there is no place for the cache")]
    #[diagnostic(help("set XDG_CACHE_HOME, or HOME"))]
    NoCache,
    /// An operation on a file or folder of the cache failed.
    #[error("{}: {}", foreign::path(path), limits::words(error))]
    #[diagnostic(help(
        "{}",
        limits::remedy_of(error).unwrap_or("the cache is in XDG_CACHE_HOME, or in ~/.cache")
    ))]
    File {
        /// The path of the file or folder.
        path: PathBuf,
        /// The error of the operation.
        error: std::io::Error,
    },
    /// The path for the cache is relative.
    #[error("{variable} is `{}`, which is not an absolute path", foreign::path(path))]
    #[diagnostic(help(
        "name an absolute path, or unset it; nothing was changed (the XDG base directory specification ignores relative paths)"
    ))]
    RelativeCache {
        /// The name of the variable.
        variable: &'static str,
        /// The value of the variable.
        path: PathBuf,
    },
    /// The path for the cache has characters that other programs would misread.
    #[error("{variable} is `{}`, which has a control character in it", foreign::path(path))]
    #[diagnostic(help("name another folder, or unset it; nothing was changed"))]
    OddCache {
        /// The name of the variable.
        variable: &'static str,
        /// The value of the variable.
        path: PathBuf,
    },
    /// Another user could put files into the cache that we would run.
    #[error("{} {why}, but what is in the cache runs as user {own}", foreign::path(folder))]
    #[diagnostic(help(
        "name a folder of your own in XDG_CACHE_HOME; with sudo, `sudo -H` sets HOME to root's; nothing was changed"
    ))]
    NotOurs {
        /// The folder of the cache, or one above it.
        folder: PathBuf,
        /// The owner or the mode of the folder, in words.
        why: String,
        /// The user id of this process.
        own: u32,
    },
    /// The disk is full.
    #[error("the disk that {} lies on is full", foreign::path(folder))]
    #[diagnostic(help(
        "free some space (fetching takes up to 500 MB there), or set XDG_CACHE_HOME to a folder on another disk; partial downloads were removed"
    ))]
    Full {
        /// The folder on the full disk.
        folder: PathBuf,
    },
    /// apt's lists cannot be read.
    #[error("apt cannot tell what the archive has: {detail}")]
    #[diagnostic(help("try again; `needless kernels list` shows what is cached"))]
    Lists {
        /// apt's complaints.
        detail: String,
    },
    /// A program made no progress and was ended.
    #[error("`{program}` was ended: it made no progress for {seconds} s")]
    #[diagnostic(help("try again; `needless kernels list` shows what is cached"))]
    Stuck {
        /// The name of the program.
        program: String,
        /// Seconds without progress.
        seconds: u64,
    },
    /// A file of a cached kernel has changed.
    #[error("kernel {name} in the cache is damaged: {}: {what}", foreign::path(file))]
    #[diagnostic(help("{remedy}"))]
    Damaged {
        /// The name of the kernel.
        name: String,
        /// The path of the file.
        file: PathBuf,
        /// The damage, in words.
        what: String,
        /// How to repair it.
        remedy: String,
    },
    /// A necessary program cannot be run.
    #[error("`{program}` cannot be run: {error}")]
    #[diagnostic(help("kernels come from Debian's archive, and apt and dpkg fetch them"))]
    Program {
        /// The name of the program.
        program: String,
        /// The error of the start.
        error: std::io::Error,
    },
    /// This machine's apt configuration names no Debian archive.
    #[error("this machine's apt configuration names no Debian archive ({found})")]
    #[diagnostic(help(
        "kernels come from Debian's archive: add a row for a Debian release to the apt sources"
    ))]
    NoArchive {
        /// The archives that it names.
        found: String,
    },
    /// The archive cannot be reached.
    #[error("Debian's archive cannot be reached: {detail}")]
    #[diagnostic(help("{}", remedy_or(detail, cached)))]
    Unreachable {
        /// apt's complaints.
        detail: String,
        /// The cached kernels, in words.
        cached: String,
    },
    /// The archive does not have the kernel.
    #[error("Debian's archive has no kernel {}; {available}", foreign::short(wanted))]
    #[diagnostic(help("{cached}"))]
    Gone {
        /// The kernel that was asked for.
        wanted: String,
        /// The kernels that the archive has, in words.
        available: String,
        /// The cached kernels, in words.
        cached: String,
    },
    /// A package could not be downloaded.
    #[error("`apt-get download` failed: {detail}")]
    #[diagnostic(help(
        "{}",
        remedy_or(detail, "try again; `needless kernels list` shows what is available")
    ))]
    Download {
        /// apt's complaints.
        detail: String,
    },
    /// A package does not have the expected contents.
    #[error("package {package}: {what}")]
    #[diagnostic(help(
        "`needless kernels list` shows other builds; name one instead of the series"
    ))]
    Package {
        /// The name of the package.
        package: String,
        /// The unexpected contents, in words.
        what: String,
    },
    /// The kernel is not cached.
    #[error("kernel {} is not cached", foreign::short(name))]
    #[diagnostic(help("{cached}"))]
    NotCached {
        /// The name of the kernel.
        name: String,
        /// The cached kernels, in words.
        cached: String,
    },
    /// A signal asked for an end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Why a scenario has no result on a guest.
#[derive(Debug, Error, Diagnostic)]
pub enum GuestError {
    /// The kernel is not available.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Fetch(#[from] FetchError),
    /// The target names an unknown kernel or option.
    #[error("kernel target `{}`: {what}", foreign::short(text))]
    #[diagnostic(help("{help}"))]
    BadTarget {
        /// The text of the target.
        text: String,
        /// The mistake, in words.
        what: String,
        /// The correct form.
        help: String,
        /// The place of the mistake in the text.
        at: Range<usize>,
    },
    /// The image cannot be booted.
    #[error("`{}`: {what}", foreign::path(path))]
    #[diagnostic(help(
        "build one with `make bzImage` (arch/x86/boot/bzImage), for arm64 with `make Image` (arch/arm64/boot/Image)"
    ))]
    BadImage {
        /// The path of the image.
        path: PathBuf,
        /// Why it cannot be booted.
        what: String,
    },
    /// The modules do not fit the image.
    #[error("modules in `{}`: {what}", foreign::path(folder))]
    #[diagnostic(help(
        "modules= names the folder with the image's own modules: the DIR of `make modules_install INSTALL_MOD_PATH=DIR`, or the tree that the image was built in. Without modules=, everything that is needed has to be built in"
    ))]
    BadModules {
        /// The folder of the modules.
        folder: PathBuf,
        /// Why they do not fit.
        what: String,
    },
    /// The kernel lacks a necessary part.
    #[error("{what} lacks {parts}")]
    #[diagnostic(help(
        "set these options (=y; =m only with modules=DIR) and build the kernel again; docs/own-kernels.md has all that a guest needs"
    ))]
    Lacks {
        /// The kernel, or the run that needs the part.
        what: String,
        /// The missing parts, with their options.
        parts: String,
    },
    /// QEMU is not installed.
    #[error("`{program}` is missing{why}")]
    #[diagnostic(help("{}", remedy_or(why, &format!("install it: `apt-get install {package}`"))))]
    QemuMissing {
        /// The name of the program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
        /// Why it could not be installed.
        why: String,
    },
    /// The image of the guest's disk cannot be made.
    #[error("a guest's disk cannot be made: {why}")]
    #[diagnostic(help("{}", remedy_or(why, "install it: `apt-get install e2fsprogs`")))]
    NoDisk {
        /// The reason, in words.
        why: String,
    },
    /// The runner was not found.
    #[error("`{name}` was not found in {places}")]
    #[diagnostic(help("build it with `make build`, or name it in the variable {variable}"))]
    RunnerMissing {
        /// The file name of the runner.
        name: &'static str,
        /// The variable that may name its path.
        variable: &'static str,
        /// The places that were searched.
        places: String,
    },
    /// The runner cannot be used in a guest.
    #[error("the runner cannot be a guest's /init: {what}")]
    #[diagnostic(help("build it with `make build`"))]
    Runner {
        /// The reason, in words.
        what: String,
    },
    /// A file for the guest cannot be read or written.
    #[error("{}: {}", foreign::path(path), limits::words(error))]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operation.
        error: std::io::Error,
    },
    /// The guest ended or did not answer.
    #[error("the guest {what}{console}")]
    #[diagnostic(help("{remedy}"))]
    Stopped {
        /// What the guest did.
        what: String,
        /// The end of its console.
        console: String,
        /// The remedy.
        remedy: String,
    },
    /// `/proc` is not mounted.
    #[error("{}", NO_PROC.0)]
    #[diagnostic(help("{}", NO_PROC.1))]
    NoProc,
    /// An installed program cannot be run.
    #[error("`{program}` cannot be run: {error}")]
    #[diagnostic(help(
        "{}",
        limits::remedy_of(error).unwrap_or("its package may be damaged: install it again")
    ))]
    Unusable {
        /// The name of the program.
        program: &'static str,
        /// The error of the start.
        error: std::io::Error,
    },
    /// The guest's runner broke the protocol.
    #[error("the guest's runner {what}")]
    #[diagnostic(help("build `needless` and `needless-runner` together: `make build`"))]
    Confused {
        /// What the runner did.
        what: String,
    },
    /// The plugin's counts do not fit the guest's answer.
    #[error("instructions were not counted: {what}")]
    #[diagnostic(help("build `needless`, its runners and its QEMU plugin together: `make build`"))]
    Uncounted {
        /// The difference, in words.
        what: String,
    },
    /// The kernel or the guest lacks something that the scenario needs.
    #[error("{what}")]
    #[diagnostic(help("model targets still run; cpus=N gives a guest more CPUs"))]
    Unsupported {
        /// The missing thing, in words.
        what: String,
    },
    /// The scenario failed.
    #[error("the scenario failed: {0}")]
    #[diagnostic(help("the model shows the same failure if it is the scenario's fault"))]
    ProgramFailed(Failure),
    /// A signal asked for an end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// The syntax of `kernel:` targets.
pub(crate) const USUAL_TARGETS: &str = "write kernel:SERIES[/arm64] or kernel:./IMAGE[,modules=DIR], then [,cpus=N][,mem=SIZE][,nodes=N or SIZE+SIZE:latency=NS…][,cpu=PROCESSOR][,thp=always|madvise|never][,row=MODEL ROW][,append=COMMAND LINE], as in kernel:6.12,cpus=4,mem=2G";

/// The beginning of QEMU's own messages.
const QEMU: &str = "qemu";

impl GuestError {
    /// The error of a guest that stopped. Its console may show the remedy. QEMU writes there, too.
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

    /// The error with another remedy, if the guest stopped.
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

    /// Whether the guest is gone.
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

/// The remedy in another program's message, if it met a limit, or else `usual`.
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
