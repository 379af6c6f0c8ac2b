"""A bench's time limit: what is left out is told with its command, and never counts as met."""

from __future__ import annotations

import pytest

from benchmarks import budget
from benchmarks.budget import INCOMPLETE, Budget, begin
from benchmarks.results import Target

MET, MISSED = Target("a", 2.0, ">=", 1.0), Target("b", 0.5, ">=", 1.0)


def at(now: float, slowness: float = 1.0, limit: float | None = 100.0) -> Budget:
    return Budget("tokens", limit, slowness, clock=lambda: now)


@pytest.mark.parametrize(
    ("now", "slowness", "allowed"), [(0.0, 1.0, True), (40.0, 1.0, True), (41.0, 1.0, False), (0.0, 2.0, False)]
)
def test_a_part_is_left_out_where_the_time_used_or_a_slower_machine_leaves_too_little_for_it(now, slowness, allowed):
    assert at(now, slowness).allows("live", 60.0) is allowed


def test_without_a_limit_every_part_has_time():
    assert at(1e6, 1e3, limit=None).allows("live", 1e6)


def test_what_was_left_out_is_told_with_the_command_that_runs_it(capsys):
    short = at(90.0)
    assert not short.allows("house", 60.0)
    assert not short.allows("live", 60.0)
    short.status([])
    shown = " ".join(capsys.readouterr().out.split())
    assert "pliant bench tokens --part house" in shown
    assert "pliant bench tokens --part house --part live" in shown


def test_a_bench_that_left_parts_out_is_never_a_success_and_a_missed_bar_counts_for_more():
    whole, short = at(0.0), at(90.0)
    short.allows("live", 60.0)
    assert [whole.status([MET]), whole.status([MET, MISSED])] == [0, 1]
    assert [short.status([MET]), short.status([MET, MISSED])] == [INCOMPLETE, 1]


def test_a_bench_that_measured_nothing_says_so(capsys):
    assert [at(0.0).status([]), at(0.0, limit=None).status([])] == [INCOMPLETE, INCOMPLETE]
    assert "Nothing was measured." in capsys.readouterr().out


@pytest.mark.parametrize(("full", "parts"), [(True, []), (False, ["live"])])
def test_the_machine_is_probed_only_where_there_is_a_limit(monkeypatch, full, parts):
    monkeypatch.setattr(budget, "probe", lambda: pytest.fail("probed"))
    assert begin("tokens", full, parts).limit is None


def test_a_machine_half_as_fast_in_either_respect_is_taken_for_twice_as_slow_and_training_goes_by_products(monkeypatch):
    monkeypatch.setattr(budget, "_gflops", lambda: 10 * budget.GFLOPS)
    monkeypatch.setattr(budget, "_loops", lambda: budget.LOOPS / 2)
    begun = begin("tokens", False, [])
    assert (begun.slowness, begun.products) == (pytest.approx(2.0), pytest.approx(0.1))
    assert begun.allows("contest", budget.LIMIT / 4, training=4 * budget.LIMIT)
    assert not begun.allows("contest", budget.LIMIT / 4, training=6 * budget.LIMIT)
