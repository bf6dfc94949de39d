//! QEMU: found or installed, and its command line.

use crate::cache::Kernel;
use crate::error::GuestError;
use crate::options::GuestOptions;
use needless_runner::guest::PORT;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const QEMU: &str = "qemu-system-x86_64";
const PACKAGE: &str = "qemu-system-x86";

/// What every guest is booted with. One reliable clock orders the events of all CPUs; NUMA
/// balancing would fault at its own times; the watchdogs take every CPU for a moment.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 numa_balancing=disable mitigations=auto \
                            tsc=reliable clocksource=tsc nowatchdog";

/// The descriptor that the guard gives to its command.
const HOST_DESCRIPTOR: u32 = 3;

/// QEMU on this machine.
pub struct Emulator {
    /// What it calls itself.
    pub version: String,
}

impl Emulator {
    /// Finds QEMU; installs it where that is possible.
    pub fn find() -> Result<Emulator, GuestError> {
        if let Some(version) = version() {
            return Ok(Emulator { version });
        }
        let why = install();
        version().map(|version| Emulator { version }).ok_or(GuestError::QemuMissing { why })
    }

    /// The command that boots `kernel`.
    pub fn command(
        &self,
        kernel: &Kernel,
        initramfs: &Path,
        options: &GuestOptions,
    ) -> Vec<String> {
        let memory = format!("{}M", options.memory_mib);
        let port = format!("socket,id=host,fd={HOST_DESCRIPTOR}");
        let port_device = format!("virtserialport,chardev=host,name={PORT}");
        let mut words: Vec<String> = [
            QEMU,
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
            "max",
            "-m",
            &memory,
            // The guard makes standard output and error one.
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
        words.extend(["-smp".into(), machine_cpus(options).to_string()]);
        words.extend(nodes(options));
        words.extend(["-kernel".into(), path(&kernel.image()), "-initrd".into(), path(initramfs)]);
        words.extend(["-append".into(), command_line(options)]);
        words
    }
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The scenarios' CPUs are isolated from the scheduler's choices: what is not pinned there, kernel
/// threads included, runs on the last CPU. Nothing that scenarios observe depends on it, except
/// that they are left alone.
fn command_line(options: &GuestOptions) -> String {
    let (last, thp) = (options.cpus - 1, options.thp.word());
    let line = format!("{COMMAND_LINE} isolcpus=0-{last} transparent_hugepage={thp}");
    format!("{line} {}", options.append).trim_end().to_owned()
}

/// One CPU more than scenarios use.
fn machine_cpus(options: &GuestOptions) -> u32 {
    u32::from(options.cpus) + 1
}

/// CPUs and memory shared out evenly among the nodes.
fn nodes(options: &GuestOptions) -> Vec<String> {
    if options.nodes < 2 {
        return Vec::new();
    }
    let count = u32::from(options.nodes);
    (0..count)
        .flat_map(|node| {
            let share = |whole: u32| (whole * node / count, whole * (node + 1) / count);
            let (cpu, next) = share(machine_cpus(options));
            let (from, to) = share(options.memory_mib);
            [
                "-object".into(),
                format!("memory-backend-ram,id=m{node},size={}M", to - from),
                "-numa".into(),
                format!("node,nodeid={node},cpus={cpu}-{},memdev=m{node}", next - 1),
            ]
        })
        .collect()
}

fn version() -> Option<String> {
    let output = Command::new(QEMU).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().next()?.trim_start_matches("QEMU emulator version ").to_owned())
}

/// Installs QEMU; if that cannot be, why.
fn install() -> String {
    if !rustix::process::geteuid().is_root() {
        return ", and only root can install it".to_owned();
    }
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        let output = command.output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("no reason is given").to_owned();
        if output.status.success() { Ok(()) } else { Err(last) }
    };
    let install = ["install", "-y", "-q", "--no-install-recommends", PACKAGE];
    // Without lists, or with old ones, the first attempt fails.
    match apt_get(&install).or_else(|_| apt_get(&["update", "-q"]).and_then(|()| apt_get(&install)))
    {
        Ok(()) => String::new(),
        Err(why) => format!(", and `apt-get install {PACKAGE}` failed: {why}"),
    }
}

/// The runner's binary, `named` or looked for, and checked: in a guest there is no dynamic linker
/// and no other file.
pub fn static_runner(named: Option<&Path>) -> Result<PathBuf, GuestError> {
    use object::read::elf::{ElfFile64, ProgramHeader};
    let bad = |what: String| GuestError::Runner { what };
    let path = named.map_or_else(needless_runner::locate::find, |path| Ok(path.to_owned()));
    let path =
        path.map_err(|places| bad(format!("`needless-runner` was not found in {places}")))?;
    let bytes =
        std::fs::read(&path).map_err(|error| bad(format!("{}: {error}", path.display())))?;
    let file = ElfFile64::<object::Endianness>::parse(&*bytes)
        .map_err(|error| bad(format!("{}: {error}", path.display())))?;
    if file.elf_header().e_machine.get(file.endian()) != object::elf::EM_X86_64 {
        return Err(bad(format!("{} is no x86-64 program", path.display())));
    }
    let mut headers = file.elf_program_headers().iter();
    if headers.any(|header| header.p_type(file.endian()) == object::elf::PT_INTERP) {
        return Err(bad(format!(
            "{} is linked dynamically; a guest has no other file",
            path.display()
        )));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_everything_out() {
        let options =
            GuestOptions { cpus: 3, nodes: 2, memory_mib: 1001, ..GuestOptions::default() };
        let words = nodes(&options).join(" ");
        assert!(words.contains("cpus=0-1") && words.contains("cpus=2-3"), "{words}");
        assert!(words.contains("size=500M") && words.contains("size=501M"), "{words}");
        assert!(nodes(&GuestOptions::default()).is_empty());
    }

    #[test]
    fn the_users_words_come_last() {
        let options = GuestOptions { append: "a=1 b".into(), ..GuestOptions::default() };
        assert!(command_line(&options).ends_with("transparent_hugepage=madvise a=1 b"));
        let usual = command_line(&GuestOptions::default());
        assert!(usual.contains("isolcpus=0-1 ") && usual.ends_with("=madvise"), "{usual}");
    }
}
