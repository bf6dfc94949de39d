"""Scenarios, and what they are run on: kernel rows and policies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from needless import _needless

Settings: TypeAlias = Mapping[str, int | str]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a scenario, with its default and the least and greatest value allowed."""

    name: str
    doc: str
    value: int
    min: int | None
    max: int | None


class Scenario:
    """A workload in the scenario language (docs/scenarios.md).

    A text that is not understood raises `InputError`, with the line, the column and the remedy.

    >>> import needless
    >>> reuse = needless.Scenario.load("cow-reuse")
    >>> [(p.name, p.value) for p in reuse.parameters]
    [('pages', 1), ('threads', 2), ('rounds', 100), ('warmup', 6)]
    >>> try:
    ...     needless.Scenario('scenario "mine" {\\n  thread "main" cpu=0 { wirte "heap" }\\n}')
    ... except needless.InputError as error:
    ...     error.line
    2
    """

    def __init__(self, text: str, name: str = "scenario") -> None:
        self._take(_needless.Source(text, name))

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Scenario:
        """A built-in scenario by its name, else a file by its path."""
        made = cls.__new__(cls)
        made._take(_needless.Source.load(os.fspath(name)))
        return made

    @classmethod
    def random(
        cls, seed: int, *, kernel: str = "7.3", cpus: int = 2, without: Sequence[str] = ()
    ) -> Scenario:
        """The random scenario that ``needless scenario random SEED`` prints.

        Args:
            seed: the seed.
            kernel: the release that it is drawn for; older ones lack some operations.
            cpus: CPUs of the machine that it is drawn for.
            without: what that kernel or machine lacks: soft-dirty, huge-pages, userfaultfd, nodes.
        """
        made = cls.__new__(cls)
        made._take(_needless.random(seed, _release(kernel), cpus, list(without)))
        return made

    def _take(self, source: _needless.Source) -> None:
        described = json.loads(source.describe())
        self._source = source
        #: The name that the text gives it; that of the alias if it was loaded by one.
        self.name: str = described["name"]
        #: What it says of itself.
        self.doc: str = described["doc"]
        #: Its parameters, in the order of the text.
        self.parameters: tuple[Parameter, ...] = tuple(
            Parameter(p["name"], p["doc"], p["value"], p["min"], p["max"])
            for p in described["parameters"]
        )

    @property
    def text(self) -> str:
        """The text."""
        return self._source.text

    def formatted(self) -> str:
        """The text in its uniform layout, comments kept."""
        return self._source.formatted()

    def check(self, set: Settings | None = None, rounds: int | None = None) -> dict[str, int]:
        """Tries the scenario for a moment with these values; gives the value of every parameter.

        Raises:
            InputError: a value, or an operation, that no kernel takes.
        """
        return self._source.check(settings(set), rounds)

    def __repr__(self) -> str:
        return f"<needless.Scenario {self.name}>"

    def __reduce__(self) -> tuple[object, ...]:
        source = self._source
        return _rebuilt, (source.text, source.name, source.presets)


def _rebuilt(text: str, name: str, presets: dict[str, str]) -> Scenario:
    made = Scenario.__new__(Scenario)
    made._take(_needless.Source(text, name, presets))
    return made


ScenarioLike: TypeAlias = Scenario | str | os.PathLike[str]


def as_scenario(scenario: ScenarioLike) -> Scenario:
    """A scenario that is named, written down, or loaded already. A text has a brace in it."""
    if isinstance(scenario, Scenario):
        return scenario
    if isinstance(scenario, str) and "{" in scenario:
        return Scenario(scenario)
    return Scenario.load(scenario)


def settings(values: Settings | None) -> dict[str, str]:
    """Values as the command has them after ``--set``."""
    return {name: str(value) for name, value in (values or {}).items()}


def _release(text: str) -> tuple[int, int]:
    numbers = text.split(".")
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        from needless._errors import InputError

        raise InputError(f"`{text}` is no release: expected two numbers, as in 6.12")
    return int(numbers[0]), int(numbers[1])


@dataclass(frozen=True)
class Builtin:
    """A built-in scenario: its name, what it is about, and its kind.

    ``kind`` is ``scenario``, ``study`` (of a study, or only for new kernels), ``nodes`` (needs
    NUMA nodes), ``alias`` (another one with certain values) or ``litmus`` (for `check`).
    """

    name: str
    doc: str
    kind: str


def scenarios() -> list[Builtin]:
    """The built-in scenarios, as ``needless scenario list`` shows them.

    >>> import needless
    >>> "cow-reuse" in [builtin.name for builtin in needless.scenarios()]
    True
    """
    return [Builtin(*told) for told in _needless.builtin()]


@dataclass(frozen=True)
class Row:
    """A kernel row: a release, and its value for every policy.

    ``remark`` says what the row rests on, if it is not that a stock kernel was compared with it.
    """

    name: str
    remark: str | None
    policies: Mapping[str, str]

    @property
    def target(self) -> str:
        """The row as a target: ``model:6.12``."""
        return f"model:{self.name}"

    def with_(self, **changes: str) -> str:
        """The target of the row with other values; ``_`` in a name stands for ``-``.

        >>> import needless
        >>> row = next(row for row in needless.rows() if row.name == "6.12")
        >>> row.with_(reuse="page-count")
        'model:6.12,reuse=page-count'
        """
        options = "".join(f",{name.replace('_', '-')}={value}" for name, value in changes.items())
        _needless.check_target(self.target + options)
        return self.target + options


@dataclass(frozen=True)
class Policy:
    """A decision that kernels take differently; ``source`` says where that is known from."""

    name: str
    summary: str
    source: str
    values: Mapping[str, str]


def rows() -> list[Row]:
    """The kernel rows, oldest first, then stable releases that differ from their series now.

    >>> import needless
    >>> [row.name for row in needless.rows()][:4]
    ['5.8', '5.10', '5.15', '6.1']
    """
    kernels = json.loads(_needless.kernels())["kernels"]
    return [Row(row["name"], row["remark"], row["policies"]) for row in kernels]


def policies() -> list[Policy]:
    """The policies in which kernel rows differ, with the meaning of each value."""
    told = json.loads(_needless.kernels())["policies"]
    return [Policy(p["name"], p["summary"], p["source"], p["values"]) for p in told]


def known_wrong(target: str) -> str | None:
    """What is known to be wrong with a row of the model, if it is a mutant.

    Raises:
        InputError: a target that is not understood.
    """
    return _needless.check_target(target)


def names(targets: str | Sequence[str]) -> list[str]:
    """Targets as a list, of one as well."""
    return [targets] if isinstance(targets, str) else list(targets)


def all_models(targets: Sequence[str]) -> bool:
    """Whether every target is a row of the model, which runs in this process."""
    return all(target.startswith("model:") for target in targets)


def releases() -> Iterator[str]:
    """The rows that stand for a whole series, as targets, oldest first."""
    return (row.target for row in rows() if row.name.count(".") == 1)
