//! The changes of a kernel that was built here, compared with its release, if a model row has them
//! too.
//!
//! The known patches are those in `patches/`. They are recognised by the hashes of the files,
//! because the name of a patch proves nothing. The files are under the kernel's licence and no part
//! of this program.

use crate::cache::{BuiltFrom, Hashed, Manifest};
use crate::platform::Arch;

/// A patch with a known model row.
struct Known {
    /// XXH3-128 of the patch file, in hexadecimal.
    hash: &'static str,
    /// The series whose source the patch is for.
    series: &'static str,
    /// The architectures on which the patched kernel does what the row does.
    archs: &'static [Arch],
    /// The text after the release in the row's name.
    change: &'static str,
}

const KNOWN: [Known; 5] = [
    Known {
        hash: "a148cd1166aa17c9e42fbb0bc7181494",
        series: "6.12",
        archs: &[Arch::X86_64],
        change: "+pending-cleared",
    },
    Known {
        hash: "cd73a68c1b22eeea594a1e824be5fed8",
        series: "6.12",
        archs: &[Arch::X86_64],
        change: "+removed-after",
    },
    Known {
        hash: "728cc7a7e31f853dcb45105e46c5dc94",
        series: "6.12",
        archs: &[Arch::X86_64, Arch::Arm64],
        change: "+fork-young",
    },
    Known {
        hash: "abe0fef76ac352ee88b5f3ec0db7795f",
        series: "5.10",
        archs: &[Arch::X86_64],
        change: ",reuse=mapcount",
    },
    Known {
        hash: "ee6dbd7c906c5174aacbfafc8aa57cdc",
        series: "5.10",
        archs: &[Arch::Arm64],
        change: ",dirty-retry=retry-flush,arm64-spurious=broadcast",
    },
];

/// The effect of a kernel's patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patched {
    /// The kernel has no patches.
    Not,
    /// A row has the change. This is the text after the release in its name, such as
    /// `+pending-cleared`.
    Known(&'static str),
    /// No row has the change. These are the names of the patches.
    Unknown(String),
}

/// The effect of a kernel's patches. The row of two known patches together is unknown, because they
/// were not tried together.
pub fn patched(manifest: &Manifest, arch: Arch) -> Patched {
    let patches: &[Hashed] = match &manifest.built {
        Some(BuiltFrom { patches, .. }) => patches,
        None => &[],
    };
    let of = |series: &str| {
        let source = format!("linux-source-{series}");
        manifest.packages.iter().any(|package| package.name == source)
    };
    let known = match patches {
        [] => return Patched::Not,
        [patch] => KNOWN.iter().find(|known| {
            known.hash == patch.hash && known.archs.contains(&arch) && of(known.series)
        }),
        _ => None,
    };
    known.map_or_else(
        || {
            let names: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
            Patched::Unknown(names.join(", "))
        },
        |known| Patched::Known(known.change),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Package, hash};
    use needless_model::kernels::KernelRow;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::{Path, PathBuf};

    /// The files in `patches/`, by series and name.
    fn files() -> Vec<(String, PathBuf)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../patches");
        let entries = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            entries.collect::<Vec<_>>()
        };
        let series = entries(&folder).into_iter().filter(|path| path.is_dir());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let of = |path: PathBuf| entries(&path).into_iter().map(move |file| (name(&path), file));
        series.flat_map(of).collect()
    }

    fn built(series: &str, patches: &[(&str, &str)]) -> Manifest {
        let hashed = |&(name, hash): &(&str, &str)| Hashed { name: name.into(), hash: hash.into() };
        Manifest {
            name: "mine".into(),
            release: format!("{series}.118-mine"),
            packages: vec![Package {
                name: format!("linux-source-{series}"),
                version: format!("{series}.118-1"),
            }],
            modules: Vec::new(),
            built: Some(BuiltFrom {
                patches: patches.iter().map(hashed).collect(),
                fragment: None,
                lines: None,
                compiler: "gcc".into(),
            }),
            tree: None,
            hashes: BTreeMap::new(),
        }
    }

    #[test]
    fn each_of_our_patches_is_known_by_its_contents_and_has_the_row_that_it_names() {
        let (mut seen, mut unknown) = (BTreeSet::new(), Vec::new());
        for (series, path) in files() {
            let bytes = fs::read(&path).unwrap();
            let place = path.to_str().unwrap();
            let mut known = KNOWN.iter().enumerate();
            let Some((number, known)) = known.find(|(_, known)| known.hash == hash(&bytes)) else {
                unknown.push(format!("{place} has {}", hash(&bytes)));
                continue;
            };
            assert_eq!(known.series, series, "{place}");
            let text = String::from_utf8(bytes).unwrap();
            let row = text.lines().find_map(|line| line.strip_prefix("Model row: ")).unwrap();
            let row = row.split_whitespace().next().unwrap().trim_end_matches(['.', ';']);
            let arch = if known.archs.contains(&Arch::X86_64) { "" } else { "/arm64" };
            assert_eq!(row, format!("{series}{arch}{}", known.change), "{place}");
            // The name is made without an architecture, which the kernel's machine supplies.
            for name in [row.to_owned(), format!("{series}{}", known.change)] {
                assert!(KernelRow::parse(&name).is_ok(), "{name}");
            }
            seen.insert(number);
        }
        assert_eq!(unknown, [""; 0]);
        assert_eq!(seen.len(), KNOWN.len(), "each is in patches/");
    }

    #[test]
    fn a_row_is_known_of_one_patch_of_ours_on_its_source_and_its_architecture() {
        let of = |series, patches: &[(&str, &str)], arch| patched(&built(series, patches), arch);
        let unknown = |names: &str| Patched::Unknown(names.to_owned());
        let [cleared, removed] = [KNOWN[0].hash, KNOWN[1].hash];
        let known = Patched::Known("+pending-cleared");
        assert_eq!(of("6.12", &[("pending-cleared.patch", cleared)], Arch::X86_64), known);
        // The name of the patch decides nothing, whether it is the known one or not.
        assert_eq!(of("6.12", &[("x.patch", cleared)], Arch::X86_64), known);
        let named_like_it = [("pending-cleared.patch", "0")];
        let refused = unknown("pending-cleared.patch");
        assert_eq!(of("6.12", &named_like_it, Arch::X86_64), refused);
        assert_eq!(of("6.18", &[("pending-cleared.patch", cleared)], Arch::X86_64), refused);
        assert_eq!(of("6.12", &[("pending-cleared.patch", cleared)], Arch::Arm64), refused);
        let both = [("a.patch", cleared), ("b.patch", removed)];
        assert_eq!(of("6.12", &both, Arch::X86_64), unknown("a.patch, b.patch"));
        assert_eq!(of("6.12", &[], Arch::X86_64), Patched::Not);
        let fetched = Manifest { built: None, ..built("6.12", &[]) };
        assert_eq!(patched(&fetched, Arch::X86_64), Patched::Not);
    }
}
