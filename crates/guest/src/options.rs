//! What a guest is like: `cpus=2,mem=1G,nodes=2,thp=madvise,append=…`.

use crate::nodes::{self, Nodes};
use needless_model::kernels::KernelRow;
use needless_model::program::ThpMode;
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
    /// NUMA nodes.
    pub nodes: Nodes,
    /// The processor; otherwise the usual one of the kernel's architecture.
    pub processor: Option<String>,
    /// `transparent_hugepage=` on the command line.
    pub thp: ThpMode,
    /// The model row that the kernel is held against; otherwise that of its release.
    pub row: Option<KernelRow>,
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
    /// Takes an option, `cpus=4`; what is wrong with it otherwise.
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

/// `512M`, `2G`
fn memory(text: &str) -> Result<u32, String> {
    nodes::size(text)
        .filter(|mib| (256..=1 << 20).contains(mib))
        .ok_or_else(|| "mem is a size from 256M to 1024G, as in 2G".to_owned())
}

/// What differs from the usual, as it is written behind a kernel's name.
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
