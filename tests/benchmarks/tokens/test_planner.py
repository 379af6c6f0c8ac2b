"""The planner's benchmark judges all plans by one count of its own, and says what was measured."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.tokens.planner import GAP_HEAD, TIMING_HEAD, Planner, Waiting, _gathered, measure_over
from pliant.tokens.plan import DROP


@pytest.fixture(scope="module")
def measured() -> Planner:
    return measure_over(queues=12, seed=1)


def gap(planner: Planner, name: str):
    return [g for g in planner.gaps if g.name.startswith(name)]


def test_a_plan_is_judged_by_what_ends_in_time_on_the_device_that_is_free_first():
    batches = ((np.array([1.0, 2.0]), np.array([[0.5, 0.25]])), (np.array([2.0]), np.ones((1, 1))))
    queue = Waiting(batches, np.array([[0.0, 1.0, 1.5]]))
    assert queue.earned((0, 0)) == 0.25
    assert queue.earned((DROP, 0)) == 1.0
    assert replace(queue, clocks=(0.0, 1.0)).earned((0, 0)) == 1.25


def test_queues_hold_as_many_large_batches_as_asked_by_deadline():
    gathered = _gathered(np.random.default_rng(0), 12)
    assert len(gathered) == 12
    assert all(32 <= len(batch.requests) <= 64 for batch in gathered)
    assert [b.earliest for b in gathered] == sorted(b.earliest for b in gathered)


def test_no_plan_earns_more_than_the_exact_one_by_its_own_count(measured):
    compared = [g for g in measured.gaps if not g.name.startswith("planner / best")]
    assert len(compared) == 11
    for g in compared:
        assert g.best <= 1.0 + 1e-9
        assert g.worst <= g.p5 <= g.median <= g.p95 <= g.best


def test_the_planner_finds_the_best_of_all_choices_on_one_device_and_mostly_on_two(measured):
    one, two = gap(measured, "planner / best of all choices")
    assert one.worst == pytest.approx(1.0)
    assert one.equal == 1.0
    assert 0.9 < two.worst <= two.best <= 1.0 + 1e-9
    assert two.equal > 0.7


def test_thinning_costs_less_than_it_may(measured):
    for g in gap(measured, "planner at"):
        assert g.worst >= 1.0 - 0.01 * g.batches
        assert g.median > 0.99


def test_there_is_one_bar_for_16_and_one_for_32_batches(measured):
    assert [(bar.name, bar.sense, bar.limit) for bar in measured.targets()] == [
        ("time per plan, 16 batches", "<=", 2.0),
        ("time per plan, 32 batches", "<=", 10.0),
    ]
    slower = max(t.median for t in measured.timings if (t.batches, t.devices) == (16, 1))
    assert measured.targets()[0].measured == 1000 * slower


def test_what_was_measured_becomes_json_and_rows(measured):
    assert json.loads(json.dumps(measured.plain()))["gaps"][0]["queues"] == 12
    assert {len(row) for row in measured.timing_rows()} == {len(TIMING_HEAD)}
    assert {len(row) for row in measured.gap_rows()} == {len(GAP_HEAD)}
