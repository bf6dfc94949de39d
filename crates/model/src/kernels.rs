//! Kernel rows: the decisions that each kernel takes.

mod real;
mod rows;
mod stable;

pub use real::{CHANGE, HUGE_TLB, NOT_MODELLED, PIECES};

use crate::addr::ThreadId;
use crate::arch::{
    ARM64, ARM64_A72, Arch, FlushRules, Flushes, Invalidation, OTHERS, ProtectRule, TlbCode,
    X86_64, X86_64_LA57,
};
use crate::numa::Balancing;
use crate::policy::*;
use crate::program::{Advice, FileSpec, Mthp, Program, ThpMode};
use crate::property::Property;
use rows::*;
use std::collections::BTreeSet;
use std::ops::Range;

/// The evidence for a row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Comparison with a stock kernel that can be run.
    Runnable,
    /// Published figures and source only.
    PublishedFiguresOnly,
}

/// A kernel: a policy for every decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRow {
    /// The row's name: `6.12`, or with options as given: `6.12,mglru=off`.
    pub name: String,
    /// The release that the row describes: major and minor number.
    pub release: (u32, u32),
    /// The evidence for the row.
    pub standing: Standing,
    /// The row's policies.
    pub policies: Policies,
    /// The kernel's configuration.
    pub config: Config,
}

/// The configuration of a kernel, as row options set it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// `mglru=on|off`: multi-generational LRU. It decides which pages wait in a batch after
    /// `MADV_COLD`.
    pub mglru: bool,
    /// `thp=always|madvise|never`: which mappings get transparent huge pages
    /// (`/sys/kernel/mm/transparent_hugepage/enabled`), unless the scenario sets this.
    pub thp: ThpMode,
    /// `mthp=64KiB:always+16KiB:inherit`: large folios smaller than a huge page, by size
    /// (`hugepages-64kB/enabled` in that directory), unless the scenario sets this.
    pub mthp: Mthp,
    /// Whether the scenario can have huge pages or other large folios of private memory. If not,
    /// operations do not look for them.
    pub huge_pages: bool,
    /// Whether the scenario can have large folios of any memory, files included.
    pub large_folios: bool,
    /// Whether the scenario handles signals. If not, operations do not ask whether a process does.
    pub handles_signals: bool,
    /// Whether the scenario locks memory. If not, operations do not look for locked memory.
    pub locks_memory: bool,
    /// Whether the scenario's machine has several NUMA nodes. If not, operations do not ask where a
    /// page is.
    pub several_nodes: bool,
    /// Whether reclaim demotes pages, as the scenario sets it.
    pub demotion: bool,
    /// The mode of NUMA balancing, as the scenario sets it.
    pub balancing: Balancing,
    /// Whether the scenario needs the order of folios on LRU lists. If not, the model does not keep
    /// it.
    pub lru_order: bool,
    /// `soft-dirty=on|off`: whether PTEs carry the soft-dirty bit.
    pub soft_dirty: bool,
    /// `huge-tlb=pieces|whole`: whether the processor may cache a huge page as translations of
    /// single pages. Some processors do in virtual machines if the hypervisor maps the memory in
    /// single pages.
    pub tlb_pieces: bool,
    /// `la57=on|off`: whether the processor has 5-level page tables, which every kernel here then
    /// uses. It decides when `munmap` counts as freeing tables.
    pub la57: bool,
    /// `five-level=on|off`: whether the kernel is built for 5 levels (`CONFIG_X86_5LEVEL`). On a
    /// processor with 4 levels, one of them is then folded.
    pub five_level: bool,
    /// `skip-needed=THREAD.N`: one flush that is left out although the model calls it needed, to
    /// test that verdict. With `+` behind it, all later flushes are left out as well.
    pub skip_needed: Option<SkipNeeded>,
    /// `ask=R`: the checker judges a property that no kernel has to have ([`Property::ASKED`]).
    pub ask: Option<Property>,
    /// `forgo=P9`, `forgo=P1`, `forgo=P5`: the checker does not judge break-before-make (P9),
    /// accesses to free frames (P1), or whether a right is gone when the call that takes it returns
    /// (P5), to see which other properties hold.
    pub forgo: Option<Property>,
    /// `most-faults=N`: the number of faults that one access may take in the checker before the
    /// checker reports that it makes no progress.
    pub most_faults: Option<u32>,
    /// `6.12/arm64`: another architecture than x86-64, as far as it is modelled ([`OTHERS`]). For
    /// arm64 there are more options: `cpu=max` or `cpu=cortex-a72` (the processor), `kpti=on|off`
    /// (whether the kernel is unmapped while user code runs), and `tlbi-range=on|off` (whether one
    /// instruction can invalidate a range).
    pub other: Option<Arch>,
}

