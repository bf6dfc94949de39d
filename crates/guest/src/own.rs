//! Prepares a user's own image and its modules for booting.

use crate::cache::{Cache, Kernel, Manifest};
use crate::config;
use crate::error::GuestError;
use crate::image::Image;
use crate::modules::Modules;
use crate::target::OwnImage;
use needless_model::foreign;
use needless_runner::needs::Needed;
use std::collections::BTreeMap;
use std::path::Path;

/// Copies the image as it is now, with the modules that a guest needs. If the image contains its
/// configuration, and no guest can run with it, the image is refused.
pub fn ready(own: &OwnImage) -> Result<Kernel, GuestError> {
    let bad = |what: String| GuestError::BadImage { path: own.path.clone(), what };
    let image = Image::read(&own.path).map_err(bad)?;
    let release = image.release.clone().unwrap_or_default();
    let modules = match &own.modules {
        Some(folder) => modules(folder, &release)
            .map_err(|what| GuestError::BadModules { folder: folder.clone(), what })?,
        None => Vec::new(),
    };
    let manifest = Manifest {
        name: foreign::path(&own.path),
        release,
        packages: Vec::new(),
        modules: modules.iter().map(|(name, _)| name.clone()).collect(),
        built: None,
        tree: None,
        hashes: BTreeMap::new(),
    };
    if let Some(config) = image.config() {
        let mut absent = config.absent(image.arch, &manifest.modules);
        absent.retain(|part| part.needed() == Needed::Always);
        if !absent.is_empty() {
            let what = format!("kernel {}", foreign::path(&own.path));
            return Err(GuestError::Lacks { what, parts: config::text(&absent, image.arch) });
        }
    }
    Ok(Cache::open()?.keep_image(image.arch, manifest, &image.bytes, &modules)?)
}

fn modules(folder: &Path, release: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
    let (mut modules, says_what_is_built_in) = Modules::in_folder(folder)?;
    if let Some((module, other)) = modules.of_another(release) {
        return Err(format!("module `{module}` was built for {other}, but the image is {release}"));
    }
    if !says_what_is_built_in {
        modules.believe();
    }
    modules.in_order()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_an_image_come_from_anywhere_below_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(modules(folder.path(), "6.12.1").unwrap(), [], "everything is built in");
        std::fs::create_dir(at("drivers")).unwrap();
        std::fs::write(at("drivers/zram.ko"), "junk").unwrap();
        assert!(modules(folder.path(), "6.12.1").unwrap_err().contains("zram.ko"));
        std::fs::remove_file(at("drivers/zram.ko")).unwrap();
        std::fs::write(at("modules.builtin"), "kernel/drivers/virtio/virtio_pci.ko\n").unwrap();
        assert!(modules(folder.path(), "6.12.1").unwrap_err().contains("virtio_console"));
        assert!(modules(&at("nowhere"), "6.12.1").is_err());
    }
}
