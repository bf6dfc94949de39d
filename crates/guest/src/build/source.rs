//! Debian's source of a series, with Debian's own patches: the package `linux-source-SERIES`,
//! unpacked.

use super::error::BuildError;
use crate::apt::Apt;
use crate::cache::{Cache, Package, at};
use crate::error::FetchError;
use crate::platform::Arch;
use needless_model::foreign;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PREFIX: &str = "linux-source-";

/// An unpacked source.
pub struct Source {
    /// The folder of the source, as [`super`] describes it.
    pub folder: PathBuf,
    /// The package that it comes from.
    pub package: Package,
}

/// Unpacks the newest source of a series that the archive has, unless it is unpacked already. If
/// the archive cannot be reached, uses the source that exists.
pub fn ready(
    cache: &Cache,
    series: &str,
    arch: Arch,
    progress: &dyn Fn(&str),
) -> Result<Source, BuildError> {
    let builds = cache.folder("builds")?;
    sweep(&builds);
    progress("reading the archive's lists");
    let apt = Apt::open(cache, Arch::X86_64)?;
    let complaint = apt.update()?;
    if !apt.has_lists() {
        return Err(FetchError::Unreachable { detail: complaint, cached: cache.inventory() }.into());
    }
    let name = format!("{PREFIX}{series}");
    let records = apt.records(&apt.names(PREFIX)?)?;
    let found = records.iter().find(|record| record.get("Package") == Some(&name));
    let version = found.and_then(|record| record.get("Version")).ok_or_else(|| {
        let names = records.iter().filter_map(|record| record.get("Package")?.strip_prefix(PREFIX));
        let mut names: Vec<&str> = names.filter(|name| super::series_of(name).is_ok()).collect();
        names.sort_by(|a, b| crate::version::compare(a, b));
        let available = format!("it has {}", names.join(", "));
        BuildError::NoSource { series: series.to_owned(), available }
    })?;
    let package = Package { name, version: version.clone() };
    let folder = builds.join(format!("{}-{arch}", version.replace(['/', ':'], "_")));
    if !folder.join("tree").is_dir() {
        progress(&format!("fetching {} {version}", package.name));
        let files = apt.download(&[format!("{}={version}", package.name)])?;
        let unpacked = match files.as_slice() {
            [file] => unpack(file, &builds, &folder, progress),
            _ => Err(bad(&package.name, "apt fetched something else")),
        };
        apt.clean();
        unpacked?;
    }
    Ok(Source { folder, package })
}

/// Removes the remains of an interrupted unpacking. The caller holds the lock of builds.
fn sweep(builds: &Path) {
    for entry in fs::read_dir(builds).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(".new-") {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn bad(package: &str, what: impl ToString) -> FetchError {
    FetchError::Package { package: package.to_owned(), what: what.to_string() }
}

/// Unpacks the archive of sources inside the package. The folder appears only when it is whole.
fn unpack(
    package: &Path,
    builds: &Path,
    folder: &Path,
    progress: &dyn Fn(&str),
) -> Result<(), FetchError> {
    progress("unpacking the source");
    let name = foreign::path(package.file_name().unwrap_or_default());
    let staging =
        tempfile::Builder::new().prefix(".new-").tempdir_in(builds).map_err(at(builds))?;
    let tree = staging.path().join("tree");
    fs::create_dir(&tree).map_err(at(&tree))?;
    let cannot = |program: &str| {
        let program = program.to_owned();
        move |error| FetchError::Program { program, error }
    };
    let mut unpacker = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(cannot("dpkg-deb"))?;
    let unpacked = match unpacker.stdout.take() {
        Some(stream) => unpack_inner(stream, &tree),
        None => Err(io::Error::other("dpkg-deb has no output")),
    };
    // The rest of its output is not needed.
    let _ = unpacker.kill();
    let _ = unpacker.wait();
    unpacked.map_err(|error| bad(&name, error))?;
    fs::rename(staging.path(), folder).map_err(at(folder))
}

/// Passes the inner archive to `tar`.
fn unpack_inner(stream: impl io::Read, tree: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 16, stream));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        if !(path.contains("usr/src/linux-source-") && path.ends_with(".tar.xz")) {
            continue;
        }
        let mut tar = Command::new("tar")
            .args(["-x", "-J", "--strip-components=1", "--no-same-owner", "-C"])
            .arg(tree)
            .stdin(Stdio::piped())
            .spawn()?;
        let copied = match tar.stdin.take() {
            Some(mut input) => io::copy(&mut entry, &mut input).map(drop),
            None => Err(io::Error::other("tar has no input")),
        };
        let status = tar.wait()?;
        return match (copied, status.success()) {
            (copied, true) => copied,
            (_, false) => Err(io::Error::other(format!("tar cannot unpack it ({status})"))),
        };
    }
    Err(io::Error::other("there is no source in it"))
}
