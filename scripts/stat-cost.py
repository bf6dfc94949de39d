#!/usr/bin/env python3
"""What `needless stat` costs, by kind of program: each runs without and with it in turn.

usage: scripts/stat-cost.py [-r RUNS] [-k KIND]... [NEEDLESS]...

Medians of the processor time of the program, of the time from its start to its end, and of the time until
`needless stat` has ended. Several binaries are measured in turns as well, so that they can be compared.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

KINDS = {
    "computes": "s = 0\nfor i in range(6_000_000): s += i * i",
    # Some 28 records a round: the budget of 100,000 records a second.
    "faults and frees": "import mmap\n"
    "memory = mmap.mmap(-1, 8 * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    "for round in range(10_000):\n"
    "    for page in range(8): memory[4096 * page] = 1\n"
    "    memory.madvise(mmap.MADV_DONTNEED)\n"
    "    s = 0\n"
    "    for i in range(5_000): s += i",
    "short workers": "import os\n"
    "for i in range(400):\n"
    "    pid = os.fork()\n"
    "    if pid == 0: os._exit(0)\n"
    "    os.waitpid(pid, 0)",
    "starts programs": "import subprocess\nfor i in range(60): subprocess.run(['/bin/true'])",
    "sends to and fro": "import os\n"
    "(a, b), (c, d) = os.pipe(), os.pipe()\n"
    "pid = os.fork()\n"
    "for i in range(20_000):\n"
    "    if pid == 0: os.read(a, 1); os.write(d, b'x')\n"
    "    else: os.write(b, b'x'); os.read(c, 1)\n"
    "if pid == 0: os._exit(0)\n"
    "os.waitpid(pid, 0)",
    "pool, small tasks": "import multiprocessing\n"
    "def work(x): return sum(range(x))\n"
    "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
    "    for _ in range(3): pool.map(work, [200] * 3000, chunksize=1)",
    "pool, copies a list": "import multiprocessing\n"
    "rows = [1000 + i for i in range(1_000_000)]\n"
    "def work(part): return sum(rows[i] for i in range(part, len(rows), 2))\n"
    "with multiprocessing.get_context('fork').Pool(2) as pool: pool.map(work, range(2))",
}


def plain(command):
    """Processor time and time from start to end."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command}: status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - start


def watched(needless, command):
    """The same of the watched program, the time until `stat` has ended, and the records it paid for."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report")
        words = [needless, "stat", "--format", "json", "-o", report, "--", *command]
        _, whole = plain(words)
        with open(report) as file:
            run = json.load(file)["runs"][0]
    if run["events"] is None:
        sys.exit(f"no events: {run['missing']}")
    usage = run["usage"]
    processor = (usage["user_ns"] + usage["system_ns"]) / 1e9
    return processor, run["elapsed_ns"] / 1e9, whole, run["events"]["watching"]["own_records"]


def measure(kind, runs, binaries):
    command = ["/usr/bin/python3", "-c", KINDS[kind]]
    plain(command)
    without, with_ = [], {needless: [] for needless in binaries}
    for _ in range(runs):
        without.append(plain(command))
        for needless in binaries:
            with_[needless].append(watched(needless, command))
    processor, elapsed = (statistics.median(column) for column in zip(*without))
    print(f"{kind}: {processor * 1e3:.0f} ms of processor time, {elapsed * 1e3:.0f} ms")
    for needless, rows in with_.items():
        own, time_, whole, records = (statistics.median(column) for column in zip(*rows))
        print(
            f"  {needless}: processor time {100 * (own / processor - 1):+.0f} %, "
            f"elapsed {100 * (time_ / elapsed - 1):+.0f} %, until stat has ended {1e3 * (whole - elapsed):+.0f} ms; "
            f"{records:.0f} records ({records / time_:.0f}/s), {1e6 * (own - processor) / max(records, 1):.2f} us each",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-r", "--runs", type=int, default=15)
    parser.add_argument("-k", "--kind", action="append", choices=list(KINDS))
    parser.add_argument("needless", nargs="*", default=["target/release/needless"])
    arguments = parser.parse_args()
    for kind in arguments.kind or KINDS:
        measure(kind, arguments.runs, arguments.needless)


if __name__ == "__main__":
    main()
