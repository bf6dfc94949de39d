//! The text of a kernel target: which kernel is booted, and how. Examples:
//! `6.12/arm64,cpus=4,append=…`, `./bzImage,modules=DIR,row=7.3`.

use crate::error::{GuestError, USUAL_TARGETS};
use crate::image::Image;
use crate::options::GuestOptions;
use crate::platform::Arch;
use needless_model::foreign;
use needless_model::kernels::KernelRow;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// A `kernel:` target without that prefix: a kernel, and the options of its guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTarget {
    /// The kernel to boot.
    pub kernel: Choice,
    /// The options of the guest.
    pub options: GuestOptions,
}

/// The kernel that a target names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A kernel of the cache or the archive: the series (`6.12`) or the build (`6.12.94+deb13`),
    /// with the architecture unless it is x86-64 (`6.12/arm64`).
    Named(String),
    /// The user's own image, by its path.
    Own(OwnImage),
}

/// A user's own image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnImage {
    /// The path of the image.
    pub path: PathBuf,
    /// The folder of its modules. Without it, everything needed is built in.
    pub modules: Option<PathBuf>,
    /// The architecture that it runs on.
    pub arch: Arch,
    /// The release that the image names; empty if it names none.
    pub release: String,
}

/// The help for an option that takes the rest of the text, and for the options before it.
const ROW_LAST: &str =
    "row= takes all that follows up to append=, so a guest's options come before it";

impl KernelTarget {
    /// Makes a target of a kernel in the cache or the archive.
    pub fn named(name: &str, options: GuestOptions) -> KernelTarget {
        KernelTarget { kernel: Choice::Named(name.to_owned()), options }
    }

    /// Reads `6.12/arm64,cpus=4,mem=2G,row=…,append=…`. The text after `append=` is taken as it is.
    /// The text between `row=` and `append=` is the name of a model row.
    pub fn parse(text: &str) -> Result<KernelTarget, GuestError> {
        let mistake = |Mistake { what, part, help }: Mistake<'_>| {
            // The part is a slice of the text.
            let start = part.as_ptr().addr() - text.as_ptr().addr();
            GuestError::BadTarget {
                text: text.to_owned(),
                what,
                help: help.to_owned(),
                at: start..start + part.len(),
            }
        };
        let (name, rest) = match text.split_once(',') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let mut kernel = choice(name).map_err(mistake)?;
        let mut options = GuestOptions::default();
        take_options(rest, &mut options, &mut kernel).map_err(mistake)?;
        let target = KernelTarget { kernel, options };
        target.check().map_err(|what| mistake(Mistake::in_syntax(what, text)))?;
        Ok(target)
    }

    /// Checks that the options fit each other and the kernel.
    fn check(&self) -> Result<(), String> {
        let GuestOptions { nodes, cpus, processor, row, .. } = &self.options;
        nodes.check(*cpus)?;
        let arch = self.arch();
        let platform = arch.platform();
        if platform.processor(processor.as_deref()).is_none() {
            let known: Vec<&str> = platform.processors.iter().map(|known| known.name).collect();
            return Err(format!("cpu, for {arch}, is {}", known.join(" or ")));
        }
        let of = |row: &KernelRow| row.config.other.map_or("x86-64", |other| other.name);
        match row.as_ref().map(of) {
            Some(of) if of != arch.to_string() => {
                Err(format!("row= names a row of {of}, but the kernel is for {arch}"))
            }
            _ => Ok(()),
        }
    }

    /// The architecture of the kernel.
    pub fn arch(&self) -> Arch {
        match &self.kernel {
            Choice::Named(name) => Arch::of(name).unwrap_or(Arch::X86_64),
            Choice::Own(image) => image.arch,
        }
    }

    /// The release, as far as it is known before the boot: `6.12`, `7.3.4-mine`.
    pub fn release(&self) -> &str {
        match &self.kernel {
            Choice::Named(name) => name,
            Choice::Own(image) => &image.release,
        }
    }

    /// The model row to compare the kernel with, as far as it is known before the boot, and whether
    /// it is the kernel's own row.
    pub fn row(&self) -> (KernelRow, bool) {
        if let Some(row) = &self.options.row {
            return (row.clone(), true);
        }
        let (row, own_row) = KernelRow::of_release(self.release());
        match self.arch() {
            Arch::X86_64 => (row, own_row),
            Arch::Arm64 => {
                (row.on_arm64(self.options.processor.as_deref().unwrap_or("max")), own_row)
            }
        }
    }
}

