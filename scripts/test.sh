#!/bin/bash
# test.sh most|long [NAME]: runs those tests and prints the totals alone on the last line:
# `N passed, N failed, N skipped`. Each test is in one of the two: `long` are those in a module of that name. With
# NAME only those of the module long::NAME, and what they print.
set -uo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export NEEDLESS_SKIPPED_TESTS=$scratch/skipped
touch "$NEEDLESS_SKIPPED_TESTS"

# Tests of real kernels start the runner, which is built with the tests: one of its own asks for it.
cargo test --locked --workspace --no-run || exit 1
NEEDLESS_RUNNER=$(realpath "${CARGO_TARGET_DIR:-target}/debug/needless-runner")
export NEEDLESS_RUNNER

if [ "$1" = long ]; then
    # Tests of arm64 guests need another runner and a plugin; where they cannot be built, they say so.
    scripts/arm64.sh debug || exit 1
    built=$(realpath "${CARGO_TARGET_DIR:-target}/debug")
    for file in NEEDLESS_RUNNER_ARM64=needless-runner-arm64 NEEDLESS_QEMU_PLUGIN=libneedless_qemu_plugin.so; do
        [ ! -e "$built/${file#*=}" ] || export "${file%%=*}=$built/${file#*=}"
    done
    which=("long::${2:-}")
    [ $# -lt 2 ] || which+=(--nocapture)
else
    which=(--skip long::)
fi

cargo test --locked --workspace --no-fail-fast -- "${which[@]}" 2>&1 | tee "$scratch/log"
status=${PIPESTATUS[0]}

scripts/totals.sh "$scratch/log" "$NEEDLESS_SKIPPED_TESTS" "$status"
exit "$status"
