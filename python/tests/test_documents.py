"""Doctests, types, the notebook, and what the documents show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
import subprocess
import sys

import needless
import pytest


def modules() -> list[str]:
    package = importlib.import_module("needless")
    found = pkgutil.iter_modules(package.__path__)
    return ["needless", *(f"needless.{m.name}" for m in found if m.name != "_needless")]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    tried = sum(doctest.testmod(importlib.import_module(name)).attempted for name in modules())
    assert tried > 15


def test_what_is_public_has_a_docstring():
    for name in needless.__all__:
        assert getattr(needless, name).__doc__, name


def test_types(root):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", "/dev/null"],
        cwd=root / "python",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_types_of_the_compiled_part_are_complete(root):
    stub = (root / "python/package/needless/_needless.pyi").read_text()
    compiled = importlib.import_module("needless._needless")
    for name in dir(compiled):
        if not name.startswith("_"):
            assert re.search(rf"^(class |def |){name}\b", stub, re.MULTILINE), name
    for kind in ["Table", "Source", "Comparison"]:
        for name in dir(getattr(compiled, kind)):
            if not name.startswith("_") or name.startswith("__arrow"):
                assert re.search(rf"    def {name}\(", stub), f"{kind}.{name}"


def notebooks(root):
    return sorted((root / "python/notebooks").glob("*.ipynb"))


def test_the_notebook_runs(root, tmp_path):
    import nbclient
    import nbformat

    (path,) = notebooks(root)
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells and all(not cell.outputs and cell.execution_count is None for cell in cells)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs), "a picture"


def test_the_columns_are_documented(root):
    told = (root / "docs/tables.md").read_text()
    tables = [
        needless.run("cow-reuse", "model:6.12", rounds=1, events=True).table,
        needless.run("cow-reuse", "model:6.12", rounds=1, events=True).events,
    ]
    for table in tables:
        for name in table.column_names:
            if not name.startswith(("param_", "faults_")):
                assert f"`{name}`" in told, name


def test_the_examples_of_the_document_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (root / "docs/python.md").read_text()
    # The end of a block is no output.
    text = re.sub(r"^```.*$", "", text, flags=re.MULTILINE)
    examples = doctest.DocTestParser().get_doctest(text, {}, "python.md", "python.md", 0)
    assert len(examples.examples) > 10
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples)
    assert runner.failures == 0


def test_the_commands_of_the_document_run(root, tmp_path, command):
    text = (root / "docs/python.md").read_text() + (root / "docs/tables.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    ours = [line for line in lines if line.startswith(("needless ", "needless-sweep "))]
    tried = [line for line in ours if "tcp://" not in line and "live" not in line and "kernel:" not in line]
    assert tried
    for line in tried:
        words = line.replace("needless-sweep ", f"{shlex.quote(sys.executable)} -m needless._sweep_command ")
        if line.startswith("needless "):
            words = line.replace("needless ", f"{shlex.quote(command)} ", 1)
        done = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stderr}"
