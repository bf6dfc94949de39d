"""Sweeps of a scenario over values of its parameters."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needless import _needless
from needless._cluster import client
from needless._errors import InputError
from needless._needless import Table
from needless._scenarios import Scenario, ScenarioLike, as_scenario, known_wrong, names
from needless._shards import Folder, Shard, run

#: Seconds that a batch takes at least, and as a rule.
_LEAST, _USUAL = 0.05, 0.5

#: Batches that each worker gets at least, as far as they are not too short.
_SHARES = 8


def points_batch(
    *,
    text: str,
    name: str,
    presets: dict[str, str],
    names: list[str],
    values: list[list[int]],
    rounds: int | None,
    targets: list[str],
    max_memory: int | None,
) -> bytes:
    """What a worker does: the points of one shard, as a Parquet file."""
    source = _needless.Source(text, name, presets)
    return _needless.points(source, names, values, rounds, targets, max_memory).parquet()


@dataclass(frozen=True)
class Sweep:
    """A sweep that was done: a folder of shards, one row for each point and target."""

    folder: Path
    shards: tuple[Shard, ...]

    def table(self) -> Table:
        """All rows, in the order of the points (docs/tables.md, "summary")."""
        return Folder(self.folder).table(self.shards)

    @property
    def files(self) -> str:
        """The shards, as DuckDB and polars take them: ``folder/shards/*.parquet``."""
        return os.fspath(Folder(self.folder).shards / "*.parquet")


def sweep(
    scenario: ScenarioLike,
    over: Mapping[str, Iterable[int]],
    targets: str | Sequence[str],
    *,
    folder: str | os.PathLike[str],
    rounds: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    jobqueue: str | None = None,
    max_memory: int | None = None,
    points_per_shard: int | None = None,
    progress: bool = True,
) -> Sweep:
    """Runs a scenario with all combinations of some parameters' values, on rows of the model.

    The results are Parquet files below ``folder``. A sweep that was killed is gone on with by
    calling it again with the same arguments: no point is lost, and none is counted twice. A point
    that no kernel can run has a row that says why.

    In a script that is not imported, call it below ``if __name__ == "__main__":``, since workers
    import the script.

    Args:
        over: values by parameter: ``{"pages": range(1, 65), "threads": [1, 2]}``.
        targets: rows of the model: ``model:6.12``.
        folder: where the shards go; a folder holds one sweep.
        rounds: rounds that count, instead of the scenario's own number.
        scheduler: a Dask scheduler, ``tcp://head:8786``; by default processes on this machine.
        workers: how many; by default one for each CPU.
        jobqueue: ``slurm``: workers are batch jobs (dask-jobqueue).
        max_memory: what one run may take, in MiB.
        points_per_shard: by default as many as take half a second.

    Raises:
        InputError: the scenario, a name of a parameter, a target or the folder is wrong.
        Error: shards that could not be made; calling it again goes on with these.
    """
    loaded, wanted = as_scenario(scenario), names(targets)
    values = {name: [int(value) for value in given] for name, given in over.items()}
    _refuse(loaded, values, wanted)
    what = {
        "scenario": loaded.text,
        "presets": loaded._source.presets,
        "over": values,
        "targets": wanted,
        "rounds": rounds,
    }
    points = [list(point) for point in itertools.product(*values.values())]

    def arguments(part: list[list[int]]) -> dict[str, Any]:
        return {
            "text": loaded.text,
            "name": loaded._source.name,
            "presets": loaded._source.presets,
            "names": list(values),
            "values": part,
            "rounds": rounds,
            "targets": wanted,
            "max_memory": max_memory,
        }

    def made() -> dict[str, int]:
        size = points_per_shard or _batch(points, arguments, workers or os.cpu_count() or 1)
        return {"points": len(points), "points_per_shard": size}

    place = Folder(Path(folder))
    size: int = place.plan(what, made)["points_per_shard"]
    parts = [points[at : at + size] for at in range(0, len(points), size)]
    shards = tuple(Shard(points_batch, arguments(part), len(part)) for part in parts)
    run(place, shards, client(scheduler, workers, jobqueue), progress=progress)
    return Sweep(place.path, shards)


def _refuse(scenario: Scenario, over: Mapping[str, list[int]], targets: Sequence[str]) -> None:
    known = [parameter.name for parameter in scenario.parameters]
    for name, values in over.items():
        if name not in known:
            remedy = f"it has {', '.join(known)}" if known else "it has none"
            message = f"{scenario.name} has no parameter `{name}`"
            raise InputError(f"{message}; {remedy}", message, remedy=remedy)
        if not values:
            raise InputError(f"there is no value for parameter `{name}`")
    if not targets:
        raise InputError("no target is named")
    for target in targets:
        known_wrong(target)


def _batch(points: list[list[int]], arguments: Any, workers: int) -> int:
    """How many points make a batch: one takes half a second, 50 ms at least, and each worker gets some."""

    def seconds(point: list[int]) -> float:
        began = time.perf_counter()
        points_batch(**arguments([point]))
        return time.perf_counter() - began

    # The first one warms up. Costs may follow from the values: the first, the middle and the last.
    seconds(points[0])
    costs = [seconds(points[at]) for at in (0, len(points) // 2, -1)]
    least = math.ceil(_LEAST / min(costs))
    usual = math.ceil(_USUAL * len(costs) / sum(costs))
    share = math.ceil(len(points) / (workers * _SHARES))
    return max(least, min(usual, share), 1)
