#!/usr/bin/env python3
"""What policies cost in flushes: sums over scenarios that use swap, in the model.

    scripts/flush-price.py -t model:6.12 refault-flush=install refault-flush=removed-after
    scripts/flush-price.py --random 200 --seed 700000 -t model:6.1 unmap-batch=each

Each policy (comma-separated ones count as one) is set on each row (-t) for every built-in scenario and N
random ones that swap; printed are shootdowns, interrupts and flushes that stay on their CPU, over all
rounds, and what that is against the row alone. `needless` is the one of the release build, or $NEEDLESS.
A scenario that one of them cannot run is left out for all, and counted.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDLESS = os.environ.get("NEEDLESS", ROOT / "target/release/needless")
FIGURES = ["shootdowns", "interrupts", "local_flushes"]


def needless(*words, text=None):
    done = subprocess.run([NEEDLESS, *words], input=text, capture_output=True, text=True)
    if done.returncode not in (0, 1, 3, 121):
        sys.exit(f"needless {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def swaps(text):
    return 'swap "' in text and "pageout" in text


def scenarios(arguments):
    listed = json.loads(needless("scenario", "list", "--format", "json"))["scenarios"]
    # Several built-in ones share a text and differ in their parameters, so these go by name.
    built_in = [(one["name"], None) for one in listed
                if swaps(needless("scenario", "show", one["name"]))]
    seeds = range(arguments.seed, arguments.seed + arguments.random)
    drawn = [("-", needless("scenario", "random", str(seed))) for seed in seeds]
    return built_in, [(name, text) for name, text in drawn if swaps(text)]


def sums(scenario, targets):
    """The figures of each target, or None if one of them cannot run the scenario."""
    name, text = scenario
    words = [word for target in targets for word in ("-t", target)]
    document = json.loads(needless("compare", name, *words, "--format", "json", text=text))
    if any(not target.get("rounds") for target in document["targets"]):
        return None
    return [[sum(target["samples"][name]) for name in FIGURES] for target in document["targets"]]


def table(row, policies, kinds):
    targets = [row] + [f"{row},{policy}" for policy in policies]
    for kind, scenarios_of_kind in kinds:
        found = [sums(scenario, targets) for scenario in scenarios_of_kind]
        run = [figures for figures in found if figures]
        print(f"\n{row}: {len(run)} {kind} scenarios that swap, {len(found) - len(run)} left out\n")
        print("| policy | " + " | ".join(FIGURES).replace("_", " ") + " |")
        print("|---|" + "--:|" * len(FIGURES))
        totals = [[sum(column) for column in zip(*(figures[at] for figures in run))]
                  for at in range(len(targets))]
        for name, total in zip(["as it is", *policies], totals):
            cells = [show(value, before) for value, before in zip(total, totals[0])]
            print(f"| {name} | " + " | ".join(cells) + " |")


def show(value, before):
    change = f" ({(value - before) / before:+.0%})" if before and value != before else ""
    return f"{value}{change}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", metavar="NAME=VALUE[,NAME=VALUE…]")
    parser.add_argument("-t", "--target", action="append", metavar="ROW", required=True)
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=700_000, metavar="S")
    arguments = parser.parse_args()
    built_in, drawn = scenarios(arguments)
    kinds = [("built-in", built_in)] + ([("random", drawn)] if drawn else [])
    for row in arguments.target:
        table(row, arguments.policies, kinds)


if __name__ == "__main__":
    main()
