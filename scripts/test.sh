#!/bin/bash
# Runs every test and prints the totals alone on the last line: `N passed, N failed`.
set -uo pipefail

target=x86_64-unknown-linux-gnu
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Tests of the live kernel start the runner, which is static wherever it runs.
cargo rustc --locked -p needless-runner --bin needless-runner --target "$target" -- \
    -C target-feature=+crt-static || exit 1
NEEDLESS_RUNNER=$(realpath "${CARGO_TARGET_DIR:-target}/$target/debug/needless-runner")
export NEEDLESS_RUNNER

cargo test --locked --workspace --no-fail-fast 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

awk '/^test result:/ { passed += $4; failed += $6 }
     END { printf "%d passed, %d failed\n", passed, failed }' "$log"
exit "$status"
