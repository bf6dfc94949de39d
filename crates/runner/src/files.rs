//! The files that a scenario maps, in memory (tmpfs) or on a disk that was made for them. They have
//! no name anywhere, so nothing is left of them however the runner ends.

use crate::disk::{DISK_BYTES, mounted, nameless_file};
use crate::folios;
use crate::wire::{Failure, FailureKind};
use needless_model::program::{Content, FileSpec, FileSystem, MAX_WRITE_PAGES};
use rustix::fs::{Advice, MemfdFlags, fadvise, ftruncate, memfd_create};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Bytes of a page.
const PAGE: usize = 4096;

/// The contents of written pages. They are not zero, because some kernels treat pages of zeros
/// apart.
static FILLING: [u8; MAX_WRITE_PAGES as usize * PAGE] = [0x5a; MAX_WRITE_PAGES as usize * PAGE];

/// The files, in the order in which the scenario declares them.
pub struct Files(Vec<File>);

impl Files {
    /// Makes the files and writes their contents. `device` has those that lie on a disk.
    pub fn make(files: &[FileSpec], device: Option<&str>) -> Result<Files, Failure> {
        let failed = |what: String, error: io::Error| Failure {
            errno: error.raw_os_error(),
            ..Failure::new(FailureKind::Unsupported, format!("{what}: {error}"))
        };
        let folder = device.map(|device| {
            mounted(device).map_err(|error| failed(format!("mounting {device}"), error))
        });
        let folder = folder.transpose()?;
        // This touches the filling in advance, so that no page of it faults in a round.
        let most = files.iter().map(|file| file.write_pages as usize).max().unwrap_or(0);
        for byte in FILLING[..most * PAGE].iter().step_by(PAGE) {
            std::hint::black_box(*byte);
        }
        let made = files.iter().map(|file| {
            make(file, folder.as_ref()).map_err(|error| {
                let on = match file.fs {
                    FileSystem::Tmpfs => "in memory".to_owned(),
                    FileSystem::Ext4 => format!("on a disk of {} MiB", DISK_BYTES >> 20),
                };
                failed(format!("file `{}`, {} pages {on}", file.name, file.pages), error)
            })
        });
        made.collect::<Result<_, _>>().map(Files)
    }

    fn get(&self, number: u16) -> io::Result<&File> {
        let file = self.0.get(usize::from(number));
        file.ok_or_else(|| io::Error::other("there is no such file"))
    }

    /// The descriptor to map file `number` with.
    pub fn descriptor(&self, number: u16) -> io::Result<i32> {
        self.get(number).map(AsRawFd::as_raw_fd)
    }

    /// Writes these pages, `write_pages` in each call. A write makes no folio larger than itself.
    pub fn write(&self, number: u16, pages: Range<u64>, write_pages: u64) -> io::Result<()> {
        write(self.get(number)?, pages, write_pages)
    }

    /// Tells the kernel that these pages need not stay in memory (POSIX_FADV_DONTNEED).
    pub fn drop(&self, number: u16, pages: Range<u64>) -> io::Result<()> {
        let length = NonZeroU64::new((pages.end - pages.start) * PAGE as u64);
        Ok(fadvise(self.get(number)?, pages.start * PAGE as u64, length, Advice::DontNeed)?)
    }

    /// Sets the size of a file, in pages.
    pub fn truncate(&self, number: u16, pages: u64) -> io::Result<()> {
        Ok(ftruncate(self.get(number)?, pages * PAGE as u64)?)
    }

    /// Writes what was stored to a file to its disk, and waits for it.
    pub fn sync(&self, number: u16) -> io::Result<()> {
        self.get(number)?.sync_all()
    }
}

fn make(spec: &FileSpec, disk: Option<&OwnedFd>) -> io::Result<File> {
    let file = match spec.fs {
        FileSystem::Tmpfs => {
            let name = CString::new(spec.name.as_str())?;
            File::from(memfd_create(&name, MemfdFlags::CLOEXEC)?)
        }
        FileSystem::Ext4 => {
            let none = || io::Error::other("there is no disk for it");
            nameless_file(disk.ok_or_else(none)?)?
        }
    };
    match spec.content {
        // `write_pages` at once, so that no folio is larger.
        Content::Data => write(&file, 0..spec.pages, spec.write_pages)?,
        Content::Holes => ftruncate(&file, spec.pages * PAGE as u64)?,
    }
    if spec.fs.is_written_back() {
        // The pages become clean and stay in memory.
        file.sync_all()?;
    }
    if spec.fs == FileSystem::Ext4 && spec.write_pages > 1 && spec.content == Content::Data {
        folios::verify(&file, spec)?.map_err(io::Error::other)?;
    }
    Ok(file)
}

fn write(file: &File, pages: Range<u64>, write_pages: u64) -> io::Result<()> {
    for first in pages.clone().step_by(write_pages as usize) {
        let count = write_pages.min(pages.end - first) as usize;
        file.write_all_at(&FILLING[..count * PAGE], first * PAGE as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_are_made_whole_or_as_a_hole() {
        let spec = |content| FileSpec {
            name: "data".to_owned(),
            pages: 3,
            fs: FileSystem::Tmpfs,
            content,
            write_pages: 1,
        };
        let files = Files::make(&[spec(Content::Data), spec(Content::Holes)], None).unwrap();
        let sizes = files.0.iter().map(|file| file.metadata().unwrap());
        let sizes: Vec<_> = sizes.map(|of| (of.len(), of.blocks() * 512)).collect();
        assert_eq!(sizes, [(3 * 4096, 3 * 4096), (3 * 4096, 0)]);
        assert!(files.descriptor(1).is_ok() && files.descriptor(2).is_err());
    }
}
