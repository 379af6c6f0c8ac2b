"""The acceptance kit's stages: a crash or a limit ends one of them, what it measured stays, and the others go on."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from pliant.benchmarks.gpu import __main__ as kit
from pliant.benchmarks.gpu import stage as stages
from pliant.benchmarks.gpu.__main__ import INCOMPLETE, MEASURED, Outcome, main, run_stage, save, status
from pliant.benchmarks.results import Target, read
from pliant.errors import PliantError

MET, MISSED = Target("bins: speed", 2.0, ">=", 1.0, "x"), Target("bins: error", 0.5, "<=", 0.1)
ROW = {"name": "bins: speed", "measured": 2.0, "sense": ">=", "limit": 1.0, "unit": "x", "verdict": "met"}
CONTENT = {"targets": [ROW], "parts": {"fast": {"rows": [1]}}, "error": ""}


@pytest.mark.parametrize(
    ("then", "limit", "reason"),
    [
        ("", 30, MEASURED),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 30, "crashed: SIGSEGV"),
        ("sys.exit(5)", 30, "crashed: exit status 5"),
        ("time.sleep(60)", 2, "ran over its limit of 2 s"),
    ],
)
def test_a_stage_that_crashes_or_lasts_too_long_says_so_and_keeps_what_it_measured(monkeypatch, then, limit, reason):
    script = (
        f"import os, pathlib, signal, sys, time\npathlib.Path(sys.argv[1]).write_text({json.dumps(CONTENT)!r})\n{then}"
    )
    monkeypatch.setattr(
        kit, "command", lambda stage, _device, _tiny, folder: [sys.executable, "-c", script, f"{folder}/{stage}.json"]
    )
    outcome = run_stage("bins", "cpu", True, limit)
    assert (outcome.outcome, outcome.targets, outcome.parts) == (reason, (MET,), CONTENT["parts"])


@pytest.mark.parametrize(
    ("error", "reason"), [(PliantError("no wheels"), "no wheels"), (ValueError("bad\nworse"), "ValueError: bad")]
)
def test_what_a_stage_raises_is_noted_with_what_was_measured_before(tmp_path, monkeypatch, error, reason):
    class Stage:
        def measure(self, _device, _tiny, add):
            add("first", [Target("speed", 2.0, ">=", 1.0, "x")], {"figure": 3})
            raise error

    monkeypatch.setattr(stages, "_module", lambda _stage: Stage())
    assert not stages.run("bins", "cpu", True, tmp_path)
    content = read(tmp_path / "bins.json")
    assert (content["error"], content["parts"], content["targets"]) == (reason, {"first": {"figure": 3}}, [ROW])


def outcome(stage: str, *targets: Target, how: str = MEASURED) -> Outcome:
    return Outcome(stage, how, 2.0, targets, {"part": {"figure": 1}})


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([outcome("bins", MET)], 0),
        ([outcome("bins", MET), outcome("tokens", MISSED)], 1),
        ([outcome("bins", MET), outcome("tokens", how="crashed: SIGSEGV")], INCOMPLETE),
        ([outcome("bins", MISSED), outcome("tokens", how="crashed: SIGSEGV")], 1),
        ([], INCOMPLETE),
    ],
)
def test_the_exit_status_is_that_of_a_bench(outcomes, expected):
    assert status(outcomes) == expected


def test_a_later_call_of_the_same_setting_adds_its_stages(tmp_path):
    path = tmp_path / "gpu.json"
    for stage in (outcome("right"), outcome("bins", MET), outcome("bins", MISSED)):
        save(path, stage, {"commit": "abc"})
    content = read(path)
    assert ([row["name"] for row in content["targets"]], set(content["stages"])) == (["bins: error"], {"right", "bins"})
    save(path, outcome("cascade"), {"commit": "def"})
    assert set(read(path)["stages"]) == {"cascade"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without a GPU")
def test_without_a_gpu_nothing_is_measured_and_one_sentence_says_why(capsys):
    assert main([]) == INCOMPLETE
    assert capsys.readouterr().err.startswith("Nothing was measured: device is cuda")
