//! Runs `make`: configures and compiles a tree outside of itself, and keeps the output.

use super::error::BuildError;
use super::git::without_git;
use crate::cache::at;
use crate::emulator::install;
use crate::error::FetchError;
use crate::guarded::{Guarded, is_there};
use crate::platform::Arch;
use needless_model::foreign;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

/// The necessary programs and files, each with the package that has it.
const TOOLS: [(&str, &str); 10] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("git", "git"),
    ("xz", "xz-utils"),
    ("tar", "tar"),
    ("/usr/include/libelf.h", "libelf-dev"),
    ("/usr/include/openssl/opensslv.h", "libssl-dev"),
];

/// The number of lines of an error that are shown.
const ERROR_LINES: usize = 6;

/// Installs missing tools, if this user may.
pub fn tools(arch: Arch, progress: &dyn Fn(&str)) -> Result<(), BuildError> {
    let mut wanted = TOOLS.to_vec();
    if let Some((_, compiler, package)) = cross(arch) {
        wanted.push((compiler, package));
    }
    let missing = || -> Vec<&str> {
        wanted.iter().filter(|(tool, _)| !is_there(tool)).map(|(_, package)| *package).collect()
    };
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    progress(&format!("installing {}", packages.join(", ")));
    let why = install(&packages);
    match missing().as_slice() {
        [] => Ok(()),
        still => Err(BuildError::Tools { missing: still.join(" "), why }),
    }
}

