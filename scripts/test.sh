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

# Tests of arm64 guests need another runner and a plugin; where they cannot be built, they say so.
scripts/arm64.sh debug || exit 1
built=$(realpath "${CARGO_TARGET_DIR:-target}/debug")
for file in NEEDLESS_RUNNER_ARM64=needless-runner-arm64 NEEDLESS_QEMU_PLUGIN=libneedless_qemu_plugin.so; do
    [ ! -e "$built/${file#*=}" ] || export "${file%%=*}=$built/${file#*=}"
done

cargo test --locked --workspace --no-fail-fast 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

awk '/^test result:/ { passed += $4; failed += $6 }
     END { printf "%d passed, %d failed\n", passed, failed }' "$log"
exit "$status"
