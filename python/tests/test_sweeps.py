"""Sweeps: every point once, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import needless
import pytest
from distributed import Client, LocalCluster
from needless import _evidence, _shards, _sweep_command
from needless._evidence import Workers

#: 1,000 points: 50 values of one parameter and 20 of another.
OVER = {"pages": range(1, 51), "rounds": range(2, 22)}
TARGETS = ["model:5.10", "model:6.12"]
ALONE = Workers(workers=1, progress=False)


def points(table: needless.Table) -> list[tuple[int, int, str]]:
    columns = (table.column(name) for name in ("param_pages", "param_rounds", "target"))
    return list(zip(*columns, strict=True))


def expected() -> list[tuple[int, int, str]]:
    return [(p, r, t) for p in OVER["pages"] for r in OVER["rounds"] for t in TARGETS]


def wait_for(folder: Path, shards: int) -> None:
    until = time.monotonic() + 120
    while len(list(folder.glob("shards/*.parquet"))) < shards:
        assert time.monotonic() < until, "no shard came"
        time.sleep(0.01)


def test_a_worker_that_is_killed_costs_nothing_but_its_shard(tmp_path):
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster, set_as_default=False) as client:
            workers = list(client.run(os.getpid).values())
        found: list[needless.Sweep] = []

        def run():
            found.append(
                needless.sweep(
                    "cow-reuse",
                    OVER,
                    TARGETS,
                    folder=tmp_path,
                    scheduler=cluster.scheduler_address,
                    points_per_shard=5,
                    progress=False,
                )
            )

        sweep = threading.Thread(target=run)
        sweep.start()
        wait_for(tmp_path, 5)
        os.kill(workers[0], signal.SIGKILL)
        sweep.join()
    assert len(found) == 1 and len(found[0].shards) == 200
    table = found[0].table()
    assert points(table) == expected()
    assert set(table.column("status")) == {"ran"}
    copies = dict(zip(points(table), table.column("copies"), strict=True))
    for pages, rounds, target in [(1, 2, TARGETS[0]), (50, 3, TARGETS[0]), (8, 21, TARGETS[1])]:
        alone = needless.run("cow-reuse", target, set={"pages": pages, "rounds": rounds})
        assert copies[pages, rounds, target] == alone.counters["copies"]
    assert copies[1, 2, TARGETS[0]] == 1


def test_a_sweep_that_is_killed_goes_on(tmp_path):
    words = ["-c", "import sys; from needless._sweep_command import main; sys.exit(main())"]
    words += ["points", "cow-reuse", "--over", "pages=1:51", "--over", "rounds=2:22"]
    words += ["-t", TARGETS[0], "-t", TARGETS[1], "-o", str(tmp_path), "--workers", "2", "--quiet"]
    sweep = subprocess.Popen([sys.executable, *words], start_new_session=True)
    wait_for(tmp_path, 2)
    os.killpg(sweep.pid, signal.SIGKILL)
    sweep.wait()
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("shards/*.parquet")}
    assert before
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    assert "2,000 rows" in done.stdout
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("shards/*.parquet")}
    assert before.items() <= after.items(), "what was there was not made again"
    tables = [needless.read(path) for path in tmp_path.glob("shards/*.parquet")]
    assert sorted(points(needless.concatenated(tables))) == sorted(expected())


def test_a_folder_is_of_one_sweep(tmp_path):
    over = {"pages": [1, 2]}
    needless.sweep("cow-reuse", over, TARGETS, folder=tmp_path, workers=1, progress=False)
    # Nothing is missing, so nothing runs: a scheduler that is not there is not asked.
    nowhere = "tcp://127.0.0.1:1"
    again = needless.sweep(
        "cow-reuse", over, TARGETS, folder=tmp_path, scheduler=nowhere, progress=False
    )
    assert len(again.table()) == 4
    with pytest.raises(needless.InputError, match="another sweep"):
        needless.sweep("cow-reuse", {"pages": [1, 3]}, TARGETS, folder=tmp_path)


def test_what_is_wrong_is_told_before_anything_runs(tmp_path):
    with pytest.raises(needless.InputError, match="no parameter `page`"):
        needless.sweep("cow-reuse", {"page": [1]}, TARGETS, folder=tmp_path)
    with pytest.raises(needless.InputError, match="no kernel row"):
        needless.sweep("cow-reuse", {"pages": [1]}, "model:1.0", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_point_that_cannot_run_says_why(tmp_path):
    done = needless.sweep(
        "cow-reuse", {"pages": [0, 1]}, "model:6.12", folder=tmp_path, workers=1, progress=False
    )
    rows = done.table().rows()
    assert [row["status"] for row in rows] == ["unavailable", "ran"]
    assert rows[0]["reason"] and rows[0]["copies"] is None and rows[0]["param_pages"] == 0


def test_batches_are_not_too_short(tmp_path):
    done = needless.sweep(
        "cow-reuse", {"pages": range(1, 65)}, "model:6.12", folder=tmp_path, workers=1, progress=False
    )
    began = time.perf_counter()
    _shards.called(done.shards[0].function, done.shards[0].arguments, needless.__version__)
    # 50 ms were asked for; what else the machine does may have made the trial slower.
    assert time.perf_counter() - began > 0.01 or len(done.shards) == 1


def test_a_worker_of_another_version_is_refused():
    with pytest.raises(needless.Error, match="one version"):
        _shards.called(_evidence.litmus_batch, {"test": "pageout-read"}, "0.0.0")


def test_workers_without_what_tasks_need_are_refused():
    _shards._refuse([{"guest": 1}, {}], {"guest": 1})
    _shards._refuse([], {"guest": 1})
    with pytest.raises(needless.Error, match="no worker has the resource `guest`"):
        _shards._refuse([{}, {"tree": 1}], {"guest": 1})


def test_random_scenarios_do_what_they_did_on_real_kernels(root, tmp_path):
    lines = (root / "tests/agreed.tsv").read_text().splitlines()
    rows = lines[0].removeprefix("# seed\t").split("\t")
    known = {int(line.split("\t")[0]): line.split("\t")[1:] for line in lines[1:301]}
    first = min(known)
    for row in ["5.10", "7.3,la57=on"]:
        folder = tmp_path / row
        table = _evidence.digests(first, len(known), f"model:{row}", folder, on=ALONE)
        found = dict(zip(table.column("seed"), table.column("hash"), strict=True))
        assert found == {seed: hashes[rows.index(row)] for seed, hashes in known.items()}


def test_a_table_of_hashes_is_reproduced_from_itself(tmp_path):
    table = _evidence.digests(1, 60, "model:6.12", tmp_path, on=ALONE)
    assert _evidence.differing(table) == []
    rows = table.rows()
    rows[7]["hash"] = "00000000"
    kinds = {"seed": "number", "cpus": "number", "rounds": "number"}
    columns = [
        (name, None, "", kinds.get(name, "text"), [row[name] for row in rows])
        for name in table.column_names
    ]
    odd = _evidence.differing(needless.Table.of("digests", columns))
    assert [row["seed"] for row in odd] == [8]


def test_litmus_tests_are_a_sweep(tmp_path, capsys):
    words = ["litmus", "pageout-read", "cow-stale", "-o", str(tmp_path), "--workers", "1", "--quiet"]
    assert _sweep_command.main(words) == 0
    assert " 0 not as expected" in capsys.readouterr().out
    rows = needless.concatenated(
        [needless.read(path) for path in tmp_path.glob("shards/*.parquet")]
    ).rows()
    assert {row["test"] for row in rows} == {"pageout-read", "cow-stale"}
    assert all(row["schedule"] for row in rows if row["verdict"] == "violated")


def test_progress_tells_rate_and_time_left():
    progress = _shards.Progress(100, 300, None)
    progress.add(100)
    line = progress.line()
    assert line.startswith("200 of 300 points, ") and line.endswith(" s left")


def test_values_are_read():
    assert _sweep_command.values("pages=1,8") == ("pages", [1, 8])
    assert _sweep_command.values("pages=1:9:4") == ("pages", [1, 5])
    assert _sweep_command.seeds("1:101") == (1, 100)
    for wrong in ["pages", "=1", "pages=a", "pages=1:2:3:4"]:
        with pytest.raises(Exception, match="expected NAME"):
            _sweep_command.values(wrong)


def test_batch_jobs_are_described_by_dask_jobqueue():
    from dask_jobqueue import SLURMCluster

    cluster = SLURMCluster(cores=1, memory="2GB", worker_extra_args=["--resources", "guest=1"])
    try:
        script = cluster.job_script()
    finally:
        cluster.close()
    assert "#SBATCH" in script and "guest=1" in script
