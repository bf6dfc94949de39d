//! Reads files of procfs and sysfs. There are three outcomes: the text, a kernel without such a
//! file, and a file that cannot be seen. The third one never counts as one of the others.

use crate::limits::remedy_in;
use needless_model::foreign;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A file of the kernel that cannot be seen.
#[derive(Debug, Error)]
#[error("{}: {why}", foreign::path(path))]
pub struct Unseen {
    /// The path of the file.
    pub path: PathBuf,
    /// The reason, in words.
    pub why: String,
}

/// The magic numbers of the file systems (include/uapi/linux/magic.h, 5.10 to 7.3).
const PROC: u64 = 0x9fa0;
const SYSFS: u64 = 0x6265_6572;

/// The remedy if something is mounted over a kernel's file.
const UNSEEN_REMEDY: &str = "unmount what hides it, or run where /proc and /sys are the kernel's (outside of the container)";

impl Unseen {
    /// The remedy: if a limit is the cause, to raise the limit.
    pub fn remedy(&self) -> &'static str {
        remedy_in(&self.why).unwrap_or(UNSEEN_REMEDY)
    }
}

/// The text of a file below `/proc` or `/sys`; `None` if this kernel has no such file.
pub fn look(path: impl AsRef<Path>) -> Result<Option<String>, Unseen> {
    let path = path.as_ref();
    if !is_there(path)? {
        return Ok(None);
    }
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        // The file is gone meanwhile, as those of tasks are.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unseen(path, error)),
    }
}

/// Whether this kernel has such a file or folder.
pub fn is_there(path: impl AsRef<Path>) -> Result<bool, Unseen> {
    let path = path.as_ref();
    for place in path.ancestors() {
        match rustix::fs::statfs(place) {
            Ok(system) if matches!(system.f_type as u64, PROC | SYSFS) => return Ok(place == path),
            Ok(_) => {
                return Err(unseen(path, format!("{} is not the kernel's", foreign::path(place))));
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => return Err(unseen(path, error)),
        }
    }
    Ok(false)
}

fn unseen(path: &Path, why: impl ToString) -> Unseen {
    Unseen { path: path.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_and_what_is_not_the_kernels_are_two_things() {
        assert!(look("/proc/version").unwrap().unwrap().starts_with("Linux"));
        assert_eq!(look("/proc/sys/kernel/no_such_setting").unwrap(), None);
        assert_eq!(look("/sys/kernel/no/such/folder").unwrap(), None);
        assert_eq!(look("/proc/version/no").unwrap(), None);
        let limited = Unseen { path: "/proc".into(), why: Errno::MFILE.to_string() };
        assert!(limited.remedy().contains("ulimit -n"), "{limited}");
        let place = std::env::temp_dir().join("no such file");
        let error = look(&place).unwrap_err().to_string();
        assert!(error.ends_with("is not the kernel's"), "{error}");
        assert!(is_there("/proc/self").unwrap() && !is_there("/sys/kernel/no_such").unwrap());
    }
}
