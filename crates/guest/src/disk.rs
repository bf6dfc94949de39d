//! The image of a guest's disk: an empty ext4 file system with a journal, made once and kept in the
//! cache.

use crate::cache::{Cache, at};
use crate::error::GuestError;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The least that leaves room beside a journal of 4 MiB, the least there is.
const MEBIBYTES: u64 = 16;

/// The image, made if it is missing.
pub fn image() -> Result<PathBuf, GuestError> {
    let folder = Cache::open()?.folder("disks")?;
    let path = folder.join("empty.ext4");
    if path.exists() {
        return Ok(path);
    }
    let file =
        tempfile::Builder::new().prefix(".new-").tempfile_in(&folder).map_err(at(&folder))?;
    file.as_file().set_len(MEBIBYTES << 20).map_err(at(&path))?;
    make_file_system(&file).map_err(|why| GuestError::NoDisk { why })?;
    file.persist(&path).map_err(|error| at(&path)(error.error))?;
    Ok(path)
}

/// Blocks are as large as pages, as on disks of a usual size; no table is left to a kernel thread.
fn make_file_system(file: &tempfile::NamedTempFile) -> Result<(), String> {
    let output = Command::new("/sbin/mkfs.ext4")
        .args(["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(file.path())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("mkfs.ext4 cannot be run: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("mkfs.ext4: {}", errors.trim())) }
}
