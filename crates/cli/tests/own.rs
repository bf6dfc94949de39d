//! Kernels of one's own, as users meet them. No kernel is booted and none compiled.
#![allow(clippy::unwrap_used)]

use assert_cmd::Command;
use std::fs;
use std::path::{Path, PathBuf};

fn needless(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("needless").unwrap();
    command.args(args).env_clear().env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1");
    command
}

/// Standard error of a command that ends with this status and prints no result.
fn refused(args: &[&str], status: i32) -> String {
    let output = needless(args).assert().code(status).get_output().clone();
    assert!(output.stdout.is_empty(), "{args:?}: results only on standard output");
    let text = String::from_utf8(output.stderr).unwrap();
    let words = text.split_whitespace().filter(|word| *word != "│");
    words.collect::<Vec<_>>().join(" ")
}

/// The header of a bzImage that says of itself how long it is: this much, and 16 bytes more for each `more`.
fn bzimage(more: u32) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0x1f1, &[1]);
    put(0x1f4, &more.to_le_bytes());
    put(0x1fe, &[0x55, 0xaa]);
    put(0x202, b"HdrS");
    put(0x206, &[0x0f, 0x02]);
    put(0x20e, &[0, 1]);
    put(0x211, &[1]);
    put(0x236, &[1]);
    put(0x300, b"6.12.9-mine (me@here) #1\0");
    bytes
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn what_is_no_image_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, message) in [
        ("script", b"#!/bin/sh\n".to_vec(), "no kernel image"),
        ("empty", Vec::new(), "no kernel image"),
        ("cut", bzimage(4), "truncated"),
        ("vmlinux", b"\x7fELF\x02\x01".to_vec(), "ELF"),
        ("Image.gz", b"\x1f\x8b\x08".to_vec(), "gzip"),
        ("riscv", [vec![0; 0x38], b"RSC\x05".to_vec()].concat(), "RISC-V"),
    ] {
        let path = file(folder.path(), name, &bytes);
        let target = format!("kernel:{},cpus=3", path.display());
        for verb in ["run", "compare", "explain"] {
            let told = refused(&[verb, "cow-reuse", "-t", &target], 2);
            assert!(told.contains(message) && told.contains("make bzImage"), "{told}");
        }
    }
    for (rest, message) in [
        (",row=6.13", "no kernel row `6.13`"),
        (",row=6.12,cpus=3", "row= takes all that follows"),
        (",modules=/no/such/folder", "no folder"),
        (",cpu=cortex-a72", "cpu, for x86-64, is max"),
    ] {
        let path = file(folder.path(), "bzImage", &bzimage(0));
        let target = format!("kernel:{}{rest}", path.display());
        let told = refused(&["run", "cow-reuse", "-t", &target], 2);
        assert!(told.contains(message), "{rest}: {told}");
    }
}
