#!/bin/bash
# python.sh package|test: makes a virtual environment with the Python package, in target/venv. test: also with what its
# tests need, and runs them, with the command that NEEDLESS_COMMAND names, or one that is built here.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "python3 is older than 3.11, which the package needs" >&2
    exit 1
}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
case $1 in
package) extras=sweep,jobqueue ;;
test) extras=test ;;
esac
"$venv/bin/pip" install --quiet --disable-pip-version-check "./python[$extras]"
[ "$1" = test ] || exit 0

if [ -z "${NEEDLESS_COMMAND:-}" ]; then
    cargo build --locked --profile demo -p needless -p needless-runner
    NEEDLESS_COMMAND=$target/demo/needless
fi
export NEEDLESS_COMMAND
cd python
exec "$venv/bin/python" -m pytest -q
