"""The gate's load is the same for the same seed, and as loud as the device bears."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.tokens.reference import ReferenceConfig, reference_load

TASKS = ("easy", "hard")


def test_the_same_seed_gives_the_same_load_and_another_another():
    first, again, other = (reference_load(TASKS, 100.0, seed) for seed in (1, 1, 2))
    assert first == again == reference_load(TASKS, 100.0, 1, ReferenceConfig())
    assert first.requests != other.requests


def test_rates_are_shares_of_the_capacity_quiet_and_loud_in_turn():
    config = ReferenceConfig()
    load = reference_load(TASKS, 200.0, 3)
    rates = [segment.rate for segment in load.segments]
    assert sorted(rates[::2]) == sorted(200.0 * np.array(config.quiet))
    assert sorted(rates[1::2]) == sorted(200.0 * np.array(config.loud))
    expected = sum(segment.rate * segment.seconds for segment in load.segments)
    assert len(load.requests) == pytest.approx(expected, rel=0.1)
    assert {request.task for request in load.requests} == set(TASKS)


def test_the_gates_load_is_what_it_was_when_systems_were_first_judged_by_it():
    load = reference_load(TASKS, 100.0, 0)
    rates = [segment.rate for segment in load.segments]
    assert [segment.seconds for segment in load.segments] == [4.0] * 8
    assert sorted(rates[::2]) == pytest.approx([50, 65, 80, 95])
    assert sorted(rates[1::2]) == pytest.approx([125, 150, 175, 200])
    assert {(r.task, round(r.deadline - r.arrival, 6), r.utility) for r in load.requests} == {
        (task, *kind) for task in TASKS for kind in ((0.6, 1.0), (1.0, 0.3))
    }
    assert load.loud == {r.id for r in load.requests if r.arrival // 4 % 2 == 1} != set()
