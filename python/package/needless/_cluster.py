"""Where the tasks of a sweep run: processes on this machine, a scheduler's workers, or batch jobs."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from needless._errors import Error, InputError

#: A worker's resource: one guest boots on it at a time.
GUEST = "guest"

_REMEDY = "pip install './python[sweep]'"


def distributed() -> Any:
    """Dask's module of that name."""
    try:
        import distributed as module
    except ImportError as error:
        message = f"sweeps run on Dask, which is not installed: {error}"
        raise Error(f"{message}; {_REMEDY}", message, remedy=_REMEDY) from error
    return module


@contextmanager
def client(
    scheduler: str | None = None,
    workers: int | None = None,
    jobqueue: str | None = None,
    resources: Mapping[str, float] | None = None,
) -> Iterator[Any]:
    """A Dask client.

    Args:
        scheduler: the address of a scheduler that runs: ``tcp://head:8786``.
        workers: processes on this machine (by default one for each CPU), or batch jobs.
        jobqueue: ``slurm``: batch jobs, as dask-jobqueue's configuration describes them.
        resources: what each worker on this machine has, such as ``{"guest": 1}``.
    """
    dask = distributed()
    if scheduler is not None and jobqueue is not None:
        raise InputError("a scheduler and a job queue exclude each other: name one of them")
    if scheduler is not None:
        with dask.Client(scheduler, set_as_default=False) as connected:
            yield connected
        return
    with (
        _cluster(dask, workers, jobqueue, resources) as cluster,
        dask.Client(cluster, set_as_default=False) as connected,
    ):
        yield connected


def _cluster(
    dask: Any,
    workers: int | None,
    jobqueue: str | None,
    resources: Mapping[str, float] | None,
) -> Any:
    if jobqueue is None:
        return dask.LocalCluster(
            n_workers=workers or os.cpu_count() or 1,
            # The model is not run by threads side by side: one process for each CPU.
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            resources=dict(resources or {}),
        )
    if jobqueue != "slurm":
        raise InputError(f"there is no job queue `{jobqueue}` here; there is slurm")
    try:
        # Its types refuse a configuration that is read from a file.
        dask_jobqueue: Any = importlib.import_module("dask_jobqueue")
    except ImportError as error:
        remedy = "pip install './python[sweep,jobqueue]'"
        message = f"batch jobs are started by dask-jobqueue, which is not installed: {error}"
        raise Error(f"{message}; {remedy}", message, remedy=remedy) from error
    given = ",".join(f"{name}={amount:g}" for name, amount in (resources or {}).items())
    # Without any, those of the configuration hold.
    options = {"worker_extra_args": ["--resources", given]} if given else {}
    cluster = dask_jobqueue.SLURMCluster(**options)
    cluster.scale(jobs=workers or 1)
    return cluster
