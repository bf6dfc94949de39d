//! What a guest is like: `cpus=2,mem=1G,nodes=1,thp=madvise,append=…`.

use crate::error::GuestError;
use crate::platform::Arch;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A guest's machine and command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestOptions {
    /// CPUs that scenarios can use, numbered from 0. The guest has one more, for everything else.
    pub cpus: u16,
    /// Memory.
    pub memory_mib: u32,
    /// NUMA nodes; CPUs and memory are shared out evenly.
    pub nodes: u16,
    /// The processor; otherwise the usual one of the kernel's architecture.
    pub processor: Option<String>,
    /// `transparent_hugepage=` on the command line.
    pub thp: Thp,
    /// What is appended to the kernel's command line.
    pub append: String,
    /// How long things may take. Not part of a target's text.
    pub limits: Limits,
    /// The runner's binary; otherwise it is looked for. Not part of a target's text.
    pub runner: Option<PathBuf>,
    /// Programs that lie in the guest beside the runner. Not part of a target's text.
    pub files: Vec<GuestFile>,
    /// Whether `/tmp` is an ext4 file system on a disk rather than memory. Not part of a target's text.
    pub disk: bool,
}

/// A program in a guest. There is no dynamic linker, so it must be static.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// Its name in the guest's root folder.
    pub name: String,
    /// The file on this machine.
    pub source: PathBuf,
}

/// How long a guest may take before it is ended. Time in which its emulator waits for a processor of
/// this machine does not count.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For booting.
    pub boot: Duration,
    /// Boots that are tried until one comes up.
    pub boots: u32,
    /// For one start of a program; the guest is told to end it and takes the next one.
    pub run_seconds: u32,
    /// For ending it, before the guest is taken for dead.
    pub slack: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            boot: Duration::from_secs(180),
            boots: 3,
            run_seconds: 120,
            slack: Duration::from_secs(30),
        }
    }
}

/// Modes of transparent huge pages at boot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Thp {
    /// `always`
    Always,
    /// `madvise`
    Madvise,
    /// `never`
    Never,
}

impl Thp {
    const ALL: [Thp; 3] = [Thp::Always, Thp::Madvise, Thp::Never];

    /// The kernel's word.
    pub fn word(self) -> &'static str {
        match self {
            Thp::Always => "always",
            Thp::Madvise => "madvise",
            Thp::Never => "never",
        }
    }
}

impl Default for GuestOptions {
    fn default() -> GuestOptions {
        GuestOptions {
            cpus: 2,
            memory_mib: 1024,
            nodes: 1,
            processor: None,
            thp: Thp::Madvise,
            append: String::new(),
            limits: Limits::default(),
            runner: None,
            files: Vec::new(),
            disk: false,
        }
    }
}

/// A `kernel:` target without that word: a kernel and what its guest is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTarget {
    /// The series (`6.12`) or the build (`6.12.94+deb13`), with the architecture unless it is x86-64
    /// (`6.12/arm64`).
    pub kernel: String,
    /// The guest.
    pub options: GuestOptions,
}

impl KernelTarget {
    /// Reads `6.12/arm64,cpus=4,mem=2G,append=…`; what follows `append=` is taken as it is.
    pub fn parse(text: &str) -> Result<KernelTarget, GuestError> {
        let bad = |what: String, part: &str| {
            // Parts are slices of the text.
            let start = part.as_ptr().addr() - text.as_ptr().addr();
            GuestError::BadTarget { text: text.to_owned(), what, at: start..start + part.len() }
        };
        let (kernel, mut rest) = match text.split_once(',') {
            Some((kernel, rest)) => (kernel, Some(rest)),
            None => (text, None),
        };
        let Some(arch) = Arch::of(kernel) else {
            let word = kernel.split_once('/').map_or(kernel, |(_, word)| word);
            return Err(bad(
                format!(
                    "architecture `{word}` cannot be booted; write /arm64, or nothing for x86-64"
                ),
                word,
            ));
        };
        if !names_a_kernel(kernel) {
            return Err(bad(format!("`{kernel}` is no kernel series or build"), kernel));
        }
        let mut options = GuestOptions::default();
        let mut given = BTreeSet::new();
        while let Some(written) = rest {
            if let Some(append) = written.strip_prefix("append=") {
                options.append = append.to_owned();
                break;
            }
            let (option, next) = match written.split_once(',') {
                Some((option, next)) => (option, Some(next)),
                None => (written, None),
            };
            options.set(option).map_err(|what| bad(what, option))?;
            let name = option.split('=').next().unwrap_or_default();
            if !given.insert(name) {
                return Err(bad(format!("`{name}` is given twice"), option));
            }
            rest = next;
        }
        let bad = |what: String| bad(what, text);
        if options.nodes > options.cpus {
            return Err(bad("there are more nodes than CPUs".to_owned()));
        }
        let platform = arch.platform();
        if platform.processor(options.processor.as_deref()).is_none() {
            let known: Vec<&str> = platform.processors.iter().map(|known| known.name).collect();
            return Err(bad(format!("cpu, for {arch}, is {}", known.join(" or "))));
        }
        Ok(KernelTarget { kernel: kernel.to_owned(), options })
    }

