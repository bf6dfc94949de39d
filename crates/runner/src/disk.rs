//! A file system on a disk for a guest, which has no disk: the image that the guest was booted with,
//! on a zram device.

use crate::zram::{DeviceError, Zram, at};
use rustix::mount::MountFlags;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Where a guest finds the image of its disk, if it is to have one.
pub const DISK: &str = "/disk.ext4";

/// Where temporary files are made.
const PLACE: &str = "/tmp";

/// Mounts the image for temporary files, if there is one. It stays until the machine is switched off.
pub fn mount() -> Result<(), DeviceError> {
    if !Path::new(DISK).exists() {
        return Ok(());
    }
    let mut image = File::open(DISK).map_err(at(DISK))?;
    let size = image.metadata().map_err(at(DISK))?.len();
    let device = Zram::add(size)?.device();
    let mut disk = File::options().write(true).open(&device).map_err(at(device.as_str()))?;
    io::copy(&mut image, &mut disk).and_then(|_| disk.sync_all()).map_err(at(device.as_str()))?;
    rustix::mount::mount(&device, PLACE, "ext4", MountFlags::empty(), None)
        .map_err(|error| at(format!("mounting {device} at {PLACE}"))(error.into()))?;
    fs::remove_file(DISK).map_err(at(DISK))
}
