"""Page faults, page copies and TLB flushes that a workload did not need.

>>> import needless
>>> result = needless.run("cow-reuse", "model:5.10", rounds=3)
>>> result.counters["needless_copies"]
1

Scenarios, kernel rows, counters and errors are those of the command ``needless``. Rows of the
model (``model:6.12``) run in this process, without the GIL; real kernels (``live``,
``kernel:6.12``) are run by the command. Tables take Arrow's PyCapsule interface, so pyarrow,
polars, pandas and DuckDB read them without a copy. docs/python.md goes from installation to a
plot, docs/tables.md has the columns.
"""

from __future__ import annotations

from needless._errors import Error, InputError
from needless._needless import VERSION as __version__
from needless._needless import Table, concatenated, read
from needless._scenarios import (
    Builtin,
    Parameter,
    Policy,
    Row,
    Scenario,
    known_wrong,
    policies,
    rows,
    scenarios,
)
from needless._sweep import Sweep, sweep
from needless._verbs import (
    Comparison,
    Explanation,
    Replay,
    Report,
    Run,
    agree,
    check,
    compare,
    explain,
    replay,
    run,
    stat,
)

__all__ = [
    "Builtin",
    "Comparison",
    "Error",
    "Explanation",
    "InputError",
    "Parameter",
    "Policy",
    "Replay",
    "Report",
    "Row",
    "Run",
    "Scenario",
    "Sweep",
    "Table",
    "__version__",
    "agree",
    "check",
    "compare",
    "concatenated",
    "explain",
    "known_wrong",
    "policies",
    "read",
    "replay",
    "rows",
    "run",
    "scenarios",
    "stat",
    "sweep",
]