/// One of the flushes that the model calls needed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct SkipNeeded {
    /// The thread that flushes, by declared order.
    pub thread: ThreadId,
    /// The number of the flush among the thread's needed flushes, from 1.
    pub nth: u32,
    /// Whether every later flush of any thread is left out, too.
    pub and_later: bool,
}

impl SkipNeeded {
    /// Reads `THREAD.N` or `THREAD.N+`.
    fn parse(text: &str) -> Option<SkipNeeded> {
        let (thread, nth) = text.split_once('.')?;
        let (nth, and_later) = nth.strip_suffix('+').map_or((nth, false), |nth| (nth, true));
        // Only digits are allowed; `parse` would accept a sign.
        let number =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
        let (thread, nth) = (ThreadId(u16::try_from(number(thread)?).ok()?), number(nth)?);
        (nth > 0).then_some(SkipNeeded { thread, nth, and_later })
    }
}

impl Config {
    /// Sets another architecture than x86-64. It may lack what x86 kernels have: arm64 kernels have
    /// no soft-dirty bit (HAVE_ARCH_SOFT_DIRTY, 5.10 to 7.3).
    fn set_other(&mut self, other: Option<Arch>) {
        self.other = other;
        if other.is_some_and(|arch| matches!(arch.tlb_code, TlbCode::Arm64(_))) {
            self.soft_dirty = false;
        }
    }

    /// The configuration for a scenario, on a machine that is set up as the scenario needs it.
    #[must_use]
    pub fn for_program(self, program: &Program) -> Config {
        let thp = program.machine.thp.unwrap_or(self.thp);
        let huge_pages = match thp {
            ThpMode::Always => true,
            ThpMode::Madvise => program.advises(&[Advice::HugePage, Advice::Collapse]),
            ThpMode::Never => program.advises(&[Advice::Collapse]),
        };
        let mthp = program.machine.mthp.unwrap_or(self.mthp);
        let huge_pages = huge_pages || !mthp.is_off();
        let large_folios = huge_pages || program.files.iter().any(FileSpec::has_large_folios);
        let (handles_signals, locks_memory) = (program.handles_signals(), program.locks_memory());
        let several_nodes = program.machine.nodes.is_some_and(|nodes| nodes > 1);
        Config {
            thp,
            mthp,
            huge_pages,
            large_folios,
            handles_signals,
            locks_memory,
            several_nodes,
            demotion: program.machine.numa.demotion == Some(true),
            balancing: program.machine.numa.balancing.unwrap_or(Balancing::Off),
            mglru: self.mglru && program.machine.numa.mglru != Some(false),
            ..self
        }
    }

    /// The architecture that a kernel configured like this runs on.
    pub const fn arch(&self) -> Arch {
        match (self.other, self.la57, self.five_level) {
            (Some(other), ..) => other,
            (None, true, _) => X86_64_LA57,
            (None, false, true) => X86_64,
            (None, false, false) => Arch { folded_level: false, ..X86_64 },
        }
    }
}

