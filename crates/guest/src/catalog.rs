//! The kernels in the archive.
//!
//! These are Debian's cloud kernels for one architecture, in two layouts. Up to 6.18 one package
//! has everything. From 6.19 on the image package only depends on `linux-binary-V` (the image),
//! `linux-modules-V`, and `linux-base-V` (the list of built-in modules). Some image packages that
//! have everything depend on a `linux-base-V` too, which is not needed then.
//!
//! If a build exists signed and unsigned, the signed one is taken. A build is left out if the
//! archive lacks a part of it.

use crate::apt::{Apt, Record};
use crate::cache::Package;
use crate::error::FetchError;
use crate::platform::Arch;
use crate::version;
use std::cmp::Ordering;
use std::collections::BTreeMap;

const UNSIGNED: &str = "-unsigned";
const IMAGE: &str = "linux-image-";
/// The packages that a split image package depends on, the image first.
const PARTS: [&str; 3] = ["linux-binary-", "linux-modules-", "linux-base-"];

/// A kernel in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// The build's name in package names: `6.12.94+deb13`.
    pub name: String,
    /// The series: `6.12`.
    pub series: String,
    /// The version of its package.
    pub version: String,
    /// The packages that the kernel consists of.
    pub packages: Vec<Package>,
}

/// The kernels of the archive, by series and version, oldest first.
pub fn builds(apt: &Apt) -> Result<Vec<Build>, FetchError> {
    let flavour = flavour(apt.arch());
    let mut names = Vec::new();
    for prefix in [IMAGE].iter().chain(&PARTS) {
        names.extend(apt.names(prefix)?.into_iter().filter(|name| wanted(name, &flavour)));
    }
    Ok(read(&apt.records(&names)?, apt.arch()))
}

/// The end of the packages' names.
fn flavour(arch: Arch) -> String {
    format!("-cloud-{}", arch.platform().debian)
}

fn wanted(name: &str, flavour: &str) -> bool {
    name.strip_suffix(UNSIGNED).unwrap_or(name).ends_with(flavour)
}

fn read(records: &[Record], arch: Arch) -> Vec<Build> {
    let flavour = flavour(arch);
    let by_name: BTreeMap<&str, &Record> = records
        .iter()
        .filter_map(|record| Some((record.get("Package")?.as_str(), record)))
        .collect();
    let mut builds: Vec<Build> = by_name
        .iter()
        .filter_map(|(name, record)| build(name, record, &by_name, &flavour))
        .collect();
    // Signed builds come before unsigned ones, so that the second of two equal builds is dropped.
    builds.sort_by(|a, b| {
        order(a, b).then_with(|| a.packages[0].name.len().cmp(&b.packages[0].name.len()))
    });
    builds.dedup_by(|second, first| second.name == first.name);
    builds
}

fn order(a: &Build, b: &Build) -> Ordering {
    version::compare(&a.series, &b.series)
        .then_with(|| version::compare(&a.version, &b.version))
        .then_with(|| version::compare(&a.name, &b.name))
}

fn build(
    name: &str,
    record: &Record,
    all: &BTreeMap<&str, &Record>,
    flavour: &str,
) -> Option<Build> {
    let abi = name.strip_prefix(IMAGE)?;
    let abi = abi.strip_suffix(UNSIGNED).unwrap_or(abi).strip_suffix(flavour)?;
    let package = |name: &str| {
        let version = all.get(name)?.get("Version")?.clone();
        Some(Package { name: name.to_owned(), version })
    };
    let depends = record.get("Depends").map_or("", String::as_str);
    let names = || depends.split(',').filter_map(|entry| entry.split_whitespace().next());
    let parts = PARTS.iter().flat_map(|part| names().filter(move |name| name.starts_with(part)));
    let parts: Vec<&str> = parts.collect();
    let packages = match parts.first().is_some_and(|first| first.starts_with(PARTS[0])) {
        true => parts.into_iter().map(package).collect::<Option<_>>()?,
        false => vec![package(name)?],
    };
    Some(Build {
        name: abi.to_owned(),
        series: series(abi)?,
        version: record.get("Version")?.clone(),
        packages,
    })
}

/// The series of an ABI name: `6.12` for `6.12.94+deb13`. Metapackages such as `6.12` have no third
/// number.
pub fn series(abi: &str) -> Option<String> {
    let mut numbers = abi.splitn(3, '.');
    let (major, minor, rest) = (numbers.next()?, numbers.next()?, numbers.next()?);
    let number = |text: &str| text.parse::<u32>().is_ok();
    (number(major) && number(minor) && rest.starts_with(|c: char| c.is_ascii_digit()))
        .then(|| format!("{major}.{minor}"))
}

/// The build that `wanted` names, or the newest build of that series.
pub fn find<'a>(builds: &'a [Build], wanted: &str) -> Option<&'a Build> {
    let named = builds.iter().find(|build| build.name == wanted);
    named.or_else(|| builds.iter().rfind(|build| build.series == wanted))
}

