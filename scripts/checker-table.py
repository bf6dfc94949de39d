#!/usr/bin/env python3
"""checker-table.py: brings the figures in docs/litmus-catalogue.md's table of litmus tests up to date.

Reads `needless check --catalogue --format json` from standard input. States are those of the rows on which a test
holds as expected, steps those of each counterexample that the table names. With --check nothing is written; status 1 says
that figures are not those of the document.
"""
import json
import pathlib
import re
import sys

DOCUMENT = pathlib.Path(__file__).parent.parent / "docs" / "litmus-catalogue.md"
STEPS = re.compile(r"`([^`]+)` (P\d+|R), \d+ steps|([\w.+/,=-]+) (P\d+|R), \d+ steps")


def states(reports):
    """The fewest and the most."""
    found = sorted(report["states"] for report in reports if report["expected"] == "holds")
    if not found:
        return None
    return str(found[0]) if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def row(line, of):
    """The line with its figures."""
    cells = line.split(" | ")
    name = cells[0].removeprefix("| `").rstrip("`")
    reports = of.get(name)
    if reports is None or len(cells) < 4:
        return line
    length = {
        r["target"].removeprefix("model:"): len(r["counterexample"]["steps"])
        for r in reports
        if r["counterexample"]
    }
    holding = states(reports)
    if holding and re.fullmatch(r"\d+( to \d+)?", cells[2].strip()):
        cells[2] = holding

    def step(match):
        target = match[1] or match[3]
        prop = match[2] or match[4]
        if target not in length:
            return match[0]
        quoted = f"`{target}`" if match[1] else target
        return f"{quoted} {prop}, {length[target]} steps"

    cells[3:] = [STEPS.sub(step, cell) for cell in cells[3:]]
    return " | ".join(cells)


def main():
    of = {}
    for report in json.load(sys.stdin)["reports"]:
        of.setdefault(report["scenario"], []).append(report)
    old = DOCUMENT.read_text()
    new = "\n".join(row(line, of) if line.startswith("| `") else line for line in old.split("\n"))
    if new != old and "--check" in sys.argv:
        sys.exit("docs/litmus-catalogue.md has other figures: scripts/checker-table.py < catalogue.json")
    DOCUMENT.write_text(new)


main()
