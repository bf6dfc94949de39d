#!/bin/bash
# Builds what arm64 guests need besides (debug or release): the runner for arm64, static like the
# other one, as `needless-runner-arm64`, and the QEMU plugin that counts instructions. Where the
# cross tools are missing and cannot be installed it says so and leaves the runner out: everything
# but kernel:…/arm64 works without.
set -euo pipefail

profile=$1
out=${CARGO_TARGET_DIR:-target}
target=aarch64-unknown-linux-gnu
linker=aarch64-linux-gnu-gcc
packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
flags=()
[ "$profile" = debug ] || flags+=(--release)
# The model does the work of the tests, but not in this runner.
lighter=(--config profile.dev.package.needless-model.opt-level=1)

without() {
    echo "no runner for arm64 guests: $1" >&2
    exit 0
}

cargo build --locked "${flags[@]}" -p needless-qemu-plugin

if ! command -v "$linker" >/dev/null || [ ! -e /usr/aarch64-linux-gnu/lib/libc.a ]; then
    [ "$(id -u)" = 0 ] || without "as root: apt-get install $packages"
    apt-get update -qq || without "apt-get update failed"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages ||
        without "apt-get install $packages failed"
fi
if ! [ -e "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
    command -v rustup >/dev/null || without "rustc has no target $target, and there is no rustup"
    rustup target add "$target" || without "rustup target add $target failed"
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$linker
cargo build --locked "${flags[@]}" "${lighter[@]}" -p needless-runner --target "$target"
install -m 755 "$out/$target/$profile/needless-runner" "$out/$profile/needless-runner-arm64"
