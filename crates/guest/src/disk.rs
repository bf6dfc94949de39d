//! The image of a guest's disk: an empty file system. It is made once and kept in the cache,
//! without the zeros at its end.

use crate::cache::{Cache, at};
use crate::error::GuestError;
use needless_runner::disk::{DISK_BYTES, make_file_system};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The path of the image. The image is made if it is missing.
pub fn image() -> Result<PathBuf, GuestError> {
    let folder = Cache::open()?.folder("disks")?;
    let path = folder.join("empty-2.ext4");
    if path.exists() {
        return Ok(path);
    }
    let new = tempfile::Builder::new().prefix(".new-").tempfile_in(&folder).map_err(at(&folder))?;
    new.as_file().set_len(DISK_BYTES).map_err(at(new.path()))?;
    make_file_system(new.path()).map_err(|why| GuestError::NoDisk { why })?;
    let shortened = used(new.as_file()).and_then(|bytes| new.as_file().set_len(bytes));
    shortened.and_then(|()| new.as_file().sync_all()).map_err(at(new.path()))?;
    new.persist(&path).map_err(|error| at(&path)(error.error))?;
    Ok(path)
}

/// The offset behind the last byte that is not zero. The file is read piece by piece, because the
/// whole file may be larger than the free address space.
fn used(file: &File) -> io::Result<u64> {
    let mut piece = vec![0; 1 << 20];
    let (mut start, mut used) = (0, 0);
    loop {
        let read = file.read_at(&mut piece, start)?;
        if read == 0 {
            return Ok(used);
        }
        if let Some(last) = piece[..read].iter().rposition(|byte| *byte != 0) {
            used = start + last as u64 + 1;
        }
        start += read as u64;
    }
}
