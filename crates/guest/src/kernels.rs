//! The kernels that guests can be booted with.

use crate::apt::Apt;
use crate::cache::{Cache, Kernel};
use crate::catalog::{self, Build};
use crate::error::{FetchError, GuestError, USUAL_TARGETS};
use crate::fetch;
use crate::own;
use crate::platform::Arch;
use crate::target::{Choice, KernelTarget, is_own_name, names_a_kernel};
use crate::version;
use std::cmp::Ordering;

/// The kernels in the cache and in the archive.
pub struct Listing {
    /// The kernels in the cache.
    pub cached: Vec<Kernel>,
    /// The kernels in the archive, or why they are unknown.
    pub fetchable: Result<Vec<Fetchable>, FetchError>,
}

/// A kernel in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetchable {
    /// Its series, as targets name it: `6.12`, `6.12/arm64`.
    pub series: String,
    /// Its builds, oldest first.
    pub builds: Vec<String>,
    /// The version of the newest build's package.
    pub version: String,
}

/// The series that have a model row and a Debian kernel.
pub const USUAL: [&str; 5] = ["5.10", "6.1", "6.12", "6.18", "7.3"];

/// Fetches kernels by series or build, one architecture after the other. Calls `progress` with the
/// name of the kernel that is being fetched. Cached kernels are fetched again, which brings the
/// newest build of a series.
pub fn fetch(wanted: &[String], progress: &dyn Fn(&str)) -> Result<Vec<Kernel>, FetchError> {
    let cache = Cache::open()?;
    let mut fetched = Vec::new();
    for arch in Arch::ALL {
        let names = || wanted.iter().filter(|name| Arch::of(name).unwrap_or(Arch::X86_64) == arch);
        if names().next().is_none() {
            continue;
        }
        progress("reading the archive's lists");
        let apt = Apt::open(&cache, arch)?;
        let builds = fetch::fetchable(&cache, &apt)?;
        for name in names() {
            progress(name);
            fetched.push(fetch::fetch(&cache, &apt, &builds, name)?);
        }
    }
    Ok(fetched)
}

/// All cached kernels, and those that the archive has for `arch`.
pub fn list(arch: Arch) -> Result<Listing, FetchError> {
    let cache = Cache::open()?;
    let builds = Apt::open(&cache, arch).and_then(|apt| fetch::fetchable(&cache, &apt));
    let fetchable = builds.map(|builds| by_series(&builds, arch));
    Ok(Listing { cached: cache.kernels()?, fetchable })
}

/// Removes kernels from the cache.
pub fn remove(names: &[String]) -> Result<(), FetchError> {
    let cache = Cache::open()?;
    names.iter().try_for_each(|name| cache.remove(name))
}

/// The names of the kernels in the cache.
pub fn cached() -> Result<Vec<String>, FetchError> {
    Ok(Cache::open()?.kernels()?.into_iter().map(|kernel| kernel.manifest.name).collect())
}

/// Refuses a kernel that is neither cached nor of a known series, without asking the archive.
pub fn heard_of(target: &KernelTarget) -> Result<(), GuestError> {
    let name = match &target.kernel {
        Choice::Named(name) => name.as_str(),
        Choice::Own(_) => return Ok(()),
    };
    let series = |name: &str| {
        let mut numbers = name.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let (oldest, newest) = (USUAL[0], USUAL[USUAL.len() - 1]);
    let between = series(oldest)..=series(newest);
    let cached = || Cache::open().is_ok_and(|cache| cache.kernel(name).is_some());
    let own = is_own_name(name);
    if !own && between.contains(&series(name)) || cached() {
        return Ok(());
    }
    if own {
        let what = format!(
            "there is no kernel {name}; `needless kernels list` shows the kernels, `needless kernels build` makes one"
        );
        return Err(bad_name(target.to_string(), name, what));
    }
    let what = format!(
        "kernel {name} is not cached, and this version knows {oldest} to {newest}; if the archive has it, \
         `needless kernels fetch {name}` fetches it"
    );
    Err(bad_name(target.to_string(), name, what))
}

/// The error that the name at the beginning of a target is wrong.
fn bad_name(text: String, name: &str, what: String) -> GuestError {
    GuestError::BadTarget { text, what, help: USUAL_TARGETS.to_owned(), at: 0..name.len() }
}

/// The target's kernel. It is fetched if it is not cached, and copied if it is a user's own image.
pub fn ready_for(target: &KernelTarget) -> Result<Kernel, GuestError> {
    match &target.kernel {
        Choice::Named(name) => ready(name),
        Choice::Own(image) => own::ready(image),
    }
}

/// A build of the archive between two kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name in targets.
    pub name: String,
    /// The version of its package.
    pub version: String,
}

