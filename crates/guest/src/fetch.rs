//! Fetches kernels from the archive into the cache: finds the build, downloads its packages, and
//! keeps what a guest needs.

use crate::apt::Apt;
use crate::cache::{Cache, Kernel, Manifest};
use crate::catalog::{self, Build};
use crate::error::FetchError;
use crate::modules::Modules;
use crate::platform::Arch;
use needless_model::foreign;
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// The kernels of the archive. Fails if there are no lists of the archive.
pub fn fetchable(cache: &Cache, apt: &Apt) -> Result<Vec<Build>, FetchError> {
    let complaint = apt.update()?;
    if !apt.has_lists() {
        return Err(FetchError::Unreachable { detail: complaint, cached: cache.inventory() });
    }
    catalog::builds(apt)
}

/// Fetches the kernel that `wanted` names, a series or a build. If the cache has exactly that
/// kernel, undamaged, nothing is downloaded.
pub fn fetch(
    cache: &Cache,
    apt: &Apt,
    builds: &[Build],
    wanted: &str,
) -> Result<Kernel, FetchError> {
    let series = wanted.split('/').next().unwrap_or_default();
    let known = Arch::of(wanted) == Some(apt.arch());
    let build = known.then(|| catalog::find(builds, series)).flatten();
    let build = build.ok_or_else(|| gone(cache, builds, wanted))?;
    let same = |kernel: &Kernel| {
        let packages = kernel.manifest.packages == build.packages;
        packages && kernel.is_checkable() && kernel.check().is_ok()
    };
    if let Some(kernel) = cache.kernel(wanted).filter(same) {
        return Ok(kernel);
    }
    let packages = build.packages.iter();
    let names: Vec<String> = packages.map(|p| format!("{}={}", p.name, p.version)).collect();
    let files = apt.download(&names)?;
    let mut contents = Contents::default();
    let read = files.iter().try_for_each(|file| contents.read(file));
    apt.clean();
    read?;
    contents.keep(cache, wanted, build)
}

/// The error that the archive has no such kernel.
pub fn gone(cache: &Cache, builds: &[Build], wanted: &str) -> FetchError {
    let series = wanted.split('/').next().unwrap_or_default();
    FetchError::Gone {
        wanted: wanted.to_owned(),
        available: catalog::available(builds, series),
        cached: cache.inventory(),
    }
}

/// The files of a build's packages that a guest needs.
#[derive(Default)]
struct Contents {
    image: Option<Vec<u8>>,
    modules: Modules,
}

impl Contents {
    fn read(&mut self, file: &Path) -> Result<(), FetchError> {
        let bad = |what: String| FetchError::Package {
            package: foreign::path(file.file_name().unwrap_or_default()),
            what,
        };
        let mut unpacker = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| FetchError::Program { program: "dpkg-deb".into(), error })?;
        let outcome = match unpacker.stdout.take() {
            Some(stream) => self.read_archive(stream).map_err(bad),
            None => Err(bad("dpkg-deb has no output".into())),
        };
        let ended = unpacker.wait().is_ok_and(|status| status.success());
        outcome?;
        if ended { Ok(()) } else { Err(bad("dpkg-deb cannot unpack it".into())) }
    }

    fn read_archive(&mut self, stream: impl Read) -> Result<(), String> {
        let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 16, stream));
        for entry in archive.entries().map_err(|error| error.to_string())? {
            let mut entry = entry.map_err(|error| error.to_string())?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let path = entry.path().map_err(|error| error.to_string())?;
            let path = path.to_string_lossy().into_owned();
            if path.rsplit('/').next().is_some_and(|name| name.starts_with("vmlinuz")) {
                let mut image = Vec::new();
                entry.read_to_end(&mut image).map_err(|error| error.to_string())?;
                self.image = Some(image);
            } else {
                self.modules.take(&path, &mut entry)?;
            }
        }
        Ok(())
    }

    fn keep(self, cache: &Cache, name: &str, build: &Build) -> Result<Kernel, FetchError> {
        let bad =
            |what: String| FetchError::Package { package: build.packages[0].name.clone(), what };
        let image = self.image.ok_or_else(|| bad("there is no vmlinuz in it".into()))?;
        let modules = self.modules.in_order().map_err(bad)?;
        let release =
            self.modules.release.ok_or_else(|| bad("there are no modules in it".into()))?;
        let manifest = Manifest {
            name: name.to_owned(),
            release,
            packages: build.packages.clone(),
            modules: modules.iter().map(|(name, _)| name.clone()).collect(),
            built: None,
            tree: None,
            hashes: BTreeMap::new(),
        };
        cache.keep(manifest, &image, &modules)
    }
}
