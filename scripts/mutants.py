#!/usr/bin/env python3
"""Does a test notice? Applies each mistake of a kept list (tests/mutants.toml) to the model and the
checker, runs their tests on it, and prints which mistakes nothing noticed.

    scripts/mutants.py                  every mistake
    scripts/mutants.py ID…              these
    scripts/mutants.py --list           what is on the list
    scripts/mutants.py --jobs 1         one at a time (default: one for each CPU)

All mistakes are built at once: in a copy of the sources each place reads "if this mistake was chosen,
the new text, else the old one", and the environment chooses. One that is no expression or statement
(`build = true`) gets a build of its own. Suites run in the order of what they cost; the first that fails,
or does not come to an end, has noticed. Exit status: 0 if all is as the list says, else 1.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/mutants.toml"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
COPY = TARGET / "mutants"
# Not the tree's own: cargo tells units of a workspace by their paths in it, would take the copy's for the tree's
# afterwards, and would go on testing the copy.
BUILD = TARGET / "mutants-build"

PACKAGES = ["needless-model", "needless-scenario", "needless-check"]
# (package, test binary, libtest arguments): cheap ones that notice much come first. State counts are
# pinned to be explained when they change; they do not count as noticing.
SUITES = [
    ("needless-scenario", "all", ["captures::"]),
    ("needless-scenario", "all", ["regressions::"]),
    ("needless-scenario", "all", ["references::"]),
    ("needless-scenario", "all", ["fork::"]),
    ("needless-scenario", "all", ["shared::"]),
    ("needless-scenario", "all", ["files::"]),
    ("needless-scenario", "all", ["disks::"]),
    ("needless-scenario", "all", ["mlock::"]),
    ("needless-scenario", "all", ["pins::"]),
    ("needless-model", "needless_model", []),
    ("needless-check", "needless_check", []),
    ("needless-check", "trust", ["catalogue::", "--skip", "state_counts_are_pinned"]),
    ("needless-scenario", "all", ["model::"]),
    ("needless-scenario", "all", ["agreed::"]),
    ("needless-scenario", "all", ["verdicts::"]),
    ("needless-check", "operations", []),
    ("needless-check", "trust", ["--skip", "catalogue::"]),
]

# Seconds after which a suite that uses no processor time is given up.
STUCK = 3 * 3600

FAILED = re.compile(r"test (\S+) \.\.\. FAILED$")

CHOOSER = """//! Which mistake was chosen.

/// Whether it is number `id`.
#[inline]
pub fn is(id: u32) -> bool {
    static CHOSEN: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
        std::env::var("NEEDLESS_MISTAKE").ok().and_then(|id| id.parse().ok()).unwrap_or(0)
    });
    *CHOSEN == id
}
"""


class ListError(Exception):
    """The list does not fit the sources."""


def load():
    mistakes = tomllib.loads(LIST.read_text())["mistake"]
    for number, mistake in enumerate(mistakes, 1):
        mistake["number"] = number
        unknown = set(mistake) - {"id", "file", "at", "new", "what", "build", "survives", "number", "from"}
        missing = {"id", "file", "at", "new", "what"} - set(mistake)
        if unknown or missing:
            raise ListError(f"mistake {number}: unknown keys {unknown}, missing keys {missing}")
        if not re.fullmatch(r"[^⟦⟧]*⟦[^⟦⟧]*⟧[^⟦⟧]*", mistake["at"]):
            raise ListError(f"{mistake['id']}: `at` has to mark one place by ⟦ and ⟧")
    ids = [mistake["id"] for mistake in mistakes]
    twice = {id for id in ids if ids.count(id) > 1}
    if twice:
        raise ListError(f"more than once on the list: {', '.join(twice)}")
    return mistakes


def place(mistake, text):
    """Where the old text begins and ends in the file's text."""
    before, old, _ = re.split("[⟦⟧]", mistake["at"])
    whole = re.sub("[⟦⟧]", "", mistake["at"])
    if text.count(whole) != 1:
        raise ListError(
            f"{mistake['id']}: {text.count(whole)} places in {mistake['file']} read\n{whole}\n"
            "the list has to follow the sources: one place"
        )
    start = text.index(whole) + len(before)
    return start, start + len(old)


def chosen(mistake, old):
    """Old and new text as one expression or statement."""
    crate = "crate" if mistake["file"].startswith("crates/model/") else "needless_model"
    asked = f"if {crate}::mutants::is({mistake['number']})"
    new = mistake["new"]
    if old.rstrip().endswith((";", "}")) and not old.lstrip().startswith("match"):
        return f"{asked} {{ {new} }} else {{ {old} }}"
    return f"({asked} {{ {new} }} else {{ {old} }})"


def with_mistakes(mistakes):
    """The texts of the files with every mistake that can be chosen at run time."""
    texts = {}
    for file in {mistake["file"] for mistake in mistakes}:
        text = (ROOT / file).read_text()
        here = [(*place(m, text), m) for m in mistakes if m["file"] == file]
        here = [(start, end, m) for start, end, m in here if not m.get("build")]
        here.sort(key=lambda entry: (entry[0], -entry[1]), reverse=True)
        # From the last to the first. A place inside another one was changed before: the outer one has it.
        done = []
        for start, end, mistake in here:
            grown = sum(length for at, length in done if start <= at < end)
            old = text[start : end + grown]
            new = chosen(mistake, old)
            text = text[:start] + new + text[end + grown :]
            done.append((start, len(new) - len(old)))
        texts[file] = text
    return texts


