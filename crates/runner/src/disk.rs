//! File systems on disks: ext4 on a zram device that the runner adds. They have no journal, because
//! its thread would run on a scenario's CPUs.
//!
//! A guest has no disk and no program that makes file systems. It is booted with an image, without
//! the zeros at the image's end.

use crate::zram::{DeviceError, Zram, at};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen,
};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// The image for the files of scenarios in a guest.
pub const DISK: &str = "/disk.ext4";

/// The image for temporary files in a guest, if they are not to be in memory.
pub const TEMPORARY: &str = "/tmp.ext4";

/// Bytes of a disk. zram needs memory only for what is written.
pub const DISK_BYTES: u64 = 512 << 20;

/// Bytes of a block: the size of a page, as on disks of a usual size.
const BLOCK: u64 = 4096;

/// The file system's name in the kernel.
const KIND: &str = "ext4";

/// Makes the file system in a file or on a device of [`DISK_BYTES`]. Everything that this writes
/// lies at the beginning. It leaves no inode table for a kernel thread to initialize.
pub fn make_file_system(path: &Path) -> Result<(), String> {
    let features = "^has_journal,^resize_inode,sparse_super2";
    let layout = "num_backup_sb=0,packed_meta_blocks=1,lazy_itable_init=0";
    let output = Command::new("/sbin/mkfs.ext4")
        .args(["-q", "-F", "-b", &BLOCK.to_string(), "-N", "1024", "-O", features, "-E", layout])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("mkfs.ext4 cannot be run: {error} (Debian: e2fsprogs)"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("mkfs.ext4: {}", errors.trim())) }
}

/// Adds a device with the image at `path`, and removes the image because it takes memory.
pub fn from_image(path: &str) -> Result<String, DeviceError> {
    let image = fs::read(path).map_err(at(path))?;
    let device = Zram::add(size(&image).map_err(at(path))?)?.device();
    let mut disk = File::options().write(true).open(&device).map_err(at(device.as_str()))?;
    disk.write_all(&image).and_then(|()| disk.sync_all()).map_err(at(device.as_str()))?;
    fs::remove_file(path).map_err(at(path))?;
    Ok(device)
}

/// The size of an ext4 file system in bytes, from its superblock (`s_blocks_count_lo`).
fn size(image: &[u8]) -> io::Result<u64> {
    let blocks = image.get(1028..1032).and_then(|blocks| blocks.try_into().ok());
    let blocks = blocks.map(u32::from_le_bytes).ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(u64::from(blocks) * BLOCK)
}

/// Mounts the image for temporary files, if there is one. It stays mounted until the machine is
/// switched off.
pub fn mount_temporary() -> Result<(), DeviceError> {
    if !Path::new(TEMPORARY).exists() {
        return Ok(());
    }
    let device = from_image(TEMPORARY)?;
    rustix::mount::mount(&device, "/tmp", KIND, MountFlags::empty(), None)
        .map_err(|error| at(format!("mounting {device} at /tmp"))(error.into()))
}

/// The root folder of a device's file system, which is mounted where no other process sees it. The
/// mount ends with its last open file, however the process that opened it ends. Readahead is off: a
/// fault reads only its own page.
pub fn mounted(device: &str) -> io::Result<OwnedFd> {
    let name = device.trim_start_matches("/dev/");
    fs::write(format!("/sys/block/{name}/queue/read_ahead_kb"), "0")?;
    let context = fsopen(KIND, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", device)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Makes a file without a name in a folder.
pub fn nameless_file(folder: &OwnedFd) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    Ok(File::from(rustix::fs::openat(folder, ".", flags, mode)?))
}