/// A mistake in the text: what is wrong, in which part, and the help.
struct Mistake<'a> {
    what: String,
    part: &'a str,
    help: &'static str,
}

impl<'a> Mistake<'a> {
    fn in_syntax(what: String, part: &'a str) -> Mistake<'a> {
        Mistake { what, part, help: USUAL_TARGETS }
    }
}

/// The kernel that a word names. A path begins with a slash, or with one or two points and a slash.
fn choice(word: &str) -> Result<Choice, Mistake<'_>> {
    if is_path(word) {
        let help = "build one with `make bzImage` (arch/x86/boot/bzImage), for arm64 with `make Image` (arch/arm64/boot/Image)";
        let image = Image::read(Path::new(word));
        let image = image.map_err(|what| Mistake {
            what: format!("`{word}`: {what}"),
            part: word,
            help,
        })?;
        let release = image.release.unwrap_or_default();
        let own = OwnImage { path: word.into(), modules: None, arch: image.arch, release };
        return Ok(Choice::Own(own));
    }
    if Arch::of(word).is_none() {
        let arch = word.split_once('/').map_or(word, |(_, arch)| arch);
        let what = format!(
            "architecture `{arch}` cannot be booted; write /arm64, or nothing for x86-64; a path begins with ./ or /"
        );
        return Err(Mistake::in_syntax(what, arch));
    }
    if !names_a_kernel(word) {
        return Err(Mistake::in_syntax(
            format!("`{word}` is no kernel's series, build or name; a path begins with ./ or /"),
            word,
        ));
    }
    Ok(Choice::Named(word.to_owned()))
}

/// Whether a word is a path rather than a name.
pub(crate) fn is_path(word: &str) -> bool {
    ["/", "./", "../"].iter().any(|start| word.starts_with(start))
}

fn take_options<'a>(
    mut rest: Option<&'a str>,
    options: &mut GuestOptions,
    kernel: &mut Choice,
) -> Result<(), Mistake<'a>> {
    let mut given = BTreeSet::new();
    while let Some(written) = rest {
        if let Some(append) = written.strip_prefix("append=") {
            options.append = append.to_owned();
            return Ok(());
        }
        if let Some(named) = written.strip_prefix("row=") {
            let (row, next) = match named.split_once(",append=") {
                Some((row, _)) => (row, Some(&named[row.len() + 1..])),
                None => (named, None),
            };
            options.row = Some(model_row(row)?);
            rest = next;
            continue;
        }
        let (option, next) = match written.split_once(',') {
            Some((option, next)) => (option, Some(next)),
            None => (written, None),
        };
        match option.strip_prefix("modules=") {
            Some(folder) => take_modules(folder, kernel),
            None => options.set(option),
        }
        .map_err(|what| Mistake::in_syntax(what, option))?;
        let name = option.split('=').next().unwrap_or_default();
        if given.contains("mem") && options.nodes.memory_mib().is_some() && name == "nodes"
            || name == "mem" && options.nodes.memory_mib().is_some()
        {
            let what = "leave out mem=: the nodes say how much memory there is".to_owned();
            return Err(Mistake::in_syntax(what, option));
        }
        if !given.insert(name) {
            return Err(Mistake::in_syntax(format!("`{name}` is given twice"), option));
        }
        rest = next;
    }
    Ok(())
}

fn model_row(name: &str) -> Result<KernelRow, Mistake<'_>> {
    KernelRow::parse(name).map_err(|error| {
        let part = name.get(error.place(name)).unwrap_or(name);
        Mistake { what: error.to_string(), part, help: ROW_LAST }
    })
}

fn take_modules(folder: &str, kernel: &mut Choice) -> Result<(), String> {
    match kernel {
        Choice::Named(_) => {
            Err("modules= is for an image of your own; a fetched kernel has its own modules"
                .to_owned())
        }
        Choice::Own(_) if !Path::new(folder).is_dir() => Err(format!("`{folder}` is no folder")),
        Choice::Own(image) => {
            image.modules = Some(folder.into());
            Ok(())
        }
    }
}

/// Whether a word can be a series, a build, or the name of a kernel that was built here (which
/// begins with a letter or with a series), with or without an architecture. It becomes a file name,
/// so nothing else is allowed.
pub(crate) fn names_a_kernel(word: &str) -> bool {
    let name = word.split('/').next().unwrap_or_default();
    let numbered = name.starts_with(|c: char| c.is_ascii_digit()) && name.contains('.');
    Arch::of(word).is_some()
        && (numbered || is_own_name(name))
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '~'))
}

