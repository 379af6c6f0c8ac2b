"""Which parts of a benchmark run: without a champion, and where there is no time. What they measure is made up."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from benchmarks import budget, harness
from benchmarks.bins import bench as bins
from benchmarks.bins import minilm
from benchmarks.budget import INCOMPLETE
from benchmarks.cascade import bench as cascade
from benchmarks.harness import Part, Skipped, need
from benchmarks.packing import bench as packing
from benchmarks.results import Target
from benchmarks.tokens import bench as tokens
from pliant.errors import InputError
from pliant.systems import SYSTEMS

MET, MISSED = Target("a", 2.0, ">=", 1.0), Target("b", 0.5, ">=", 1.0)
BENCHES = (tokens, bins, cascade, packing)


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """An empty state, a machine like that of the slow setting, and nothing that may be trained."""
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setattr(budget, "probe", lambda: (1.0, 1.0))
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(tokens, "run_flow", lambda *_args, **_more: pytest.fail("something was trained"))


def run(full: bool = False, names=(), **results) -> tuple[int, list[str]]:
    """Run parts that give these targets or raise; return the exit status and the names of those that ran."""
    ran: list[str] = []

    def part(name, result):
        def measure(_context):
            ran.append(name)
            if isinstance(result, Exception):
                raise result
            return result, {"name": name}

        return Part(measure, 1e4 if name == "long" else 1.0)

    parts = {name: part(name, result) for name, result in results.items()}
    return harness.run("bins", parts, full, names), ran


def test_a_part_that_takes_too_long_is_left_out_the_others_run_and_the_bench_is_no_success(capsys):
    assert run(long=[MET], short=[MET]) == (INCOMPLETE, ["short"])
    assert "pliant bench bins --part long" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("full", "names"), [(True, []), (False, ["long"])])
def test_what_is_named_and_the_full_setting_run_however_long_they_take(full, names):
    assert run(full, names, long=[MET], short=[MET]) == (0, names or ["long", "short"])


def test_what_is_trained_first_counts_to_a_parts_time():
    parts = {"live": Part(lambda _context: ([MET], {}), 1.0, lambda _context: 1e4)}
    assert harness.run("bins", parts, False, ()) == INCOMPLETE


def test_a_missed_target_counts_for_more_than_a_part_left_out():
    assert run(long=[MET], short=[MISSED]) == (1, ["short"])


@pytest.mark.parametrize("error", [InputError("data", "x", "an existing file"), Skipped("needs a champion, or x")])
def test_a_part_that_cannot_run_here_is_left_out_with_the_reason(error, capsys):
    assert run(lacking=error, short=[MET]) == (INCOMPLETE, ["lacking", "short"])
    assert "x" in capsys.readouterr().out


def test_a_named_part_that_fails_ends_the_run_but_one_that_is_skipped_does_not():
    with pytest.raises(InputError):
        run(False, ["lacking"], lacking=InputError("data", "x", "an existing file"))
    assert run(False, ["lacking"], lacking=Skipped("needs a champion")) == (INCOMPLETE, ["lacking"])


def test_an_unknown_part_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="short"):
        run(False, ["shrot"], short=[MET])


def test_each_part_is_written_with_its_targets_and_its_setting(tmp_path):
    run(short=[MET])
    written = json.loads((tmp_path / "bins-short.json").read_text())
    assert (written["setting"], written["name"], written["targets"][0]["verdict"]) == ("quick", "short", "met")


def test_what_is_missing_skips_a_part():
    need("")
    with pytest.raises(Skipped, match="Ray"):
        need("needs Ray")


@pytest.mark.parametrize("bench", BENCHES)
def test_every_part_says_how_long_it_takes(bench):
    assert all(part.seconds > 0 for part in bench.PARTS.values())


def test_the_encoder_of_bins_is_prepared_once(tmp_path):
    live = bins.PARTS["live"]
    assert live.training(None) > 0.0
    (tmp_path / "state" / "bench-bins" / "artifacts").mkdir(parents=True)
    assert live.training(None) == 0.0


def test_parts_of_tokens_that_only_compute_train_nothing(monkeypatch):
    given = []
    monkeypatch.setattr(tokens.kernels, "measure", lambda *args, **_more: given.append(args) or NoFigures())
    monkeypatch.setattr(tokens.buckets, "measure", lambda *_args, **_more: NoFigures())
    monkeypatch.setattr(tokens.planner, "measure", lambda _queues: NoFigures())
    monkeypatch.setattr(tokens.policies, "compare", lambda _setting, grounds, _progress: given.append(grounds))
    monkeypatch.setattr(tokens, "policies_figure", lambda _rows: None)
    for name, value in {"places": [], "targets": [MET], "plain": []}.items():
        monkeypatch.setattr(tokens.policies, name, lambda _rows, value=value: value)
    monkeypatch.setattr(tokens.console, "picture", lambda *_args: None)
    assert tokens.bench(full=False, names=["planner", "kernels", "policies"]) == 0
    (kernels, grounds) = given
    assert kernels[0].source == "random weights"
    assert [ground.name for ground in grounds] == ["figure 4b", "table I"]


class NoFigures:
    """What a part gives, empty."""

    def targets(self):
        return [MET]

    def plain(self):
        return {}

    def table(self):
        return []


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_the_help_names_every_part_of_a_benchmark(system):
    """The command line knows them as text, so that `--help` imports no benchmark."""
    named = re.split(r", | or ", system.part("cli", "options").PARTS)
    assert sorted(named) == sorted(system.part("benchmarks", "bench").PARTS)


@pytest.mark.parametrize("full", [False, True])
def test_what_is_trained_for_a_comparison_is_served_in_float32_as_its_rivals_are(full, monkeypatch):
    trained = []
    monkeypatch.setattr(tokens, "run_flow", lambda _config, overrides, **more: trained.append((overrides, more)))
    monkeypatch.setattr(tokens, "live_bundle", lambda: None)
    ground = tokens.Ground(full, lambda _name: None)
    ground.bundle()
    ((overrides, _),) = trained
    assert overrides["arithmetic"] == {"precision": "float32"}


def test_the_embedding_model_of_bins_is_compared_in_float32(tmp_path, monkeypatch):
    prepared = []
    monkeypatch.setattr(minilm, "_run_flow", lambda _project, overrides: prepared.append(overrides))
    monkeypatch.setattr(minilm, "served", lambda *_: None)
    monkeypatch.setattr(minilm.minilm, "folder", lambda: tmp_path)
    minilm.prepared(np.array([3, 5], np.int32))
    (overrides,) = prepared
    assert overrides["arithmetic"] == {"precision": "float32"}
