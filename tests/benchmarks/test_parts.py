"""Which parts of a bench run: without a champion, and where there is no time. What they measure is made up."""

from __future__ import annotations

import pytest

from benchmarks import budget
from benchmarks.bins import bench as bins
from benchmarks.budget import INCOMPLETE
from benchmarks.cascade import bench as cascade
from benchmarks.results import Target
from benchmarks.tokens import bench as tokens
from pliant.errors import InputError

MET, MISSED = Target("a", 2.0, ">=", 1.0), Target("b", 0.5, ">=", 1.0)


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """An empty state, a machine like that of the slow setting, and nothing that may be trained."""
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setattr(budget, "probe", lambda: (1.0, 1.0))
    for bench in (tokens, bins, cascade):
        monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(tokens, "run_flow", refuse)
    monkeypatch.setattr(cascade.run, "run_flow", refuse)


def refuse(*_args, **_more):
    pytest.fail("something was trained")


def parts(monkeypatch, bench, **found) -> list[str]:
    """Parts that give these targets; returns the names of those that were run."""
    ran: list[str] = []

    def made(name, targets):
        def part(*_args):
            ran.append(name)
            if isinstance(targets, Exception):
                raise targets
            return targets, {}

        return part

    monkeypatch.setattr(bench, "PARTS", {name: made(name, targets) for name, targets in found.items()})

    def seconds(part, _ground):
        """Of a part; tokens and cascade tell apart what is trained for it first."""
        own = {"long": 1e4}.get(part, 1.0)
        return own if bench is bins else (own, 0.0)

    monkeypatch.setattr(bench, "_seconds", seconds)
    return ran


@pytest.mark.parametrize("bench", [tokens, bins, cascade])
def test_a_part_that_takes_too_long_is_left_out_the_others_run_and_the_bench_is_no_success(bench, monkeypatch, capsys):
    ran = parts(monkeypatch, bench, long=[MET], short=[MET])
    assert bench.bench(full=False) == INCOMPLETE
    assert ran == ["short"]
    name = bench.__name__.split(".")[1]
    assert f"pliant bench {name} --part long" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("bench", [tokens, bins, cascade])
@pytest.mark.parametrize(("full", "named"), [(True, []), (False, ["long"])])
def test_what_is_named_and_the_full_setting_run_however_long_they_take(bench, full, named, monkeypatch):
    ran = parts(monkeypatch, bench, long=[MET], short=[MET])
    assert bench.bench(full, named) == 0
    assert ran == (named or ["long", "short"])


@pytest.mark.parametrize("bench", [tokens, bins, cascade])
def test_a_bar_that_falls_short_counts_for_more_than_a_part_left_out(bench, monkeypatch):
    parts(monkeypatch, bench, long=[MET], short=[MISSED])
    assert bench.bench(full=False) == 1


def test_a_part_of_cascade_whose_data_are_missing_is_left_out_with_the_reason(monkeypatch, capsys):
    ran = parts(monkeypatch, cascade, lacking=InputError("data", "x.parquet", "an existing file"), short=[MET])
    assert cascade.bench(full=False) == INCOMPLETE
    assert ran == ["lacking", "short"]
    assert "x.parquet" in capsys.readouterr().out


def test_a_part_of_bins_that_cannot_run_here_is_left_out_with_the_reason(monkeypatch, capsys):
    ran = parts(monkeypatch, bins, lacking=bins.Skipped("needs a champion: pliant train bins"), short=[MET])
    assert bins.bench(full=False) == INCOMPLETE
    assert ran == ["lacking", "short"]
    assert "needs a champion" in capsys.readouterr().out


def test_every_part_of_bins_has_its_seconds_and_the_encoder_is_prepared_once(tmp_path):
    assert bins.SECONDS.keys() == bins.PARTS.keys()
    assert bins._seconds("live", False) == bins.SECONDS["live"] + bins.PREPARED
    (tmp_path / "state" / "bench-bins" / "artifacts").mkdir(parents=True)
    assert bins._seconds("live", False) == bins.SECONDS["live"]


def test_parts_of_tokens_that_only_compute_train_nothing(monkeypatch):
    given = []
    monkeypatch.setattr(tokens.kernels, "measure", lambda *args, **_more: given.append(args) or Measured())
    monkeypatch.setattr(tokens.planner, "measure", lambda quick: Measured())
    monkeypatch.setattr(tokens.policies, "compare", lambda _setting, grounds, _progress: given.append(grounds))
    monkeypatch.setattr(tokens, "policies_figure", lambda _rows: None)
    for name, made in {"places": [], "targets": [MET], "plain": []}.items():
        monkeypatch.setattr(tokens.policies, name, lambda _rows, made=made: made)
    monkeypatch.setattr(tokens.console, "picture", lambda *_args: None)
    assert tokens.bench(full=False, parts=["planner", "kernels", "policies"]) == 0
    (kernels, grounds) = given
    assert kernels[0].source == "random weights"
    assert [ground.name for ground in grounds] == ["figure 4b", "table I"]


class Measured:
    """What a part gives, empty."""

    rows = ()

    def targets(self):
        return [MET]

    def plain(self):
        return {}

    def timing_rows(self):
        return []

    gap_rows = timing_rows
