//! The cache of kernels: `$XDG_CACHE_HOME/needless/kernels/NAME/`, one folder for each kernel. The
//! folder of `6.12/arm64` is `6.12_arm64`.
//!
//! A folder has `vmlinuz`, `modules/` and `manifest.json`. It is made under another name and
//! renamed when it is whole. So a folder with a kernel's name is always complete.

use crate::error::FetchError;
use crate::platform::Arch;
use needless_model::foreign;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Names in the cache and in a kernel's folder.
const KERNELS: &str = "kernels";
const IMAGES: &str = "images";
const IMAGE: &str = "vmlinuz";
const MODULES: &str = "modules";
const MANIFEST: &str = "manifest.json";
/// The file with the configuration of a kernel that was built here.
const CONFIG: &str = "config";

/// How long the copy of a user's own image is kept after its last use.
const KEEP_IMAGES: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder of all files of this crate.
pub struct Cache {
    root: PathBuf,
}

/// What is known about a kernel in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The name that was asked for: a series or a build.
    pub name: String,
    /// The release that `uname -r` prints.
    #[serde(deserialize_with = "foreign::deserialize")]
    pub release: String,
    /// The packages that the kernel comes from.
    pub packages: Vec<Package>,
    /// File names in `modules/`, in the order of loading.
    pub modules: Vec<String>,
    /// What the kernel was built from, if it was built here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<BuiltFrom>,
    /// XXH3-128 of the whole compiled source, patches included ([`crate::build`]). Absent for
    /// kernels that were not built here, and for those that were built before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// XXH3-128 of every file in hexadecimal, by its path in the folder. Empty for kernels that
    /// were fetched before this field existed.
    #[serde(default)]
    pub hashes: BTreeMap<String, String>,
}

/// What a kernel was built from, apart from the package of its source. The configuration lies in
/// the kernel's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltFrom {
    /// The applied patches, in this order.
    pub patches: Vec<Hashed>,
    /// The user's part of the configuration.
    pub fragment: Option<Hashed>,
    /// XXH3-128 of all requested lines of the configuration. Absent in kernels that were built
    /// before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<String>,
    /// The compiler, by the first line of its version.
    #[serde(deserialize_with = "foreign::deserialize")]
    pub compiler: String,
}

/// A file name, and XXH3-128 of the file's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hashed {
    /// The file name.
    #[serde(deserialize_with = "foreign::deserialize")]
    pub name: String,
    /// The hash, in hexadecimal.
    #[serde(deserialize_with = "foreign::deserialize")]
    pub hash: String,
}

/// A package in one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The package name.
    #[serde(deserialize_with = "foreign::deserialize")]
    pub name: String,
    /// The version of the package.
    #[serde(deserialize_with = "foreign::deserialize")]
    pub version: String,
}

/// A kernel in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The manifest in its folder.
    pub manifest: Manifest,
    /// The architecture that it runs on.
    pub arch: Arch,
    folder: PathBuf,
}

/// The contents of a kernel's folder.
struct Contents<'a> {
    manifest: Manifest,
    arch: Arch,
    image: &'a [u8],
    modules: &'a [(String, Vec<u8>)],
    config: Option<&'a str>,
}

impl Manifest {
    /// Packages with versions, and the files that were added to them, for messages.
    pub fn packages_text(&self) -> String {
        let package = |package: &Package| format!("{} {}", package.name, package.version);
        let mut parts: Vec<String> = self.packages.iter().map(package).collect();
        if let Some(BuiltFrom { patches, fragment, .. }) = &self.built {
            let one = |file: &Hashed| format!("{} ({})", file.name, file.hash);
            parts.extend(patches.iter().chain(fragment).map(one));
        }
        parts.join(", ")
    }
}

impl Kernel {
    /// Whether the kernel was built from exactly this, and is undamaged.
    pub fn is_from(&self, source: &Package, built: &BuiltFrom) -> bool {
        let Manifest { packages, built: known, .. } = &self.manifest;
        let known = known.as_ref().filter(|known| known.lines.is_some());
        packages.as_slice() == std::slice::from_ref(source)
            && known == Some(built)
            && self.is_checkable()
            && self.check().is_ok()
    }

    /// The path of the kernel's image.
    pub fn image(&self) -> PathBuf {
        self.folder.join(IMAGE)
    }