/// A row of the table of kernels.
struct Row {
    name: &'static str,
    release: (u32, u32),
    standing: Standing,
    policies: Policies,
    /// `None`: the kernel has no multi-generational LRU.
    mglru: Option<bool>,
    soft_dirty: bool,
    /// As Debian builds the kernel: the image of 5.10 has no `no5lvl` option, images from 6.1 on
    /// have it.
    five_level: bool,
}

/// All rows, oldest first.
const ROWS: [Row; 10] = {
    use Standing::{PublishedFiguresOnly as Published, Runnable};
    [
        Row {
            name: "5.8",
            release: (5, 8),
            standing: Published,
            policies: V5_8,
            mglru: None,
            soft_dirty: true,
            five_level: false,
        },
        Row {
            name: "5.10",
            release: (5, 10),
            standing: Runnable,
            policies: V5_10,
            mglru: None,
            soft_dirty: true,
            five_level: false,
        },
        Row {
            name: "5.15",
            release: (5, 15),
            standing: Published,
            policies: V5_15,
            mglru: None,
            soft_dirty: true,
            five_level: true,
        },
        Row {
            name: "6.1",
            release: (6, 1),
            standing: Runnable,
            policies: V6_1,
            mglru: Some(false),
            soft_dirty: true,
            five_level: true,
        },
        Row {
            name: "6.12",
            release: (6, 12),
            standing: Runnable,
            policies: V6_12,
            mglru: Some(true),
            soft_dirty: true,
            five_level: true,
        },
        Row {
            name: "6.16",
            release: (6, 16),
            standing: Runnable,
            policies: V6_16,
            mglru: Some(true),
            soft_dirty: true,
            five_level: true,
        },
        Row {
            name: "6.17",
            release: (6, 17),
            standing: Runnable,
            policies: V6_17,
            mglru: Some(true),
            soft_dirty: true,
            five_level: true,
        },
        Row {
            name: "6.18",
            release: (6, 18),
            standing: Runnable,
            policies: V6_18,
            mglru: Some(true),
            soft_dirty: true,
            five_level: true,
        },
        Row {
            name: "7.2",
            release: (7, 2),
            standing: Runnable,
            policies: V7_2,
            mglru: Some(true),
            soft_dirty: true,
            five_level: true,
        },
        Row {
            name: "7.3",
            release: (7, 3),
            standing: Runnable,
            policies: V7_3,
            mglru: Some(true),
            soft_dirty: true,
            five_level: true,
        },
    ]
};

/// A proposed change that no kernel has: `+NAME` after a kernel's name.
#[derive(Copy, Clone, Debug)]
pub struct Proposal {
    /// The proposal's name.
    pub name: &'static str,
    /// The policies that the proposal changes, each with its new value.
    pub changes: &'static [(&'static str, &'static str)],
}

/// All proposals. The reasons for them are in docs/findings/.
pub const PROPOSALS: &[Proposal] = &[
    Proposal { name: "pending-cleared", changes: &[("batched-pending", "cleared")] },
    Proposal { name: "fork-young", changes: &[("fork-accessed", "keep")] },
    Proposal { name: "fork-dirty", changes: &[("fork-dirty", "keep")] },
    Proposal { name: "removed-after", changes: &[("refault-flush", "removed-after")] },
    Proposal { name: "invlpgb", changes: &[("shootdown", "invlpgb")] },
    Proposal { name: "coherent", changes: &[("shootdown", "coherent")] },
    Proposal { name: "latr", changes: &[("shootdown", "latr"), ("defer-zap", "all")] },
    Proposal { name: "fpr", changes: &[("defer-zap", "munmap"), ("recycle", "within-mm")] },
    // v8, the last version under this name that was posted completely.
    Proposal {
        name: "migrc",
        changes: &[
            ("defer-flush", "tiering"),
            ("defer-if", "clean"),
            ("defer-free", "kept"),
            ("defer-upgrade", "write-fault"),
        ],
    },
    // The version is v10.
    Proposal {
        name: "luf",
        changes: &[
            ("defer-flush", "unmap"),
            ("defer-if", "read-only"),
            ("defer-free", "freed"),
            ("defer-upgrade", "write-fault-map"),
        ],
    },
    Proposal {
        name: "luf11",
        changes: &[
            ("defer-flush", "unmap"),
            ("defer-if", "read-only"),
            ("defer-free", "freed"),
            ("defer-upgrade", "writable"),
            ("defer-file", "write-end"),
        ],
    },
    Proposal {
        name: "luf12",
        changes: &[
            ("defer-flush", "unmap"),
            ("defer-if", "read-only"),
            ("defer-free", "freed"),
            ("defer-upgrade", "fault"),
            ("defer-file", "write-begin"),
        ],
    },
];

