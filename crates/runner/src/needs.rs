//! What a guest's kernel must have, by the names of its options.
//!
//! One table serves three readers. The host looks into a configuration before it boots a kernel.
//! Process 1 looks for the files of each part in `/proc`, `/sys` and `/dev`. Errors name the
//! options to switch on.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// The words that process 1 prints on the console before the name of a vital part that is missing.
pub const LACKS: &str = "needless-runner: this kernel lacks ";

/// A part of a kernel that runs may need.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Part {
    /// The first file system, which comes with the kernel.
    Initramfs,
    /// Programs in the format of `/init` (ELF).
    Programs,
    /// The serial port that the host reads.
    Console,
    /// More than one processor.
    Processors,
    /// Processors that the scheduler leaves alone.
    Isolation,
    /// The file system `/proc`.
    Proc,
    /// The file system `/sys`.
    Sys,
    /// The file system `/dev`.
    Dev,
    /// Files in memory (tmpfs).
    MemoryFiles,
    /// Futexes, by which threads wait for each other.
    Futexes,
    /// The system call `madvise`.
    Advice,
    /// Virtual devices.
    Virtio,
    /// The virtio port to the host.
    Port,
    /// The use of swap space.
    Swap,
    /// A zram device, for swap space and disks.
    Zram,
    /// The system call `perf_event_open`.
    Perf,
    /// tracefs and the events in it.
    Tracepoints,
    /// The state of pages (`/proc/PID/pagemap`).
    Pages,
    /// Settings below `/proc/sys`, such as how many pages are read from swap at once.
    Settings,
    /// File systems on disks (ext4).
    Ext4,
}

/// What a kernel needs a part for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Needed {
    /// For every run.
    Always,
    /// For scenarios that swap.
    ForSwap,
    /// For scenarios with files on disks.
    ForDisks,
    /// For single faults and flushes.
    ForEvents,
    /// For the comparison of pages at the end.
    ForPages,
}

impl Part {
    /// All parts, in the order of their declaration.
    pub const ALL: [Part; 20] = [
        Part::Initramfs,
        Part::Programs,
        Part::Console,
        Part::Processors,
        Part::Isolation,
        Part::Proc,
        Part::Sys,
        Part::Dev,
        Part::MemoryFiles,
        Part::Futexes,
        Part::Advice,
        Part::Virtio,
        Part::Port,
        Part::Swap,
        Part::Zram,
        Part::Perf,
        Part::Tracepoints,
        Part::Pages,
        Part::Settings,
        Part::Ext4,
    ];

