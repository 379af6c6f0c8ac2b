"""The benchmark of packing keeps within its minutes by leaving parts out, and a part that only computes trains nothing."""

from __future__ import annotations

import pytest

from benchmarks import packing, packing_contest, packing_engine, packing_vicuna
from benchmarks.packing import PARTS, QUICK_SECONDS, SLOW_SECONDS, Budget, Skipped


def test_every_part_has_its_seconds():
    assert list(SLOW_SECONDS) == list(PARTS)


def test_a_part_that_takes_too_long_here_is_left_out_and_said_to_be(capsys):
    budget = Budget(100.0, pace=2.0)
    fits = {name: budget.fits(name) for name in SLOW_SECONDS}
    assert fits == {name: 2 * seconds <= 100 for name, seconds in SLOW_SECONDS.items()}
    assert budget.left_out == [name for name, fit in fits.items() if not fit] != []
    assert f"pliant bench packing --part {budget.left_out[0]}" in " ".join(capsys.readouterr().out.split())


def test_a_run_without_a_limit_leaves_nothing_out_and_probes_nothing(monkeypatch):
    monkeypatch.setattr(packing, "pace", lambda: pytest.fail("probed"))
    budget = Budget(0.0)
    assert all(budget.fits(name) for name in PARTS)
    assert budget.left_out == []


def test_what_has_been_taken_counts():
    budget = Budget(QUICK_SECONDS, pace=0.1)
    budget.began -= QUICK_SECONDS
    assert not budget.fits("published")


@pytest.mark.parametrize("name", ["study", "engine"])
def test_a_part_that_only_computes_names_the_part_that_trains(name, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    for module in (packing_contest, packing_engine):
        monkeypatch.setattr(module, "missing", lambda: "")
        monkeypatch.setattr(module, "measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(packing_vicuna, "is_kept", lambda _home, _way: False)
    monkeypatch.setattr(packing_vicuna, "crossed", lambda *_: pytest.fail("trained"))
    with pytest.raises(Skipped, match="pliant bench packing --part forecasts"):
        PARTS[name](False, None)
