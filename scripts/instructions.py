#!/usr/bin/env python3
"""Instructions of the model's benchmarks at a commit and now, by callgrind.

    scripts/instructions.py 3c5404f
    scripts/instructions.py 3c5404f cow-reuse fault/reuse

Both are built by this machine's toolchain: the commit in a worktree of its own, which goes away again, "now" is
what lies in this one, committed or not. Each benchmark whose name begins with one of the words (all, without any)
runs once under `valgrind --tool=callgrind`. Printed are instructions for each round, page or access, all of the
program's divided by how many of these there are, and what now is against then. Needs valgrind, and three minutes on
two processors for all. Exit status 1: one costs over 5 % more than it did (--limit).

Profiles stay in target/instructions; `callgrind_annotate target/instructions/now.NAME` reads them.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PLACE = TARGET / "instructions"
# What the figure is for, and how many of it a benchmark does (crates/scenario/benches/model.rs).
ROUND, PAGE, ACCESS = ("round", 200_000), ("page", 512 * 200), ("access", 32_000_000)
BENCHES = {
    "cow-reuse-rounds/5.10": ROUND,
    "cow-reuse-rounds/6.1": ROUND,
    "cow-reuse-rounds/6.12": ROUND,
    "cow-reuse-rounds/7.3": ROUND,
    "fault/reuse-with-two-mprotects": PAGE,
    "fault/two-mprotects-alone": PAGE,
    "fault/first-touch-with-dontneed": PAGE,
    "tlb-hits/range-read-L1": ACCESS,
    "tlb-hits/range-write-L1": ACCESS,
    "tlb-hits/random-read-L1": ACCESS,
    "tlb-hits/random-read-L2": ACCESS,
}


def build(source, name, target):
    """Builds the benchmarks of that tree, in a folder where no other tree is built: cargo would take one's crates for the
    other's. Where they are then."""
    print(f"building {name}", file=sys.stderr)
    command = ["cargo", "bench", "--locked", "--no-run", "-p", "needless-scenario", "--bench", "model"]
    done = subprocess.run([*command, "--message-format=json"], cwd=source, stdout=subprocess.PIPE,
                          text=True, env={**os.environ, "CARGO_TARGET_DIR": str(target)})
    if done.returncode:
        sys.exit(f"{source}: the benchmarks do not build")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    (built,) = [m["executable"] for m in messages if m.get("executable")]
    PLACE.mkdir(parents=True, exist_ok=True)
    return shutil.copy(built, PLACE / name)


def build_commit(commit):
    name = subprocess.run(["git", "rev-parse", "--short", "--verify", f"{commit}^{{commit}}"], cwd=ROOT,
                          check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as place:
        tree = pathlib.Path(place, "tree")
        git = ["git", "-C", ROOT, "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", tree, commit], check=True)
        try:
            return build(tree, name, PLACE / "then")
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)


def instructions(job):
    program, bench = job
    profile = PLACE / f"{program.name}.{bench.replace('/', '-')}"
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}",
         program, "--bench", "--test", "--exact", bench], cwd=PLACE, capture_output=True, text=True)
    # Of the program itself: it starts others (criterion looks for gnuplot).
    counted = re.search(r"==(\d+)== Command: [^$]*==\1== Collected : (\d+)", done.stderr)
    if done.returncode or not counted or f"Testing {bench}\nSuccess" not in done.stdout:
        sys.exit(f"{program} {bench}: {done.stdout}{done.stderr}")
    what, number = BENCHES[bench]
    each = int(counted[2]) / number
    print(f"{program.name} {bench}: {each:.1f} a {what}", file=sys.stderr)
    return each


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what is measured against")
    parser.add_argument("names", nargs="*", help="benchmarks whose names begin so; all, without any")
    parser.add_argument("--limit", type=float, default=5, help="percent that each may cost more (5)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side")
    arguments = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("there is no valgrind: apt-get install valgrind")
    names = [name for name in BENCHES if not arguments.names or name.startswith(tuple(arguments.names))]
    if not names:
        parser.error("no benchmark's name begins so; there are " + ", ".join(BENCHES))
    programs = [pathlib.Path(build_commit(arguments.commit)), pathlib.Path(build(ROOT, "now", TARGET))]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = [(program, name) for name in names for program in programs]
        counts = list(pool.map(instructions, jobs))
    over = 0
    print(f"| benchmark | instructions for each | {programs[0].name} | now | |\n|---|---|--:|--:|--:|")
    for name, before, now in zip(names, counts[::2], counts[1::2]):
        digits = 1 if before < 1000 else 0
        percent = (now / before - 1) * 100
        over += percent > arguments.limit
        print(f"| `{name}` | {BENCHES[name][0]} | {before:,.{digits}f} | {now:,.{digits}f} | {percent:+.1f} % |")
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
