//! The image of a guest's disk: an empty file system, made once and kept in the cache without the zeros at its end.

use crate::cache::{Cache, at};
use crate::error::GuestError;
use needless_runner::disk::{DISK_BYTES, make_file_system};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// The image, made if it is missing.
pub fn image() -> Result<PathBuf, GuestError> {
    let folder = Cache::open()?.folder("disks")?;
    let path = folder.join("empty-2.ext4");
    if path.exists() {
        return Ok(path);
    }
    let new = || tempfile::Builder::new().prefix(".new-").tempfile_in(&folder).map_err(at(&folder));
    let whole = new()?;
    whole.as_file().set_len(DISK_BYTES).map_err(at(&path))?;
    make_file_system(whole.path()).map_err(|why| GuestError::NoDisk { why })?;
    let mut image = fs::read(whole.path()).map_err(at(whole.path()))?;
    image.truncate(image.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    let mut file = new()?;
    file.write_all(&image).and_then(|()| file.as_file().sync_all()).map_err(at(&path))?;
    file.persist(&path).map_err(|error| at(&path)(error.error))?;
    Ok(path)
}
