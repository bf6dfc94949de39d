//! The kernel modules that a guest needs, in the order of loading.
//!
//! The `.modinfo` section of a module names the modules that it needs (`depends=`). A needed module
//! that does not exist as a file is built into the kernel. `modules.builtin` lists the built-in
//! ones.

use needless_model::foreign;
use object::{Object, ObjectSection};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;

/// The modules that must exist or be built in, for the way to the host and for swap space.
const NEEDED: [&str; 3] = ["virtio_pci", "virtio_console", "zram"];

/// The compressors, which zram up to 6.11 requests by name. So no module names them as
/// dependencies.
const COMPRESSORS: [&str; 4] = ["lzo_rle", "lzo", "lz4", "zstd"];

/// The folders below `kernel/` that contain these modules and their dependencies.
const FOLDERS: [&str; 8] = [
    "arch/arm64/crypto",
    "arch/x86/crypto",
    "crypto",
    "drivers/block/zram",
    "drivers/char",
    "drivers/virtio",
    "lib",
    "mm",
];

/// The deepest nesting of folders. Deeper nesting is a loop.
const DEPTH: usize = 16;

/// The largest size of a module, and of packed contents in an image, in bytes.
const MOST_BYTES: u64 = 512 << 20;

/// The modules of a package or a folder, by name.
#[derive(Default)]
pub struct Modules {
    /// The release that `uname -r` prints. It is also the name of their folder.
    pub release: Option<String>,
    found: BTreeMap<String, Vec<u8>>,
    built_in: BTreeSet<String>,
}

impl Modules {
    /// Takes a file of a package, if it is one of the wanted files.
    pub fn take(&mut self, path: &str, file: &mut impl Read) -> Result<(), String> {
        let Some((_, path)) = path.split_once("lib/modules/") else { return Ok(()) };
        let Some((release, path)) = path.split_once('/') else { return Ok(()) };
        let mut bytes = Vec::new();
        let mut read = || {
            file.read_to_end(&mut bytes).map_err(|error| format!("{path}: {error}"))?;
            Ok::<_, String>(std::mem::take(&mut bytes))
        };
        if path == "modules.builtin" {
            let text = read()?;
            let text = String::from_utf8_lossy(&text);
            self.built_in = text.lines().filter_map(module_name).collect();
            self.release = Some(release.to_owned());
        } else if let Some(name) =
            path.strip_prefix("kernel/").filter(|path| looked_for(path)).and_then(module_name)
        {
            self.found.insert(name, read()?);
            self.release = Some(release.to_owned());
        }
        Ok(())
    }

    /// The modules at any depth in a folder, which may be that of an installed kernel or a build
    /// tree. The second value says whether the folder lists the built-in modules.
    pub fn in_folder(folder: &Path) -> Result<(Modules, bool), String> {
        let mut modules = Modules::default();
        let mut lists = false;
        let wanted = |name: &str| NEEDED.contains(&name) || COMPRESSORS.contains(&name);
        let mut all = BTreeMap::new();
        for path in files_below(folder, DEPTH)? {
            let Some(file) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if file == "modules.builtin" {
                let text = needless_files::read_text(&path, MOST_BYTES);
                let text = text.map_err(|error| format!("{}: {error}", foreign::path(path)))?;
                modules.built_in.extend(text.lines().filter_map(module_name));
                lists = true;
            } else if let Some(name) = module_name(file) {
                all.insert(name, path);
            }
        }
        // Of thousands of modules, only few are needed, each with its dependencies.
        let mut open: Vec<String> = all.keys().filter(|name| wanted(name)).cloned().collect();
        while let Some(name) = open.pop() {
            let Some(path) = all.remove(&name) else { continue };
            let bad = |error: String| format!("{}: {error}", foreign::path(&path));
            let module = needless_files::read(&path, MOST_BYTES);
            let module = module.map_err(|error| bad(error.to_string()))?;
            let module = uncompress(&module).map_err(bad)?;
            open.extend(dependencies(&module).map_err(bad)?);
            modules.found.insert(name, module);
        }
        Ok((modules, lists))
    }

    /// Treats every needed module that is not here as built in, because there is no list of
    /// built-in modules.
    pub fn believe(&mut self) {
        self.built_in.extend(NEEDED.map(str::to_owned));
        let needed = self.found.values().filter_map(|module| dependencies(module).ok()).flatten();
        self.built_in.extend(needed);
    }

    /// A module that was built for another release, and that release.
    pub fn of_another(&self, release: &str) -> Option<(String, String)> {
        self.found.iter().find_map(|(name, module)| {
            let magic = module_info(module, b"vermagic=").ok()??;
            let built_for = magic.split(' ').next().unwrap_or_default().to_owned();
            (built_for != release).then(|| (name.clone(), built_for))
        })
    }

