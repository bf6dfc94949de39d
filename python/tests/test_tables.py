"""Tables: who reads them, and files."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import needless
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest


@pytest.fixture(scope="module")
def table() -> needless.Table:
    return needless.compare("cow-reuse", ["model:5.10", "model:6.12"], rounds=3).table


def test_pyarrow_reads_it_with_units(table):
    read = pyarrow.table(table)
    assert read.num_rows == 6
    assert read["copies"].to_pylist() == [1, 1, 1, 0, 0, 0]
    metadata = read.schema.field("copies").metadata
    assert metadata[b"unit"] == b"pages" and metadata[b"doc"]
    assert read.schema.metadata[b"needless.table"] == b"rounds"
    assert read["cycles"].null_count == 6


def test_nothing_is_copied(table):
    one, two = (pyarrow.table(table)["copies"].chunk(0).buffers()[1] for _ in range(2))
    assert one.address == two.address


def test_polars_pandas_and_duckdb_read_it(table):
    by_target = {"model:5.10": 3, "model:6.12": 0}
    frame = polars.DataFrame(table)
    assert dict(frame.group_by("target").agg(polars.col("copies").sum()).rows()) == by_target
    frame = pyarrow.table(table).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.groupby("target")["copies"].sum().to_dict() == by_target
    rounds = table  # DuckDB looks its name up.
    assert len(rounds) == 6
    found = duckdb.sql("SELECT target, sum(copies) FROM rounds GROUP BY target").fetchall()
    assert {name: int(copies) for name, copies in found} == by_target


def test_its_own_readers_agree_with_pyarrow(table):
    assert table.rows() == pyarrow.table(table).to_pylist()
    assert table.column_names == pyarrow.table(table).column_names
    with pytest.raises(KeyError):
        table.column("copy")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_file_is_the_table(table, tmp_path, ending):
    path = tmp_path / f"rounds.{ending}"
    table.write(path)
    again = needless.read(path)
    assert again.rows() == table.rows()
    assert again.field("copies") == table.field("copies")
    assert again.metadata == table.metadata
    if ending == "parquet":
        found = duckdb.sql(f"SELECT sum(copies) FROM '{path}'").fetchall()
        assert found == [(3,)]
        assert pyarrow.parquet.read_schema(path).field("copies").metadata[b"unit"] == b"pages"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_file_needs_an_ending(table, tmp_path):
    with pytest.raises(needless.InputError, match="ending"):
        table.write(tmp_path / "rounds")
    with pytest.raises(needless.Error):
        needless.read(tmp_path / "missing.parquet")


def test_the_command_writes_the_same_tables(command, tmp_path):
    words = ["compare", "cow-reuse", "--rounds", "3", "-t", "model:5.10", "-t", "model:6.12"]
    ours = needless.compare("cow-reuse", ["model:5.10", "model:6.12"], rounds=3, events=True)
    for name in ["parquet", "arrow"]:
        path, events = tmp_path / f"rounds.{name}", tmp_path / f"events.{name}"
        with path.open("wb") as out:
            options = ["--format", name, "--events", str(events)]
            subprocess.run([command, *words, *options], stdout=out, check=True)
        assert needless.read(path).rows() == ours.table.rows()
        assert needless.read(path).metadata == ours.table.metadata
        assert ours.events is not None
        assert needless.read(events).rows() == ours.events.rows()


def test_what_stat_sees_is_a_table(command, monkeypatch):
    monkeypatch.setenv("NEEDLESS_COMMAND", command)
    seen = needless.stat([sys.executable, "-c", "pass"])
    assert len(seen) > 0
    for row in seen.rows():
        assert row["kind"] in {"fault", "flush", "interrupt", "needless", "missing"}
        assert row["what"]


def test_a_table_can_be_made_of_columns():
    columns = [("n", "pages", "how many", "number", [1, None]), ("ok", None, "?", "flag", [True, False])]
    made = needless.Table.of("mine", columns)
    assert made.rows() == [{"n": 1, "ok": True}, {"n": None, "ok": False}]
    assert made.field("n") == ("UInt64", "pages", "how many")
