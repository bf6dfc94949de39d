#!/bin/bash
# Installs what building needs and is missing: a C linker, libc's headers and static library,
# python3 for the licence check. Asks for nothing if all of it is there.
set -euo pipefail

missing=()
command -v cc >/dev/null || missing+=(gcc)
command -v python3 >/dev/null || missing+=(python3-minimal)
command -v column >/dev/null || missing+=(bsdextrautils)
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)

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
for component in rustfmt clippy; do
    if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 && command -v rustup >/dev/null; then
        rustup component add "$component"
    fi
done
