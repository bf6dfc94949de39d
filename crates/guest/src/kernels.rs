//! The kernels that guests can be booted with.

use crate::apt::Apt;
use crate::cache::{Cache, Kernel};
use crate::catalog::Build;
use crate::error::{FetchError, GuestError};
use crate::fetch;

/// What is in the cache and what is in the archive.
pub struct Listing {
    /// The kernels in the cache.
    pub cached: Vec<Kernel>,
    /// The kernels in the archive, or why they are not known.
    pub fetchable: Result<Vec<Fetchable>, FetchError>,
}

/// A kernel in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetchable {
    /// Its series.
    pub series: String,
    /// Its builds, oldest first.
    pub builds: Vec<String>,
    /// The version of the newest build's package.
    pub version: String,
}

/// The series that the model has a row for and Debian a kernel.
pub const USUAL: [&str; 5] = ["5.10", "6.1", "6.12", "6.18", "7.3"];

/// Fetches kernels by series or build; `progress` is told which is under way. Those that are
/// cached are fetched again, which brings the newest build of a series.
pub fn fetch(wanted: &[String], progress: &dyn Fn(&str)) -> Result<Vec<Kernel>, FetchError> {
    let cache = Cache::open()?;
    progress("the archive's lists");
    let apt = Apt::open(&cache)?;
    let builds = fetch::fetchable(&cache, &apt)?;
    wanted
        .iter()
        .map(|name| {
            progress(name);
            fetch::fetch(&cache, &apt, &builds, name)
        })
        .collect()
}

/// What there is.
pub fn list() -> Result<Listing, FetchError> {
    let cache = Cache::open()?;
    let builds = Apt::open(&cache).and_then(|apt| fetch::fetchable(&cache, &apt));
    Ok(Listing { cached: cache.kernels(), fetchable: builds.map(|builds| by_series(&builds)) })
}

/// Removes kernels from the cache.
pub fn remove(names: &[String]) -> Result<(), FetchError> {
    let cache = Cache::open()?;
    names.iter().try_for_each(|name| cache.remove(name))
}

/// The names of the kernels in the cache.
pub fn cached() -> Result<Vec<String>, FetchError> {
    Ok(Cache::open()?.kernels().into_iter().map(|kernel| kernel.manifest.name).collect())
}

/// The kernel that `name` names, fetched if it is not cached.
pub fn ready(name: &str) -> Result<Kernel, GuestError> {
    if !crate::options::names_a_kernel(name) {
        let what = "this is no kernel series or build".to_owned();
        return Err(GuestError::BadTarget { text: name.to_owned(), what });
    }
    let cache = Cache::open()?;
    if let Some(kernel) = cache.kernel(name) {
        return Ok(kernel);
    }
    let apt = Apt::open(&cache)?;
    // Another process may have fetched it while we waited for the lock.
    if let Some(kernel) = cache.kernel(name) {
        return Ok(kernel);
    }
    let builds = fetch::fetchable(&cache, &apt)?;
    Ok(fetch::fetch(&cache, &apt, &builds, name)?)
}

fn by_series(builds: &[Build]) -> Vec<Fetchable> {
    let same = builds.chunk_by(|a, b| a.series == b.series);
    same.filter_map(|builds| {
        let newest = builds.last()?;
        Some(Fetchable {
            series: newest.series.clone(),
            builds: builds.iter().map(|build| build.name.clone()).collect(),
            version: newest.version.clone(),
        })
    })
    .collect()
}