/// The builds of the archive between two of its kernels, from the first to the second, without
/// these two.
pub fn between(from: &KernelTarget, to: &KernelTarget) -> Result<Vec<Candidate>, GuestError> {
    let (arch, cache) = (from.arch(), Cache::open()?);
    let apt = Apt::open(&cache, arch)?;
    let builds = fetch::fetchable(&cache, &apt)?;
    let places = [from, to].map(|end| place(&cache, &builds, end));
    let [from, to] = places;
    let (from, to) = (from?, to?);
    let (low, high) = if from <= to { (&from, &to) } else { (&to, &from) };
    let inside = |build: &&Build| {
        let place = Place::of(build);
        *low < place && place < *high
    };
    let candidate = |build: &Build| Candidate {
        name: arch.kernel(&build.name),
        version: build.version.clone(),
    };
    let mut found: Vec<Candidate> = builds.iter().filter(inside).map(candidate).collect();
    if from > to {
        found.reverse();
    }
    Ok(found)
}

/// The place of an end among the builds: that of its cached kernel, or else of the newest build
/// with its name.
fn place(cache: &Cache, builds: &[Build], end: &KernelTarget) -> Result<Place, GuestError> {
    let Choice::Named(name) = &end.kernel else {
        let what = "an image of your own has no place among the archive's kernels".to_owned();
        let help = "name two of the archive's kernels, as in --good kernel:6.1 --bad kernel:6.12";
        let (text, at) = (end.to_string(), 0..end.kernel.to_string().len());
        return Err(GuestError::BadTarget { text, what, help: help.to_owned(), at });
    };
    if let Some(kernel) = cache.kernel(name) {
        let series = catalog::series(&kernel.manifest.release);
        let version = kernel.manifest.packages.first().map(|package| package.version.clone());
        if let (Some(series), Some(version)) = (series, version) {
            return Ok(Place { series, version });
        }
    }
    let build = catalog::find(builds, name.split('/').next().unwrap_or_default());
    let gone = || fetch::gone(cache, builds, name);
    Ok(build.map(Place::of).ok_or_else(gone)?)
}

/// A place in the order of kernels: by series, and within a series by version.
#[derive(PartialEq, Eq)]
struct Place {
    series: String,
    version: String,
}

impl Place {
    fn of(build: &Build) -> Place {
        Place { series: build.series.clone(), version: build.version.clone() }
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        version::compare(&self.series, &other.series)
            .then_with(|| version::compare(&self.version, &other.version))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The kernel with this name. It is fetched if it is not cached.
pub fn ready(name: &str) -> Result<Kernel, GuestError> {
    if !names_a_kernel(name) {
        let what = "this is no kernel's series, build or name".to_owned();
        return Err(bad_name(name.to_owned(), name, what));
    }
    let cache = Cache::open()?;
    if let Some(kernel) = cache.kernel(name) {
        return Ok(kernel);
    }
    if is_own_name(name) {
        let build = format!("if it is one of patches/, `make kernels-own OWN='{name}'` builds it");
        let (name, cached) = (name.to_owned(), format!("{build}; {}", cache.inventory()));
        return Err(FetchError::NotCached { name, cached }.into());
    }
    let apt = Apt::open(&cache, Arch::of(name).unwrap_or(Arch::X86_64))?;
    // Another process may have fetched it during the wait for the lock.
    if let Some(kernel) = cache.kernel(name) {
        return Ok(kernel);
    }
    let builds = fetch::fetchable(&cache, &apt)?;
    Ok(fetch::fetch(&cache, &apt, &builds, name)?)
}

fn by_series(builds: &[Build], arch: Arch) -> Vec<Fetchable> {
    let same = builds.chunk_by(|a, b| a.series == b.series);
    same.filter_map(|builds| {
        let newest = builds.last()?;
        Some(Fetchable {
            series: arch.kernel(&newest.series),
            builds: builds.iter().map(|build| arch.kernel(&build.name)).collect(),
            version: newest.version.clone(),
        })
    })
    .collect()
}
