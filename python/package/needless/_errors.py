"""The exceptions of the package."""

from __future__ import annotations


class Error(Exception):
    """Something could not be done.

    ``str()`` gives the text that the command ``needless`` prints, with an excerpt of what is wrong.

    Attributes:
        message: what is wrong, in one sentence.
        line: the line of the scenario, or of a target's name, from 1; ``None`` without a place.
        column: the column there, from 1.
        remedy: what would help, if anything is known.
        status: the exit status of the command, if it was the command that failed.
    """

    def __init__(
        self,
        text: str,
        message: str | None = None,
        line: int | None = None,
        column: int | None = None,
        remedy: str | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(text)
        self.message = message if message is not None else text
        self.line = line
        self.column = column
        self.remedy = remedy
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are rebuilt from `args` alone, which would lose what a worker has found out.
        told = (self.message, self.line, self.column, self.remedy, self.status)
        return type(self), (str(self), *told)


class InputError(Error, ValueError):
    """What was asked for is wrong: a scenario's text, a parameter's value, a target's name."""
