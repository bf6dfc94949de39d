//! Checks who owns the cache. Its sources are compiled, and its makefiles run, with the rights of
//! this process.

use crate::error::FetchError;
use rustix::process::geteuid;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Mode bits: others may write, and the sticky bit that keeps them from replacing files of other
/// users.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Refuses a folder that another user could fill: it has to be ours. If this process is root, root
/// has to own each folder above it as well, because others want root's rights. (sudo with HOME kept
/// leads to such folders.)
pub fn ours(folder: &Path) -> Result<(), FetchError> {
    let (own, root) = (geteuid().as_raw(), geteuid().is_root() && is_everybodys_root());
    for place in folder.ancestors() {
        let found = match fs::metadata(place) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => found.map_err(crate::cache::at(place))?,
        };
        let (owner, mode) = (found.uid(), found.mode());
        let open = root && mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0;
        if (owner != own && (root || place == folder)) || open {
            let why = match open {
                true => "may be written to by other users".to_owned(),
                false => format!("belongs to user {owner}"),
            };
            return Err(FetchError::NotOurs { folder: place.to_owned(), why, own });
        }
        if !root {
            break;
        }
    }
    // A link on the way leads to folders with owners of their own.
    match fs::canonicalize(folder) {
        Ok(real) if root && real != folder => ours(&real),
        _ => Ok(()),
    }
}

/// Whether user 0 is the machine's root. In a user namespace it may be any user.
fn is_everybodys_root() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn root_uses_no_folder_that_another_user_could_fill() {
        if !geteuid().is_root() {
            needless_testing::skip!("root gives folders to others");
        }
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("home/cache/needless");
        fs::create_dir_all(&cache).unwrap();
        ours(&cache).unwrap();
        ours(&cache.join("not/yet")).unwrap();
        let link = folder.path().join("link");
        symlink(&cache, &link).unwrap();
        ours(&link).unwrap();
        let told = |path: &Path| ours(path).unwrap_err().to_string();
        for theirs in ["home/cache/needless", "home/cache", "home"] {
            let theirs = folder.path().join(theirs);
            chown(&theirs, Some(65534), None).unwrap();
            for path in [&cache, &link, &cache.join("not/yet")] {
                assert!(told(path).contains("belongs to user 65534"), "{theirs:?}: {}", told(path));
            }
            chown(&theirs, Some(0), None).unwrap();
        }
        let home = folder.path().join("home");
        fs::set_permissions(&home, Permissions::from_mode(0o777)).unwrap();
        assert!(told(&cache).contains("may be written to by other users"));
        fs::set_permissions(&home, Permissions::from_mode(0o1777)).unwrap();
        ours(&cache).unwrap();
    }
}