    /// The architecture.
    pub fn arch(&self) -> Arch {
        Arch::of(&self.kernel).unwrap_or(Arch::X86_64)
    }
}

/// Whether a word can be a series or a build, with or without an architecture. It becomes a file's
/// name, so nothing else will do.
pub(crate) fn names_a_kernel(word: &str) -> bool {
    let series = word.split('/').next().unwrap_or_default();
    Arch::of(word).is_some()
        && series.starts_with(|c: char| c.is_ascii_digit())
        && series.contains('.')
        && series.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '~'))
}

impl GuestOptions {
    fn set(&mut self, option: &str) -> Result<(), String> {
        if option.is_empty() {
            return Err("an option is missing".to_owned());
        }
        let (name, value) =
            option.split_once('=').ok_or_else(|| format!("`{option}` has no value"))?;
        let number = |least: u16, most: u16| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("{name} is a number from {least} to {most}"))
        };
        match name {
            "cpus" => self.cpus = number(1, 64)?,
            "nodes" => self.nodes = number(1, 8)?,
            "mem" => self.memory_mib = memory(value)?,
            "cpu" => self.processor = Some(value.to_owned()),
            "thp" => {
                let thp = Thp::ALL.into_iter().find(|thp| thp.word() == value);
                self.thp = thp.ok_or("thp is always, madvise or never")?;
            }
            _ => return Err(format!("there is no option `{name}`")),
        }
        Ok(())
    }
}

/// `512M`, `2G`
fn memory(text: &str) -> Result<u32, String> {
    let unit = match text.chars().last() {
        Some('M' | 'm') => 1,
        Some('G' | 'g') => 1024,
        _ => 0,
    };
    let number: Option<u32> = text.get(..text.len().saturating_sub(1)).and_then(|n| n.parse().ok());
    number
        .and_then(|number| number.checked_mul(unit))
        .filter(|mib| (256..=1 << 20).contains(mib))
        .ok_or_else(|| "mem is a size from 256M to 1024G, as in 2G".to_owned())
}

impl fmt::Display for KernelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (is, usual) = (&self.options, GuestOptions::default());
        f.write_str(&self.kernel)?;
        if is.cpus != usual.cpus {
            write!(f, ",cpus={}", is.cpus)?;
        }
        if is.memory_mib != usual.memory_mib {
            write!(f, ",mem={}M", is.memory_mib)?;
        }
        if is.nodes != usual.nodes {
            write!(f, ",nodes={}", is.nodes)?;
        }
        if let Some(processor) = &is.processor {
            write!(f, ",cpu={processor}")?;
        }
        if is.thp != usual.thp {
            write!(f, ",thp={}", is.thp.word())?;
        }
        if is.append != usual.append {
            write!(f, ",append={}", is.append)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_was_read() {
        for text in [
            "6.12",
            "5.10,cpus=4",
            "6.1/arm64",
            "6.12.117+deb13/arm64,cpus=3,cpu=cortex-a72,thp=never",
            "6.12.94+deb13,mem=2048M,nodes=2,thp=never,append=quiet a=1,2 b",
        ] {
            assert_eq!(KernelTarget::parse(text).unwrap().to_string(), text);
        }
        let target = KernelTarget::parse("6.1,mem=2G").unwrap();
        assert_eq!(target.options.memory_mib, 2048);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "6",
            "../6.1",
            "6.1/sparc",
            "6.1/arm64/arm64",
            "6.1/",
            "6.1_arm64",
            "6.1,cpu=cortex-a72",
            "6.1/arm64,cpu=z80",
            "6.1,",
            "6.1,cpus",
            "6.1,cpus=0",
            "6.1,mem=2",
            "6.1,mem=9999999G",
            "6.1,mem=é",
            "6.1,thp=no",
            "6.1,nodes=4",
            "6.1,x=1",
            "6.1,cpus=2,cpus=2",
        ] {
            let refused = KernelTarget::parse(text);
            assert!(matches!(refused, Err(GuestError::BadTarget { .. })), "{text}");
        }
    }

    #[test]
    fn mistakes_have_their_place() {
        for (text, place) in [
            ("6.1,", 4..4),
            ("6.1,,cpus=2", 4..4),
            ("6.1,cpus=2,mem=2G,cpus=4", 18..24),
            ("6.1,x=1,cpus=2", 4..7),
            ("6.1/sparc", 4..9),
        ] {
            match KernelTarget::parse(text) {
                Err(GuestError::BadTarget { at, .. }) => assert_eq!(at, place, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