def write(path, text):
    """Only if it changed, so that nothing is built in vain."""
    if not path.exists() or path.read_bytes() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def copy_sources(changed):
    listed = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout
    names = {name for name in files.decode().split("\0") if name and (ROOT / name).is_file()}
    names |= set(changed)
    for old in COPY.rglob("*"):
        if old.is_file() and str(old.relative_to(COPY)) not in names:
            old.unlink()
    for name in names:
        write(COPY / name, changed[name] if name in changed else (ROOT / name).read_bytes())


def build():
    """The test binaries: (package, target) to path."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
    command += [arg for package in PACKAGES for arg in ("-p", package)]
    tests = {target for _, target, _ in SUITES if "_" not in target}
    command += ["--lib", *(arg for target in sorted(tests) for arg in ("--test", target))]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILD)}
    built = subprocess.run(command, cwd=COPY, env=environment, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        raise ListError("the copy with the mistakes does not compile")
    binaries = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            package = pathlib.Path(message["manifest_path"]).parent
            name = next(p for p in PACKAGES if p.endswith(f"-{package.name}"))
            binaries[name, message["target"]["name"]] = (message["executable"], package)
    return binaries


def suites(binaries):
    """(name, path, package's folder, arguments) of each suite in its order."""
    name = "{} {}".format
    return [(name(p.removeprefix("needless-"), t), *binaries[p, t], arguments) for p, t, arguments in SUITES]


def run(suite, number, limit):
    """None if the suite passes, else which test failed first."""
    _, path, folder, arguments = suite
    environment = {
        **os.environ,
        "NEEDLESS_MISTAKE": str(number),
        "CARGO_MANIFEST_DIR": str(folder),
        "INSTA_UPDATE": "no",
        "RUST_BACKTRACE": "0",
    }
    process = subprocess.Popen(
        ["prlimit", f"--cpu={limit}", "--core=0", path, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    # The first that fails is enough.
    timer = threading.Timer(STUCK, process.kill)
    timer.start()
    failed = next(filter(None, (FAILED.match(line) for line in process.stdout)), None)
    in_time = timer.is_alive()
    timer.cancel()
    if failed:
        process.kill()
    process.stdout.close()
    status = process.wait()
    if failed:
        return failed.group(1)
    if not in_time:
        return f"no end after {STUCK} s"
    if status == -signal.SIGXCPU:
        return f"no end after {limit} s of processor time"
    return f"ended with {status}" if status else None


def noticed(listed, number, limits):
    """Which suite and test notice, or None."""
    for suite, limit in zip(listed, limits):
        failed = run(suite, number, limit)
        if failed is not None:
            return f"{suite[0]}: {failed}"
    return None


def limits_of(listed):
    """How much processor time each suite may take, in seconds: much more than without a mistake.
    Processor time, because what else the machine does must not decide what is noticed."""
    limits = []
    for suite in listed:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        failed = run(suite, 0, STUCK)
        if failed is not None:
            raise ListError(f"{suite[0]}: {failed} fails without any mistake")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{took:6.1f} s of processor time  {suite[0]} {' '.join(suite[3])}", flush=True)
        limits.append(round(60 + 10 * took))
    return limits


def judge(mistakes, jobs):
    """Runs the suites on each mistake; those that are not as the list says."""
    texts = with_mistakes(mistakes) | {"crates/model/src/mutants.rs": CHOOSER}
    for crate, more in [("model", "pub mod mutants;\n"), ("check", "")]:
        library = f"crates/{crate}/src/lib.rs"
        text = texts.get(library, (ROOT / library).read_text())
        texts[library] = f"#![allow(warnings)]\n{text}{more}"
    texts = {name: text.encode() for name, text in texts.items()}
    copy_sources(texts)
    listed = suites(build())
    limits = limits_of(listed)
    unexpected = []

    def told(mistake, by):
        expected = mistake.get("survives")
        as_listed = (by is None) == (expected is not None)
        word = "noticed " if by else "SURVIVED"
        note = "" if as_listed else "  <- not as listed"
        print(f"{word}  {mistake['id']:26}  {by or expected or mistake['what']}{note}", flush=True)
        if not as_listed:
            unexpected.append(mistake["id"])
        return by is not None

    caught = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        chosen_at_run_time = [m for m in mistakes if not m.get("build")]
        running = {pool.submit(noticed, listed, m["number"], limits): m for m in chosen_at_run_time}
        for future in concurrent.futures.as_completed(running):
            caught += told(running[future], future.result())
    for mistake in (m for m in mistakes if m.get("build")):
        text = (ROOT / mistake["file"]).read_text()
        start, end = place(mistake, text)
        changed = {**texts, mistake["file"]: (text[:start] + mistake["new"] + text[end:]).encode()}
        copy_sources(changed)
        caught += told(mistake, noticed(suites(build()), 0, limits))
    survived = len(mistakes) - caught
    print(f"{len(mistakes)} mistakes: {caught} noticed, {survived} survived, {len(unexpected)} not as listed")
    return unexpected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these mistakes")
    parser.add_argument("--list", action="store_true", help="print the list and stop")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="so many at a time")
    options = parser.parse_args()
    mistakes = load()
    unknown = set(options.ids) - {mistake["id"] for mistake in mistakes}
    if unknown:
        raise ListError(f"not on the list: {', '.join(sorted(unknown))}")
    for mistake in mistakes:
        place(mistake, (ROOT / mistake["file"]).read_text())
    if options.list:
        for mistake in mistakes:
            print(f"{mistake['id']:26}  {mistake['file']:36}  {mistake['what']}")
        return 0
    wanted = [m for m in mistakes if not options.ids or m["id"] in options.ids]
    return 1 if judge(wanted, max(1, options.jobs)) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ListError as error:
        sys.exit(f"mutants: {error}")
