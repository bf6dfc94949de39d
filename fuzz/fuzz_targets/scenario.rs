//! Any text through lexer, parser, compiler and formatter. The corpus to start from is
//! `scenarios/`: `cargo +nightly fuzz run scenario fuzz/corpus/scenario scenarios`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| needless_scenario::exercise(text));
