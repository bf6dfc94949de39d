//! The hash of a source as it is compiled: of the name, kind and contents of every file.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// XXH3-128 of a tree, in hexadecimal. Files are read in the order of their names, so the hash does
/// not depend on where the tree lies.
pub fn tree(root: &Path) -> io::Result<String> {
    let mut hash = Xxh3::new();
    take(root, root, &mut hash)?;
    Ok(format!("{:032x}", hash.digest128()))
}

fn take(root: &Path, folder: &Path, hash: &mut Xxh3) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            take(root, &path, hash)?;
            continue;
        }
        let (kind, contents) = match kind.is_symlink() {
            true => (b'l', fs::read_link(&path)?.as_os_str().as_bytes().to_vec()),
            false if entry.metadata()?.permissions().mode() & 0o100 != 0 => {
                (b'x', fs::read(&path)?)
            }
            false => (b'f', fs::read(&path)?),
        };
        // Lengths separate a name and the contents of a file from what follows.
        let name = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes();
        for part in [name, &contents] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(&[kind]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn whatever_changes_in_a_tree_changes_its_hash() {
        let make = || {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("mm")).unwrap();
            fs::write(folder.path().join("mm/a.c"), "1").unwrap();
            fs::write(folder.path().join("Makefile"), "").unwrap();
            symlink("mm", folder.path().join("link")).unwrap();
            folder
        };
        let same = tree(make().path()).unwrap();
        let changed = |change: fn(&Path) -> io::Result<()>| {
            let folder = make();
            change(folder.path()).unwrap();
            tree(folder.path()).unwrap()
        };
        assert_eq!(changed(|_| Ok(())), same);
        let changes: [fn(&Path) -> io::Result<()>; 6] = [
            |at| fs::write(at.join("mm/a.c"), "2"),
            |at| fs::write(at.join("mm/b.c"), ""),
            |at| fs::rename(at.join("mm/a.c"), at.join("mm/b.c")),
            |at| fs::set_permissions(at.join("Makefile"), fs::Permissions::from_mode(0o755)),
            |at| fs::remove_file(at.join("link")).and_then(|()| symlink("nn", at.join("link"))),
            |at| fs::remove_file(at.join("link")).and_then(|()| fs::write(at.join("link"), "mm")),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert_ne!(changed(change), same, "change {at}");
        }
    }
}
