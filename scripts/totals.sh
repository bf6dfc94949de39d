#!/bin/bash
# totals.sh LOG SKIPPED STATUS: the skipped tests with their reasons, and alone on the last line the totals.
# LOG is what `cargo test` said, SKIPPED what skipped tests noted (crates/testing), which the
# harness takes for passed; STATUS is that of `cargo test`.
set -euo pipefail

sed 's/^/skipped: /' "$2"
awk -v skipped="$(wc -l <"$2")" -v status="$3" '
    /^test result:/ { passed += $4; failed += $6 }
    END {
        # A program of tests that died has no result.
        if (status != 0 && failed == 0) failed = 1
        printf "%d passed, %d failed, %d skipped\n", passed - skipped, failed, skipped
    }' "$1"
