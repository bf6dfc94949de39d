//! The guest's first file system: a cpio archive with the runner as `/init` and the modules.
//!
//! The format is "newc" (Documentation/driver-api/early-userspace/buffer-format.rst). Each entry
//! has a header of hexadecimal numbers, the name and the data, both padded to four bytes. An entry
//! named `TRAILER!!!` ends the archive. An archive is kept in the cache under a name made of its
//! content. So it is written once and never changed.

use crate::cache::Kernel;
use crate::disk;
use crate::error::GuestError;
use crate::options::{GuestFile, GuestOptions};
use needless_runner::disk::{DISK, TEMPORARY};
use needless_runner::guest::INIT;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The age at which archives of other runners are removed.
const KEEP: Duration = Duration::from_secs(60 * 60);

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// The path of the archive for `kernel`, with `runner` and the files that the options add. It is
/// written unless it exists already.
pub fn prepare(
    kernel: &Kernel,
    runner: &Path,
    options: &GuestOptions,
) -> Result<PathBuf, GuestError> {
    let bytes = build(kernel, runner, options)?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    let path = kernel.folder().join(format!("initramfs-{:016x}.cpio", hasher.finish()));
    let there = fs::read(&path).is_ok_and(|found| found == bytes);
    if !there {
        remove_old(kernel.folder());
        write_whole(&path, &bytes).map_err(at(&path))?;
    }
    Ok(path)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> GuestError {
    let path = path.to_owned();
    move |error| GuestError::File { path, error }
}

fn build(kernel: &Kernel, runner: &Path, options: &GuestOptions) -> Result<Vec<u8>, GuestError> {
    let read = |path: &Path| fs::read(path).map_err(at(path));
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "tmp", "modules"] {
        archive.add(folder, FOLDER, (0, 0), &[]);
    }
    // Messages go there before the first file system is mounted.
    archive.add("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
    archive.add(INIT.trim_start_matches('/'), PROGRAM, (0, 0), &read(runner)?);
    for (at, path) in kernel.modules().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        archive.add(&format!("modules/{at:02}-{name}"), FILE, (0, 0), &read(&path)?);
    }
    for GuestFile { name, source } in &options.files {
        archive.add(name, PROGRAM, (0, 0), &read(source)?);
    }
    // Without an image (no mkfs.ext4 here), the guest reports that when a scenario asks for a disk.
    match disk::image() {
        Ok(image) => archive.add(DISK.trim_start_matches('/'), FILE, (0, 0), &read(&image)?),
        Err(GuestError::NoDisk { .. }) if !options.disk => {}
        Err(error) => return Err(error),
    }
    if options.disk {
        archive.add(TEMPORARY.trim_start_matches('/'), FILE, (0, 0), &read(&disk::image()?)?);
    }
    Ok(archive.end())
}

/// Writes a file that appears under its name only when it is complete.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix("initramfs-new-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

fn remove_old(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with("initramfs-");
        let age = entry.metadata().and_then(|found| found.modified()).ok();
        let old = age.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > KEEP);
        if ours && old {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.entries += 1;
        let size = data.len() as u32;
        let name_size = name.len() as u32 + 1;
        // inode, mode, uid, gid, links, time, size, device, device of a node, name, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_where_the_format_says() {
        let mut archive = Archive::default();
        archive.add("init", PROGRAM, (0, 0), b"hello");
        archive.add("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        let bytes = archive.end();
        let number = |at: usize| {
            u32::from_str_radix(std::str::from_utf8(&bytes[at..at + 8]).unwrap(), 16).unwrap()
        };
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!((number(14), number(54), number(94)), (PROGRAM, 5, 5));
        assert_eq!(&bytes[110..116], b"init\0\0");
        assert_eq!(&bytes[116..121], b"hello");
        let second = 124;
        assert_eq!(&bytes[second..second + 6], b"070701");
        assert_eq!((number(second + 78), number(second + 86)), (5, 1));
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
