//! QEMU: finds or installs it, and makes its command line.

use crate::cache::Kernel;
use crate::error::GuestError;
use crate::options::GuestOptions;
use crate::platform::{Arch, Platform, Processor};
use needless_model::foreign;
use needless_runner::guest::PORT;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Options of every guest's command line. NUMA balancing would fault at times of its own. The
/// watchdogs take every CPU for a moment. DAMON's statistics (mm/damon/stat.c, on in Debian's 6.18
/// and 7.3) clear accessed bits.
///
/// RCU asks a guest's CPU to switch tasks after 0.1 s (kernel/rcu/tree.c: rcu_sched_clock_irq), and
/// a CPU of a busy host may well be away that long. A call that takes memory away then stops in the
/// middle to let others run, and flushes twice (mm/memory.c: zap_pte_range). No record shows that
/// if no other task is ready. So RCU has to wait as long as it takes.
const COMMAND_LINE: &str = "quiet panic=-1 numa_balancing=disable mitigations=auto nowatchdog \
                            damon_stat.enabled=N rcutree.jiffies_till_sched_qs=1000000";

/// The descriptor that the guard passes to its command.
const HOST_DESCRIPTOR: u32 = 3;

/// QEMU on this machine, for one kind of guest.
pub struct Emulator {
    /// QEMU's version, in its own words.
    pub version: String,
    platform: &'static Platform,
    processor: &'static Processor,
}

impl Emulator {
    /// Finds QEMU. Installs it if it is missing and this user may.
    pub fn find(
        platform: &'static Platform,
        options: &GuestOptions,
    ) -> Result<Emulator, GuestError> {
        let processor = platform.processor(options.processor.as_deref());
        let processor = processor.ok_or_else(|| GuestError::Unsupported {
            what: format!("{} guests have no such processor", platform.arch),
        })?;
        let found = |version| Emulator { version, platform, processor };
        let (program, package) = (platform.qemu, platform.qemu_package);
        match version(program) {
            Ok(version) => return Ok(found(version)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(GuestError::Unusable { program, error }),
        }
        let why = install(&[package]);
        version(program).map(found).map_err(|_| GuestError::QemuMissing { program, package, why })
    }

    /// Whether there is a plugin that counts what its guests execute.
    pub fn counts(&self) -> bool {
        self.platform.arch == Arch::Arm64
    }

    /// QEMU's version, accelerator and processor, for messages.
    pub fn text(&self) -> String {
        format!("QEMU {}, TCG, -cpu {}", self.version, self.processor.qemu)
    }

    /// The command that boots `kernel`. `plugin`: the argument of `-plugin`.
    pub fn command(
        &self,
        kernel: &Kernel,
        initramfs: &Path,
        options: &GuestOptions,
        plugin: Option<&str>,
    ) -> Vec<String> {
        let memory = options.nodes.memory_mib().unwrap_or(options.memory_mib);
        let memory = format!("{memory}M");
        let port = format!("socket,id=host,fd={HOST_DESCRIPTOR}");
        let port_device = format!("virtserialport,chardev=host,name={PORT}");
        let mut words: Vec<String> = [
            self.platform.qemu,
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-monitor",
            "none",
            "-no-reboot",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            self.processor.qemu,
            "-m",
            &memory,
            // The guard makes standard output and error one stream.
            "-serial",
            "file:/dev/stdout",
            "-chardev",
            &port,
            "-device",
            "virtio-serial-pci",
            "-device",
            &port_device,
        ]
        .map(str::to_owned)
        .into();
        let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
        if let Some(machine) = (self.platform.machine)(machine_cpus(options)) {
            add("-machine", machine.to_owned());
        }
        if let Some(plugin) = plugin {
            add("-plugin", plugin.to_owned());
        }
        add("-smp", machine_cpus(options).to_string());
        add("-kernel", path(&kernel.image()));
        add("-initrd", path(initramfs));
        add("-append", command_line(self.platform, options));
        words.extend(options.nodes.command(options.memory_mib, options.cpus));
        words
    }
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The kernel's command line. It isolates the scenarios' CPUs from the scheduler's choices, and
/// moves RCU's callbacks elsewhere. Tasks that are not pinned run on the last CPU. The runner moves
/// kernel threads there that were made before. What scenarios observe does not depend on this,
/// except that it leaves them alone.
fn command_line(platform: &Platform, options: &GuestOptions) -> String {
    let (own, last, thp) = (platform.command_line, options.cpus - 1, options.thp.word());
    let apart = format!("isolcpus=0-{last} rcu_nocbs=0-{last}");
    let line = format!("{own} {COMMAND_LINE} {apart} transparent_hugepage={thp}");
    format!("{line} {}", options.append).trim_end().to_owned()
}

/// The number of the machine's CPUs: one more than scenarios use.
fn machine_cpus(options: &GuestOptions) -> u32 {
    u32::from(options.cpus) + 1
}

fn version(program: &str) -> io::Result<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().next() {
        Some(line) => {
            Ok(foreign::line(line.trim_start_matches("QEMU emulator version ")).into_owned())
        }
        None => Err(io::Error::other(format!("it printed no version ({})", output.status))),
    }
}

/// Installs packages. Returns why that failed, or an empty text.
pub fn install(packages: &[&str]) -> String {
    if !rustix::process::geteuid().is_root() {
        return ", and only root can install it".to_owned();
    }
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        let output = command.output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stderr);
        let last = foreign::line(text.lines().last().unwrap_or("no reason is given")).into_owned();
        if output.status.success() { Ok(()) } else { Err(last) }
    };
    let install = [&["install", "-y", "-q", "--no-install-recommends"], packages].concat();
    // Without lists, or with old ones, the first attempt fails.
    match apt_get(&install).or_else(|_| apt_get(&["update", "-q"]).and_then(|()| apt_get(&install)))
    {
        Ok(()) => String::new(),
        Err(why) => format!(", and `apt-get install {}` failed: {why}", packages.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_words_come_last() {
        let options = GuestOptions { append: "a=1 b".into(), ..GuestOptions::default() };
        let line = |arch: Arch, options: &GuestOptions| command_line(arch.platform(), options);
        assert!(line(Arch::X86_64, &options).ends_with("transparent_hugepage=madvise a=1 b"));
        let usual = line(Arch::X86_64, &GuestOptions::default());
        assert!(usual.starts_with("console=ttyS0 tsc=reliable"), "{usual}");
        assert!(usual.contains("isolcpus=0-1 ") && usual.ends_with("=madvise"), "{usual}");
        let arm = line(Arch::Arm64, &GuestOptions::default());
        assert!(arm.starts_with("console=ttyAMA0 quiet") && !arm.contains("tsc"), "{arm}");
    }
}