/// Whether only a kernel that was built here can have this name: one that begins with a letter, or
/// a series followed by more (`6.12+fix`). Debian's own builds belong to a series, too, but name
/// Debian's release (`6.12+deb13`).
pub(crate) fn is_own_name(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_series = |text: &str| text.split('.').count() == 2 && text.split('.').all(number);
    let parts = name.split('/').next().and_then(|name| name.split_once('+'));
    let patched =
        parts.is_some_and(|(series, added)| is_series(series) && !added.starts_with("deb"));
    patched || name.starts_with(|c: char| c.is_ascii_alphabetic())
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Named(name) => f.write_str(name),
            Choice::Own(OwnImage { path, modules: None, .. }) => f.write_str(&foreign::path(path)),
            Choice::Own(OwnImage { path, modules: Some(modules), .. }) => {
                write!(f, "{},modules={}", foreign::path(path), foreign::path(modules))
            }
        }
    }
}

impl fmt::Display for KernelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kernel, self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::bzimage;

    #[test]
    fn what_is_written_is_what_was_read() {
        for text in [
            "6.12",
            "5.10,cpus=4",
            "6.1/arm64",
            "6.12.117+deb13/arm64,cpus=3,cpu=cortex-a72,thp=never",
            "6.12.94+deb13,mem=2048M,nodes=2,thp=never,append=quiet a=1,2 b",
            "6.12,nodes=512M+512M:latency=40",
            "6.12,cpus=3,row=6.12+pending-cleared,mglru=off,append=a=1,2",
        ] {
            assert_eq!(KernelTarget::parse(text).unwrap().to_string(), text);
        }
        let target = KernelTarget::parse("6.1,mem=2G").unwrap();
        assert_eq!(target.options.memory_mib, 2048);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "6",
            "../6.1",
            "6.1/sparc",
            "6.1/arm64/arm64",
            "6.1/",
            "6.1_arm64",
            "6.1,cpu=cortex-a72",
            "6.1/arm64,cpu=z80",
            "6.1,",
            "6.1,cpus",
            "6.1,cpus=0",
            "6.1,mem=2",
            "6.1,mem=9999999G",
            "6.1,mem=é",
            "6.1,thp=no",
            "6.1,nodes=4",
            "6.1,mem=2G,nodes=1G+1G",
            "6.1,x=1",
            "6.1,cpus=2,cpus=2",
            "6.1,modules=/lib/modules",
            "6.1,row=",
            "6.1,row=6.13",
            "6.1,row=6.12,cpus=2",
            "6.1/arm64,row=6.12",
            "./nowhere/bzImage",
            "/",
            ".",
        ] {
            let refused = KernelTarget::parse(text);
            assert!(matches!(refused, Err(GuestError::BadTarget { .. })), "{text}");
        }
    }

    #[test]
    fn mistakes_have_their_place() {
        for (text, place) in [
            ("6.1,", 4..4),
            ("6.1,,cpus=2", 4..4),
            ("6.1,cpus=2,mem=2G,cpus=4", 18..24),
            ("6.1,x=1,cpus=2", 4..7),
            ("6.1/sparc", 4..9),
            ("6.1,row=6.13,append=x", 8..12),
            ("6.1,row=6.12,cpus=2", 13..19),
            ("/nowhere,cpus=2", 0..8),
        ] {
            match KernelTarget::parse(text) {
                Err(GuestError::BadTarget { at, .. }) => assert_eq!(at, place, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_image_is_named_by_its_path_and_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bzImage");
        std::fs::write(&path, bzimage("7.3.4-mine", "")).unwrap();
        let modules = folder.path().join("modules");
        let text = |rest: &str| format!("{}{rest}", path.to_str().unwrap());
        let with = format!(",modules={}", modules.to_str().unwrap());
        let refused = |text: &str| KernelTarget::parse(text).unwrap_err().to_string();
        assert!(refused(&text(&with)).contains("no folder"));
        std::fs::create_dir(&modules).unwrap();
        for rest in ["", ",cpus=3", &with, &format!("{with},row=7.3+pending-cleared,append=a,b")] {
            let target = KernelTarget::parse(&text(rest)).unwrap();
            assert_eq!(target.to_string(), text(rest));
            assert_eq!((target.arch(), target.release()), (Arch::X86_64, "7.3.4-mine"));
        }
        assert!(refused(&text(",cpu=cortex-a72")).contains("cpu, for x86-64"));
        std::fs::write(&path, "#!/bin/sh").unwrap();
        assert!(refused(&text("")).contains("no kernel image"));
    }
}
