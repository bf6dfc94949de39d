"""Tasks of a sweep, each with a result of its own: a shard.

A shard is a Parquet file in the sweep's folder. Its name is a hash of what it is of: the function,
its arguments, and the version of the package. A file is there whole or not at all, so a sweep that
was killed goes on with the shards that are missing, and no shard is counted twice. A worker that
dies costs the shard that it was at: the scheduler gives it to another one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from needless import _needless
from needless._cluster import distributed
from needless._errors import Error, InputError
from needless._needless import Table

_PLAN = "plan.json"

#: Seconds between two lines of progress where nobody looks at a terminal.
_SELDOM = 10.0

#: Tasks that wait at the scheduler for each thread of a worker: none is idle, and few are in vain.
_WAITING = 3


def digest(told: Mapping[str, Any]) -> str:
    """The name of what is told: 32 hexadecimal digits."""
    told = {**told, "version": _needless.VERSION}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Shard:
    """A call that gives the bytes of a Parquet file, with so many points in it."""

    function: Callable[..., bytes]
    arguments: Mapping[str, Any]
    points: int
    name: str = field(init=False)

    def __post_init__(self) -> None:
        told = {"function": self.function.__name__, "arguments": self.arguments}
        object.__setattr__(self, "name", digest(told))

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.parquet"


@dataclass(frozen=True)
class Folder:
    """The folder of one sweep."""

    path: Path

    @property
    def shards(self) -> Path:
        """Where the shards are."""
        return self.path / "shards"

    def plan(self, what: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """The plan that the folder has, or a new one that ``make`` completes.

        What the sweep is about has to be what the plan says: a folder is of one sweep.
        """
        name, path = digest(what), self.path / _PLAN
        if path.exists():
            plan: dict[str, Any] = json.loads(path.read_text())
            if plan.get("name") != name:
                remedy = "name another folder, or remove this one"
                message = f"`{self.path}` holds another sweep, or one of another version of needless"
                raise InputError(f"{message}; {remedy}", message, remedy=remedy)
            return plan
        self.shards.mkdir(parents=True, exist_ok=True)
        plan = {"name": name, "version": _needless.VERSION, "what": dict(what), **make()}
        write_whole(path, json.dumps(plan, indent=2, sort_keys=True).encode())
        return plan

    def has(self, shard: Shard) -> bool:
        """Whether the shard is there."""
        return (self.shards / shard.file).exists()

    def table(self, shards: Iterable[Shard]) -> Table:
        """The shards one below the other, in their order."""
        return _needless.concatenated([_needless.read(self.shards / s.file) for s in shards])


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as file:
            file.write(content)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


class Progress:
    """How far a sweep is: points, rate, time left."""

    def __init__(self, done: int, of: int, out: TextIO | None) -> None:
        self._began, self._before, self._done, self._of = time.monotonic(), done, done, of
        self._out, self._told, self._wide = out, time.monotonic(), 0

    def add(self, points: int) -> None:
        """So many more are done."""
        self._done += points
        if self._out is None:
            return
        terminal, now = self._out.isatty(), time.monotonic()
        if terminal:
            line = self.line()
            self._out.write(f"\r{line:{self._wide}}")
            self._wide = len(line)
            self._out.flush()
        elif now - self._told >= _SELDOM or self._done == self._of:
            self._told = now
            self._out.write(self.line() + "\n")
            self._out.flush()

    def line(self) -> str:
        """The line of progress."""
        elapsed = max(time.monotonic() - self._began, 1e-9)
        rate = (self._done - self._before) / elapsed
        left = f"{(self._of - self._done) / rate:,.0f} s left" if rate else "time left not known"
        return f"{self._done:,} of {self._of:,} points, {rate:,.1f}/s, {left}"

    def end(self) -> None:
        """Leaves the line of a terminal."""
        if self._out is not None and self._out.isatty() and self._wide:
            self._out.write("\n")


def run(
    folder: Folder,
    shards: Sequence[Shard],
    client: AbstractContextManager[Any],
    *,
    resources: Mapping[str, float] | None = None,
    progress: bool = True,
) -> None:
    """Makes the shards that are missing. The client is asked for only if one is.

    Raises:
        Error: shards that could not be made, when all others have been.
    """
    missing = [shard for shard in shards if not folder.has(shard)]
    if not missing:
        return
    of = sum(shard.points for shard in shards)
    done = of - sum(shard.points for shard in missing)
    told = Progress(done, of, sys.stderr if progress else None)
    failed: list[tuple[Shard, BaseException]] = []
    with client as connected:
        for shard, result in _results(connected, missing, resources):
            if isinstance(result, bytes):
                write_whole(folder.shards / shard.file, result)
                told.add(shard.points)
            else:
                failed.append((shard, result))
    told.end()
    if failed:
        _, first = failed[0]
        message = f"{len(failed)} of {len(shards)} shards could not be made: {first}"
        remedy = "run it again: it goes on with those that are missing"
        raise Error(f"{message}; {remedy}", message, remedy=remedy) from first


def called(function: Callable[..., bytes], arguments: Mapping[str, Any], version: str) -> bytes:
    """What a worker does: the call, if its package is of the version that asks."""
    if version != _needless.VERSION:
        remedy = "install one version everywhere"
        message = f"a worker has needless {_needless.VERSION}, and {version} asks"
        raise Error(f"{message}; {remedy}", message, remedy=remedy)
    return function(**arguments)


def _resources(dask_scheduler: Any) -> list[dict[str, float]]:
    """What each worker has, as the scheduler knows it."""
    return [dict(worker.resources) for worker in dask_scheduler.workers.values()]


def _refuse(workers: Sequence[Mapping[str, float]], wanted: Mapping[str, float]) -> None:
    """Refuses workers of which none has what the tasks need: they would wait for ever."""
    for name, amount in wanted.items():
        if workers and all(worker.get(name, 0) < amount for worker in workers):
            remedy = f"start them with `dask worker --resources {name}={amount:g}`"
            message = f"no worker has the resource `{name}`"
            raise Error(f"{message}; {remedy}", message, remedy=remedy)


def _results(
    client: Any, shards: Sequence[Shard], resources: Mapping[str, float] | None
) -> Iterator[tuple[Shard, bytes | BaseException]]:
    """Each shard with its bytes, or with why there are none, as they come."""
    _refuse(client.run_on_scheduler(_resources), resources or {})
    by_key: dict[str, Shard] = {}

    def submitted(shard: Shard) -> Any:
        key = f"needless-{shard.name}"
        by_key[key] = shard
        arguments = dict(shard.arguments)
        return client.submit(
            called,
            shard.function,
            arguments,
            _needless.VERSION,
            key=key,
            retries=2,
            resources=resources,
        )

    threads = sum(client.nthreads().values()) or os.cpu_count() or 1
    waiting = iter(shards)
    first = list(itertools.islice(waiting, threads * _WAITING + 1))
    futures = [submitted(shard) for shard in first]
    # The client is nobody's default.
    running = distributed().as_completed(futures, loop=client.loop)
    del futures
    for future in running:
        shard = by_key.pop(future.key)
        error = future.exception()
        yield shard, future.result() if error is None else error
        # The scheduler forgets what nobody holds.
        del future
        for following in waiting:
            running.add(submitted(following))
            break
