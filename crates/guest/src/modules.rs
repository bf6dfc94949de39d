//! The kernel modules that a guest needs, and the order in which to load them.
//!
//! A module says in its `.modinfo` section which others it needs (`depends=`). What it needs and is
//! no module is built into the kernel; `modules.builtin` lists what is.

use object::{Object, ObjectSection};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// What must be there, as a module or built in: the way to the host, and swap space.
const NEEDED: [&str; 3] = ["virtio_pci", "virtio_console", "zram"];

/// What zram up to 6.11 asks for by name, so that no module names it: the compressors.
const COMPRESSORS: [&str; 4] = ["lzo_rle", "lzo", "lz4", "zstd"];

/// Folders below `kernel/` that these and their like lie in.
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

/// The modules of a package, by name.
#[derive(Default)]
pub struct Modules {
    /// What `uname -r` says: the folder that they lie in.
    pub release: Option<String>,
    found: BTreeMap<String, Vec<u8>>,
    built_in: BTreeSet<String>,
}

impl Modules {
    /// Takes a file of a package, if it is one of those looked for.
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

    /// The modules that a guest needs, uncompressed, each after those that it depends on.
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

/// `lzo_rle` of `kernel/crypto/lzo-rle.ko.xz`; the kernel takes `-` and `_` for the same.
fn module_name(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, rest) = file.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst").then(|| name.replace('-', "_"))
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

/// The module itself, whatever it is packed with; known by its first bytes.
fn uncompress(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut plain = Vec::new();
    if bytes.starts_with(b"\xfd7zXZ\0") {
        lzma_rs::xz_decompress(&mut &*bytes, &mut plain).map_err(|error| format!("{error:?}"))?;
        return Ok(plain);
    }
    if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let mut decoder =
            ruzstd::decoding::StreamingDecoder::new(bytes).map_err(|error| error.to_string())?;
        decoder.read_to_end(&mut plain).map_err(|error| error.to_string())?;
        return Ok(plain);
    }
    Ok(bytes.to_vec())
}

fn dependencies(module: &[u8]) -> Result<Vec<String>, String> {
    let file = object::File::parse(module).map_err(|error| error.to_string())?;
    let section = file.section_by_name(".modinfo").ok_or("it has no .modinfo")?;
    let data = section.data().map_err(|error| error.to_string())?;
    let list = data.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let list = String::from_utf8_lossy(list.unwrap_or_default()).into_owned();
    Ok(list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect())
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
