"""The planner's benchmark: what is timed, and which of the figures the targets judge."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.tokens.planner import HEADINGS, PlannerTimings, _gathered, _waiting, measure
from pliant.tokens.published import FIGURE_4B, profile


@pytest.fixture(scope="module")
def measured() -> PlannerTimings:
    return measure(queues=2, seed=1)


def test_queues_hold_as_many_large_batches_as_asked_by_deadline():
    gathered = _gathered(np.random.default_rng(0), 12)
    assert len(gathered) == 12
    assert all(32 <= len(batch.requests) <= 64 for batch in gathered)
    assert [batch.earliest for batch in gathered] == sorted(batch.earliest for batch in gathered)


def test_patient_queues_are_the_same_with_later_deadlines():
    gathered, known = _gathered(np.random.default_rng(0), 2), profile(FIGURE_4B)
    for usual, patient in zip(_waiting(gathered, known, 0.0), _waiting(gathered, known, 0.5), strict=True):
        assert np.allclose(patient[0], usual[0] + 0.5)
        assert np.array_equal(patient[1], usual[1])


def test_there_is_one_target_for_16_and_one_for_32_batches(measured):
    assert [(target.name, target.sense, target.limit) for target in measured.targets()] == [
        ("time per plan, 16 batches", "<=", 2.0),
        ("time per plan, 32 batches", "<=", 10.0),
    ]
    slower = max(timing.median for timing in measured.timings if (timing.batches, timing.devices) == (16, 1))
    assert measured.targets()[0].measured == 1000 * slower


def test_what_was_measured_becomes_json_and_rows(measured):
    assert len(json.loads(json.dumps(measured.plain()))["timings"]) == 9
    assert {len(row) for row in measured.table()} == {len(HEADINGS)}
