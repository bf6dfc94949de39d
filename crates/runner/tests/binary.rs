//! Tests of the program as cargo built it. Tests of other crates start it, so one purpose of this
//! test is that it gets built.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

/// A field of an ELF header or program header, in this machine's byte order.
fn field<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(word)
}

/// A guest has no other file, so the program has to be static. And the heap of a
/// position-independent program cannot grow on every kernel.
#[test]
fn it_is_static_and_at_a_fixed_address() {
    const INTERPRETER: u64 = 3;
    const FIXED: u64 = 2;
    let bytes = fs::read(env!("CARGO_BIN_EXE_needless-runner")).unwrap();
    assert_eq!(&bytes[..6], b"\x7fELF\x02\x01", "64 bits, little-endian");
    assert_eq!(field::<2>(&bytes, 0x10), FIXED, "scripts/rustc.sh was not asked");
    let (start, size, count) = (
        field::<8>(&bytes, 0x20) as usize,
        field::<2>(&bytes, 0x36) as usize,
        field::<2>(&bytes, 0x38) as usize,
    );
    let kind = |number| field::<4>(&bytes, start + number * size);
    assert!(count > 0 && (0..count).all(|number| kind(number) != INTERPRETER), "it is dynamic");
}

#[test]
fn it_says_which_it_is() {
    let output = Command::new(env!("CARGO_BIN_EXE_needless-runner")).arg("--version").output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(text.starts_with("needless-runner ") && text.contains("(protocol "), "{text}");
}
