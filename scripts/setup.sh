#!/bin/bash
# setup.sh [native|deb|python]: installs what is missing, and asks for nothing if all of it is there.
# native: what a build of the command needs, a C compiler, libc's headers and static library.
# deb: also what makes a Debian package of it.
# python: also what virtual environments are made with.
# Without an argument: also what tests and checks need, python3 for the licence check, Prometheus'
# parser and Perfetto's messages for tests of formats, clippy.
set -euo pipefail

missing=()
command -v cc >/dev/null || missing+=(gcc)
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
# Debian does not have Perfetto's messages.
python=${CARGO_TARGET_DIR:-target}/python
case ${1:-} in
native) ;;
python)
    command -v python3 >/dev/null || missing+=(python3)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    ;;
deb)
    command -v dpkg-shlibdeps >/dev/null || missing+=(dpkg-dev)
    command -v xz >/dev/null || missing+=(xz-utils)
    ;;
*)
    command -v python3 >/dev/null || missing+=(python3-minimal)
    [ -e /usr/lib/python3/dist-packages/prometheus_client ] || missing+=(python3-prometheus-client)
    [ -e "$python" ] || /usr/bin/python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
    command -v column >/dev/null || missing+=(bsdextrautils)
    ;;
esac

if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust 1.95 or newer from https://rustup.rs" >&2
    exit 1
fi
if [ "${#missing[@]}" -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "missing: ${missing[*]}; as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
[ -z "${1:-}" ] || exit 0
if [ ! -e "$python" ]; then
    # Without it a test is skipped.
    /usr/bin/python3 -m pip install -q --no-input --root-user-action ignore --target "$python" perfetto==0.59.1 ||
        echo "no package perfetto: pip cannot install it" >&2
fi
for component in rustfmt clippy; do
    if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 && command -v rustup >/dev/null; then
        rustup component add "$component"
    fi
done
