"""The command ``needless``, which runs what needs a real kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from needless import _needless
from needless._errors import Error, InputError
from needless._needless import Table
from needless._scenarios import Scenario

#: Names the command; without it, it is looked for on PATH.
VARIABLE = "NEEDLESS_COMMAND"

_USAGE = 2


def command() -> str:
    """The command's path.

    Raises:
        Error: it is not installed.
    """
    found = os.environ.get(VARIABLE) or shutil.which("needless")
    if found is None:
        remedy = f"install it with `make native install`, or name it in {VARIABLE}"
        message = "real kernels are run by the command `needless`, which is not on PATH"
        raise Error(f"{message}; {remedy}", message, remedy=remedy)
    return found


def named(scenario: Scenario) -> tuple[str, str | None]:
    """How the command is told a scenario: its name, or its text on standard input."""
    source = scenario._source
    builtin = {name for name, _, _ in _needless.builtin()}
    return (source.name, None) if source.name in builtin else ("-", source.text)


def settings(values: Mapping[str, str]) -> list[str]:
    """Values of parameters as options."""
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def run(
    arguments: Sequence[str], stdin: str | None, stdout: int, expected: Sequence[int] = (0,)
) -> int:
    """Runs the command; gives its exit status.

    A status that is not expected raises an error with what the command said, unless it wrote a
    result nevertheless, as where one of several targets is not to be had.
    """
    done = subprocess.run(
        [command(), *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    status = done.returncode
    if status not in expected and os.fstat(stdout).st_size == 0:
        text = done.stderr.strip() or f"`needless {' '.join(arguments)}` ended with {status}"
        kind = InputError if status == _USAGE else Error
        raise kind(text, status=status)
    return status


def table(arguments: Sequence[str], stdin: str | None = None) -> Table:
    """What the command prints as an Arrow file."""
    with tempfile.TemporaryFile() as file:
        run([*arguments, "--format", "arrow"], stdin, file.fileno())
        return _needless.read(f"/proc/self/fd/{file.fileno()}")


def text(arguments: Sequence[str], stdin: str | None = None) -> str:
    """What the command prints."""
    with tempfile.TemporaryFile() as file:
        run(arguments, stdin, file.fileno())
        file.seek(0)
        return file.read().decode()


def stat_table(words: Sequence[str]) -> tuple[Table, int]:
    """What ``needless stat`` sees of a command, and the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stat.arrow"
        options = ["stat", "--format", "arrow", "-o", os.fspath(path), "--", *words]
        done = subprocess.run([command(), *options], stderr=subprocess.PIPE, text=True, check=False)
        if not path.exists():
            raise Error(done.stderr.strip(), status=done.returncode)
        return _needless.read(path), done.returncode
