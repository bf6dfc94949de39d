//! Scenarios with drawn sizes through the model, with little memory:
//! `cargo +nightly fuzz run sizes -- -rss_limit_mb=512 -timeout=60`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    needless_scenario::sizes::exercise_sizes(bytes);
});
