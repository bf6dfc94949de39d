#!/bin/bash
# The model against two arm64 kernels on two processors each, with random scenarios of one process; writes docs/agreement-arm64.md.
# On cortex-a72 several processes are not told apart (docs/kernels.md), so all four get the same scenarios.
# agree-arm64.sh NEEDLESS [FIRST-SEED [COUNT]]
set -euo pipefail

needless=$(realpath "$1")
seed=${2:-2700000}
count=${3:-200}
report=$(realpath docs/agreement-arm64.md)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

while [ "$count" -gt 0 ]; do
    # Two CPUs, and what 6.1 has.
    "$needless" scenario random "$seed" --cpus 2 --kernel 6.1 > one
    if ! grep -q '^ *process ' one; then
        mv one "random-$seed.kdl"
        count=$((count - 1))
    fi
    seed=$((seed + 1))
done

"$needless" agree random-*.kdl --report "$report" \
    -t kernel:6.1/arm64,cpu=max -t kernel:6.1/arm64,cpu=cortex-a72 \
    -t kernel:6.12/arm64,cpu=max -t kernel:6.12/arm64,cpu=cortex-a72