    /// The paths of its modules, in the order of loading.
    pub fn modules(&self) -> impl Iterator<Item = PathBuf> {
        self.manifest.modules.iter().map(|name| self.folder.join(MODULES).join(name))
    }

    /// Whether it is a user's own image.
    pub fn is_own(&self) -> bool {
        crate::target::is_path(&self.manifest.name)
    }

    /// Where the kernel comes from, for messages: its packages, or its file and the file's hash.
    pub fn text(&self) -> String {
        let Manifest { name, hashes, .. } = &self.manifest;
        match (self.is_own(), hashes.get(IMAGE)) {
            (true, Some(hash)) => format!("{name} (XXH3 {hash})"),
            (true, None) => name.clone(),
            (false, _) => self.manifest.packages_text(),
        }
    }

    /// Whether damage to it can be detected.
    pub fn is_checkable(&self) -> bool {
        !self.manifest.hashes.is_empty()
    }

    /// Reads every file and compares it with its hash. A kernel without hashes passes. (A damaged
    /// image would boot without any output.)
    pub fn check(&self) -> Result<(), FetchError> {
        for (place, known) in &self.manifest.hashes {
            let file = self.folder.join(place);
            let what = match fs::read(&file) {
                Ok(bytes) if hash(&bytes) == *known => continue,
                Ok(_) => "it differs from what was fetched".to_owned(),
                Err(error) => error.to_string(),
            };
            let name = self.manifest.name.clone();
            let remedy = match self.manifest.built.is_some() {
                true => {
                    "build it again with `needless kernels build` and the same patches".to_owned()
                }
                false => format!("fetch it again: `needless kernels fetch {name}`"),
            };
            return Err(FetchError::Damaged { name, file, what, remedy });
        }
        Ok(())
    }

    /// The folder of the kernel.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Cache {
    /// Opens the user's cache.
    pub fn open() -> Result<Cache, FetchError> {
        let base = match named("XDG_CACHE_HOME")? {
            Some(cache) => cache,
            None => named("HOME")?.ok_or(FetchError::NoCache)?.join(".cache"),
        };
        let root = base.join("needless");
        crate::owner::ours(&root)?;
        Ok(Cache { root })
    }