    /// The name of the part in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Initramfs => "an initramfs",
            Part::Programs => "ELF programs",
            Part::Console => "a serial console",
            Part::Processors => "more than one processor",
            Part::Isolation => "isolated processors",
            Part::Proc => "/proc",
            Part::Sys => "/sys",
            Part::Dev => "/dev",
            Part::MemoryFiles => "files in memory",
            Part::Futexes => "futexes",
            Part::Advice => "madvise",
            Part::Virtio => "virtio",
            Part::Port => "virtio ports",
            Part::Swap => "swap space",
            Part::Zram => "zram",
            Part::Perf => "perf events",
            Part::Tracepoints => "tracepoints",
            Part::Pages => "/proc/PID/pagemap",
            Part::Settings => "/proc/sys",
            Part::Ext4 => "ext4",
        }
    }

    /// The part with this name.
    pub fn by_name(name: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.name() == name)
    }

    /// The options to switch on, without `CONFIG_`, for arm64 (`arm`) or for x86-64.
    pub const fn options(self, arm: bool) -> &'static [&'static str] {
        match self {
            Part::Initramfs => &["BLK_DEV_INITRD"],
            Part::Programs => &["BINFMT_ELF"],
            Part::Console if arm => &["PRINTK", "TTY", "SERIAL_AMBA_PL011_CONSOLE"],
            Part::Console => &["PRINTK", "TTY", "SERIAL_8250_CONSOLE"],
            Part::Processors => &["SMP"],
            Part::Isolation => &["CPU_ISOLATION", "CPUSETS"],
            Part::Proc => &["PROC_FS"],
            Part::Sys => &["SYSFS"],
            Part::Dev => &["DEVTMPFS"],
            Part::MemoryFiles => &["SHMEM", "TMPFS"],
            Part::Futexes => &["FUTEX"],
            Part::Advice => &["ADVISE_SYSCALLS"],
            Part::Virtio => &["PCI", "VIRTIO_MENU", "VIRTIO_PCI"],
            Part::Port => &["VIRTIO_CONSOLE"],
            Part::Swap => &["SWAP"],
            Part::Zram => &["BLK_DEV", "ZSMALLOC", "ZRAM"],
            Part::Perf => &["PERF_EVENTS"],
            // No tracer is needed. But without a tracer, no option makes the kernel keep its
            // events.
            Part::Tracepoints => &["FTRACE", "FTRACE_SYSCALLS"],
            Part::Pages => &["PROC_PAGE_MONITOR"],
            Part::Settings => &["PROC_SYSCTL"],
            Part::Ext4 => &["EXT4_FS"],
        }
    }

    /// The option whose absence from a configuration shows that the part is absent.
    pub const fn told_by(self, arm: bool) -> &'static str {
        if matches!(self, Part::Tracepoints) {
            // Every tracer selects this option. It cannot be set by itself.
            return "EVENT_TRACING";
        }
        let options = self.options(arm);
        options[options.len() - 1]
    }

    /// The module that may provide the part, if one does.
    pub const fn module(self) -> Option<&'static str> {
        match self {
            Part::Virtio => Some("virtio_pci"),
            Part::Port => Some("virtio_console"),
            Part::Zram => Some("zram"),
            Part::Ext4 => Some("ext4"),
            Part::Initramfs
            | Part::Programs
            | Part::Console
            | Part::Processors
            | Part::Isolation
            | Part::Proc
            | Part::Sys
            | Part::Dev
            | Part::MemoryFiles
            | Part::Futexes
            | Part::Advice
            | Part::Swap
            | Part::Perf
            | Part::Tracepoints
            | Part::Pages
            | Part::Settings => None,
        }
    }

    /// What a kernel needs the part for.
    pub const fn needed(self) -> Needed {
        match self {
            Part::Initramfs
            | Part::Programs
            | Part::Console
            | Part::Processors
            | Part::Isolation
            | Part::Proc
            | Part::Sys
            | Part::Dev
            | Part::MemoryFiles
            | Part::Futexes
            | Part::Advice
            | Part::Virtio
            | Part::Port => Needed::Always,
            Part::Swap | Part::Zram | Part::Settings => Needed::ForSwap,
            Part::Ext4 => Needed::ForDisks,
            Part::Perf | Part::Tracepoints => Needed::ForEvents,
            Part::Pages => Needed::ForPages,
        }
    }

    /// A file that every running kernel with the part has; `None` if there is no such file.
    const fn trace(self) -> Option<&'static str> {
        Some(match self {
            Part::Proc => "/proc/self",
            Part::Sys => "/sys/kernel",
            Part::Dev => "/dev/null",
            Part::Virtio => "/sys/bus/pci/drivers/virtio-pci",
            Part::Port => "/sys/bus/virtio/drivers/virtio_console",
            Part::Swap => "/proc/swaps",
            Part::Zram => "/sys/class/zram-control",
            Part::Perf => "/sys/bus/event_source",
            Part::Tracepoints => "/sys/kernel/tracing/events",
            Part::Pages => "/proc/self/pagemap",
            Part::Settings => "/proc/sys/vm",
            Part::Ext4 => "/sys/fs/ext4",
            Part::Initramfs
            | Part::Programs
            | Part::Console
            | Part::Processors
            | Part::Isolation
            | Part::MemoryFiles
            | Part::Futexes
            | Part::Advice => return None,
        })
    }

    /// The part and the options that provide it, in words.
    pub fn text(self, arm: bool) -> String {
        let options: Vec<String> =
            self.options(arm).iter().map(|option| format!("CONFIG_{option}")).collect();
        format!("{} ({})", self.name(), options.join(", "))
    }
}

/// The parts that the running kernel lacks, as far as its files show. Without `/proc` or `/sys`,
/// nothing can be said about the files in them.
pub fn absent() -> Vec<Part> {
    let gone = |part: Part| part.trace().is_some_and(|path| !Path::new(path).exists());
    let roots: Vec<Part> = [Part::Proc, Part::Sys].into_iter().filter(|part| gone(*part)).collect();
    if !roots.is_empty() {
        return roots;
    }
    Part::ALL.into_iter().filter(|part| gone(*part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracefs;

    #[test]
    fn names_and_options_tell_parts_apart() {
        for part in Part::ALL {
            assert_eq!(Part::by_name(part.name()), Some(part));
            for arm in [false, true] {
                let same = |other: &Part| other.told_by(arm) == part.told_by(arm);
                assert_eq!(Part::ALL.iter().filter(|other| same(other)).count(), 1, "{part:?}");
                assert!(part.text(arm).contains("(CONFIG_"), "{part:?}");
            }
        }
        assert_eq!(Part::by_name("zsmalloc"), None);
    }

    #[test]
    fn this_machine_has_what_every_machine_has() {
        assert!(Part::Tracepoints.trace().unwrap_or_default().starts_with(tracefs::PLACES[0]));
        let absent = absent();
        assert!(!absent.contains(&Part::Proc) && !absent.contains(&Part::Dev), "{absent:?}");
    }
}