/// Why a row's name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// No kernel has this name.
    #[error("there is no kernel row `{name}`; there are {}, and their stable releases, like 6.12.90",
        KernelRow::names().join(", "))]
    UnknownKernel {
        /// The given kernel name.
        name: String,
    },
    /// An architecture that is not modelled.
    #[error("architecture `{arch}` is not modelled; there are {}, and x86-64 if none is named",
        OTHERS.map(|arch| arch.name).join(", "))]
    UnknownArch {
        /// The given architecture name.
        arch: String,
    },
    /// The option is invalid.
    #[error(
        "kernel row option `{option}` is not understood; options are POLICY=VALUE (see `needless policies`), mglru=on|off, thp=always|madvise|never, mthp=SIZE:MODE[+SIZE:MODE…], soft-dirty=on|off, huge-tlb=pieces|whole, migrate-ad=lost|kept, la57=on|off, five-level=on|off, on arm64 cpu=max|cortex-a72, kpti=on|off and tlbi-range=on|off, skip-needed=THREAD.N[+], ask=R|D, forgo=P1|P5|P9 and most-faults=N"
    )]
    UnknownOption {
        /// The given option.
        option: String,
    },
    /// No proposal has this name.
    #[error(
        "there is no proposal `+{name}`; there are {}",
        PROPOSALS.iter().map(|p| format!("+{}", p.name)).collect::<Vec<_>>().join(", ")
    )]
    UnknownProposal {
        /// The given proposal name.
        name: String,
    },
    /// The option clears pending marks by counts, but the mark is a flag in this kernel.
    #[error(
        "`{row}`: batched-pending=cleared needs a mark of counts, and this kernel's mark is a flag; add `,pending-mark=counts`"
    )]
    NeedsCounts {
        /// The row's name.
        row: String,
    },
    /// This kernel does not have the option.
    #[error("kernel {kernel} has no `{option}`")]
    NotInKernel {
        /// The kernel's name.
        kernel: String,
        /// The option's name.
        option: &'static str,
    },
    /// An option is given twice.
    #[error("`{name}` is given twice")]
    Twice {
        /// The name of the option.
        name: String,
        /// The second text that sets the option.
        option: String,
    },
    /// No policy has this name or value.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
}

impl RowError {
    /// The bytes of the row's name that contain the mistake.
    pub fn place(&self, row: &str) -> Range<usize> {
        let part = match self {
            RowError::UnknownKernel { name } | RowError::UnknownProposal { name } => name,
            RowError::UnknownArch { arch } => arch,
            RowError::UnknownOption { option } | RowError::Twice { option, .. } => option,
            RowError::NotInKernel { option, .. } => *option,
            RowError::Policy(UnknownPolicy::Policy { name }) => name,
            RowError::Policy(UnknownPolicy::Value { value, .. }) => value,
            RowError::NeedsCounts { .. } => row,
        };
        // If the text occurs twice, the second occurrence is the mistake. An empty part is at the
        // end.
        let start = row.rfind(part).unwrap_or(0);
        start..start + part.len()
    }
}

/// Refuses an option that was given before: we do not guess which of the two should count.
fn once(given: &mut BTreeSet<String>, name: &str, option: &str) -> Result<(), RowError> {
    if given.insert(name.to_owned()) {
        return Ok(());
    }
    Err(RowError::Twice { name: name.to_owned(), option: option.to_owned() })
}

