//! What a guest's kernel has to have, by the names of its options.
//!
//! One table for three readers: the host looks into a configuration before it boots a kernel, process 1
//! looks for what a part leaves in `/proc`, `/sys` and `/dev`, and errors name what to switch on.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// What process 1 writes on the console in front of the name of a part without which it cannot work.
pub const LACKS: &str = "needless-runner: this kernel lacks ";

/// A part of a kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Part {
    /// A first file system that comes with the kernel.
    Initramfs,
    /// Programs in the format that `/init` has.
    Programs,
    /// The serial port that the host listens to.
    Console,
    /// More than one processor.
    Processors,
    /// Processors that the scheduler leaves alone.
    Isolation,
    /// `/proc`
    Proc,
    /// `/sys`
    Sys,
    /// `/dev`
    Dev,
    /// Files in memory.
    MemoryFiles,
    /// Threads that wait for each other.
    Futexes,
    /// `madvise`
    Advice,
    /// Virtual devices.
    Virtio,
    /// The port to the host.
    Port,
    /// Swap space.
    Swap,
    /// A device for it.
    Zram,
    /// `perf_event_open`
    Perf,
    /// tracefs and the events in it.
    Tracepoints,
    /// The state of pages.
    Pages,
    /// Settings below `/proc/sys`: how much is read from swap at once.
    Settings,
    /// File systems on disks.
    Ext4,
}

/// What a part is needed for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Nothing runs without.
    Always,
    /// Scenarios that swap.
    ForSwap,
    /// Scenarios with files on disks.
    ForDisks,
    /// Faults and flushes one by one.
    ForEvents,
    /// The comparison of pages at the end.
    ForPages,
}

impl Part {
    /// All of them.
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

    /// In words.
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

    /// The part of this name.
    pub fn by_name(name: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.name() == name)
    }

    /// The options to switch on, without `CONFIG_`; `arm`: on arm64, else on x86-64.
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
            // No tracer is needed, but without one nothing makes the kernel keep its events.
            Part::Tracepoints => &["FTRACE", "FTRACE_SYSCALLS"],
            Part::Pages => &["PROC_PAGE_MONITOR"],
            Part::Settings => &["PROC_SYSCTL"],
            Part::Ext4 => &["EXT4_FS"],
        }
    }

    /// The option whose absence from a configuration tells that the part is absent.
    pub const fn told_by(self, arm: bool) -> &'static str {
        if matches!(self, Part::Tracepoints) {
            // Nobody sets it: every tracer does.
            return "EVENT_TRACING";
        }
        let options = self.options(arm);
        options[options.len() - 1]
    }

    /// The module that it may be, if one brings it.
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

    /// What it is needed for.
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

    /// A file that a running kernel with the part has; `None` where it leaves none.
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

    /// The part with the options that bring it, for people.
    pub fn text(self, arm: bool) -> String {
        let options: Vec<String> =
            self.options(arm).iter().map(|option| format!("CONFIG_{option}")).collect();
        format!("{} ({})", self.name(), options.join(", "))
    }
}

/// The parts that the running kernel shows to be absent. Without `/proc` or `/sys` nothing can be said of
/// what lies there.
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
