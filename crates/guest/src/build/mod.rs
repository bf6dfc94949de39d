//! Compiles kernels: Debian's source of a series, with patches, in a minimal configuration for
//! guests.
//!
//! Each source and architecture has one tree, `builds/VERSION-ARCH/` in the cache:
//!
//! - `tree/` is the source. Only files that a patch changes change in it. `originals/` and
//!   `touched.json` hold their state before that ([`patch`]), so the next build begins with the
//!   same source whatever was patched.
//! - `obj/` has the compiler's output. It is kept, so that the next build compiles only what
//!   changed.
//! - `log` is the output of the last build.
//!
//! A tree appears whole or not at all, and only a finished kernel is kept. One build runs at a
//! time.

mod error;
mod git;
mod hashed;
mod make;
mod patch;
mod source;
mod tree;

pub use error::BuildError;
pub use tree::Tree;

use crate::cache::{BuiltFrom, Cache, Hashed, Kernel, Manifest, at, hash};
use crate::config::{self, Config};
use crate::error::FetchError;
use crate::platform::Arch;
use crate::target::names_a_kernel;
use make::Make;
use needless_model::foreign;
use needless_model::kernels::KernelRow;
use source::Source;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The configuration of guests: everything that a guest needs, built in, and nothing else.
const GUEST: &str = include_str!("guest.config");
const GUEST_X86_64: &str = include_str!("guest-x86-64.config");
const GUEST_ARM64: &str = include_str!("guest-arm64.config");

/// An order to build a kernel.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// The series, with the architecture unless it is x86-64: `6.12`, `6.12/arm64`.
    pub series: String,
    /// The patches to apply, in this order.
    pub patches: Vec<PathBuf>,
    /// Lines of a configuration to add to that of guests.
    pub config: Option<PathBuf>,
    /// The kernel's name; by default it is made of the series and the patches.
    pub name: Option<String>,
}

/// A kernel that exists now, and notes for its user about how it was made.
pub struct Built {
    /// The kernel itself.
    pub kernel: Kernel,
    /// Hunks of patches that were applied at another place than they say, or with less context.
    pub told: Vec<String>,
}
/// The largest size of a patch or a fragment, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// The contents of a patch or a fragment.
struct Text {
    name: String,
    bytes: Vec<u8>,
}

impl Text {
    fn read(path: &Path) -> Result<Text, BuildError> {
        let name = foreign::path(path.file_name().unwrap_or(path.as_os_str()));
        let bytes = needless_files::read(path, MOST_BYTES).map_err(|error| {
            BuildError::Unreadable { path: path.to_owned(), error: error.into_io() }
        })?;
        Ok(Text { name, bytes })
    }

