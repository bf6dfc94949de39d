//! The processor architectures of guests, in one row each.
//!
//! The name of a kernel ends in its architecture, as in `6.12/arm64`. A kernel without that is an
//! x86-64 kernel.

use std::fmt;

/// An architecture of guests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arch {
    /// The architecture x86-64.
    X86_64,
    /// The architecture arm64 (64-bit Arm).
    Arm64,
}

/// What a guest of one architecture needs.
pub(crate) struct Platform {
    /// The architecture of this row.
    pub arch: Arch,
    /// Debian's name of the architecture. The package names of cloud kernels have it, too.
    pub debian: &'static str,
    /// The emulator's program.
    pub qemu: &'static str,
    /// The package that has the emulator.
    pub qemu_package: &'static str,
    /// The value of `-machine` for this number of CPUs; `None` if QEMU's default fits.
    pub machine: fn(u32) -> Option<&'static str>,
    /// The available processors, the default first.
    pub processors: &'static [Processor],
    /// The beginning of the kernel's command line: the console, and one reliable clock that orders
    /// the events of all CPUs.
    pub command_line: &'static str,
    /// The ELF `e_machine` of its programs.
    pub elf_machine: object::elf::Machine,
}

/// An emulated processor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Processor {
    /// Its name in targets.
    pub name: &'static str,
    /// QEMU's name of it.
    pub qemu: &'static str,
    /// Whether it sets the accessed bit and the dirty bit itself.
    pub sets_bits: bool,
}

static PLATFORMS: [Platform; 2] = [
    Platform {
        arch: Arch::X86_64,
        debian: "amd64",
        qemu: "qemu-system-x86_64",
        qemu_package: "qemu-system-x86",
        machine: |_| None,
        processors: &[Processor { name: "max", qemu: "max", sets_bits: true }],
        command_line: "console=ttyS0 tsc=reliable clocksource=tsc",
        elf_machine: object::elf::EM_X86_64,
    },
    Platform {
        arch: Arch::Arm64,
        debian: "arm64",
        qemu: "qemu-system-aarch64",
        qemu_package: "qemu-system-arm",
        // Version 2 of the interrupt controller supports 8 CPUs. Version 3 supports more, but the
        // kernel's driver issues a barrier with each interrupt. That barrier would be counted among
        // those of flushes.
        machine: |cpus| Some(if cpus <= 8 { "virt,gic-version=2" } else { "virt,gic-version=3" }),
        processors: &[
            // With the architected algorithm, pointer authentication would take most of the time.
            Processor { name: "max", qemu: "max,pauth-impdef=on", sets_bits: true },
            // This one has no hardware accessed and dirty bits, and no range flushes. It needs
            // page-table isolation.
            Processor { name: "cortex-a72", qemu: "cortex-a72", sets_bits: false },
        ],
        command_line: "console=ttyAMA0",
        elf_machine: object::elf::EM_AARCH64,
    },
];

impl Arch {
    /// All architectures.
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Arm64];

    /// The architecture in a kernel's name; `None` if the name has an unknown one.
    pub fn of(kernel: &str) -> Option<Arch> {
        match kernel.split_once('/') {
            None => Some(Arch::X86_64),
            Some((_, word)) => Arch::ALL.into_iter().find(|arch| arch.suffix() == Some(word)),
        }
    }

    /// The end of kernels' names for this architecture; `None` for x86-64.
    pub fn suffix(self) -> Option<&'static str> {
        match self {
            Arch::X86_64 => None,
            Arch::Arm64 => Some("arm64"),
        }
    }

    /// The name of a kernel of this architecture.
    pub fn kernel(self, series: &str) -> String {
        self.suffix().map_or_else(|| series.to_owned(), |suffix| format!("{series}/{suffix}"))
    }

    pub(crate) fn platform(self) -> &'static Platform {
        match self {
            Arch::X86_64 => &PLATFORMS[0],
            Arch::Arm64 => &PLATFORMS[1],
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::X86_64 => "x86-64",
            Arch::Arm64 => "arm64",
        })
    }
}

impl Platform {
    /// The processor with this name, or the default.
    pub fn processor(&self, name: Option<&str>) -> Option<&'static Processor> {
        match name {
            None => self.processors.first(),
            Some(name) => self.processors.iter().find(|processor| processor.name == name),
        }
    }

    /// Whether it is the architecture of this program.
    pub fn is_native(&self) -> bool {
        match self.arch {
            Arch::X86_64 => cfg!(target_arch = "x86_64"),
            Arch::Arm64 => cfg!(target_arch = "aarch64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_architecture() {
        for arch in Arch::ALL {
            assert_eq!(arch.platform().arch, arch);
            assert_eq!(Arch::of(&arch.kernel("6.1")), Some(arch));
            assert_eq!(arch.platform().processor(None).unwrap().name, "max");
        }
        assert_eq!(Arch::of("6.1/sparc"), None);
        assert_eq!(Arch::Arm64.kernel("6.12"), "6.12/arm64");
        assert_eq!(Arch::X86_64.platform().processor(Some("cortex-a72")), None);
    }
}
