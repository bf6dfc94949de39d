#!/bin/bash
# deb.sh: makes a Debian package of what `make native` built, in TARGET/debian, and prints its path. cargo-deb is installed
# below TARGET if this version is not there. The package's fields are in crates/cli/Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

version=3.8.0
target=$(realpath "${CARGO_TARGET_DIR:-target}")
tools=$target/tools
staging=$target/release/package

scripts/setup.sh deb
if [ "$("$tools/bin/cargo-deb" --version 2>/dev/null)" != "cargo-deb $version" ]; then
    # It writes with the system's xz, and runs for seconds: an unoptimised one does.
    CARGO_TARGET_DIR=$tools/build cargo install --quiet --locked --debug --no-default-features \
        --version "$version" --root "$tools" cargo-deb
    rm -rf "$tools/build"
fi

# Dates of files are the commit's, so that one commit gives one package.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH
rm -rf "$staging"
DESTDIR=$staging scripts/install.sh install /usr
gzip -9n "$staging"/usr/share/man/man1/*.1
"$tools/bin/cargo-deb" deb --no-build --package needless --output "$target/debian/"