    fn lines(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn hashed(&self) -> Hashed {
        Hashed { name: self.name.clone(), hash: hash(&self.bytes) }
    }
}

/// Builds a kernel and keeps it in the cache, like a fetched one. Calls `progress` with each step.
pub fn build(order: &Order, progress: &dyn Fn(&str)) -> Result<Built, BuildError> {
    let (series, arch) = series_of(&order.series)?;
    let name = name_of(order, series, arch)?;
    let patches: Vec<Text> =
        order.patches.iter().map(|p| Text::read(p)).collect::<Result<_, _>>()?;
    let fragment = order.config.as_deref().map(Text::read).transpose()?;
    fragment.as_ref().map_or(Ok(()), sets_options)?;
    // A file that is no patch is refused before anything is fetched, unless git is not installed
    // yet.
    match patch::named(&patches) {
        Err(BuildError::Fetch(FetchError::Program { error, .. }))
            if error.kind() == io::ErrorKind::NotFound => {}
        named => _ = named?,
    }
    make::tools(arch, progress)?;
    let cache = Cache::open()?;
    let lock = lock(&cache, progress)?;
    let Source { folder, package } = source::ready(&cache, series, arch, progress)?;
    let lines = lines(series, arch, fragment.as_ref());
    let built = BuiltFrom {
        patches: patches.iter().map(Text::hashed).collect(),
        fragment: fragment.as_ref().map(Text::hashed),
        lines: Some(hash(lines.as_bytes())),
        compiler: make::compiler(arch),
    };
    if let Some(kernel) = cache.kernel(&name).filter(|kernel| kernel.is_from(&package, &built)) {
        progress("it is already built from these sources");
        return Ok(Built { kernel, told: Vec::new() });
    }
    progress("applying the patches");
    let told = patch::apply(&folder, &patches)?;
    let label = name.split('/').next().unwrap_or_default();
    let label = label.strip_prefix(&format!("{series}+")).unwrap_or(label);
    let make = Make {
        tree: folder.join("tree"),
        obj: folder.join("obj"),
        log: folder.join("log"),
        arch,
        label,
        lock: Some(&lock),
    };
    let config = configure(&make, &lines, fragment.as_ref())?;
    progress("hashing the source");
    let tree = hashed::tree(&make.tree).map_err(at(&make.tree))?;
    make.compile(progress)?;
    let manifest = Manifest {
        name: name.clone(),
        release: make.release()?,
        packages: vec![package],
        modules: Vec::new(),
        built: Some(built),
        tree: Some(tree),
        hashes: BTreeMap::new(),
    };
    let image = make.image();
    let image = fs::read(&image).map_err(at(&image))?;
    let kernel = cache.keep_built(manifest, &image, &config)?;
    Ok(Built { kernel, told })
}

/// Refuses a fragment with a line that sets no option, because the kernel would ignore that line.
fn sets_options(fragment: &Text) -> Result<(), BuildError> {
    let sets = |line: &str| {
        let option = line.strip_prefix("CONFIG_").and_then(|rest| rest.split_once('='));
        option.is_some_and(|(name, value)| {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !name.is_empty() && name.chars().all(word) && !value.is_empty()
        })
    };
    let text = fragment.lines();
    let wrong = text
        .lines()
        .map(str::trim)
        .enumerate()
        .find(|(_, line)| !(line.is_empty() || line.starts_with('#') || sets(line)));
    wrong.map_or(Ok(()), |(at, line)| {
        let (fragment, text) = (fragment.name.clone(), line.chars().take(60).collect());
        Err(BuildError::Line { fragment, line: at + 1, text })
    })
}

/// The series and the architecture in a text such as `6.12/arm64`.
fn series_of(text: &str) -> Result<(&str, Arch), BuildError> {
    let series = text.split('/').next().unwrap_or_default();
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_series = series.split('.').count() == 2 && series.split('.').all(number);
    let arch = Arch::of(text).filter(|_| is_series);
    arch.map(|arch| (series, arch)).ok_or_else(|| BuildError::Series { text: text.to_owned() })
}

/// The name of the kernel.
fn name_of(order: &Order, series: &str, arch: Arch) -> Result<String, BuildError> {
    let stem = |path: &PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let usual = || match order.patches.iter().filter_map(stem).collect::<Vec<_>>().as_slice() {
        [] => format!("{series}+guest"),
        stems => format!(
            "{series}+{}",
            stems.join("+").replace(|c: char| !c.is_ascii_alphanumeric() && c != '+', "-")
        ),
    };
    let name = order.name.clone().unwrap_or_else(usual);
    let own = name.len() <= 40 && name != series && !name.contains('/');
    let name = arch.kernel(&name);
    match own && names_a_kernel(&name) {
        true => Ok(name),
        false => Err(BuildError::Name { name }),
    }
}

/// Waits until no other build runs.
fn lock(cache: &Cache, progress: &dyn Fn(&str)) -> Result<File, FetchError> {
    let path = cache.folder("builds")?.join("lock");
    let file = File::create(&path).map_err(at(&path))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        progress("another build is under way: waiting for it");
    }
    file.lock().map_err(at(&path))?;
    Ok(file)
}

/// Options of a series' stock kernels that decide what can be seen, from the model's row.
fn as_stock(release: &str, arch: Arch) -> String {
    let (row, _) = KernelRow::of_release(release);
    let line = |option: &str, on: bool| format!("CONFIG_{option}={}\n", if on { 'y' } else { 'n' });
    match arch {
        Arch::X86_64 => {
            line("X86_5LEVEL", row.config.five_level) + &line("LRU_GEN_ENABLED", row.config.mglru)
        }
        // arm64 has no X86_5LEVEL.
        Arch::Arm64 => line("LRU_GEN_ENABLED", row.config.mglru),
    }
}

/// The lines of a configuration for a series: what guests need, what stock kernels have, and
/// `fragment`.
fn lines(series: &str, arch: Arch, fragment: Option<&Text>) -> String {
    let own = match arch {
        Arch::X86_64 => GUEST_X86_64,
        Arch::Arm64 => GUEST_ARM64,
    };
    let added = fragment.map(Text::lines).unwrap_or_default();
    [GUEST, own, &as_stock(series, arch), &added].join("\n")
}

/// Configures a tree, and returns the resulting configuration.
fn configure(make: &Make<'_>, lines: &str, fragment: Option<&Text>) -> Result<String, BuildError> {
    let text = make.configure(lines)?;
    let config = Config::read(&text);
    if let Some(text) = fragment {
        let refused = refused(&text.lines(), &config);
        if !refused.is_empty() {
            return Err(BuildError::Refused {
                fragment: text.name.clone(),
                lines: refused.join(", "),
            });
        }
    }
    let absent = config.absent(make.arch, &[]);
    match absent.is_empty() {
        true => Ok(text),
        false => Err(BuildError::Lacks { parts: config::text(&absent, make.arch) }),
    }
}

