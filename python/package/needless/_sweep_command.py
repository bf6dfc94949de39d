"""The command ``needless-sweep``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from needless import _evidence
from needless._errors import Error, InputError
from needless._evidence import Workers
from needless._needless import VERSION, Table, read
from needless._sweep import sweep

_EXAMPLES = """examples:
  needless-sweep points cow-reuse --over pages=1:65 --over threads=1,2 -t model:5.10 -t model:6.12 -o sweep
  needless-sweep digests --seeds 1:100001 -t model:7.3 -o digests
  needless-sweep agree -t kernel:6.12 --seeds 1:1001 -o agree --scheduler tcp://head:8786
  needless-sweep litmus -o litmus
  duckdb -c "SELECT param_pages, target, copies FROM 'sweep/shards/*.parquet'"

A sweep that was killed goes on when it is started again with the same arguments."""

#: Exit statuses, as those of `needless`.
_DIFFERENCE, _USAGE, _OTHER = 1, 2, 125


def values(text: str) -> tuple[str, list[int]]:
    """``pages=1,8,64`` or ``pages=1:65``, or with a step ``pages=1:65:8``: the end is left out."""
    name, _, told = text.partition("=")
    try:
        if ":" in told:
            numbers = [int(number) for number in told.split(":")]
            if not name or len(numbers) > 3:
                raise ValueError
            return name, list(range(*numbers))
        if not name:
            raise ValueError
        return name, [int(number) for number in told.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            "expected NAME=1,8,64 or NAME=FIRST:END or NAME=FIRST:END:STEP"
        ) from None


def seeds(text: str) -> tuple[int, int]:
    """``1:101``: the first seed, and how many."""
    first, _, end = text.partition(":")
    if not first.isdigit() or not end.isdigit() or int(end) <= int(first):
        raise argparse.ArgumentTypeError("expected FIRST:END, the end left out, as in 1:101")
    return int(first), int(end) - int(first)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="needless-sweep",
        description="Runs many scenarios of Needless on many workers; results are Parquet files.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"needless-sweep {VERSION}")
    verbs = top.add_subparsers(dest="verb", required=True)

    def verb(name: str, told: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=told, description=told)
        made.add_argument(
            "-o", "--output", required=True, metavar="DIR", help="the folder of this sweep"
        )
        where = made.add_mutually_exclusive_group()
        where.add_argument(
            "--scheduler", metavar="ADDRESS", help="a Dask scheduler, as in tcp://head:8786"
        )
        where.add_argument(
            "--jobqueue", choices=["slurm"], help="workers are batch jobs (dask-jobqueue)"
        )
        made.add_argument(
            "--workers", type=int, metavar="N", help="processes or jobs; one for each CPU"
        )
        made.add_argument("--quiet", action="store_true", help="say nothing meanwhile")
        return made

    def target(made: argparse.ArgumentParser, told: str) -> None:
        made.add_argument(
            "-t", "--target", action="append", required=True, metavar="TARGET", help=told
        )

    points = verb("points", "a scenario with all combinations of some parameters' values")
    points.add_argument("scenario", help="a built-in scenario's name, or a file")
    points.add_argument(
        "--over",
        type=values,
        action="append",
        required=True,
        metavar="NAME=VALUES",
        help="values of a parameter: 1,8,64 or 1:65 or 1:65:8 (repeatable)",
    )
    target(points, "a row of the model (repeatable)")
    points.add_argument("--rounds", type=int, metavar="N", help="rounds that count")
    random = verb("digests", "random scenarios in the model, as hashes of what they did")
    random.add_argument("--seeds", type=seeds, required=True, metavar="FIRST:END")
    random.add_argument("-t", "--target", required=True, help="a row of the model")
    random.add_argument("--cpus", type=int, default=3, metavar="N", help="of the machine")
    random.add_argument(
        "--against", metavar="FILE", help="a table of the same seeds: status 1 if a hash differs"
    )
    agree = verb("agree", "random scenarios on real kernels, held against their rows")
    target(agree, "a real kernel: kernel:6.12 (repeatable)")
    agree.add_argument("--seeds", type=seeds, required=True, metavar="FIRST:END")
    litmus = verb("litmus", "litmus tests on every row that they name")
    litmus.add_argument("tests", nargs="*", help="by default all of the catalogue")
    mutants = verb("mutants", "which mistakes in the model does no test notice?")
    mutants.add_argument("--tree", default=".", help="a clone that every worker's machine has")
    return top


def _tell(text: str) -> None:
    sys.stdout.write(text + "\n")


def _counts(table: Table, column: str) -> str:
    counts = Counter(table.column(column))
    return ", ".join(f"{count:,} {word}" for word, count in sorted(counts.items()))


def _points(told: argparse.Namespace) -> int:
    over: dict[str, list[int]] = {}
    for name, numbers in told.over:
        over.setdefault(name, []).extend(numbers)
    done = sweep(
        told.scenario,
        over,
        told.target,
        folder=told.output,
        rounds=told.rounds,
        scheduler=told.scheduler,
        workers=told.workers,
        jobqueue=told.jobqueue,
        progress=not told.quiet,
    )
    table = done.table()
    _tell(f"{len(table):,} rows in {done.files}: {_counts(table, 'status')}")
    return 0


def _digests(told: argparse.Namespace, on: Workers) -> int:
    first, count = told.seeds
    table = _evidence.digests(first, count, told.target, told.output, cpus=told.cpus, on=on)
    _tell(f"{len(table):,} scenarios, {table.column('reason').count(None):,} of them ran")
    if told.against is None:
        return 0
    known = dict(zip(*(read(told.against).column(name) for name in ("seed", "hash")), strict=True))
    pairs = zip(table.column("seed"), table.column("hash"), strict=True)
    odd = [seed for seed, found in pairs if known.get(seed) != found]
    _tell(f"{len(odd):,} differ from {told.against}: {', '.join(map(str, odd[:20]))}")
    return _DIFFERENCE if odd else 0


def _agree(told: argparse.Namespace, on: Workers) -> int:
    first, count = told.seeds
    table = _evidence.agree(told.target, first, count, told.output, on=on)
    _tell(_counts(table, "standing"))
    for row in table.rows():
        if row["standing"] == "differing":
            _tell(f"differs on {row['target']}: {row['scenario']}")
    return _DIFFERENCE if "differing" in table.column("standing") else 0


def _litmus(told: argparse.Namespace, on: Workers) -> int:
    table = _evidence.litmus(told.output, told.tests or None, on=on)
    odd = [row for row in table.rows() if not row["as_expected"]]
    _tell(f"{len(table):,} cases, {len(odd)} not as expected")
    for row in odd:
        _tell(f"{row['test']} on {row['target']}: {row['unexpected']}")
    return _DIFFERENCE if odd else 0


def _mutants(told: argparse.Namespace, on: Workers) -> int:
    table = _evidence.mutants(told.tree, told.output, on=on)
    odd = [row["mistake"] for row in table.rows() if not row["as_listed"]]
    noticed = table.column("noticed").count(True)
    _tell(f"{len(table):,} mistakes, {noticed:,} noticed, {len(odd)} not as listed")
    for mistake in odd:
        _tell(f"not as listed: {mistake}")
    return _DIFFERENCE if odd else 0


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit status."""
    told = parser().parse_args(words)
    on = Workers(told.scheduler, told.workers, told.jobqueue, not told.quiet)
    verbs = {"digests": _digests, "agree": _agree, "litmus": _litmus, "mutants": _mutants}
    try:
        return _points(told) if told.verb == "points" else verbs[told.verb](told, on)
    except Error as error:
        sys.stderr.write(f"{error}\n")
        return error.status or (_USAGE if isinstance(error, InputError) else _OTHER)


if __name__ == "__main__":
    sys.exit(main())
