#!/bin/bash
# fresh.sh [RECIPE]: runs `.ci/run`, or that recipe, in a fresh clone of the last commit, as on a machine that
# never saw Needless: tracefs mounted nowhere (for what runs here; the machine stays as it is), no
# cached kernels, no zram device but the kernel's own, nothing built. As root. Nothing of it is left,
# however it ends: whoever cleans up waits at a pipe, which the kernel closes if this script is killed.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "fresh: $1" >&2
    exit 1
}

# The kernel may have made zram0 at boot. Another would hide that a test needs one.
refuse_idle_zram() {
    for device in /sys/block/zram[1-9]*; do
        [ -e "$device" ] || continue
        name=${device##*/}
        grep -qs "^/dev/$name " /proc/swaps /proc/mounts ||
            fail "$name is unused; remove it: echo ${name#zram} > /sys/class/zram-control/hot_remove"
    done
}

# Waits until this script is gone; ends what it started and removes what it made.
clean_up() {
    trap '' INT TERM HUP
    cat >/dev/null
    [ ! -s "$folder/group" ] || kill -KILL -- "-$(cat "$folder/group")" 2>/dev/null || true
    # What has just been killed may still write.
    until rm -rf "$folder" 2>/dev/null; do sleep 0.1; done
}

finish() {
    status=$?
    exec {life}>&-
    wait "$cleaner" || true
    exit "$status"
}

# What runs in a mount namespace of its own.
inside() {
    set -euo pipefail
    echo "$$" >"$folder/group"
    # debugfs would bring tracefs back when somebody looks into it.
    while place=$(awk '$3 == "tracefs" || $3 == "debugfs" { print $2; exit }' /proc/self/mounts) &&
        [ -n "$place" ]; do
        umount -l "$(printf '%b' "$place")"
    done
    for name in CACHE CONFIG DATA STATE; do
        mkdir -p "$folder/xdg/$name"
        export "XDG_${name}_HOME=$folder/xdg/$name"
    done
    mkdir -m 700 "$folder/xdg/run"
    mkdir -m 1777 "$folder/tmp"
    export XDG_RUNTIME_DIR=$folder/xdg/run TMPDIR=$folder/tmp
    unset CARGO_TARGET_DIR MAKEFLAGS MAKELEVEL MFLAGS RECIPE ${!NEEDLESS_@}
    cd "$folder/clone"
    if [ $# -gt 0 ]; then make "$@"; else .ci/run; fi
}

[ "$(id -u)" = 0 ] || fail "only root can have tracefs unmounted for what it runs"
refuse_idle_zram
[ -z "$(git status --porcelain)" ] || echo "fresh: what is not committed is left out" >&2

folder=$(mktemp -d "${TMPDIR:-/tmp}/needless-fresh-XXXXXX")
export folder
# Tests run as nobody, too.
chmod 755 "$folder"
exec {life}> >(clean_up)
cleaner=$!
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

git clone --quiet --no-hardlinks . "$folder/clone"
export -f inside
setsid --wait unshare --mount --propagation private bash -c 'inside "$@"' fresh "$@" \
    </dev/null {life}>&- &
wait $!
