"""Which parts of a bench run: without a champion, and where there is no time. What they measure is made up."""

from __future__ import annotations

import json

import pytest

from pliant.benchmarks import harness
from pliant.benchmarks.harness import INCOMPLETE, Skipped
from pliant.benchmarks.parts import PARTS, Part
from pliant.benchmarks.results import Target
from pliant.errors import InputError

MET, MISSED = Target("a", 2.0, ">=", 1.0), Target("b", 0.5, ">=", 1.0)
EVERY = [(bench, name, part) for bench, parts in PARTS.items() for name, part in parts.items()]


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """An empty state."""
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setattr(harness, "RESULTS", tmp_path)


def run(full: bool = False, names=(), **results) -> tuple[int, list[str]]:
    """Run parts that give these targets or raise; return the exit status and the names of those that ran."""
    ran: list[str] = []

    def part(name, result):
        def measure(_context):
            ran.append(name)
            if isinstance(result, Exception):
                raise result
            return result, {"name": name}

        return Part("", measure, 1e4 if name == "long" else 1.0)

    return harness.run("bins", {name: part(name, result) for name, result in results.items()}, full, names), ran


def test_a_part_that_takes_too_long_is_left_out_the_others_run_and_the_bench_is_no_success(capsys):
    assert run(long=[MET], short=[MET]) == (INCOMPLETE, ["short"])
    assert "pliant bench bins --part long" in " ".join(capsys.readouterr().out.split())
    assert run(long=[MET], short=[MISSED])[0] == 1, "a missed target counts for more"


@pytest.mark.parametrize(("full", "names"), [(True, []), (False, ["long"])])
def test_what_is_named_and_the_full_setting_run_however_long_they_take(full, names):
    assert run(full, names, long=[MET], short=[MET]) == (0, names or ["long", "short"])


@pytest.mark.parametrize("error", [InputError("data", "x", "an existing file"), Skipped("needs a champion, or x")])
def test_a_part_that_cannot_run_here_is_left_out_with_the_reason_unless_it_is_named_and_fails(error, capsys):
    assert run(lacking=error, short=[MET]) == (INCOMPLETE, ["lacking", "short"])
    assert "x" in capsys.readouterr().out
    if isinstance(error, Skipped):
        assert run(False, ["lacking"], lacking=error)[0] == INCOMPLETE
    else:
        with pytest.raises(InputError):
            run(False, ["lacking"], lacking=error)


def test_an_unknown_part_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="short"):
        run(False, ["shrot"], short=[MET])


def test_each_part_is_written_with_its_targets_and_its_setting(tmp_path):
    run(short=[MET])
    written = json.loads((tmp_path / "bins-short.json").read_text())
    assert (written["setting"], written["name"], written["targets"][0]["verdict"]) == ("quick", "short", "met")


@pytest.mark.parametrize(("bench", "name", "part"), EVERY, ids=[f"{bench} {name}" for bench, name, _ in EVERY])
def test_every_part_is_a_function_that_is_there_and_says_what_it_measures(bench, name, part):
    assert callable(part.function()) and part.measures and part.seconds > 0
