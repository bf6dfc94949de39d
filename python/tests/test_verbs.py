"""Runs, comparisons, explanations and checks."""

from __future__ import annotations

import json
import subprocess
import threading
import time

import needless
import pytest


def test_a_comparison_is_that_of_the_command(command):
    words = ["compare", "cow-reuse", "--rounds", "4", "-t", "model:5.10", "-t", "model:6.12"]
    told = subprocess.run(
        [command, *words, "--format", "json"], capture_output=True, check=True
    )
    document = json.loads(told.stdout)
    samples = {target["target"]: target.pop("samples") for target in document["targets"]}
    ours = needless.compare("cow-reuse", ["model:5.10", "model:6.12"], rounds=4)
    assert ours.document == document
    for name, counters in samples.items():
        rows = [row for row in ours.table.rows() if row["target"] == name]
        assert [row["copies"] for row in rows] == counters["copies"]


def test_the_text_is_that_of_the_command(command):
    words = ["compare", "cow-reuse", "-t", "model:5.10", "-t", "model:6.12"]
    told = subprocess.run(
        [command, *words],
        capture_output=True,
        text=True,
        check=True,
        env={"LC_ALL": "C.UTF-8", "COLUMNS": "100", "PATH": ""},
    )
    ours = str(needless.compare("cow-reuse", ["model:5.10", "model:6.12"]))
    assert ours.strip() == told.stdout.split("\nnext: ")[0].strip()


def test_what_no_kernel_has_is_unavailable_and_says_why():
    found = needless.compare("c_pagemap_scan", ["model:5.10", "model:7.3"], rounds=2)
    rows = found.table.rows()
    lacking = [row for row in rows if row["target"] == "model:5.10"]
    assert [row["status"] for row in lacking] == ["unavailable"]
    assert lacking[0]["reason"] and lacking[0]["round"] is None and lacking[0]["faults"] is None
    assert {row["status"] for row in rows if row["target"] == "model:7.3"} == {"ran"}


def test_a_policy_can_be_changed_as_data():
    row = next(row for row in needless.rows() if row.name == "5.10")
    assert row.policies["reuse"] == "page-count"
    changed = needless.compare("cow-reuse", [row.target, row.with_(reuse="exclusive-drain")], rounds=2)
    assert [figures["copies"] for figures in changed.per_round.values()] == [1, 0]
    explained = changed.steps[0]["changes"][0]["explanation"]
    assert explained["policies"][0]["policy"] == "reuse"


def test_events_are_kept_if_asked_for():
    assert needless.run("cow-reuse", "model:5.10", rounds=2).events is None
    events = needless.run("cow-reuse", "model:5.10", rounds=2, events=True).events
    assert events is not None
    copies = [row for row in events.rows() if row["kind"] == "copy"]
    assert [row["round"] for row in copies] == [0, 1]
    assert all(row["needless"] for row in copies)


def test_a_round_is_explained():
    told = needless.explain("cow-reuse", "model:5.10", round=1)
    assert told.table is not None
    assert len(told.events) == len(told.table)
    assert "NEEDLESS" in str(told)
    with pytest.raises(needless.InputError, match="no round 5"):
        needless.explain("cow-reuse", "model:5.10", round=5, set={"rounds": 2})


def test_a_mutant_fails_and_its_schedule_can_be_followed():
    target = "model:6.12,mutant=unmap-not-flushed"
    (report,) = needless.check("pageout-read", target)
    assert report.verdict == "violated"
    assert report.counterexample["violation"]["property"] == "P1"
    followed = needless.replay("pageout-read", target, report.counterexample["schedule"])
    assert followed.violation == report.counterexample["violation"]
    assert followed.steps == report.counterexample["steps"]


def test_a_litmus_test_is_as_it_says():
    reports = needless.check("pageout-read")
    assert len(reports) > 3
    assert all(report.unexpected == () for report in reports)
    assert {report.expected for report in reports} > {"holds"}
    with pytest.raises(needless.InputError, match="litmus"):
        needless.check("cow-reuse")


def test_a_bound_is_no_verdict():
    (report,) = needless.check("pageout-read", "model:5.10", max_states=10)
    assert report.verdict == "inconclusive"
    with pytest.raises(needless.InputError):
        needless.check("pageout-read", "model:5.10", key_bits=8)


def test_the_model_runs_without_the_gil():
    ticks = 0
    done = threading.Event()

    def tick():
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    other = threading.Thread(target=tick)
    other.start()
    before = ticks
    needless.run("cow-reuse", "model:6.12", rounds=20_000)
    seen = ticks - before
    done.set()
    other.join()
    # Held, the GIL would let the other thread run at the end alone.
    assert seen > 5


def test_real_kernels_need_the_command(monkeypatch):
    monkeypatch.delenv("NEEDLESS_COMMAND", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(needless.Error) as caught:
        needless.run("cow-reuse", "live")
    assert "NEEDLESS_COMMAND" in caught.value.remedy
    # A mistake in the scenario is told before.
    with pytest.raises(needless.InputError):
        needless.run("cow-reuse", "live", set={"pages": 0})


def test_the_command_runs_what_is_no_row(command, monkeypatch):
    monkeypatch.setenv("NEEDLESS_COMMAND", command)
    mixed = needless.compare("cow-reuse", ["live", "model:6.12"], rounds=2, events=True)
    assert mixed.targets == ["live", "model:6.12"]
    model = [row for row in mixed.table.rows() if row["target"] == "model:6.12"]
    assert [row["faults"] for row in model] == [1, 1]
    live = [row for row in mixed.table.rows() if row["target"] == "live"]
    assert live[0]["status"] == "ran" or live[0]["reason"]
    assert mixed.events is not None and "copy" not in mixed.events.column("kind")
    with pytest.raises(needless.InputError):
        needless.run("cow-reuse", "kernel:1.0")
