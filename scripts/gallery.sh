#!/bin/bash
# gallery.sh PROGRAM: writes pages into docs/gallery: for each study, for findings, and for five scenarios. All of it is
# from the model and the checker, so that it takes no real kernel and no privilege.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
mkdir -p docs/gallery

# A page may tell that something does not hold, or was not decided.
page() {
    local name=$1 status=0
    shift
    "$program" "$@" --format html -o "docs/gallery/$name.html" || status=$?
    case $status in
        0 | 1 | 3) echo "docs/gallery/$name.html" ;;
        *) exit "$status" ;;
    esac
}

for study in studies/*.kdl; do
    study=$(basename "$study" .kdl)
    page "study-$study" study "$study" -t model -t check
done

page finding-pending-cleared check batched-pending -t model:7.3+pending-cleared,mutant=cleared-all
page finding-pending-flag check pending-flag -t model:5.10
page finding-stale-read check reclaim-refault -t model:6.12
page finding-table-sync check table-sync -t model:6.12/arm64,table-sync=implied
page finding-pagemap-scan compare c_pagemap_scan_zero -t model:7.3 -t model:7.3,scan-flush=needed
page finding-granted-flush check uffd-unprotect
page finding-break-before-make check gather-early-free -t model:6.12/arm64
page finding-soft-dirty check soft-dirty-protect
page finding-migration compare e_move_holes -t model:6.1 -t model:6.12
page finding-deferred-flush check luf-window -t model:6.12+removed-after+luf12,forgo=P1

rows=(-t model:5.10 -t model:6.1 -t model:6.12 -t model:6.18 -t model:7.3)
page cow-reuse compare cow-reuse "${rows[@]}"
page swap-read-write compare a_swap_rw_64 "${rows[@]}"
page sparse-munmap compare z_munmap_sparse_64 "${rows[@]}"
page round explain cow-reuse -t model:5.10
page race check pageout-read -t model:6.12,mutant=unmap-not-flushed
