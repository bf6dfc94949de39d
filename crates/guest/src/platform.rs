//! The processor architectures that guests are booted on: one row each.
//!
//! A kernel's name ends in its architecture, `6.12/arm64`; without one it is an x86-64 kernel.

use std::fmt;

/// An architecture.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arch {
    /// x86-64
    X86_64,
    /// 64-bit Arm
    Arm64,
}

/// What a guest of one architecture takes.
pub(crate) struct Platform {
    /// Which.
    pub arch: Arch,
    /// Debian's name of it; cloud kernels have it in their packages' names.
    pub debian: &'static str,
    /// The emulator.
    pub qemu: &'static str,
    /// The package that has it.
    pub qemu_package: &'static str,
    /// `-machine` for this many CPUs, where QEMU's usual one will not do.
    pub machine: fn(u32) -> Option<&'static str>,
    /// The processors that can be chosen, the usual one first.
    pub processors: &'static [Processor],
    /// What the kernel's command line begins with: the console, and one reliable clock that orders
    /// the events of all CPUs.
    pub command_line: &'static str,
    /// `e_machine` of its programs.
    pub elf_machine: object::elf::Machine,
}

/// A processor that is emulated.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Processor {
    /// Its name in targets.
    pub name: &'static str,
    /// QEMU's word for it.
    pub qemu: &'static str,
    /// Whether it sets the accessed and the dirty bit itself.
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
        // The second interrupt controller serves 8 CPUs. The third takes more, but the kernel's
        // driver issues a barrier with each interrupt, which would be counted with the flushes'.
        machine: |cpus| Some(if cpus <= 8 { "virt,gic-version=2" } else { "virt,gic-version=3" }),
        processors: &[
            // The architected algorithm of pointer authentication takes most of the time otherwise.
            Processor { name: "max", qemu: "max,pauth-impdef=on", sets_bits: true },
            // No hardware accessed and dirty bits, no flushes of ranges; page-table isolation.
            Processor { name: "cortex-a72", qemu: "cortex-a72", sets_bits: false },
        ],
        command_line: "console=ttyAMA0",
        elf_machine: object::elf::EM_AARCH64,
    },
];

impl Arch {
    /// All of them.
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Arm64];

    /// The architecture that a kernel's name asks for; `None` if there is none of that name.
    pub fn of(kernel: &str) -> Option<Arch> {
        match kernel.split_once('/') {
            None => Some(Arch::X86_64),
            Some((_, word)) => Arch::ALL.into_iter().find(|arch| arch.suffix() == Some(word)),
        }
    }

    /// What kernels' names end in.
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
    /// The processor of this name; without one the usual one.
    pub fn processor(&self, name: Option<&str>) -> Option<&'static Processor> {
        match name {
            None => self.processors.first(),
            Some(name) => self.processors.iter().find(|processor| processor.name == name),
        }
    }

    /// Whether this program runs on it.
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
