#!/usr/bin/env python3
"""Checks the licence of every dependency against a list (docs/decisions/0001-licence-check.md)."""

import json
import re
import subprocess
import sys

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}


# Under another licence for a reason, and linked with nothing else of the project.
APART = {
    # Loaded into QEMU, whose plugin interface it uses: crates/qemu-plugin/LICENSE.
    "needless-qemu-plugin": "GPL-2.0-or-later",
}


def allowed(expression):
    """Whether an SPDX expression can be met with allowed licences alone."""
    tokens = re.findall(r"[()]|[^\s()/]+|/", expression)
    place = 0

    def peek():
        return tokens[place] if place < len(tokens) else None

    def take():
        nonlocal place
        place += 1
        return tokens[place - 1]

    def term():
        if peek() == "(":
            take()
            met = either()
            if peek() != ")":
                raise ValueError(expression)
            take()
            return met
        name = take()
        if peek() == "WITH":
            take()
            name = f"{name} WITH {take()}"
        return name in ALLOWED

    def both():
        met = term()
        while peek() == "AND":
            take()
            met = term() and met
        return met

    def either():
        met = both()
        while peek() in ("OR", "/"):
            take()
            met = both() or met
        return met

    met = either()
    if place != len(tokens):
        raise ValueError(expression)
    return met


# The Python package is a workspace of its own.
MANIFESTS = ["Cargo.toml", "python/Cargo.toml"]


def packages():
    """All packages that anything is built of, each once."""
    found = {}
    for manifest in MANIFESTS:
        command = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", manifest]
        metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        found |= {package["id"]: package for package in metadata["packages"]}
    return list(found.values())


def main():
    refused = []
    listed = packages()
    for package in listed:
        licence = package.get("license")
        apart = [d["name"] for d in package["dependencies"] if d["name"] in APART]
        refused += [f"{package['name']}: depends on {name}" for name in apart]
        if APART.get(package["name"], "") == licence:
            continue
        try:
            good = bool(licence) and allowed(licence)
        except (ValueError, IndexError):
            good = False
        if not good:
            refused.append(f"{package['name']} {package['version']}: {licence or 'no licence given'}")
        source = package.get("source")
        if source and not source.startswith("registry+"):
            refused.append(f"{package['name']} {package['version']}: comes from {source}")
    for line in refused:
        print(f"licence not allowed: {line}", file=sys.stderr)
    print(f"licences: {len(listed)} packages, {len(refused)} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    assert allowed("MIT OR GPL-3.0") and not allowed("MIT AND GPL-3.0")
    assert allowed("(MIT OR Apache-2.0) AND Unicode-3.0") and not allowed("GPL-3.0-only")
    sys.exit(main())