/// The series of `6.12` or `6.12.90`, and the patch number 90 of the latter.
fn series_and_patch(kernel: &str) -> Option<(&'static Row, Option<u32>)> {
    let series = |name: &str| ROWS.iter().find(|row| row.name == name);
    if let Some(row) = series(kernel) {
        return Some((row, None));
    }
    let (name, patch) = kernel.rsplit_once('.')?;
    let digits = patch.bytes().all(|b| b.is_ascii_digit());
    Some((series(name)?, Some(patch.parse().ok().filter(|_| digits)?)))
}

impl KernelRow {
    /// The rows' names, oldest first.
    pub fn names() -> Vec<&'static str> {
        ROWS.iter().map(|row| row.name).collect()
    }

    /// All rows, oldest first.
    pub fn all() -> Vec<KernelRow> {
        ROWS.iter().map(|row| KernelRow::from_table(row, None)).collect()
    }

    /// The stable releases that differ from the newest kernel of their series: the last of each
    /// kind, oldest first.
    pub fn stable() -> Vec<KernelRow> {
        let of = |row: &'static Row| {
            let releases = stable::older(row.release).into_iter();
            releases.map(|patch| KernelRow::of_patch(row, patch))
        };
        ROWS.iter().flat_map(of).collect()
    }

    /// The row of a stable release, with the release's name.
    fn of_patch(row: &Row, patch: u32) -> KernelRow {
        let name = format!("{}.{patch}", row.name);
        KernelRow { name, ..KernelRow::from_table(row, Some(patch)) }
    }

    /// The row of a series (`patch` is `None`), or of one of its stable releases.
    fn from_table(row: &Row, patch: Option<u32>) -> KernelRow {
        let mut policies = row.policies;
        stable::apply(&mut policies, row.release, patch);
        KernelRow {
            name: row.name.to_owned(),
            release: row.release,
            standing: row.standing,
            policies,
            config: Config {
                mglru: row.mglru.unwrap_or(false),
                thp: ThpMode::Madvise,
                mthp: Mthp::default(),
                huge_pages: false,
                large_folios: false,
                handles_signals: false,
                locks_memory: false,
                several_nodes: false,
                demotion: false,
                balancing: Balancing::Off,
                lru_order: false,
                soft_dirty: row.soft_dirty,
                tlb_pieces: false,
                la57: false,
                five_level: row.five_level,
                skip_needed: None,
                ask: None,
                forgo: None,
                most_faults: None,
                other: None,
            },
        }
    }

    /// The architecture with this kernel's rules: some rules of arm64 differ by version.
    pub const fn arch(&self) -> Arch {
        let arch = self.config.arch();
        let TlbCode::Arm64(invalidation) = arch.tlb_code else { return arch };
        let granted = match self.policies.arm64_upgrade {
            Arm64Upgrade::Broadcast => Flushes::Broadcast,
            Arm64Upgrade::Local => Flushes::Local,
        };
        let spurious = match self.policies.arm64_spurious {
            Arm64Spurious::Broadcast => Flushes::Broadcast,
            Arm64Spurious::Nobody => Flushes::Nobody,
            Arm64Spurious::Local => Flushes::Local,
        };
        let protect = match self.policies.arm64_protect {
            Arm64Protect::All => ProtectRule::All,
            Arm64Protect::HardwareBits => ProtectRule::WriteChanged,
        };
        let wide = invalidation.wide && matches!(self.policies.arm64_va, Arm64Va::Bits52);
        let tlb_code = TlbCode::Arm64(Invalidation { wide, ..invalidation });
        Arch {
            flushes: FlushRules { granted, spurious, protect, ..arch.flushes },
            tlb_code,
            ..arch
        }
    }

    /// The row that `text` names: `6.12`, `6.12.90` (a stable release), `6.12/x86-64,mglru=off`,
    /// `6.12,reuse=page-count`, `6.12+pending-cleared`.
    pub fn parse(text: &str) -> Result<KernelRow, RowError> {
        let mut parts = text.split(',');
        let mut names = parts.next().unwrap_or("").split('+');
        let kernel = names.next().unwrap_or("");
        let (kernel, arch) = match kernel.split_once('/') {
            Some((kernel, arch)) => (kernel, Some(arch)),
            None => (kernel, None),
        };
        let arch = arch.filter(|arch| !matches!(*arch, "x86-64" | "x86_64" | "amd64"));
        let other = arch.map(|name| {
            let known = OTHERS.into_iter().find(|other| other.name == name);
            known.ok_or_else(|| RowError::UnknownArch { arch: name.to_owned() })
        });
        let other = other.transpose()?;
        let (table, patch) = series_and_patch(kernel)
            .ok_or_else(|| RowError::UnknownKernel { name: kernel.to_owned() })?;
        let mut row = KernelRow::from_table(table, patch);
        row.config.set_other(other);
        let mut given = BTreeSet::new();
        for name in names {
            let proposal = PROPOSALS
                .iter()
                .find(|proposal| proposal.name == name)
                .ok_or_else(|| RowError::UnknownProposal { name: name.to_owned() })?;
            for (policy, value) in proposal.changes {
                row.policies.set(policy, value)?;
                once(&mut given, policy, name)?;
            }
        }
        for option in parts {
            row.apply(option, table)?;
            once(&mut given, option.split('=').next().unwrap_or_default(), option)?;
        }
        row.name = text.to_owned();
        let Policies { batched_pending, pending_mark, .. } = row.policies;
        if batched_pending == BatchedPending::Cleared && pending_mark == PendingMark::Flag {
            return Err(RowError::NeedsCounts { row: row.name });
        }
        Ok(row)
    }

    /// The error that the row contains, if it is a mutant.
    pub fn known_wrong(&self) -> Option<&'static str> {
        let policy = POLICIES.iter().find(|policy| policy.name == "mutant")?;
        let word = self.policies.mutant.word();
        let value = policy.values.iter().find(|(value, _)| *value == word);
        value.filter(|_| self.policies.mutant != Mutant::None).map(|(_, meaning)| *meaning)
    }

    fn apply(&mut self, option: &str, table: &Row) -> Result<(), RowError> {
        let unknown = || RowError::UnknownOption { option: option.to_owned() };
        let (name, value) = option.split_once('=').ok_or_else(unknown)?;
        let switch = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(unknown()),
        };
        match name {
            "mglru" => {
                if table.mglru.is_none() && switch()? {
                    return Err(RowError::NotInKernel {
                        kernel: self.name.clone(),
                        option: "mglru",
                    });
                }
                self.config.mglru = switch()?;
            }
            "thp" => self.config.thp = ThpMode::named(value).ok_or_else(unknown)?,
            "mthp" => self.config.mthp = Mthp::parse(value).ok_or_else(unknown)?,
            "soft-dirty" => self.config.soft_dirty = switch()?,
            "la57" | "five-level" if self.config.other.is_some() => {
                let option = if name == "la57" { "la57" } else { "five-level" };
                return Err(RowError::NotInKernel { kernel: self.name.clone(), option });
            }
            "cpu" | "kpti" | "tlbi-range" => {
                const OPTIONS: [&str; 3] = ["cpu", "kpti", "tlbi-range"];
                let option = OPTIONS.into_iter().find(|option| *option == name).unwrap_or("cpu");
                let not_there = || RowError::NotInKernel { kernel: self.name.clone(), option };
                let other = self.config.other.ok_or_else(not_there)?;
                let TlbCode::Arm64(invalidation) = other.tlb_code else { return Err(not_there()) };
                self.config.other = Some(match (name, value) {
                    ("cpu", "max") => ARM64,
                    ("cpu", "cortex-a72") => ARM64_A72,
                    ("cpu", _) => return Err(unknown()),
                    _ => {
                        let invalidation = match name {
                            "kpti" => Invalidation { twice: switch()?, ..invalidation },
                            _ => Invalidation { ranges: switch()?, ..invalidation },
                        };
                        Arch { tlb_code: TlbCode::Arm64(invalidation), ..other }
                    }
                });
            }
            "huge-tlb" => {
                self.config.tlb_pieces = match value {
                    "pieces" => true,
                    "whole" => false,
                    _ => return Err(unknown()),
                }
            }
            // What a move does to the two bits, in the words of the question.
            "migrate-ad" => {
                let remap = match value {
                    "lost" => SplitRemap::Old,
                    "kept" => SplitRemap::AsBefore,
                    _ => return Err(unknown()),
                };
                self.policies.split_remap = remap;
            }
            "la57" => self.config.la57 = switch()?,
            "five-level" => self.config.five_level = switch()?,
            "skip-needed" => {
                self.config.skip_needed = Some(SkipNeeded::parse(value).ok_or_else(unknown)?);
            }
            "ask" => {
                let asked = Property::parse(value).filter(|asked| Property::ASKED.contains(asked));
                self.config.ask = Some(asked.ok_or_else(unknown)?);
            }
            "forgo" => {
                let forgone = Property::parse(value).filter(|p| Property::FORGONE.contains(p));
                self.config.forgo = Some(forgone.ok_or_else(unknown)?);
            }
            "most-faults" => {
                let number: u32 = value.parse().map_err(|_| unknown())?;
                self.config.most_faults = Some(number);
            }
            _ => self.policies.set(name, value).map_err(|error| match error {
                UnknownPolicy::Policy { .. } => unknown(),
                value => RowError::Policy(value),
            })?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_applied_or_refused() {
        let row = KernelRow::parse("6.12,mglru=off,reuse=page-count").unwrap();
        assert!(!row.config.mglru);
        assert_eq!(row.policies.reuse, Reuse::PageCount);
        assert!(matches!(KernelRow::parse("6.13"), Err(RowError::UnknownKernel { .. })));
        assert!(matches!(KernelRow::parse("5.10,mglru=on"), Err(RowError::NotInKernel { .. })));
        assert_eq!(KernelRow::parse("6.1,thp=always").unwrap().config.thp, ThpMode::Always);
        assert!(matches!(KernelRow::parse("6.1,thp=on"), Err(RowError::UnknownOption { .. })));
        let sizes = KernelRow::parse("6.12,mthp=64KiB:always+16KiB:inherit").unwrap().config.mthp;
        assert_eq!(sizes.notation(), "64KiB:always+16KiB:inherit");
        for wrong in ["64KiB", "64KiB:on", "2MiB:always", "64KiB:always+64KiB:never", ""] {
            let row = KernelRow::parse(&format!("6.12,mthp={wrong}"));
            assert!(matches!(row, Err(RowError::UnknownOption { .. })), "{wrong}");
        }
        assert!(matches!(KernelRow::parse("6.1,reuse=no"), Err(RowError::Policy(_))));
        assert_eq!(
            KernelRow::parse("6.12+pending-cleared").unwrap().policies.batched_pending,
            BatchedPending::Cleared
        );
        assert!(matches!(KernelRow::parse("6.12+nothing"), Err(RowError::UnknownProposal { .. })));
        assert!(matches!(
            KernelRow::parse("5.10+pending-cleared"),
            Err(RowError::NeedsCounts { .. })
        ));
        assert!(KernelRow::parse("5.10+pending-cleared,pending-mark=counts").is_ok());
        let lost = KernelRow::parse("6.12,migrate-ad=lost").unwrap().policies;
        assert_eq!(lost.split_remap, SplitRemap::Old);
        assert!(KernelRow::parse("6.12,mutant=move-unlocked").unwrap().known_wrong().is_some());
        assert_eq!(row.known_wrong(), None);
        assert!(matches!(KernelRow::parse("6.1/sparc"), Err(RowError::UnknownArch { .. })));
        let arch = |text: &str| KernelRow::parse(text).map(|row| row.arch());
        assert_eq!(arch("6.1/arm64,cpu=cortex-a72,mglru=on").unwrap(), ARM64_A72);
        assert_eq!(arch("6.12/arm64,cpu=max").unwrap(), ARM64);
        assert_eq!(arch("7.3/arm64").unwrap().flushes.granted, Flushes::Local);
        let alone = TlbCode::Arm64(Invalidation { ranges: false, wide: false, twice: false });
        assert_eq!(arch("6.1/arm64,cpu=cortex-a72,kpti=off").unwrap().tlb_code, alone);
        assert!(arch("6.1/arm64").unwrap().flushes_are_its_own());
        assert!(!arch("6.1/ppc64-radix").unwrap().flushes_are_its_own());
        assert_eq!(arch("6.1/amd64").unwrap(), X86_64);
        for text in ["6.1,cpu=max", "6.1/ppc64-radix,kpti=on"] {
            assert!(matches!(KernelRow::parse(text), Err(RowError::NotInKernel { .. })), "{text}");
        }
        let single = TlbCode::Arm64(Invalidation { ranges: false, wide: true, twice: false });
        assert_eq!(arch("6.12/arm64,tlbi-range=off").unwrap().tlb_code, single);
        let a53 = KernelRow::parse("6.1/arm64,cpu=cortex-a53");
        assert!(matches!(a53, Err(RowError::UnknownOption { .. })));
        let la57 = KernelRow::parse("6.1/arm64,la57=on");
        assert!(matches!(la57, Err(RowError::NotInKernel { .. })));
        let asked = KernelRow::parse("5.10,ask=R,most-faults=2").unwrap().config;
        assert_eq!((asked.ask, asked.most_faults), (Some(Property::InstalledAtRetry), Some(2)));
        let forgone = KernelRow::parse("6.12/arm64,forgo=P9").unwrap().config;
        assert_eq!(forgone.forgo, Some(Property::BreakBeforeMake));
        for none in ["5.10,ask=P4", "6.12/arm64,forgo=P2", "5.10,ask=no", "5.10,most-faults=few"] {
            assert!(
                matches!(KernelRow::parse(none), Err(RowError::UnknownOption { .. })),
                "{none}"
            );
        }
    }

    #[test]
    fn nothing_is_given_twice_and_mistakes_have_their_place() {
        for (text, place) in [
            ("6.12,reuse=mapcount,reuse=page-count", "reuse=page-count"),
            ("6.12,mglru=on,mglru=on", "mglru=on"),
            ("6.12+pending-cleared,batched-pending=cleared", "batched-pending=cleared"),
            ("6.12,reuse=no", "no"),
            ("6.13,reuse=mapcount", "6.13"),
            ("6.12,", ""),
        ] {
            let error = KernelRow::parse(text).unwrap_err();
            let range = error.place(text);
            assert_eq!(
                (range.end, &text[range]),
                (text.rfind(place).unwrap() + place.len(), place)
            );
        }
        let error = KernelRow::parse("6.12,mglru=on,mglru=on").unwrap_err();
        assert!(matches!(error, RowError::Twice { .. }), "{error}");
    }

    #[test]
    fn nearest_row_is_not_newer() {
        assert_eq!(KernelRow::nearest(6, 18).0.name, "6.18");
        let (row, exact) = KernelRow::nearest(6, 15);
        assert_eq!((row.name.as_str(), exact), ("6.12", false));
    }

    #[test]
    fn one_policy_can_be_taken_from_another_row() {
        let row = |name| KernelRow::parse(name).unwrap().policies;
        let (old, new) = (row("6.17"), row("6.18.15"));
        let lock = POLICIES.iter().position(|p| p.name == "advise-lock").unwrap();
        let one = old.with_one_from(&new, lock);
        assert_eq!(one, Policies { advise_lock: new.advise_lock, ..old });
        let all = (0..POLICIES.len()).fold(old, |row, policy| row.with_one_from(&new, policy));
        assert!(all == new && one != new);
    }
}