    /// A folder of the cache. It is made if it is missing.
    pub fn folder(&self, name: &str) -> Result<PathBuf, FetchError> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(at(&path))?;
        Ok(path)
    }

    /// The cached kernels, in the order of their names.
    pub fn kernels(&self) -> Result<Vec<Kernel>, FetchError> {
        let folder = self.root.join(KERNELS);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(at(&folder))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(at(&folder)(error)),
        };
        let names = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
        let names = names.map(|folder| folder.replace('_', "/"));
        let mut kernels: Vec<Kernel> = names.filter_map(|name| self.kernel(&name)).collect();
        kernels.sort_by(|a, b| crate::version::compare(&a.manifest.name, &b.manifest.name));
        Ok(kernels)
    }

    /// The kernel with this name, if it is cached and complete.
    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        if !crate::target::names_a_kernel(name) {
            return None;
        }
        let folder = self.root.join(KERNELS).join(folder_name(name));
        let text = fs::read_to_string(folder.join(MANIFEST)).ok()?;
        let manifest: Manifest = serde_json::from_str(&text).ok()?;
        let inside = manifest.modules.iter().all(|module| is_file_name(module))
            && manifest.hashes.keys().all(|place| is_place(place));
        let arch = Arch::of(name)?;
        (manifest.name == name && inside).then_some(Kernel { manifest, arch, folder })
    }

    /// The cached kernels, in a sentence.
    pub fn inventory(&self) -> String {
        let kernels = match self.kernels() {
            Ok(kernels) => kernels,
            Err(error) => return format!("the cache cannot be read: {error}"),
        };
        let names: Vec<String> = kernels.into_iter().map(|kernel| kernel.manifest.name).collect();
        match names.is_empty() {
            true => "no kernel is cached".to_owned(),
            false => format!("the cache has {}", names.join(", ")),
        }
    }

    /// Keeps a kernel: its image, its modules by file name, and its manifest with their hashes.
    pub fn keep(
        &self,
        manifest: Manifest,
        image: &[u8],
        modules: &[(String, Vec<u8>)],
    ) -> Result<Kernel, FetchError> {
        let arch = Arch::of(&manifest.name).unwrap_or(Arch::X86_64);
        let place = folder_name(&manifest.name);
        self.keep_in(KERNELS, &place, Contents { manifest, arch, image, modules, config: None })
    }

    /// Keeps a kernel that was built here, everything in one image, with its configuration.
    pub fn keep_built(
        &self,
        manifest: Manifest,
        image: &[u8],
        config: &str,
    ) -> Result<Kernel, FetchError> {
        let arch = Arch::of(&manifest.name).unwrap_or(Arch::X86_64);
        let place = folder_name(&manifest.name);
        let contents = Contents { manifest, arch, image, modules: &[], config: Some(config) };
        self.keep_in(KERNELS, &place, contents)
    }

    /// Keeps a copy of a user's own image, so that all boots of a run use one image, whatever is
    /// built meanwhile. The copy is removed when it has not been used for a day.
    pub fn keep_image(
        &self,
        arch: Arch,
        manifest: Manifest,
        image: &[u8],
        modules: &[(String, Vec<u8>)],
    ) -> Result<Kernel, FetchError> {
        let mut all = image.to_vec();
        all.extend(manifest.name.as_bytes());
        modules.iter().for_each(|(_, module)| all.extend(module));
        self.forget_images();
        self.keep_in(IMAGES, &hash(&all), Contents { manifest, arch, image, modules, config: None })
    }

    fn keep_in(
        &self,
        part: &str,
        name: &str,
        contents: Contents<'_>,
    ) -> Result<Kernel, FetchError> {
        let Contents { mut manifest, arch, image, modules, config } = contents;
        let kernels = self.folder(part)?;
        // This is not a kernel's name, so the folder does not count as a kernel. It is removed when
        // it is dropped.
        let staging = tempfile::Builder::new().prefix(".new-").tempdir_in(&kernels);
        let staging = staging.map_err(at(&kernels))?;
        let mut write = |name: &str, bytes: &[u8]| {
            let path = staging.path().join(name);
            manifest.hashes.insert(name.to_owned(), hash(bytes));
            fs::write(&path, bytes).map_err(at(&path))
        };
        write(IMAGE, image)?;
        config.map_or(Ok(()), |config| write(CONFIG, config.as_bytes()))?;
        let folder = staging.path().join(MODULES);
        fs::create_dir(&folder).map_err(at(&folder))?;
        for (name, bytes) in modules {
            write(&format!("{MODULES}/{name}"), bytes)?;
        }
        let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other);
        let path = staging.path().join(MANIFEST);
        text.and_then(|text| fs::write(&path, text)).map_err(at(&path))?;
        let place = kernels.join(name);
        let there = Kernel { manifest, arch, folder: place };
        // Another run may be booting this folder, so it stays.
        if part == IMAGES && there.check().is_ok() {
            let manifest = fs::File::open(there.folder.join(MANIFEST));
            let _ = manifest.and_then(|file| file.set_modified(SystemTime::now()));
            return Ok(there);
        }
        let _ = fs::remove_dir_all(&there.folder);
        match fs::rename(staging.path(), &there.folder) {
            // Another run has made the folder first.
            Err(_) if part == IMAGES && there.check().is_ok() => Ok(there),
            renamed => renamed.map(|()| there.clone()).map_err(at(&there.folder)),
        }
    }

    /// Removes copies of images that were not used for a day.
    fn forget_images(&self) {
        let entries = fs::read_dir(self.root.join(IMAGES)).into_iter().flatten().flatten();
        for folder in entries.map(|entry| entry.path()) {
            let used = fs::metadata(folder.join(MANIFEST)).or_else(|_| fs::metadata(&folder));
            let age = used.and_then(|used| used.modified()).map(|time| time.elapsed());
            if matches!(age, Ok(Ok(age)) if age > KEEP_IMAGES) {
                let _ = fs::remove_dir_all(folder);
            }
        }
    }

    /// Removes a kernel, or the remains of one.
    pub fn remove(&self, name: &str) -> Result<(), FetchError> {
        let folder = self.root.join(KERNELS).join(folder_name(name));
        if !crate::target::names_a_kernel(name) || !folder.is_dir() {
            return Err(FetchError::NotCached { name: name.to_owned(), cached: self.inventory() });
        }
        // Without its manifest the folder is no kernel any more, whatever happens next.
        let manifest = folder.join(MANIFEST);
        match fs::remove_file(&manifest) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&manifest)(error))?,
            _ => {}
        }
        fs::remove_dir_all(&folder).map_err(at(&folder))
    }

    /// Removes the remains of an interrupted `keep`. The caller holds the lock of the archive.
    pub fn sweep(&self) {
        let entries = fs::read_dir(self.root.join(KERNELS)).into_iter().flatten().flatten();
        for entry in entries {
            if entry.file_name().to_string_lossy().starts_with(".new-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// The absolute path in a variable, if it is set.
fn named(variable: &'static str) -> Result<Option<PathBuf>, FetchError> {
    match std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from) {
        Some(path) if !path.is_absolute() => Err(FetchError::RelativeCache { variable, path }),
        // apt and make would read such a path as several lines or words.
        Some(path) if path.as_os_str().as_encoded_bytes().iter().any(u8::is_ascii_control) => {
            Err(FetchError::OddCache { variable, path })
        }
        path => Ok(path),
    }
}

/// XXH3-128, in hexadecimal. It is fast and does not protect against forgers: a user who can write
/// into the cache can write the manifest, too.
pub(crate) fn hash(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}

/// Whether a name is that of a file in its folder, and of no file elsewhere.
fn is_file_name(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| file == name) && !name.contains(foreign::steers)
}

/// Whether a path in the folder is that of the image, its configuration, or a module.
fn is_place(place: &str) -> bool {
    let module = place.strip_prefix(MODULES).and_then(|rest| rest.strip_prefix('/'));
    place == IMAGE || place == CONFIG || module.is_some_and(is_file_name)
}

/// The folder name of a kernel. Kernel names have no underscores.
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
            built: None,
            tree: None,
            hashes: BTreeMap::new(),
        }
    }

    #[test]
    fn a_kernel_is_kept_found_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().join("needless") };
        assert_eq!(cache.inventory(), "no kernel is cached");
        for name in ["6.12", "6.1"] {
            cache.keep(manifest(name), b"image", &[("zram.ko".into(), vec![1])]).unwrap();
        }
        assert_eq!(cache.inventory(), "the cache has 6.1, 6.12");
        cache.keep(manifest("6.12/arm64"), b"other", &[]).unwrap();
        assert_eq!(cache.inventory(), "the cache has 6.1, 6.12, 6.12/arm64");
        cache.remove("6.12/arm64").unwrap();
        let kernel = cache.kernel("6.12").unwrap();
        assert_eq!(fs::read(kernel.image()).unwrap(), b"image");
        assert_eq!(fs::read(kernel.modules().next().unwrap()).unwrap(), [1]);
        kernel.check().unwrap();
        // A second kernel replaces the first one.
        cache.keep(manifest("6.12"), b"newer", &[]).unwrap();
        assert_eq!(fs::read(cache.kernel("6.12").unwrap().image()).unwrap(), b"newer");
        cache.remove("6.12").unwrap();
        assert!(matches!(cache.remove("6.12"), Err(FetchError::NotCached { .. })));
        assert_eq!(cache.inventory(), "the cache has 6.1");
    }

    #[test]
    fn what_a_kernel_was_built_from_is_known_in_full() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().join("needless") };
        let hashed = |name: &str| Hashed { name: name.to_owned(), hash: hash(name.as_bytes()) };
        let built = BuiltFrom {
            patches: vec![hashed("a.patch"), hashed("b.patch")],
            fragment: None,
            lines: Some("0".to_owned()),
            compiler: "gcc 12".to_owned(),
        };
        let source = Package { name: "linux-source-6.12".into(), version: "6.12.118-1".into() };
        let keep = |built: &BuiltFrom| {
            let (packages, built) = (vec![source.clone()], Some(built.clone()));
            let manifest = Manifest { packages, built, modules: vec![], ..manifest("mine") };
            cache.keep_built(manifest, b"image", "CONFIG_A=y\n").unwrap();
            cache.kernel("mine").unwrap()
        };
        let kernel = keep(&built);
        assert!(kernel.is_from(&source, &built));
        let newer = Package { version: "6.12.119-1".into(), ..source.clone() };
        assert!(!kernel.is_from(&newer, &built));
        let others = [
            BuiltFrom { patches: vec![hashed("b.patch"), hashed("a.patch")], ..built.clone() },
            BuiltFrom { fragment: Some(hashed("debug")), ..built.clone() },
            BuiltFrom { lines: Some("1".to_owned()), ..built.clone() },
            BuiltFrom { compiler: "gcc 14".to_owned(), ..built.clone() },
        ];
        for other in &others {
            assert!(!kernel.is_from(&source, other), "{other:?}");
        }
        // Nothing is known about a kernel that was built before this field existed.
        let unknown = BuiltFrom { lines: None, ..built.clone() };
        assert!(!keep(&unknown).is_from(&source, &unknown));
        let damaged = keep(&built);
        fs::write(damaged.image(), b"imagf").unwrap();
        let Err(FetchError::Damaged { remedy, .. }) = damaged.check() else {
            panic!("it is whole")
        };
        assert!(remedy.contains("kernels build"), "no archive has it: {remedy}");
        assert!(!damaged.is_from(&source, &built));
    }

    #[test]
    fn what_is_not_what_was_fetched_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        let modules = [("zram.ko".to_owned(), vec![1, 2])];
        let keep = || cache.keep(manifest("6.12"), b"image", &modules).unwrap();
        for place in ["vmlinuz", "modules/zram.ko"] {
            let kernel = keep();
            assert!(kernel.is_checkable());
            let path = kernel.folder().join(place);
            let mut bytes = fs::read(&path).unwrap();
            bytes[1] ^= 1;
            fs::write(&path, bytes).unwrap();
            let told = cache.kernel("6.12").unwrap().check().unwrap_err().to_string();
            assert!(told.contains("damaged") && told.contains(place), "{told}");
            fs::remove_file(&path).unwrap();
            assert!(cache.kernel("6.12").unwrap().check().is_err(), "{place} is missing");
        }
    }

    #[test]
    fn a_kernel_without_hashes_is_believed() {
        let text = r#"{"name":"6.12","release":"6.12.1","packages":[],"modules":["zram.ko"]}"#;
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("kernels/6.12");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("manifest.json"), text).unwrap();
        let kernel = Cache { root: folder.path().to_owned() }.kernel("6.12").unwrap();
        assert!(!kernel.is_checkable() && kernel.check().is_ok());
    }

    #[test]
    fn names_in_a_manifest_stay_in_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        let place = folder.path().join("kernels/6.12/manifest.json");
        cache.keep(manifest("6.12"), b"image", &[]).unwrap();
        let good = fs::read_to_string(&place).unwrap();
        assert!(cache.kernel("6.12").is_some());
        for name in [
            "../zram.ko",
            "a\\u001b[2J.ko",
            "/etc/passwd",
            "..",
            ".",
            "",
            "a/b.ko",
            "a/../b.ko",
            "b.ko/",
        ] {
            fs::write(&place, good.replace("zram.ko", name)).unwrap();
            assert_eq!(cache.kernel("6.12"), None, "module {name:?}");
            fs::write(&place, good.replace("vmlinuz", &format!("modules/{name}"))).unwrap();
            assert_eq!(cache.kernel("6.12"), None, "hash of {name:?}");
        }
        fs::write(&place, good.replace("6.12.1-cloud", "6.12\\u001b[2J\\n")).unwrap();
        let release = cache.kernel("6.12").unwrap().manifest.release;
        assert_eq!(release, "6.12\\u{1b}[2J\\n", "a cache may be somebody else's");
        cache.remove("6.12").unwrap();
        assert!(!place.exists());
    }

    #[test]
    fn a_cache_that_cannot_be_read_is_not_empty() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        assert_eq!(cache.kernels().unwrap(), []);
        fs::write(folder.path().join("kernels"), "").unwrap();
        assert!(matches!(cache.kernels(), Err(FetchError::File { .. })));
        assert!(cache.inventory().contains("cannot be read"), "{}", cache.inventory());
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
        assert!(!left.exists() && cache.kernels().unwrap().is_empty());
        assert_eq!(cache.kernel("../kernels/6.12"), None);
    }
}
