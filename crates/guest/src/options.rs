//! The options of a guest: `cpus=2,mem=1G,nodes=2,thp=madvise,append=…`.

use crate::nodes::{self, Nodes};
use needless_model::kernels::KernelRow;
use needless_model::program::ThpMode;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A guest's machine and command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestOptions {
    /// The number of CPUs for scenarios, numbered from 0. The guest has one more, for everything
    /// else.
    pub cpus: u16,
    /// The guest's memory, in MiB.
    pub memory_mib: u32,
    /// The guest's NUMA nodes.
    pub nodes: Nodes,
    /// The processor; by default the first one of the kernel's architecture.
    pub processor: Option<String>,
    /// The value of `transparent_hugepage=` on the command line.
    pub thp: ThpMode,
    /// The model row that the kernel is compared with; by default the row of its release.
    pub row: Option<KernelRow>,
    /// The text that is appended to the kernel's command line.
    pub append: String,
    /// The time limits. Not part of a target's text.
    pub limits: Limits,
    /// The runner's binary; by default it is searched for. Not part of a target's text.
    pub runner: Option<PathBuf>,
    /// Programs in the guest beside the runner. Not part of a target's text.
    pub files: Vec<GuestFile>,
    /// Whether `/tmp` is an ext4 file system on a disk instead of memory. Not part of a target's
    /// text.
    pub disk: bool,
}

/// A program in a guest. It must be static, because there is no dynamic linker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// Its name in the guest's root folder.
    pub name: String,
    /// The file on this machine.
    pub source: PathBuf,
}

/// How long a guest may take before it is ended. The time in which its emulator waits for a
/// processor of this machine does not count.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time for booting.
    pub boot: Duration,
    /// How often a boot is tried until one succeeds.
    pub boots: u32,
    /// Seconds for one start of a program. After that the host tells the guest to end it, and the
    /// guest takes the next program.
    pub run_seconds: u32,
    /// The time for ending a program, before the guest counts as dead.
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

impl Default for GuestOptions {
    fn default() -> GuestOptions {
        GuestOptions {
            cpus: 2,
            memory_mib: 1024,
            nodes: Nodes::AsAsked,
            processor: None,
            thp: ThpMode::Madvise,
            row: None,
            append: String::new(),
            limits: Limits::default(),
            runner: None,
            files: Vec::new(),
            disk: false,
        }
    }
}

impl GuestOptions {
    /// Sets an option such as `cpus=4`. The error says what is wrong with it.
    pub(crate) fn set(&mut self, option: &str) -> Result<(), String> {
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
            "nodes" => self.nodes = Nodes::parse(value)?,
            "mem" => self.memory_mib = memory(value)?,
            "cpu" => self.processor = Some(value.to_owned()),
            "thp" => {
                self.thp = ThpMode::named(value).ok_or("thp is always, madvise or never")?;
            }
            _ => return Err(format!("there is no option `{name}`")),
        }
        Ok(())
    }
}

/// Reads a size of memory such as `512M` or `2G`.
fn memory(text: &str) -> Result<u32, String> {
    nodes::size(text)
        .filter(|mib| (256..=1 << 20).contains(mib))
        .ok_or_else(|| "mem is a size from 256M to 1024G, as in 2G".to_owned())
}

/// Writes the options that differ from the defaults, as they follow a kernel's name.
impl fmt::Display for GuestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = GuestOptions::default();
        if self.cpus != usual.cpus {
            write!(f, ",cpus={}", self.cpus)?;
        }
        if self.memory_mib != usual.memory_mib {
            write!(f, ",mem={}M", self.memory_mib)?;
        }
        if self.nodes != usual.nodes {
            write!(f, ",nodes={}", self.nodes)?;
        }
        if let Some(processor) = &self.processor {
            write!(f, ",cpu={processor}")?;
        }
        if self.thp != usual.thp {
            write!(f, ",thp={}", self.thp.word())?;
        }
        if let Some(row) = &self.row {
            write!(f, ",row={}", row.name)?;
        }
        if self.append != usual.append {
            write!(f, ",append={}", self.append)?;
        }
        Ok(())
    }
}