/// The builds of the series that `wanted` belongs to, or else the series that exist.
pub fn available(builds: &[Build], wanted: &str) -> String {
    let series = series(wanted).unwrap_or_else(|| wanted.to_owned());
    let same: Vec<&str> = builds
        .iter()
        .filter(|build| build.series == series)
        .map(|build| build.name.as_str())
        .collect();
    if !same.is_empty() {
        return format!("of {series} it has {}", same.join(", "));
    }
    let mut series: Vec<&str> = builds.iter().map(|build| build.series.as_str()).collect();
    series.dedup();
    match series.is_empty() {
        true => "it has no cloud kernel at all".to_owned(),
        false => format!("it has {}", series.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, version: &str, depends: &str) -> Record {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        [field("Package", name), field("Version", version), field("Depends", depends)].into()
    }

    fn some() -> Vec<Build> {
        read(&records(), Arch::X86_64)
    }

    fn records() -> Vec<Record> {
        [

            record(
                "linux-image-6.12-cloud-amd64",
                "6.12.9-1",
                "linux-image-6.12.9+deb13-cloud-amd64",
            ),
            record("linux-image-6.12.94+deb12-cloud-amd64-unsigned", "6.12.94-1", "kmod"),
            record("linux-image-6.12.94+deb12-cloud-amd64", "6.12.94-1", "kmod"),
            record("linux-image-6.12.107+deb12-cloud-amd64-unsigned", "6.12.107-1", "kmod"),
            record("linux-image-6.12.9+deb13-cloud-amd64", "6.12.9-1", "kmod"),
            record(
                "linux-image-7.3.4+deb13-cloud-amd64",
                "7.3.4-1",
                "linux-base (>= 1), linux-base-7.3.4+deb13-cloud-amd64 (= 7.3.4-1), linux-binary-7.3.4+deb13-cloud-amd64 (= 7.3.4-1), linux-modules-7.3.4+deb13-cloud-amd64 (= 7.3.4-1)",
            ),
            record("linux-base-7.3.4+deb13-cloud-amd64", "7.3.4-1", ""),
            record("linux-binary-7.3.4+deb13-cloud-amd64", "7.3.4-1", ""),
            record("linux-modules-7.3.4+deb13-cloud-amd64", "7.3.4-1", ""),
            record(
                "linux-image-6.18.15+deb13-cloud-amd64",
                "6.18.15-1",
                "kmod, linux-base-6.18.15+deb13-cloud-amd64 (= 6.18.15-1)",
            ),
            record(
                "linux-image-6.19.6+deb13-cloud-amd64",
                "6.19.6-1",
                "linux-binary-6.19.6+deb13-cloud-amd64, linux-modules-6.19.6+deb13-cloud-amd64",
            ),
            record("linux-binary-6.19.6+deb13-cloud-amd64", "6.19.6-1", ""),
            record("linux-image-6.13.1+deb13-cloud-arm64", "6.13.1-1", "kmod"),
        ]
        .into()
    }

    #[test]
    fn the_newest_build_of_a_series_is_found_signed_if_possible() {
        let builds = some();
        assert_eq!(find(&builds, "6.12").unwrap().name, "6.12.107+deb12");
        let named = find(&builds, "6.12.94+deb12").unwrap();
        assert_eq!(named.packages[0].name, "linux-image-6.12.94+deb12-cloud-amd64");
        assert_eq!(builds.iter().filter(|build| build.series == "6.12").count(), 3);
    }

    #[test]
    fn split_packages_are_taken_in_parts_and_only_whole() {
        let builds = some();
        let parts: Vec<&str> =
            find(&builds, "7.3").unwrap().packages.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(
            parts,
            [
                "linux-binary-7.3.4+deb13-cloud-amd64",
                "linux-modules-7.3.4+deb13-cloud-amd64",
                "linux-base-7.3.4+deb13-cloud-amd64"
            ]
        );
        assert_eq!(find(&builds, "6.19"), None);
        let whole = &find(&builds, "6.18").unwrap().packages;
        assert_eq!(whole[0].name, "linux-image-6.18.15+deb13-cloud-amd64");
    }

    #[test]
    fn each_architecture_has_its_own_builds() {
        let builds = read(&records(), Arch::Arm64);
        assert_eq!(builds.iter().map(|b| b.name.as_str()).collect::<Vec<_>>(), ["6.13.1+deb13"]);
        assert!(wanted("linux-image-6.1.0-1-cloud-arm64-unsigned", &flavour(Arch::Arm64)));
        assert!(!wanted("linux-image-6.1.0-1-cloud-arm64-dbg", &flavour(Arch::Arm64)));
    }

    #[test]
    fn what_is_to_be_had_is_told() {
        let builds = some();
        assert_eq!(
            available(&builds, "6.12.1+deb13"),
            "of 6.12 it has 6.12.9+deb13, 6.12.94+deb12, 6.12.107+deb12"
        );
        assert_eq!(available(&builds, "6.13"), "it has 6.12, 6.18, 7.3");
        assert_eq!(available(&[], "6.13"), "it has no cloud kernel at all");
    }
}