/// The lines of a fragment that the kernel's own rules changed or dropped.
fn refused(fragment: &str, config: &Config) -> Vec<String> {
    let wanted = Config::read(fragment);
    let set = wanted.options().filter(|(name, value)| config.value(name) != Some(*value));
    let set = set.map(|(name, value)| format!("CONFIG_{name}={value}"));
    let unset = fragment.lines().filter_map(|line| {
        let line = line.trim();
        let name = line.strip_prefix("# CONFIG_").and_then(|rest| rest.strip_suffix(" is not set"));
        name.or_else(|| line.strip_prefix("CONFIG_")?.strip_suffix("=n"))
    });
    let unset = unset.filter(|name| config.value(name).is_some());
    set.chain(unset.map(|name| format!("CONFIG_{name}=n"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(series: &str, patches: &[&str], name: Option<&str>) -> Order {
        let patches = patches.iter().map(PathBuf::from).collect();
        Order { series: series.to_owned(), patches, config: None, name: name.map(str::to_owned) }
    }

    #[test]
    fn kernels_are_called_after_series_and_patches() {
        let name = |order: Order| {
            let (series, arch) = series_of(&order.series)?;
            name_of(&order, series, arch)
        };
        for (series, patches, given, expected) in [
            ("6.12", &["a/fix_it.patch", "b.diff"][..], None, "6.12+fix-it+b"),
            ("6.12/arm64", &["fix.patch"], None, "6.12+fix/arm64"),
            ("6.12", &[], None, "6.12+guest"),
            ("6.12/arm64", &[], Some("mine"), "mine/arm64"),
        ] {
            assert_eq!(name(order(series, patches, given)).unwrap(), expected);
        }
        for given in ["", "6.12", "a/b", "../x", "a b", "-", "é", &"x".repeat(41)] {
            let refused = name(order("6.12", &[], Some(given)));
            assert!(matches!(refused, Err(BuildError::Name { .. })), "{given}");
        }
        for series in ["", "6", "6.12.3", "six", "6.12/sparc", "6.x", "mine"] {
            let refused = name(order(series, &[], None));
            assert!(matches!(refused, Err(BuildError::Series { .. })), "{series}");
        }
    }

    #[test]
    fn the_guests_own_configuration_has_every_part() {
        for (own, arch) in [(GUEST_X86_64, Arch::X86_64), (GUEST_ARM64, Arch::Arm64)] {
            // Tracers select this option.
            let config = Config::read(&[GUEST, own, "CONFIG_EVENT_TRACING=y"].join("\n"));
            assert_eq!(config.absent(arch, &[]), [], "{arch}");
        }
    }

    #[test]
    fn lines_that_set_nothing_are_named() {
        let text = |text: &str| Text { name: "x".into(), bytes: text.into() };
        sets_options(&text("# a word\nCONFIG_A=y\n\n  CONFIG_B=\"z\"\n# CONFIG_C is not set\n"))
            .unwrap();
        for line in
            ["DEBUG_VM=y", "CONFIG_A", "CONFIG_=y", "CONFIG_A B=y", "\u{1b}[2J", "CONFIG_A="]
        {
            let error = sets_options(&text(&format!("CONFIG_A=y\n{line}\n"))).unwrap_err();
            let told = error.to_string();
            assert!(told.starts_with("x, line 2: ") && !told.contains('\u{1b}'), "{told}");
            assert_eq!(error.exit_status(), 2);
        }
    }

    #[test]
    fn a_series_is_configured_as_its_stock_kernel_is() {
        let old = as_stock("5.10", Arch::X86_64);
        assert_eq!(old, "CONFIG_X86_5LEVEL=n\nCONFIG_LRU_GEN_ENABLED=n\n");
        assert!(as_stock("6.12", Arch::X86_64).contains("LRU_GEN_ENABLED=y"));
        assert!(as_stock("6.1", Arch::Arm64).contains("LRU_GEN_ENABLED=n"));
    }

    #[test]
    fn what_does_not_stand_is_named() {
        let config = Config::read("CONFIG_A=y\nCONFIG_B=m\nCONFIG_C=5\n");
        let fragment =
            "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_D=y\nCONFIG_A=n\n# a word\nCONFIG_C=5";
        assert_eq!(refused(fragment, &config), ["CONFIG_D=y", "CONFIG_B=n", "CONFIG_A=n"]);
        assert_eq!(refused("CONFIG_B=m\nCONFIG_E=n\n", &config), [""; 0]);
    }
}
