"""The compiled part of the package. Its functions are called by the modules beside it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

VERSION: str

_Bounds: TypeAlias = tuple[int, int | None, float | None, int, int | None]

class Table:
    """A table of results: an Arrow record batch with units in its fields' metadata.

    Whatever takes Arrow's PyCapsule interface reads it without a copy: ``pyarrow.table(t)``,
    ``polars.DataFrame(t)``, ``pandas`` by way of pyarrow, and DuckDB (``SELECT … FROM t``).
    Columns and their units: docs/tables.md.
    """

    @staticmethod
    def of(kind: str, columns: Sequence[tuple[str, str | None, str, str, Sequence[Any]]]) -> Table:
        """A table of columns: name, unit, description, type (text, number, integer, flag), values."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...
    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""

    @property
    def metadata(self) -> dict[str, str]:
        """What the table holds: ``needless.table``, ``needless.document`` …"""

    def field(self, name: str) -> tuple[str, str | None, str | None]:
        """A column's Arrow type, its unit and its description. Raises KeyError for another name."""

    def column(self, name: str) -> list[Any]:
        """The values of a column; unknown is None. Raises KeyError for another name."""

    def rows(self) -> list[dict[str, Any]]:
        """The rows, each as a dictionary."""

    def parquet(self) -> bytes:
        """The table as a Parquet file's bytes."""

    def write(self, path: object) -> None:
        """Writes the table to a file, whole or not at all.

        The ending of the name decides: ``.parquet``, ``.arrow`` or ``.feather``.
        """

class Source:
    """A scenario's text."""

    def __new__(cls, text: str, name: str, presets: Mapping[str, str] | None = None) -> Source: ...
    @staticmethod
    def load(name: str) -> Source: ...
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def presets(self) -> dict[str, str]: ...
    def describe(self) -> str: ...
    def formatted(self) -> str: ...
    def check(self, settings: Mapping[str, str], rounds: int | None) -> dict[str, int]: ...

class Comparison:
    """Rows of the model that ran."""

    def rounds(self) -> Table: ...
    def events(self) -> Table: ...
    def document(self) -> str: ...
    def text(self) -> str: ...

def read(path: object) -> Table: ...
def concatenated(tables: Sequence[Table]) -> Table: ...
def builtin() -> list[tuple[str, str, str]]: ...
def random(seed: int, release: tuple[int, int], cpus: int, without: Sequence[str]) -> Source: ...
def kernels() -> str: ...
def check_target(name: str) -> str | None: ...
def compare(
    source: Source,
    settings: Mapping[str, str],
    rounds: int | None,
    targets: Sequence[str],
    max_memory: int | None,
    events: bool,
) -> Comparison: ...
def explain(
    source: Source,
    settings: Mapping[str, str],
    target: str,
    round: int,
    max_memory: int | None,
) -> tuple[str, str, Table]: ...
def check(
    source: Source, settings: Mapping[str, str], targets: Sequence[str], bounds: _Bounds
) -> tuple[str, list[str]]: ...
def litmus(source: Source, settings: Mapping[str, str], bounds: _Bounds) -> str: ...
def replay(
    source: Source, settings: Mapping[str, str], target: str, schedule: str
) -> tuple[str, str]: ...
def points(
    source: Source,
    names: Sequence[str],
    values: Sequence[Sequence[int]],
    rounds: int | None,
    targets: Sequence[str],
    max_memory: int | None,
) -> Table: ...
def digests(
    first: int,
    count: int,
    target: str,
    release: tuple[int, int] | None,
    cpus: int,
    without: Sequence[str],
) -> Table: ...
