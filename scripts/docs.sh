#!/bin/bash
# docs.sh PROGRAM: builds the documents as a site with a search, in target/docs/book/index.html. The reference
# of verbs, policies and counters is printed by PROGRAM. Installs mdBook, of one version, where it is missing.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."

# The search of a site of this version was tried from a file.
version=0.4.52
target=${CARGO_TARGET_DIR:-target}
tools=$(realpath -m "$target")/tools
mdbook=$tools/bin/mdbook
if ! [ -x "$mdbook" ] || [ "$("$mdbook" --version)" != "mdbook v$version" ]; then
    cargo install --locked --root "$tools" --version "$version" --no-default-features --features search mdbook
fi

# book.toml names these folders.
rm -rf target/docs
mkdir -p target/docs/src
cp -r docs/. target/docs/src
python3 scripts/reference.py "$program" target/docs/src
"$mdbook" build
echo "target/docs/book/index.html"
