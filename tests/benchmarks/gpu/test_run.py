"""The acceptance kit's stages: a crash or a limit ends one of them, what it measured stays, and the others go on."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import datetime

import pytest
import torch

from pliant.benchmarks.gpu import run
from pliant.benchmarks.gpu.__main__ import INCOMPLETE, main, status
from pliant.benchmarks.gpu.run import LIMITS, MEASURED, Outcome, run_stage, save
from pliant.benchmarks.gpu.stage import Report
from pliant.benchmarks.gpu.stage import run as run_here
from pliant.benchmarks.results import Target, read
from pliant.errors import PliantError
from pliant.systems import names

CALL = 600.0  # seconds of one call on a lent machine
MET, MISSED = Target("speed", 2.0, ">=", 1.0, "x"), Target("error", 0.5, "<=", 0.1)
CONTENT = {
    "targets": [{"name": "speed", "measured": 2.0, "sense": ">=", "limit": 1.0, "unit": "x", "verdict": "met"}],
    "parts": {"fast": {"rows": [1]}},
    "error": "",
}


@pytest.fixture
def doing(monkeypatch):
    """Return a function that has every stage write CONTENT and then do what is given in Python."""

    def set_script(then: str) -> None:
        script = f"""
import os, pathlib, signal, subprocess, sys, time
pathlib.Path(sys.argv[1]).write_text({json.dumps(CONTENT)!r})
{then}
"""
        monkeypatch.setattr(
            run,
            "command",
            lambda stage, _device, _tiny, folder: [sys.executable, "-c", script, f"{folder}/{stage}.json"],
        )

    return set_script


def test_the_stages_are_all_systems_after_the_tests_and_fit_four_calls():
    assert set(LIMITS) == {"right", *names()} and next(iter(LIMITS)) == "right"
    assert list(LIMITS)[1:] == ["tokens", "packing", "bins", "cascade"]
    assert max(LIMITS.values()) < CALL and LIMITS["right"] + LIMITS["tokens"] < CALL


def test_a_stage_that_ends_well_gives_its_targets_and_parts(doing):
    doing("")
    outcome = run_stage("bins", "cpu", True, 30)
    assert (outcome.outcome, outcome.targets, outcome.parts) == (MEASURED, (MET,), CONTENT["parts"])
    assert outcome.complete and outcome.seconds > 0


@pytest.mark.parametrize(
    ("then", "reason"),
    [("os.kill(os.getpid(), signal.SIGSEGV)", "crashed: SIGSEGV"), ("sys.exit(5)", "crashed: exit status 5")],
)
def test_a_stage_that_crashes_says_so_and_keeps_what_it_measured(doing, then, reason):
    doing(then)
    outcome = run_stage("bins", "cpu", True, 30)
    assert (outcome.outcome, outcome.targets, outcome.complete) == (reason, (MET,), False)


def test_a_stage_beyond_its_limit_is_ended_with_what_it_has_started(doing, tmp_path):
    alive = tmp_path / "alive"
    child = f"import time, pathlib; time.sleep(0.4); pathlib.Path({str(alive)!r}).touch()"
    doing(f"subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)")
    outcome = run_stage("bins", "cpu", True, 0.2)
    assert outcome.outcome == "ran over its limit of 0.2 s" and outcome.seconds < 30
    time.sleep(0.4)
    assert not alive.exists(), "the child was ended before it could do anything"


def test_what_a_stage_raises_is_noted_with_what_was_measured_before(tmp_path, monkeypatch):
    class Stage:
        def __init__(self, error):
            self.error = error

        def measure(self, _device, _tiny, add):
            add("first", [MET], {"figure": 3})
            raise self.error

    for error, reason in (
        (PliantError("the wheels are missing"), "the wheels are missing"),
        (ValueError("bad\nworse"), "ValueError: bad"),
    ):
        monkeypatch.setattr("pliant.benchmarks.gpu.stage._module", lambda _stage, error=error: Stage(error))
        assert not run_here("bins", "cpu", True, Report(tmp_path, "bins"))
        content = read(tmp_path / "bins.json")
        assert (content["error"], content["parts"]) == (reason, {"first": {"figure": 3}})
        assert [row["name"] for row in content["targets"]] == ["speed"]


def outcome(stage: str, *targets: Target, how: str = MEASURED) -> Outcome:
    return Outcome(stage, how, 2.0, targets, {"part": {"figure": 1}})


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([outcome("bins", MET)], 0),
        ([outcome("bins", MET), outcome("tokens", MISSED)], 1),
        ([outcome("bins", MET), outcome("tokens", how="crashed: SIGSEGV")], INCOMPLETE),
        ([outcome("bins", MISSED), outcome("tokens", how="crashed: SIGSEGV")], 1),
        ([outcome("bins")], INCOMPLETE),
        ([], INCOMPLETE),
    ],
)
def test_the_exit_status_is_that_of_a_bench(outcomes, expected):
    assert status(outcomes) == expected


def test_a_later_call_adds_its_stages_and_nothing_is_ever_lost(tmp_path):
    path = tmp_path / "results" / "gpu.json"
    save(path, outcome("right", MET), "cpu", True, "abc")
    save(path, outcome("bins", MET), "cpu", True, "abc")
    save(path, outcome("bins", replace(MISSED, measured=float("nan"))), "cpu", True, "abc")
    content = read(path)
    assert [(row["name"], row["verdict"]) for row in content["targets"]] == [
        ("right: speed", "met"),
        ("bins: error", "missed"),
    ]
    assert set(content["stages"]) == {"right", "bins"} and content["commit"] == "abc"
    stage = content["stages"]["bins"]
    assert datetime.fromisoformat(stage.pop("date")) and stage == {
        "outcome": MEASURED,
        "seconds": 2.0,
        "parts": {"part": {"figure": 1}},
    }
    assert content["device"].startswith("cpu-") and "torch" in content["software"]
    assert [(row["stage"], row["targets"][0]["name"]) for row in content["earlier"]] == [("bins", "bins: speed")]
    for commit, tiny in (("abc", False), ("def", False)):
        save(path, outcome("cascade", MET), "cpu", tiny, commit)
        assert set(read(path)["stages"]) == {"cascade"}
    kept = [(row["commit"], row["setting"], row["stage"]) for row in read(path)["earlier"]]
    assert kept == [
        ("abc", "tiny", "bins"), ("abc", "tiny", "right"), ("abc", "tiny", "bins"), ("abc", "full", "cascade")
    ]  # fmt: skip
    assert [row["targets"][0]["measured"] for row in read(path)["earlier"]] == [2.0, 2.0, None, 2.0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without a GPU")
def test_without_a_gpu_nothing_is_measured_and_one_sentence_says_why(capsys):
    assert main([]) == INCOMPLETE
    said = capsys.readouterr().err
    assert said.startswith("Nothing was measured: device is cuda, but must be") and said.count("\n") == 1