/// For an architecture other than this machine's: the prefix of program names, the compiler, and
/// the package that has it.
fn cross(arch: Arch) -> Option<(&'static str, &'static str, &'static str)> {
    if arch.platform().is_native() {
        return None;
    }
    Some(match arch {
        Arch::X86_64 => ("x86_64-linux-gnu-", "x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu"),
        Arch::Arm64 => ("aarch64-linux-gnu-", "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    })
}

/// The compiler for an architecture, by the first line of its version.
pub fn compiler(arch: Arch) -> String {
    let name = cross(arch).map_or("gcc", |(_, compiler, _)| compiler);
    let output = Command::new(name).arg("--version").stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.ok()
        .and_then(|text| Some(foreign::line(text.lines().next()?).into_owned()))
        .unwrap_or_else(|| name.to_owned())
}

/// A tree to compile.
pub struct Make<'a> {
    /// The folder of the source.
    pub tree: PathBuf,
    /// The folder of the output files.
    pub obj: PathBuf,
    /// The file for the output of make.
    pub log: PathBuf,
    /// The architecture to compile for.
    pub arch: Arch,
    /// The end of the kernel's release.
    pub label: &'a str,
    /// The lock of the tree. Every process that works on the tree holds it.
    pub lock: Option<&'a File>,
}

impl Make<'_> {
    /// Configures the tree: only these lines, and what they need, are on. Returns the whole
    /// configuration.
    pub fn configure(&self, lines: &str) -> Result<String, BuildError> {
        fs::create_dir_all(&self.obj).map_err(at(&self.obj))?;
        let fragment = self.obj.join("needless.config");
        fs::write(&fragment, lines).map_err(at(&fragment))?;
        let mut command = self.make(&["allnoconfig"]);
        command.env("KCONFIG_ALLCONFIG", &fragment);
        self.run(&command, "configuring the kernel", &|_| {})?;
        let config = self.obj.join(".config");
        Ok(fs::read_to_string(&config).map_err(at(&config))?)
    }

    /// Compiles the tree with all processors. Calls `progress` with each step.
    pub fn compile(&self, progress: &dyn Fn(&str)) -> Result<(), BuildError> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = format!("-j{jobs}");
        let target = match self.arch {
            Arch::X86_64 => "bzImage",
            Arch::Arm64 => "Image",
        };
        progress("compiling the kernel");
        // The number of steps is known from the last time that everything was compiled.
        let steps = self.log.with_file_name("steps");
        let known = fs::read_to_string(&steps).ok().and_then(|text| text.trim().parse().ok());
        let known: Option<u32> = known;
        let of = known.map_or_else(String::new, |known| format!(" of at most {known}"));
        let told = std::cell::Cell::new(0);
        let obj = format!("{}/", foreign::path(&self.obj));
        let line = |line: &str| {
            if let Some(step) = step(&line.replace(&obj, "")) {
                told.set(told.get() + 1);
                progress(&format!("compiling, step {}{of}: {step}", told.get()));
            }
        };
        self.run(&self.make(&[&jobs, target]), "compiling the kernel", &line)?;
        if known.is_none_or(|known| known < told.get()) {
            // Only later progress messages depend on it.
            let _ = fs::write(&steps, told.get().to_string());
        }
        Ok(())
    }

    /// The path of the compiled image.
    pub fn image(&self) -> PathBuf {
        self.obj.join(match self.arch {
            Arch::X86_64 => "arch/x86/boot/bzImage",
            Arch::Arm64 => "arch/arm64/boot/Image",
        })
    }

    /// The series of the source, as in `6.12`; empty if the Makefile does not say it.
    pub fn source_release(&self) -> Result<String, FetchError> {
        let path = self.tree.join("Makefile");
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let number = |name: &str| {
            let line =
                text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
            line.map(|value| value.trim().to_owned())
        };
        let numbers = number("VERSION").zip(number("PATCHLEVEL"));
        Ok(numbers.map(|(major, minor)| format!("{major}.{minor}")).unwrap_or_default())
    }

    /// The release that `uname -r` will print.
    pub fn release(&self) -> Result<String, FetchError> {
        let path = self.obj.join("include/config/kernel.release");
        Ok(fs::read_to_string(&path).map_err(at(&path))?.trim().to_owned())
    }

    fn make(&self, words: &[&str]) -> Command {
        let mut command = Command::new("make");
        let mut obj = OsString::from("O=");
        obj.push(&self.obj);
        command.arg("-C").arg(&self.tree).arg(obj);
        let arch = match self.arch {
            Arch::X86_64 => "ARCH=x86_64",
            Arch::Arm64 => "ARCH=arm64",
        };
        command.arg(arch).arg(format!("LOCALVERSION=-{}", self.label));
        command.args(cross(self.arch).map(|(prefix, _, _)| format!("CROSS_COMPILE={prefix}")));
        // With these settings, equal sources give equal images.
        command.args([
            "KBUILD_BUILD_USER=needless",
            "KBUILD_BUILD_HOST=needless",
            "KBUILD_BUILD_TIMESTAMP=@0",
        ]);
        without_git(&mut command).args(words).env("LC_ALL", "C");
        command.env_remove("MAKEFLAGS").env_remove("KCONFIG_CONFIG");
        command
    }

    /// Runs a command. Each line of its output goes into the log; on failure, the first error goes
    /// into ours. The command and everything that it starts end with this process.
    fn run(
        &self,
        command: &Command,
        what: &'static str,
        line: &dyn Fn(&str),
    ) -> Result<(), BuildError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let cannot = move |error| FetchError::Program { program: program.clone(), error };
        let mut log = File::create(&self.log).map_err(at(&self.log))?;
        let mut guarded = Guarded::start(command, Stdio::piped(), self.lock)?;
        let (send, receive) = channel();
        let other = send.clone();
        let (out, err) = (guarded.guard().stdout.take(), guarded.guard().stderr.take());
        std::thread::spawn(move || out.map(|stream| lines(stream, &send)));
        std::thread::spawn(move || err.map(|stream| lines(stream, &other)));
        let mut said = Vec::new();
        for text in receive {
            let _ = writeln!(log, "{text}");
            line(&text);
            said.push(text);
        }
        let status = guarded.guard().wait().map_err(&cannot)?;
        match status.success() {
            true => Ok(()),
            false => {
                Err(BuildError::Compile { what, first: first_error(&said), log: self.log.clone() })
            }
        }
    }
}

fn lines(stream: impl io::Read, to: &std::sync::mpsc::Sender<String>) {
    for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
        if to.send(foreign::said(&line)).is_err() {
            break;
        }
    }
}

/// The step in a line of kbuild's output, such as `CC mm/rmap.o`.
fn step(line: &str) -> Option<String> {
    let mut words = line.strip_prefix("  ")?.split_whitespace();
    let (what, file) = (words.next()?, words.next()?);
    let is_step = what.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    is_step.then(|| format!("{what} {file}"))
}

