#!/bin/bash
# kernels-own.sh: builds kernels of our own from Debian's source, stock and with the patches in patches/, and holds each
# against its model row. With a name (6.12+pending-cleared …) only that one. Compiles for long: see docs/performance.md.
#
# `needless` is the one of the release build, or $NEEDLESS; $RANDOM_SCENARIOS says how many random ones, $SEED which.
set -euo pipefail
cd "$(dirname "$0")/.."

needless=${NEEDLESS:-${CARGO_TARGET_DIR:-target}/release/needless}
scenarios=${RANDOM_SCENARIOS:-500}
seed=${SEED:-1800000}

# kernel ROW SHOOTDOWNS PATCH…: builds it; cow-reuse has so many shootdowns in every round; all else is the row's.
kernel() {
    local name=$1 row=$2 shootdowns=$3
    shift 3
    local patches=() patch
    for patch; do patches+=(--patch "$patch"); done
    echo "== $name"
    time "$needless" kernels build "${name%%+*}" "${patches[@]}" --name "$name"
    "$needless" compare cow-reuse -t "kernel:${name%%+*}" -t "kernel:$name,row=$row" -t "model:$row" --expect
    "$needless" compare cow-reuse -t "kernel:$name,row=$row" --expect "shootdowns=$shootdowns" --expect
    "$needless" agree --builtin --random "$scenarios" --seed "$seed" -t "kernel:$name,cpus=3,row=$row" ||
        [ $? = 3 ] # some were disturbed in every round; none differs
}

only=${1:-}
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

# One change of headers compiles nearly everything anew; those that change one file come first.
! wanted 6.12+guest || kernel 6.12+guest 6.12 2
! wanted 6.12+removed-after || kernel 6.12+removed-after 6.12+removed-after 2 patches/6.12/removed-after.patch
! wanted 6.12+pending-cleared || kernel 6.12+pending-cleared 6.12+pending-cleared 1 patches/6.12/pending-cleared.patch
