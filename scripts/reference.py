#!/usr/bin/env python3
"""reference.py PROGRAM FOLDER: writes the reference pages that the program prints (verbs, policies, counters,
scenarios) into FOLDER/reference, and names them in FOLDER/SUMMARY.md."""
import json
import os.path
import pathlib
import re
import subprocess
import sys
import tempfile


def printed(program, *words):
    """What the command prints."""
    environment = {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
    return subprocess.run(
        [program, *words], check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout


def cell(text):
    """Text in a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def verbs(program):
    """The help of the command and of each verb, which its manual pages name."""
    with tempfile.TemporaryDirectory() as folder:
        printed(program, "man", folder)
        names = sorted(page.stem for page in pathlib.Path(folder).iterdir())
    page = ""
    for name in names:
        words = name.split("-")[1:]
        text = printed(program, *words, "--help")
        page += f"## `{' '.join(('needless', *words))}`\n\n```text\n{text.rstrip()}\n```\n\n"
    return page


def policies(program):
    """Each policy with its values and the rows that have them."""
    found = json.loads(printed(program, "policies", "--format", "json"))
    page = ""
    for policy in found["policies"]:
        name = policy["name"]
        page += f"## {name}\n\n{cell(policy['summary'])}\n\n| value | meaning | rows |\n|---|---|---|\n"
        for value, meaning in policy["values"].items():
            rows = [row["name"] for row in found["kernels"] if row["policies"].get(name) == value]
            page += f"| `{value}` | {cell(meaning)} | {', '.join(rows)} |\n"
        page += f"\nSource: {cell(policy['source'])}\n\n"
    return page


def counters(program):
    """Each counter with its unit and meaning."""
    run = printed(program, "run", "cow-reuse", "-t", "model:7.3", "--format", "json")
    page = "| counter | unit | meaning |\n|---|---|---|\n"
    for name, counter in json.loads(run)["counters"].items():
        page += f"| `{name}` | {cell(counter['unit'])} | {cell(counter['doc'])} |\n"
    return page


def scenarios(program):
    """The built-in scenarios and litmus tests."""
    found = json.loads(printed(program, "scenario", "list", "--format", "json"))
    page = ""
    for heading, kind in (("Scenarios", "scenarios"), ("Litmus tests", "litmus")):
        page += f"## {heading}\n\n| name | about |\n|---|---|\n"
        for scenario in found[kind]:
            page += f"| `{scenario['name']}` | {cell(scenario['doc'])} |\n"
        page += "\n"
    return page


def linked(text, at):
    """The text with the site's links: without those that lead to other files of the repository, and with the
    name that mdBook gives to a folder's README."""

    def kept(match):
        target = os.path.normpath(os.path.join(at, match[2].split("#")[0]))
        return match[1] if target.startswith("..") else match[0].replace("README.md", "index.md")

    return re.sub(r"\[([^]]*)\]\(([^)\s]+)\)", kept, text)


PAGES = (
    ("verbs", "Verbs and options", verbs),
    ("policies", "Kernel policies", policies),
    ("counters", "Counters", counters),
    ("scenarios", "Built-in scenarios", scenarios),
)


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    (folder / "reference").mkdir(exist_ok=True)
    for page in folder.rglob("*.md"):
        if page.name != "SUMMARY.md":
            at = os.path.relpath(page.parent, folder)
            page.write_text(linked(page.read_text(), at))
    summary = (folder / "SUMMARY.md").read_text()
    lines = ""
    for name, title, page in PAGES:
        text = f"# {title}\n\nPrinted by the program.\n\n{page(program)}"
        (folder / "reference" / f"{name}.md").write_text(text)
        lines += f"- [{title}](reference/{name}.md)\n"
    before, after = summary.split("\n# Explanation\n")
    (folder / "SUMMARY.md").write_text(f"{before.rstrip()}\n{lines}\n# Explanation\n{after}")


main()
