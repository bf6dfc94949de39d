//! Which row a user's own kernel is compared with. The kernel is a stock kernel, and its manifest
//! says that a patch was applied. It does not do what that patch does, so only the row that the
//! report names shows the answer.

use assert_cmd::Command;
use needless_guest::kernels;
use needless_testing::skip;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const NAME: &str = "6.12+mine";

/// A cache with 6.12 as a kernel that was built with a patch of these contents.
fn cache(folder: &Path, patch: &[u8]) {
    let stock = kernels::ready("6.12").unwrap();
    let place = folder.join("needless/kernels").join(NAME);
    fs::create_dir_all(place.join("modules")).unwrap();
    fs::copy(stock.image(), place.join("vmlinuz")).unwrap();
    for module in stock.modules() {
        fs::copy(&module, place.join("modules").join(module.file_name().unwrap())).unwrap();
    }
    let mut manifest = json!(stock.manifest);
    manifest["name"] = json!(NAME);
    manifest["packages"] = json!([{ "name": "linux-source-6.12", "version": "6.12.118-1" }]);
    let hash = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(patch));
    let patches = json!([{ "name": "pending-cleared.patch", "hash": hash }]);
    manifest["built"] = json!({ "patches": patches, "fragment": null, "compiler": "none" });
    fs::write(place.join("manifest.json"), manifest.to_string()).unwrap();
}

/// What `compare` prints about the kernel.
fn compare(cache: &Path, options: &str, format: &str) -> String {
    let target = format!("kernel:{NAME}{options}");
    let mut command = Command::cargo_bin("needless").unwrap();
    command.args(["compare", "cow-reuse", "--rounds", "20", "-t", &target, "--format", format]);
    command.env("XDG_CACHE_HOME", cache).env("COLUMNS", "1000");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_kernel_with_a_patch_of_ours_is_held_against_the_row_that_has_it() {
    if std::env::var_os("NEEDLESS_NO_KERNELS").is_some() {
        skip!("NEEDLESS_NO_KERNELS is set");
    }
    let ours = include_bytes!("../../../../patches/6.12/pending-cleared.patch");
    let [known, other] = [&ours[..], &[&ours[..], b"\n"].concat()].map(|patch| {
        let folder = tempfile::tempdir().unwrap();
        cache(folder.path(), patch);
        folder
    });
    let held = |cache: &Path| {
        let document: Value = serde_json::from_str(&compare(cache, "", "json")).unwrap();
        document["targets"][0]["agreement"].clone()
    };
    let agreement = held(known.path());
    assert!(agreement["row"].as_str().unwrap().starts_with("model:6.12+pending-cleared"));
    assert_eq!(agreement["equal"], 0, "the kernel has not what the row has: {agreement:#}");

    let agreement = held(other.path());
    if let Some(reason) = agreement["undecided"].as_str() {
        skip!("{reason}");
    }
    assert!(!agreement["row"].as_str().unwrap().contains('+'), "{agreement:#}");
    assert_ne!(agreement["equal"], 0, "{agreement:#}");
    let lines = |text: &str| {
        let named = text.lines().filter(|line| line.contains("row=6.12+NAME"));
        named.filter(|line| line.contains("pending-cleared.patch")).count()
    };
    assert_eq!(lines(&compare(other.path(), "", "text")), 1);
    assert_eq!(lines(&compare(other.path(), ",row=6.12+pending-cleared", "text")), 0);
}