    /// The modules that a guest needs, uncompressed, each after its dependencies.
    pub fn in_order(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let mut order = Order { modules: self, done: BTreeSet::new(), loaded: Vec::new() };
        for name in NEEDED {
            order.visit(name)?;
        }
        for name in COMPRESSORS.iter().filter(|name| self.found.contains_key(**name)) {
            order.visit(name)?;
        }
        Ok(order.loaded)
    }
}

fn looked_for(path: &str) -> bool {
    FOLDERS.iter().any(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

/// The name of a module, such as `lzo_rle` for `kernel/crypto/lzo-rle.ko.xz`. The kernel treats `-`
/// and `_` alike.
fn module_name(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, rest) = file.split_once(".ko")?;
    matches!(rest, "" | ".gz" | ".xz" | ".zst").then(|| name.replace('-', "_"))
}

struct Order<'a> {
    modules: &'a Modules,
    done: BTreeSet<String>,
    loaded: Vec<(String, Vec<u8>)>,
}

impl Order<'_> {
    fn visit(&mut self, name: &str) -> Result<(), String> {
        if !self.done.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(bytes) = self.modules.found.get(name) else {
            return match self.modules.built_in.contains(name) {
                true => Ok(()),
                false => Err(format!("this kernel has no module `{name}`")),
            };
        };
        let module = uncompress(bytes).map_err(|error| format!("module `{name}`: {error}"))?;
        for needed in dependencies(&module).map_err(|error| format!("module `{name}`: {error}"))? {
            self.visit(&needed)?;
        }
        self.loaded.push((format!("{name}.ko"), module));
        Ok(())
    }
}

/// The files below a folder. Links are not followed.
fn files_below(folder: &Path, depth: usize) -> Result<Vec<std::path::PathBuf>, String> {
    let bad = |error: std::io::Error| format!("{}: {error}", foreign::path(folder));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(bad)? {
        let entry = entry.map_err(bad)?;
        let kind = entry.file_type().map_err(bad)?;
        if kind.is_dir() && depth > 0 {
            files.extend(files_below(&entry.path(), depth - 1)?);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Unpacks the contents of a file, whose format its first bytes show. Data after the packed
/// contents is ignored.
pub fn uncompress(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut plain = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let decoder = flate2::read::GzDecoder::new(bytes);
        decoder.take(MOST_BYTES).read_to_end(&mut plain).map_err(|error| error.to_string())?;
        return Ok(plain);
    }
    if bytes.starts_with(b"\xfd7zXZ\0") {
        lzma_rs::xz_decompress(&mut &*bytes, &mut plain).map_err(|error| format!("{error:?}"))?;
        return Ok(plain);
    }
    if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder =
            ruzstd::decoding::StreamingDecoder::new(bytes).map_err(|error| error.to_string())?;
        decoder.take(MOST_BYTES).read_to_end(&mut plain).map_err(|error| error.to_string())?;
        return Ok(plain);
    }
    Ok(bytes.to_vec())
}

fn dependencies(module: &[u8]) -> Result<Vec<String>, String> {
    let list = module_info(module, b"depends=")?.unwrap_or_default();
    Ok(list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect())
}

/// The value of `key` in a module's `.modinfo` section.
fn module_info(module: &[u8], key: &[u8]) -> Result<Option<String>, String> {
    let file = object::File::parse(module).map_err(|error| error.to_string())?;
    let section = file.section_by_name(".modinfo").ok_or("it has no .modinfo")?;
    let data = section.data().map_err(|error| error.to_string())?;
    let value = data.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(key));
    Ok(value.map(foreign::lossy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_kernel_calls_them() {
        assert_eq!(module_name("crypto/lzo-rle.ko.xz").as_deref(), Some("lzo_rle"));
        assert_eq!(module_name("drivers/block/zram/zram.ko").as_deref(), Some("zram"));
        assert_eq!(module_name("modules.order"), None);
        assert!(looked_for("lib/lz4/lz4_compress.ko") && !looked_for("libx/lz4.ko"));
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_built_in_is_not_missed() {
        let mut modules = Modules::default();
        let builtin =
            b"kernel/drivers/virtio/virtio_pci.ko\nkernel/drivers/char/virtio_console.ko\n";
        modules.take("./usr/lib/modules/6.1.0/modules.builtin", &mut &builtin[..]).unwrap();
        assert_eq!(modules.release.as_deref(), Some("6.1.0"));
        assert!(modules.in_order().unwrap_err().contains("zram"));
        modules
            .take("./lib/modules/6.1.0/kernel/drivers/block/zram/zram.ko", &mut &b"junk"[..])
            .unwrap();
        assert!(modules.in_order().unwrap_err().contains("module `zram`"));
    }
}
