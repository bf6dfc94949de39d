"""Scenarios, rows and policies; errors with their places."""

from __future__ import annotations

import json
import pickle
import subprocess

import needless
import pytest

TEXT = """scenario "mine" {
    param "pages" default=4 min=1 max=64 doc="pages"
    thread "main" cpu=0 {
        map "heap" pages="pages"
        rounds 2 { write "heap"; madvise "heap" advice="dontneed" }
    }
}
"""


def test_a_text_and_a_file_are_the_same_scenario(tmp_path):
    path = tmp_path / "mine.kdl"
    path.write_text(TEXT)
    written, loaded = needless.Scenario(TEXT), needless.Scenario.load(path)
    assert (written.name, written.parameters) == (loaded.name, loaded.parameters)
    assert written.parameters[0] == needless.Parameter("pages", "pages", 4, 1, 64)
    runs = [needless.run(s, "model:6.12").counters for s in (TEXT, written, loaded, str(path))]
    assert all(counters == runs[0] for counters in runs)
    assert runs[0]["faults"] == 4


def test_a_mistake_is_told_with_its_place_and_remedy():
    with pytest.raises(needless.InputError) as caught:
        needless.Scenario(TEXT.replace("madvise", "madvize"))
    error = caught.value
    assert (error.line, error.column) == (5, 34)
    assert "madvize" in error.message and "madvise" in error.remedy
    # The command's text, with the line that is wrong.
    assert 'rounds 2 { write "heap"; madvize' in str(error)
    assert isinstance(error, ValueError)


def test_a_value_that_is_out_of_bounds_is_told():
    with pytest.raises(needless.InputError) as caught:
        needless.run(TEXT, "model:6.12", set={"pages": 65})
    assert "65" in str(caught.value)
    assert caught.value.line is not None


def test_a_target_that_is_not_understood_is_told_with_its_place():
    with pytest.raises(needless.InputError) as caught:
        needless.run("cow-reuse", "model:6.12,reuse=never")
    error = caught.value
    assert (error.line, error.column) == (1, len("model:6.12,reuse=") + 1)
    assert "reuse" in error.message


def test_errors_survive_a_worker():
    with pytest.raises(needless.InputError) as caught:
        needless.Scenario("scenario")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is needless.InputError
    assert (str(again), again.line) == (str(caught.value), caught.value.line)


def test_scenarios_survive_a_worker():
    alias = needless.Scenario.load("z_munmap_33")
    again = pickle.loads(pickle.dumps(alias))
    assert (again.name, again.parameters) == (alias.name, alias.parameters)
    assert again.parameters[0].value == 33


def test_rows_and_policies_are_those_of_the_model():
    names = [row.name for row in needless.rows()]
    assert {"5.10", "6.12", "7.3"} <= set(names)
    policies = {policy.name: policy for policy in needless.policies()}
    for row in needless.rows():
        assert set(row.policies) == set(policies)
        assert all(value in policies[name].values for name, value in row.policies.items())
    with pytest.raises(needless.InputError):
        needless.rows()[0].with_(reuse="never")


def test_mutants_are_known_to_be_wrong():
    assert needless.known_wrong("model:6.12") is None
    assert needless.known_wrong("model:6.12,mutant=unmap-not-flushed")


def test_a_random_scenario_is_that_of_its_seed():
    one, again = needless.Scenario.random(17), needless.Scenario.random(17)
    assert one.text == again.text != needless.Scenario.random(18).text


def test_the_lists_are_those_of_the_command(command):
    told = subprocess.run(
        [command, "scenario", "list", "--format", "json"], capture_output=True, check=True
    )
    document = json.loads(told.stdout)
    of = lambda kinds: {b.name for b in needless.scenarios() if b.kind in kinds}  # noqa: E731
    assert of({"litmus"}) == {test["name"] for test in document["litmus"]}
    listed = {scenario["name"] for scenario in document["scenarios"]}
    assert of({"scenario", "study", "nodes", "alias"}) == listed


def test_the_errors_are_those_of_the_command(command):
    text = TEXT.replace("madvise", "madvize")
    told = subprocess.run(
        [command, "scenario", "check", "-"],
        input=text,
        capture_output=True,
        text=True,
        env={"LC_ALL": "C.UTF-8", "PATH": ""},
        check=False,
    )
    with pytest.raises(needless.InputError) as caught:
        needless.Scenario(text, name="standard input")
    assert str(caught.value).split() == told.stderr.split()
