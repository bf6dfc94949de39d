"""What the command's verbs do: run, compare, explain, check, agree, stat."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from needless import _command, _needless
from needless._errors import InputError
from needless._needless import Table
from needless._scenarios import (
    ScenarioLike,
    Settings,
    all_models,
    as_scenario,
    names,
    releases,
    settings,
)

_DOCUMENT = "needless.document"


@dataclass(frozen=True)
class Comparison:
    """Targets side by side.

    Attributes:
        table: one row for each round of each target; a target that did not run has one row whose
            ``status`` and ``reason`` say so (docs/tables.md).
        document: the JSON document of ``needless compare`` without ``samples``, which are rows.
        events: one row for each event, if they were asked for.
    """

    table: Table = field(repr=False)
    document: dict[str, Any] = field(repr=False)
    events: Table | None = field(default=None, repr=False)
    _text: str | None = field(default=None, repr=False)

    @property
    def targets(self) -> list[str]:
        """The targets' names, in the order asked for."""
        return [target["target"] for target in self.document["targets"]]

    @property
    def per_round(self) -> dict[str, dict[str, int | None]]:
        """For each target the most frequent value of each counter; ``None`` is unknown.

        Units are in the table's fields: ``table.field("copies")``.
        """
        return {t["target"]: _counters(t) for t in self.document["targets"]}

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Which policies explain what changed from one row of the model to the next."""
        steps: list[dict[str, Any]] = self.document["steps"]
        return steps

    @property
    def avoided(self) -> list[dict[str, Any]]:
        """Since when each needless thing is avoided, and which proposals avoid it."""
        avoided: list[dict[str, Any]] = self.document["avoided"]
        return avoided

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.table.__arrow_c_schema__()

    def __str__(self) -> str:
        """The command's text, of rows of the model; else the counters, target by target."""
        if self._text is not None:
            return self._text
        lines = []
        for target, counters in self.per_round.items():
            known = (f"{name} {value}" for name, value in counters.items() if value)
            lines.append(f"{target}: {', '.join(known)}")
        return "\n".join(lines)


def _counters(target: dict[str, Any]) -> dict[str, int | None]:
    told = target.get("per_round") or {}
    return {name: value for name, value in told.items() if not isinstance(value, dict)}


