//! The files that a scenario maps: each in memory (tmpfs), without a name anywhere, so that nothing is left of it however
//! the runner ends.

use crate::wire::{Failure, FailureKind};
use needless_model::program::{Content, FileSpec, FileSystem};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

/// Bytes of a page.
const PAGE: usize = 4096;

/// What written pages hold: no zeros, since pages of zeros are treated apart by some kernels.
const FILLING: [u8; PAGE] = [0x5a; PAGE];

/// The files, in the order in which the scenario declares them.
pub struct Files(Vec<File>);

impl Files {
    /// Makes them and writes what they hold.
    pub fn make(files: &[FileSpec]) -> Result<Files, Failure> {
        let failed = |file: &FileSpec, error: io::Error| Failure {
            errno: error.raw_os_error(),
            ..Failure::new(
                FailureKind::Unsupported,
                format!("file `{}`, {} pages in memory: {error}", file.name, file.pages),
            )
        };
        let made = files.iter().map(|file| make(file).map_err(|error| failed(file, error)));
        made.collect::<Result<_, _>>().map(Files)
    }

    /// What the file of that number is mapped by.
    pub fn descriptor(&self, number: u16) -> io::Result<i32> {
        let file = self.0.get(usize::from(number));
        file.map(AsRawFd::as_raw_fd).ok_or_else(|| io::Error::other("there is no such file"))
    }
}

fn make(spec: &FileSpec) -> io::Result<File> {
    let mut file = match spec.fs {
        FileSystem::Tmpfs => {
            let name = CString::new(spec.name.as_str())?;
            File::from(memfd_create(&name, MemfdFlags::CLOEXEC)?)
        }
    };
    match spec.content {
        Content::Data => (0..spec.pages).try_for_each(|_| file.write_all(&FILLING))?,
        Content::Holes => ftruncate(&file, spec.pages * PAGE as u64)?,
    }
    Ok(file)
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
        };
        let files = Files::make(&[spec(Content::Data), spec(Content::Holes)]).unwrap();
        let sizes = files.0.iter().map(|file| file.metadata().unwrap());
        let sizes: Vec<_> = sizes.map(|of| (of.len(), of.blocks() * 512)).collect();
        assert_eq!(sizes, [(3 * 4096, 3 * 4096), (3 * 4096, 0)]);
        assert!(files.descriptor(1).is_ok() && files.descriptor(2).is_err());
    }
}
