#!/usr/bin/env python3
"""What each reduction of the checker is worth: the table of docs/checker.md.

    scripts/factors.py                          the cases below
    scripts/factors.py zero-cow model:6.12      one case: scenario, row, parameters (NAME=VALUE)

Each case is explored with none of the reductions, with one of them, and with those that go
together. Printed are states, steps, seconds, and the most memory that the process had. `needless`
is the one of the release build, or $NEEDLESS. Verdicts that differ end the script with status 1: a
reduction may change none.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDLESS = os.environ.get("NEEDLESS", ROOT / "target/release/needless")
CASES = [
    ("pageout-write", "model:6.1"),
    ("mremap-move", "model:6.12"),
    ("batch-two", "model:6.12"),
    ("tests/large/zero-cow-many.kdl", "model:6.12"),
    ("tests/large/zero-cow-many.kdl", "model:6.12", "cpus=5"),
    ("mprotect-reclaim", "model:6.12", "cpus=3"),
    ("pending-join", "model:6.12+pending-cleared"),
]
# By name: the options. Persistent sets take the place of sleep sets (docs/checker.md).
REDUCTIONS = {
    "none": ["--without=sleep-sets", "--without=symmetry"],
    "sleep sets": ["--without=symmetry"],
    "symmetry": ["--without=sleep-sets"],
    "persistent sets": ["--persistent-sets", "--without=symmetry"],
    "sleep sets, symmetry": [],
    "persistent sets, symmetry": ["--persistent-sets"],
    "sleep sets, nothing recalled": ["--without=recall"],
}
HEADER = ["case", "row", "reductions", "states", "steps", "seconds", "MiB"]


def explored(case, options):
    """The report, the seconds, and the most memory in MiB."""
    scenario, row, *parameters = case
    words = [NEEDLESS, "check", scenario, "-t", row, "--jobs", "1", "--format", "json", *options]
    words += [word for parameter in parameters for word in ("--set", parameter)]
    start = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT)
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1, 3):
        sys.exit(f"{' '.join(map(str, words))}: status {os.waitstatus_to_exitcode(status)}")
    return json.loads(printed)["reports"][0], seconds, used.ru_maxrss // 1024


def name(scenario, *parameters):
    return " ".join([f"`{pathlib.Path(scenario).stem}`", *parameters])


def found(report):
    """What no reduction may change."""
    counterexample = report["counterexample"] or {"violation": {"property": None}, "steps": []}
    return report["verdict"], counterexample["violation"]["property"], len(counterexample["steps"])


def row(cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def main():
    cases = [tuple(sys.argv[1:])] if len(sys.argv) > 2 else CASES
    row(HEADER)
    row(["---"] * 3 + ["--:"] * (len(HEADER) - 3))
    differ = []
    for case in cases:
        scenario, target, *parameters = case
        verdicts = set()
        for reductions, options in REDUCTIONS.items():
            report, seconds, memory = explored(case, options)
            bounded = "more than " if report["verdict"] == "inconclusive" else ""
            if not bounded:
                verdicts.add(found(report))
            cells = [f"{bounded}{report['states']}", report["steps"], f"{seconds:.1f}", memory]
            row([name(scenario, *parameters), f"`{target}`", reductions, *cells])
        if len(verdicts) > 1:
            differ.append(f"{' '.join(case)}: {verdicts}")
    if differ:
        sys.exit("\n".join(differ))


main()