@dataclass(frozen=True)
class Run(Comparison):
    """A comparison with one target."""

    @property
    def target(self) -> str:
        """The target."""
        return self.targets[0]

    @property
    def status(self) -> str:
        """``ran``, or ``invalid``: it ran and counts for nothing; `reason` says why."""
        status: str = self.document["targets"][0]["status"]
        return status

    @property
    def reason(self) -> str | None:
        """Why the run counts for nothing, or did not happen."""
        reason: str | None = self.document["targets"][0]["reason"]
        return reason

    @property
    def counters(self) -> dict[str, int | None]:
        """The most frequent value of each counter; ``None`` is unknown (see `unknown`)."""
        return self.per_round[self.target]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What was needless: what, by which function, why, how often in all rounds."""
        findings: list[dict[str, Any]] = self.document["targets"][0].get("findings", [])
        return findings

    @property
    def unknown(self) -> dict[str, str]:
        """Why a counter is unknown, by its name."""
        unknown: dict[str, str] = self.document["targets"][0].get("unknown", {})
        return unknown


def run(
    scenario: ScenarioLike,
    target: str = "live",
    *,
    set: Settings | None = None,
    rounds: int | None = None,
    events: bool = False,
    max_memory: int | None = None,
) -> Run:
    """Runs a scenario on one target.

    Args:
        scenario: a built-in's name, a path, a text, or a `Scenario`.
        target: ``model:6.12`` runs in this process, without the GIL. ``live`` and ``kernel:6.12``
            are run by the command, and need what `needless doctor` says.
        set: values of parameters.
        rounds: rounds that count, instead of the scenario's own number.
        events: whether to keep every event; `Run.events` has them.
        max_memory: what the run may take, in MiB; by default half of what is free.

    Raises:
        InputError: the scenario, a value or the target is wrong.
        Error: the target cannot run it.

    >>> import needless
    >>> result = needless.run("cow-reuse", "model:5.10", rounds=3)
    >>> result.counters["copies"], result.table.field("copies")[1]
    (1, 'pages')
    >>> result.unknown["cycles"]
    'the model has no clock'
    """
    found = _compared(scenario, [target], set, rounds, events, max_memory)
    return Run(found.table, found.document, found.events, found._text)


def compare(
    scenario: ScenarioLike,
    targets: str | Sequence[str] | None = None,
    *,
    set: Settings | None = None,
    rounds: int | None = None,
    events: bool = False,
    max_memory: int | None = None,
) -> Comparison:
    """Runs a scenario on several targets, event by event.

    Args:
        targets: without any, every series that the model has a row for.

    The other arguments are those of `run`. If one of the targets is a real kernel, the command
    runs them all.

    >>> import needless
    >>> both = needless.compare("cow-reuse", ["model:5.10", "model:6.12"], rounds=3)
    >>> [(name, figures["copies"]) for name, figures in both.per_round.items()]
    [('model:5.10', 1), ('model:6.12', 0)]
    >>> of_copies = lambda change: any(name == "copies" for name, _, _ in change["counters"])
    >>> change = next(filter(of_copies, both.steps[0]["changes"]))
    >>> change["explanation"]["policies"][0]["policy"]
    'reuse'
    """
    wanted = list(releases()) if targets is None else names(targets)
    return _compared(scenario, wanted, set, rounds, events, max_memory)


def _compared(
    scenario: ScenarioLike,
    targets: Sequence[str],
    set: Settings | None,
    rounds: int | None,
    events: bool,
    max_memory: int | None,
) -> Comparison:
    loaded, values = as_scenario(scenario), settings(set)
    if not targets:
        raise InputError("no target is named")
    if all_models(targets):
        compared = _needless.compare(
            loaded._source, values, rounds, list(targets), max_memory, events
        )
        document = json.loads(compared.document())
        for target in document["targets"]:
            target.pop("samples", None)
        kept = compared.events() if events else None
        return Comparison(compared.rounds(), document, kept, compared.text())
    loaded._source.check(values, rounds)
    name, text = _command.named(loaded)
    arguments = ["compare", name, *_command.settings(values)]
    arguments += [word for target in targets for word in ("-t", target)]
    arguments += ["--rounds", str(rounds)] if rounds is not None else []
    arguments += ["--max-memory", str(max_memory)] if max_memory is not None else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.arrow"
        arguments += ["--events", os.fspath(path)] if events else []
        table = _command.table(arguments, text)
        kept = _needless.read(path) if events else None
    return Comparison(table, json.loads(table.metadata[_DOCUMENT]), kept)


@dataclass(frozen=True)
class Explanation:
    """One round, event by event.

    Attributes:
        document: the JSON document of ``needless explain``.
        table: one row for each event, of a row of the model.
        text: the command's text, of a row of the model.
    """

    document: dict[str, Any] = field(repr=False)
    table: Table | None = field(default=None, repr=False)
    text: str | None = field(default=None, repr=False)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events, with their kernel functions and verdicts."""
        events: list[dict[str, Any]] = self.document["events"]
        return events

    def __str__(self) -> str:
        return self.text if self.text is not None else json.dumps(self.document, indent=2)


def explain(
    scenario: ScenarioLike,
    target: str = "live",
    *,
    round: int = 0,
    set: Settings | None = None,
    max_memory: int | None = None,
) -> Explanation:
    """The events of one round with kernel functions and verdicts.

    Args:
        round: which one, counted from 0 after the warm-up.

    The other arguments are those of `run`.

    >>> import needless
    >>> told = needless.explain("cow-reuse", "model:5.10")
    >>> copy = next(row for row in told.table.rows() if row["kind"] == "copy")
    >>> copy["page"], copy["needless"], copy["file"]
    ('heap[0]', True, 'mm/memory.c')
    """
    loaded, values = as_scenario(scenario), settings(set)
    if all_models([target]):
        document, text, table = _needless.explain(
            loaded._source, values, target, round, max_memory
        )
        return Explanation(json.loads(document), table, text)
    loaded._source.check(values, None)
    name, stdin = _command.named(loaded)
    arguments = ["explain", name, "-t", target, "--round", str(round), "--format", "json"]
    return Explanation(json.loads(_command.text(arguments + _command.settings(values), stdin)))


@dataclass(frozen=True)
class Report:
    """What the checker found in one row of the model.

    Attributes:
        verdict: ``holds``, ``violated`` or ``inconclusive``; ``failed``: `error` says why.
        states: different states that were looked at.
        expected: what the litmus test says: ``holds``, or ``violates P1``.
        unexpected: what is not as expected; empty if everything is.
        counterexample: the violation, its steps and its ``schedule``, for `replay`.
        document: the report as the command's JSON document has it.
    """

    scenario: str
    target: str
    verdict: str
    states: int | None
    expected: str | None
    unexpected: tuple[str, ...]
    counterexample: dict[str, Any] | None = field(repr=False)
    document: dict[str, Any] = field(repr=False)
    text: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.text if self.text is not None else repr(self)


