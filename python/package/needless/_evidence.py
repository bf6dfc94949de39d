"""Evidence at scale: random scenarios, agreement, litmus tests and mutants as sweeps.

Each function makes the shards that are missing in a folder, and gives all rows. What a real kernel
is needed for runs where a worker has the resource ``guest``: one guest on each.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needless import _command, _needless
from needless._cluster import GUEST, client
from needless._errors import Error
from needless._needless import Table
from needless._scenarios import Scenario, names, scenarios
from needless._shards import Folder, Shard, run

#: Random scenarios that one call of the model takes: half a second and more.
_SEEDS = 250
#: Random scenarios for one boot of a guest.
_BOOT = 50
#: Mistakes for one build of the mutants.
_MISTAKES = 20


@dataclass(frozen=True)
class Workers:
    """Where a sweep runs: the arguments of `needless.sweep` of these names."""

    scheduler: str | None = None
    workers: int | None = None
    jobqueue: str | None = None
    progress: bool = True


def _made(
    folder: str | os.PathLike[str],
    what: dict[str, Any],
    shards: Sequence[Shard],
    on: Workers,
    resources: dict[str, float] | None = None,
) -> Table:
    place = Folder(Path(folder))
    place.plan(what, lambda: {"points": sum(shard.points for shard in shards)})
    asked = client(on.scheduler, on.workers, on.jobqueue, resources)
    run(place, shards, asked, resources=resources, progress=on.progress)
    return place.table(shards)


def _parts(first: int, count: int, size: int) -> list[tuple[int, int]]:
    return [(at, min(size, first + count - at)) for at in range(first, first + count, size)]


def digests_batch(
    *, first: int, count: int, target: str, cpus: int, without: list[str]
) -> bytes:
    """What a worker does: random scenarios of consecutive seeds, as hashes."""
    return _needless.digests(first, count, target, None, cpus, without).parquet()


def digests(
    first: int,
    count: int,
    target: str,
    folder: str | os.PathLike[str],
    *,
    cpus: int = 3,
    without: Sequence[str] = (),
    on: Workers = Workers(),
) -> Table:
    """Random scenarios in a row of the model, each as a hash of all that agreement compares.

    The hash is that of ``tests/agreed.tsv``. A table can be reproduced from itself: each row has
    the seed, the row of the model and what the scenario was drawn for.
    """
    _needless.check_target(target)
    common = {"target": target, "cpus": cpus, "without": list(without)}
    shards = [
        Shard(digests_batch, {"first": at, "count": size, **common}, size)
        for at, size in _parts(first, count, _SEEDS)
    ]
    what = {"sweep": "digests", "first": first, "count": count, **common}
    return _made(folder, what, shards, on)


def differing(table: Table) -> list[dict[str, Any]]:
    """Runs every scenario of a table of hashes again; the rows whose hash is another one now."""
    again: dict[tuple[object, ...], str] = {}
    rows = table.rows()
    for row in rows:
        release = tuple(int(number) for number in row["release"].split("."))
        without = row["without"].split()
        made = _needless.digests(
            row["seed"], 1, row["target"], (release[0], release[1]), row["cpus"], without
        )
        again[row["seed"], row["target"], row["release"], row["cpus"]] = made.column("hash")[0]
    return [
        row
        for row in rows
        if again[row["seed"], row["target"], row["release"], row["cpus"]] != row["hash"]
    ]


def agree_batch(*, target: str, first: int, count: int) -> bytes:
    """What a worker does: random scenarios on one real kernel, held against its row."""
    arguments = ["agree", "-t", target, "--random", str(count), "--seed", str(first)]
    return _command.table(arguments).parquet()


def agree(
    targets: str | Sequence[str],
    first: int,
    count: int,
    folder: str | os.PathLike[str],
    *,
    on: Workers = Workers(),
) -> Table:
    """Random scenarios of consecutive seeds on real kernels (docs/tables.md, "scenarios").

    The command and its kernels have to be on every worker. A worker runs one guest at a time.
    """
    wanted = names(targets)
    shards = [
        Shard(agree_batch, {"target": target, "first": at, "count": size}, size)
        for target in wanted
        for at, size in _parts(first, count, _BOOT)
    ]
    what = {"sweep": "agree", "targets": wanted, "first": first, "count": count}
    return _made(folder, what, shards, on, {GUEST: 1})


_CHECKED = [
    ("test", None, "the litmus test", "text"),
    ("target", None, "the model's row", "text"),
    ("verdict", None, "holds, violated, inconclusive or failed", "text"),
    ("expected", None, "what the test says about the row", "text"),
    ("as_expected", None, "whether everything is as the test says", "flag"),
    ("unexpected", None, "what is not", "text"),
    ("states", "states", "different states that were looked at", "number"),
    ("schedule", None, "the shortest way to a violation, for --replay", "text"),
]


def litmus_batch(*, test: str) -> bytes:
    """What a worker does: one litmus test on every row that it names, with one thread."""
    source = _needless.Source.load(test)
    reports = json.loads(_needless.litmus(source, {}, (20_000_000, None, None, 128, 1)))["reports"]
    found = [report.get("counterexample") for report in reports]
    values: list[list[Any]] = [
        [test for _ in reports],
        [report["target"] for report in reports],
        [report.get("verdict", "failed") for report in reports],
        [report["expected"] for report in reports],
        [not report["unexpected"] for report in reports],
        ["; ".join(report["unexpected"]) or None for report in reports],
        [report.get("states") for report in reports],
        [example and example["schedule"] for example in found],
    ]
    columns = [(*column, cells) for column, cells in zip(_CHECKED, values, strict=True)]
    return Table.of("litmus", columns).parquet()


def litmus(
    folder: str | os.PathLike[str],
    tests: Sequence[str] | None = None,
    *,
    on: Workers = Workers(),
) -> Table:
    """Litmus tests, by default all of the catalogue, on every row that each names."""
    wanted = [b.name for b in scenarios() if b.kind == "litmus"] if tests is None else list(tests)
    for test in wanted:
        Scenario.load(test)
    shards = [Shard(litmus_batch, {"test": test}, 1) for test in wanted]
    return _made(folder, {"sweep": "litmus", "tests": wanted}, shards, on)


_JUDGED = [
    ("mistake", None, "the mistake's name in tests/mutants.toml", "text"),
    ("noticed", None, "whether a test noticed it", "flag"),
    ("by", None, "which test noticed it, or why it may survive", "text"),
    ("as_listed", None, "whether that is what the list says", "flag"),
]

_LINE = re.compile(r"(noticed |SURVIVED)  (\S+) +(.*?)(  <- not as listed)?$")


def mutants_batch(*, tree: str, ids: list[str]) -> bytes:
    """What a worker does: some mistakes, built and tried in a clone of its own."""
    words = [sys.executable, "scripts/mutants.py", "--jobs", "1", *ids]
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True, check=False)
    told = [line for line in map(_LINE.match, done.stdout.splitlines()) if line]
    if len(told) != len(ids):
        tail = (done.stdout + done.stderr).strip()[-2000:]
        raise Error(f"mutants in {tree}: {len(told)} of {len(ids)} were judged\n{tail}")
    values: list[list[Any]] = [
        [line[2] for line in told],
        [line[1].strip() == "noticed" for line in told],
        [line[3] for line in told],
        [line[4] is None for line in told],
    ]
    columns = [(*column, cells) for column, cells in zip(_JUDGED, values, strict=True)]
    return Table.of("mutants", columns).parquet()


def mutants(
    tree: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    on: Workers = Workers(),
) -> Table:
    """Every mistake of ``tests/mutants.toml``: does a test notice it?

    Args:
        tree: the path of a clone that every worker's machine has. Workers of one machine would
            build in one folder, so one worker on each machine has the resource ``tree``.
    """
    listed = subprocess.run(
        [sys.executable, "scripts/mutants.py", "--list"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    ids = [line.split()[0] for line in listed.stdout.splitlines() if line.strip()]
    parts = [ids[at : at + _MISTAKES] for at in range(0, len(ids), _MISTAKES)]
    place = os.fspath(Path(tree).resolve())
    shards = [Shard(mutants_batch, {"tree": place, "ids": part}, len(part)) for part in parts]
    if on.scheduler is None and on.jobqueue is None:
        on = Workers(workers=1, progress=on.progress)
    return _made(folder, {"sweep": "mutants", "ids": ids}, shards, on, {"tree": 1})
