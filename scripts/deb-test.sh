#!/bin/bash
# deb-test.sh [PACKAGE]: installs the package (by default the one in TARGET/debian) in a Debian 12 that has nothing but what
# every Debian has, runs README's first commands there, and removes it again. As root. The system lies in a temporary
# folder, with mounts of its own, and goes however this ends. Debian's packages come from where this machine's come from.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "deb-test: $1" >&2
    exit 1
}

# What runs with mounts of its own, of which the machine sees nothing.
inside() {
    set -euo pipefail
    root=$folder/root
    for place in proc sys dev; do mount --rbind "/$place" "$root/$place"; done
    there() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 COLUMNS=80 chroot "$root" "$@"; }

    echo "== installs"
    cp "$package" "$root/needless.deb"
    there dpkg --install /needless.deb
    there dpkg --verify needless

    echo "== says which it is"
    there needless --version
    [ "$(there needless --version)" = "$expected" ] || fail "it is not $expected"

    echo "== runs README's first command"
    there needless compare cow-reuse -t model:5.10 -t model:6.12 >"$folder/said"
    head -n 8 "$folder/said"
    # README's first block: the lines under the command, up to the first that is left out.
    sed -n '/^\$ needless compare/,/^…$/p' README.md | sed -e 1d -e '/^…$/d' >"$folder/shown"
    [ -s "$folder/shown" ] || fail "README shows nothing"
    head -n "$(wc -l <"$folder/shown")" "$folder/said" | diff "$folder/shown" - || fail "README shows something else"

    echo "== finds its runner"
    # Whether this kernel lets it watch depends on the machine; that the runner is there does not.
    status=0
    there needless run cow-reuse -t live --rounds 5 >"$folder/live" 2>&1 || status=$?
    head -n 4 "$folder/live"
    case $status in
    0 | 120 | 121) ;;
    *) cat "$folder/live" && fail "a live run ended with $status" ;;
    esac
    ! grep -q "was not found" "$folder/live" || fail "there is no runner"

    echo "== has its pages and completions"
    for file in man/man1/needless.1.gz man/man1/needless-compare.1.gz bash-completion/completions/needless \
        zsh/vendor-completions/_needless fish/vendor_completions.d/needless.fish doc/needless/copyright; do
        [ -s "$root/usr/share/$file" ] || fail "/usr/share/$file is missing"
    done

    echo "== goes"
    there dpkg --purge needless
    left=$(cd "$root" && find usr etc var -path '*needless*')
    [ -z "$left" ] || fail "left behind: $left"
}

[ "$(id -u)" = 0 ] || fail "only root can make a system of its own"
target=$(realpath "${CARGO_TARGET_DIR:-target}")
packages=("$target"/debian/needless_*.deb)
package=$(realpath "${1:-${packages[-1]}}")
[ -e "$package" ] || fail "$package is missing: run \`make deb\` first"
expected=$("$target/release/needless" --version)
command -v mmdebstrap >/dev/null || {
    apt-get -o DPkg::Lock::Timeout=300 update -qq
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends mmdebstrap
}

folder=$(mktemp -d "${TMPDIR:-/tmp}/needless-deb-XXXXXX")
trap 'rm -rf --one-file-system "$folder"' EXIT
trap 'exit 130' INT TERM HUP
export folder package expected
export -f inside fail
mmdebstrap --quiet --variant=minbase bookworm "$folder/root"
unshare --mount --propagation private bash -c inside
echo "deb-test: $(basename "$package") installs, runs and goes"