/// The first error, with the lines after it.
fn first_error(said: &[String]) -> String {
    let marks = ["error:", "Error:", "undefined reference", "*** "];
    let at = |mark: &&str| said.iter().position(|line| line.contains(*mark));
    let first = marks[..3].iter().filter_map(at).min().or_else(|| at(&marks[3]));
    let from = first.unwrap_or(said.len().saturating_sub(ERROR_LINES));
    let lines: Vec<&str> = said[from..].iter().take(ERROR_LINES).map(String::as_str).collect();
    match lines.is_empty() {
        true => "it printed nothing".to_owned(),
        false => lines.join("\n  "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_first_errors_are_read_out_of_what_is_said() {
        assert_eq!(step("  CC      mm/rmap.o").as_deref(), Some("CC mm/rmap.o"));
        assert_eq!(step("  LD [M]  fs/x.ko").as_deref(), Some("LD [M]"));
        assert_eq!(step("make[1]: Entering directory"), None);
        let said = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let failed = "  CC mm/rmap.o\nmm/rmap.c: In function 'x':\nmm/rmap.c:5:1: error: no\n    5 | x\nmake[3]: *** [mm/rmap.o] Error 1\nmm/b.c:1:1: error: late\n";
        let told = first_error(&said(failed));
        assert!(told.starts_with("mm/rmap.c:5:1: error: no\n  "), "{told}");
        assert!(
            first_error(&said("a\nmake: *** No rule to make target 'x'.\n"))
                .starts_with("make: *** No rule")
        );
        assert_eq!(first_error(&said("a\nb")), "a\n  b");
        assert_eq!(first_error(&[]), "it printed nothing");
        // A patched file may print anything in an error.
        let (send, receive) = channel();
        lines(&b"x.c:1:2: error: \"\x1b]0;t\x07\x9b\xe2\x80\xae\"\n\tat\n"[..], &send);
        drop(send);
        let told = first_error(&receive.iter().collect::<Vec<_>>());
        let shown = "x.c:1:2: error: \"\\u{1b}]0;t\\u{7}\u{fffd}\\u{202e}\"\n  \tat";
        assert_eq!(told, shown);
    }

    /// The make of this tree is a small one. The test uses it as a kernel's make is used.
    #[test]
    fn a_tree_is_configured_compiled_and_its_errors_are_told() {
        if needless_runner::locate::find().is_err() {
            needless_testing::skip!("the runner is not built");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("tree")).unwrap();
        let makefile = "VERSION = 6\nPATCHLEVEL = 12\nallnoconfig:\n\tcp $(KCONFIG_ALLCONFIG) $(O)/.config\n\
                        bzImage:\n\t@echo '  CC      mm/rmap.o'\n\t@test ! -e broken || { echo 'mm/rmap.c:5: error: no' >&2; false; }\n\
                        \tmkdir -p $(O)/include/config $(O)/arch/x86/boot\n\
                        \techo 6.12.9$(LOCALVERSION) > $(O)/include/config/kernel.release\n\tcp $(O)/.config $(O)/arch/x86/boot/bzImage\n";
        fs::write(path("tree/Makefile"), makefile).unwrap();
        let make = Make {
            tree: path("tree"),
            obj: path("obj"),
            log: path("log"),
            arch: Arch::X86_64,
            label: "mine",
            lock: None,
        };
        assert_eq!(make.configure("CONFIG_A=y\n").unwrap(), "CONFIG_A=y\n");
        assert_eq!(make.source_release().unwrap(), "6.12");
        let told = std::cell::RefCell::new(Vec::new());
        let progress = |what: &str| told.borrow_mut().push(what.to_owned());
        make.compile(&progress).unwrap();
        assert!(told.borrow().contains(&"compiling, step 1: CC mm/rmap.o".to_owned()), "{told:?}");
        make.compile(&progress).unwrap();
        let again = "compiling, step 1 of at most 1: CC mm/rmap.o".to_owned();
        assert!(told.borrow().contains(&again), "{told:?}");
        assert_eq!(make.release().unwrap(), "6.12.9-mine");
        assert_eq!(fs::read_to_string(make.image()).unwrap(), "CONFIG_A=y\n");
        fs::write(path("tree/broken"), "").unwrap();
        let failed = make.compile(&progress).unwrap_err().to_string();
        assert!(failed.contains("compiling the kernel failed: mm/rmap.c:5: error: no"), "{failed}");
        assert!(fs::read_to_string(path("log")).unwrap().contains("CC      mm/rmap.o"));
    }
}
