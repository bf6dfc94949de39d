//! tracefs: where it is mounted, or mounted for this process alone, so that nothing is left.

use needless_runner::tracefs::{self, TracefsError};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// tracefs, readable while this lives.
pub struct Tracefs {
    path: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds it, or mounts it where nobody else sees it.
    pub fn find() -> Result<Tracefs, TracefsError> {
        match tracefs::find() {
            Ok(path) => Ok(Tracefs { path, _mount: None }),
            Err(missing) => Tracefs::detached().ok_or(missing),
        }
    }

    fn detached() -> Option<Tracefs> {
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
        fsconfig_create(&context).ok()?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let mount = fsmount(&context, flags, MountAttrFlags::empty()).ok()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Some(Tracefs { path, _mount: Some(mount) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
