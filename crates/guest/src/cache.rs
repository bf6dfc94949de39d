//! The cache of kernels: `$XDG_CACHE_HOME/needless/kernels/NAME/`, one folder per kernel. `6.12/arm64`
//! lies in `6.12_arm64`.
//!
//! A folder holds `vmlinuz`, `modules/` and `manifest.json`. It is made under another name and
//! renamed when it is whole, so a folder with a kernel's name is always complete.

use crate::error::FetchError;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder that everything of this crate lies in.
pub struct Cache {
    root: PathBuf,
}

/// What is known of a kernel in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// What was asked for: a series or a build.
    pub name: String,
    /// What `uname -r` says.
    pub release: String,
    /// The packages that it came from.
    pub packages: Vec<Package>,
    /// File names in `modules/`, in the order in which they have to be loaded.
    pub modules: Vec<String>,
}

/// A package in one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A kernel in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What is known of it.
    pub manifest: Manifest,
    folder: PathBuf,
}

impl Manifest {
    /// Packages and versions, for people.
    pub fn packages_text(&self) -> String {
        let one = |package: &Package| format!("{} {}", package.name, package.version);
        self.packages.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

impl Kernel {
    /// The kernel's image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// Its modules, in the order in which they have to be loaded.
    pub fn modules(&self) -> impl Iterator<Item = PathBuf> {
        self.manifest.modules.iter().map(|name| self.folder.join("modules").join(name))
    }

    /// The folder that holds it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Cache {
    /// The user's cache.
    pub fn open() -> Result<Cache, FetchError> {
        let set =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        Ok(Cache { root: base.ok_or(FetchError::NoCache)?.join("needless") })
    }

    /// A folder of the cache, made if it is missing.
    pub fn folder(&self, name: &str) -> Result<PathBuf, FetchError> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(at(&path))?;
        Ok(path)
    }

    /// The kernels that are there, in the order of their names.
    pub fn kernels(&self) -> Vec<Kernel> {
        let entries = fs::read_dir(self.root.join("kernels")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let names = names.map(|folder| folder.replace('_', "/"));
        let mut kernels: Vec<Kernel> = names.filter_map(|name| self.kernel(&name)).collect();
        kernels.sort_by(|a, b| crate::version::compare(&a.manifest.name, &b.manifest.name));
        kernels
    }

    /// The kernel of this name, if it is there and whole.
    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        if !crate::options::names_a_kernel(name) {
            return None;
        }
        let folder = self.root.join("kernels").join(folder_name(name));
        let text = fs::read_to_string(folder.join("manifest.json")).ok()?;
        let manifest: Manifest = serde_json::from_str(&text).ok()?;
        (manifest.name == name).then_some(Kernel { manifest, folder })
    }

    /// What is there, in a sentence.
    pub fn inventory(&self) -> String {
        let names: Vec<String> =
            self.kernels().into_iter().map(|kernel| kernel.manifest.name).collect();
        match names.is_empty() {
            true => "no kernel is cached".to_owned(),
            false => format!("cached are {}", names.join(", ")),
        }
    }

    /// Keeps a kernel: its image, its modules by file name, and its manifest.
    pub fn keep(
        &self,
        manifest: &Manifest,
        image: &[u8],
        modules: &[(String, Vec<u8>)],
    ) -> Result<Kernel, FetchError> {
        let kernels = self.folder("kernels")?;
        // Not a kernel's name, so nobody takes it for one; removed when it is dropped.
        let staging = tempfile::Builder::new().prefix(".new-").tempdir_in(&kernels);
        let staging = staging.map_err(at(&kernels))?;
        let write = |name: &str, bytes: &[u8]| {
            let path = staging.path().join(name);
            fs::write(&path, bytes).map_err(at(&path))
        };
        write("vmlinuz", image)?;
        let folder = staging.path().join("modules");
        fs::create_dir(&folder).map_err(at(&folder))?;
        for (name, bytes) in modules {
            write(&format!("modules/{name}"), bytes)?;
        }
        let text = serde_json::to_vec_pretty(manifest).map_err(io::Error::other);
        write("manifest.json", &text.map_err(at(staging.path()))?)?;
        let place = kernels.join(folder_name(&manifest.name));
        let _ = fs::remove_dir_all(&place);
        fs::rename(staging.path(), &place).map_err(at(&place))?;
        Ok(Kernel { manifest: manifest.clone(), folder: place })
    }

    /// Removes a kernel.
    pub fn remove(&self, name: &str) -> Result<(), FetchError> {
        let Some(kernel) = self.kernel(name) else {
            return Err(FetchError::NotCached { name: name.to_owned(), cached: self.inventory() });
        };
        // Without its manifest the folder is no kernel any more, whatever happens next.
        let manifest = kernel.folder.join("manifest.json");
        fs::remove_file(&manifest).map_err(at(&manifest))?;
        fs::remove_dir_all(&kernel.folder).map_err(at(&kernel.folder))
    }

    /// Removes what an interrupted `keep` left. Only under the lock of the archive.
    pub fn sweep(&self) {
        let entries = fs::read_dir(self.root.join("kernels")).into_iter().flatten().flatten();
        for entry in entries {
            if entry.file_name().to_string_lossy().starts_with(".new-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// The folder of a kernel. No kernel's name has an underscore in it.
fn folder_name(kernel: &str) -> String {
    kernel.replace('/', "_")
}

/// An error at `path`.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> FetchError {
    let path = path.to_owned();
    move |error| FetchError::File { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str) -> Manifest {
        Manifest {
            name: name.into(),
            release: "6.12.1-cloud".into(),
            packages: vec![Package { name: "linux-image".into(), version: "6.12.1-1".into() }],
            modules: vec!["zram.ko".into()],
        }
    }

    #[test]
    fn a_kernel_is_kept_found_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().join("needless") };
        assert_eq!(cache.inventory(), "no kernel is cached");
        for name in ["6.12", "6.1"] {
            cache.keep(&manifest(name), b"image", &[("zram.ko".into(), vec![1])]).unwrap();
        }
        assert_eq!(cache.inventory(), "cached are 6.1, 6.12");
        cache.keep(&manifest("6.12/arm64"), b"other", &[]).unwrap();
        assert_eq!(cache.inventory(), "cached are 6.1, 6.12, 6.12/arm64");
        cache.remove("6.12/arm64").unwrap();
        let kernel = cache.kernel("6.12").unwrap();
        assert_eq!(fs::read(kernel.image()).unwrap(), b"image");
        assert_eq!(fs::read(kernel.modules().next().unwrap()).unwrap(), [1]);
        // Once more over the old one.
        cache.keep(&manifest("6.12"), b"newer", &[]).unwrap();
        assert_eq!(fs::read(cache.kernel("6.12").unwrap().image()).unwrap(), b"newer");
        cache.remove("6.12").unwrap();
        assert!(matches!(cache.remove("6.12"), Err(FetchError::NotCached { .. })));
        assert_eq!(cache.inventory(), "cached are 6.1");
    }

    #[test]
    fn what_is_not_whole_is_no_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        let broken = folder.path().join("kernels/6.12");
        fs::create_dir_all(&broken).unwrap();
        assert_eq!(cache.kernel("6.12"), None);
        fs::write(broken.join("manifest.json"), "{").unwrap();
        assert_eq!(cache.kernel("6.12"), None);
        let left = folder.path().join("kernels/.new-x");
        fs::create_dir_all(&left).unwrap();
        cache.sweep();
        assert!(!left.exists() && cache.kernels().is_empty());
        assert_eq!(cache.kernel("../kernels/6.12"), None);
    }
}
