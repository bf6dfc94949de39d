#!/bin/bash
# kernels-own.sh: builds kernels of our own from Debian's source, stock and with the patches in patches/, and holds each
# against its model row. With names (6.12+pending-cleared …) only those. Compiles for long: see docs/performance.md.
#
# `needless` is the one of the release build, or $NEEDLESS; $RANDOM_SCENARIOS says how many random ones, $SEED which.
set -euo pipefail
cd "$(dirname "$0")/.."

needless=${NEEDLESS:-${CARGO_TARGET_DIR:-target}/release/needless}
scenarios=${RANDOM_SCENARIOS:-500}
seed=${SEED:-1800000}
only=("$@")

wanted() {
    [ ${#only[@]} = 0 ] || [[ " ${only[*]} " == *" $1 "* ]]
}

# build NAME SOURCE PATCH…: SOURCE is a series, for arm64 with that behind it.
build() {
    local name=$1 source=$2 patches=() patch
    shift 2
    for patch; do patches+=(--patch "$patch"); done
    echo "== $name"
    time "$needless" kernels build "$source" "${patches[@]}" --name "${name%/arm64}"
}

# kernel NAME ROW SHOOTDOWNS PATCH…: cow-reuse has so many shootdowns in every round; all else is the row's, which the
# patch tells.
kernel() {
    local name=$1 row=$2 shootdowns=$3
    wanted "$name" || return 0
    build "$name" "${name%%+*}" "${@:4}"
    "$needless" compare cow-reuse -t "kernel:${name%%+*}" -t "kernel:$name" -t "model:$row" --expect
    "$needless" compare cow-reuse -t "kernel:$name" --expect "shootdowns=$shootdowns" --expect
    "$needless" agree --builtin --random "$scenarios" --seed "$seed" -t "kernel:$name,cpus=3" ||
        [ $? = 3 ] # some were disturbed in every round; none differs
}

# arm64 NAME PATCH…: what it does is held against its row by crates/guest/tests/long/own_arm64.rs.
arm64() {
    local name=$1/arm64
    wanted "$name" || return 0
    build "$name" "${name%%+*}/arm64" "${@:2}"
}

# One change of headers compiles nearly everything anew; those that change one file come first.
kernel 6.12+guest 6.12 2
kernel 6.12+removed-after 6.12+removed-after 2 patches/6.12/removed-after.patch
kernel 6.12+pending-cleared 6.12+pending-cleared 1 patches/6.12/pending-cleared.patch
kernel 5.10+reuse-mapcount 5.10,reuse=mapcount 3 patches/5.10/reuse-mapcount.patch
arm64 6.12+fork-young patches/6.12/fork-young.patch
arm64 5.10+guest
arm64 5.10+retry-flush patches/5.10/retry-flush.patch
