"""Bins in worlds that differ from its profile: no harm beside first come, first served, and back soon after a burst."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bins.robust import DEADLINE, OURS, RIVALS, answered, play, rate, recovery
from benchmarks.robust.clients import capacity, segments
from pliant.worlds import World
from tests.fixtures.robust import checked, drawn_worlds

SECONDS = 1.0


def in_time(policy: str, world: World, load: float, seed: int) -> int:
    """Return how many requests of a second of the profile's load have their answers in time."""
    true = capacity(world, SECONDS, 1 / rate())
    parts = segments(load * true * rate(), SECONDS / true, "patient", true * rate(), DEADLINE)
    journal, those = play(policy, world, parts, true * rate(), seed, watch=checked if policy == OURS else None)
    return len(answered(journal, those))


@settings(max_examples=12)
@given(drawn_worlds(DEADLINE, SECONDS), st.sampled_from((0.5, 0.95, 2.0)), st.integers(0, 99))
def test_in_any_world_no_fewer_are_answered_in_time_than_first_come_first_served(
    world: World, load: float, seed: int
) -> None:
    assert in_time(OURS, world, load, seed) >= 0.9 * max(in_time(rival, world, load, seed) for rival in RIVALS)


@pytest.mark.parametrize("factor", [1 / 8, 8.0])
def test_a_profile_of_another_machine_costs_next_to_nothing_once_it_is_learnt(factor: float) -> None:
    right, wrong = (in_time(OURS, World("another", of), 0.95, 0) for of in (1.0, factor))
    assert wrong >= 0.9 * right


def test_after_a_burst_of_ten_times_the_capacity_it_is_back_within_ten_deadlines() -> None:
    assert recovery(OURS, 0) <= 10.0
