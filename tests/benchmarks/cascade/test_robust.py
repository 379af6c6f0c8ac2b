"""The cascade in worlds that differ from its profile: no harm beside either model alone, and back soon after a burst."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cascade.robust import DEADLINE, OURS, RIVALS, earned, play, rate, recovery
from benchmarks.robust.clients import capacity, segments
from pliant.worlds import World
from tests.fixtures.robust import checked, drawn_worlds

SECONDS = 2.0


def utility(policy: str, world: World, load: float, seed: int) -> float:
    """Return the utility of right answers in time to the requests of two seconds of the profile's load."""
    true = capacity(world, SECONDS, 8 / rate())
    parts = segments(load * true * rate(), SECONDS / true, "patient", true * rate(), DEADLINE)
    journal, those = play(policy, world, parts, true * rate(), seed, watch=checked if policy == OURS else None)
    return sum(earned(journal, those).values())


@settings(max_examples=8)
@given(drawn_worlds(DEADLINE, SECONDS), st.sampled_from((0.3, 0.95, 2.0)), st.integers(0, 99))
def test_in_any_world_it_earns_no_less_than_either_model_alone(world: World, load: float, seed: int) -> None:
    assert utility(OURS, world, load, seed) >= 0.9 * max(utility(rival, world, load, seed) for rival in RIVALS)


def test_after_a_burst_of_ten_times_the_capacity_it_is_back_within_ten_deadlines() -> None:
    assert recovery(OURS, 0) <= 10.0