def _report(document: dict[str, Any], text: str | None = None) -> Report:
    return Report(
        scenario=document["scenario"],
        target=document["target"],
        verdict=document.get("verdict", "failed"),
        states=document.get("states"),
        expected=document.get("expected"),
        unexpected=tuple(document.get("unexpected", ())),
        counterexample=document.get("counterexample"),
        document=document,
        text=text,
    )


def check(
    scenario: ScenarioLike,
    targets: str | Sequence[str] | None = None,
    *,
    set: Settings | None = None,
    max_states: int = 20_000_000,
    max_memory: int | None = None,
    deadline: float | None = None,
    key_bits: int = 128,
    jobs: int | None = None,
) -> list[Report]:
    """Tries every interleaving of a small scenario, without the GIL.

    Ctrl-C is heard when a row is done; ``deadline`` bounds that.

    Args:
        targets: rows of the model; without any, those that the scenario's litmus node names.
        max_states: give up after so many states.
        max_memory: what the process may take, in MiB; by default half of what is free.
        deadline: give up after so many seconds.
        key_bits: bits of each state's key that are kept (64 take half the memory).
        jobs: threads; by default one for each CPU.

    Raises:
        InputError: the scenario cannot be checked, or is no litmus test and no target is named.

    >>> import needless
    >>> [(r.target, r.verdict) for r in needless.check("pageout-read", "model:5.10")]
    [('model:5.10', 'holds')]
    """
    loaded, values = as_scenario(scenario), settings(set)
    bounds = (max_states, max_memory, deadline, key_bits, jobs)
    if targets is None:
        told = json.loads(_needless.litmus(loaded._source, values, bounds))
        return [_report(report) for report in told["reports"]]
    document, texts = _needless.check(loaded._source, values, names(targets), bounds)
    reports = json.loads(document)["reports"]
    return [_report(report, text) for report, text in zip(reports, texts, strict=True)]


@dataclass(frozen=True)
class Replay:
    """A schedule that was followed: its steps, and what it violates, if anything."""

    document: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    @property
    def violation(self) -> dict[str, Any] | None:
        """The property, and what happened."""
        violation: dict[str, Any] | None = self.document["violation"]
        return violation

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps, with what each changed."""
        steps: list[dict[str, Any]] = self.document["steps"]
        return steps

    def __str__(self) -> str:
        return self.text


def replay(
    scenario: ScenarioLike, target: str, schedule: str, *, set: Settings | None = None
) -> Replay:
    """Follows one schedule, as a counterexample has it, step by step."""
    loaded = as_scenario(scenario)
    document, text = _needless.replay(loaded._source, settings(set), target, schedule)
    return Replay(json.loads(document), text)


def agree(
    targets: str | Sequence[str] = "live",
    scenarios: Sequence[str] = (),
    *,
    builtin: bool = False,
    random: int | None = None,
    seed: int = 1,
    rounds: int | None = None,
) -> Table:
    """Holds real kernels against their model rows, exactly; the command does it.

    Args:
        targets: ``live``, ``kernel:6.12`` …
        scenarios: built-in ones or files; without any, and without ``random``, every built-in one.
        builtin: every built-in one beside the random ones.
        random: so many random scenarios, of consecutive seeds from ``seed`` on.

    Returns:
        One row for each scenario on each target (docs/tables.md). A difference is a row whose
        ``standing`` is ``differing``, and no error.
    """
    arguments = ["agree", *scenarios, "--seed", str(seed)]
    arguments += [word for target in names(targets) for word in ("-t", target)]
    arguments += ["--builtin"] if builtin else []
    arguments += ["--random", str(random)] if random is not None else []
    arguments += ["--rounds", str(rounds)] if rounds is not None else []
    return _command.table(arguments)


def stat(words: Sequence[str]) -> Table:
    """What the kernel did for a command, as ``needless stat`` sees it (docs/stat.md).

    Args:
        words: the command and its arguments.

    Returns:
        One row for each class of fault, cause of flushes, interrupt and needless thing.
    """
    table, _ = _command.stat_table(words)
    return table
