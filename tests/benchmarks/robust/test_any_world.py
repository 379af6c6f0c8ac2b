"""In worlds that nobody listed no system's decisions do much worse than doing nothing clever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant import systems
from pliant.benchmarks.robust.clients import CLIENTS
from pliant.benchmarks.robust.contest import contestant
from pliant.worlds import World

OFFERING = [system for system in systems.names() if systems.system(system).has("benchmarks", "robust")]
LEAST = 0.8  # of the first rival's value, in one run: the bench judges by medians


def drawn_worlds(seconds: float, deadline: float) -> st.SearchStrategy[World]:
    """Worlds that are slower or faster, noisy and paused, change once, and err by operating point and size."""
    factors = st.sampled_from([0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
    return st.builds(
        World,
        st.just("drawn"),
        factors,
        noise=st.sampled_from([0.0, 0.2, 0.4]),
        pause=st.sampled_from([0.0, 0.01]),
        pause_seconds=st.just(deadline / 4),
        steps=st.sampled_from([(), ((seconds / 2, 2.0),), ((seconds / 3, 0.5), (seconds / 2, 1.0))]),
        by_setting=st.sampled_from([0.0, 0.2]),
        by_size=st.sampled_from([0.0, 0.2]),
    )


@pytest.mark.parametrize("system", OFFERING)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_in_any_world_ours_is_not_far_below_doing_nothing_clever(system: str, data: st.DataObject) -> None:
    offered = contestant(system)
    world = data.draw(drawn_worlds(offered.seconds, offered.deadline))
    load, clients = data.draw(st.sampled_from(offered.loads)), data.draw(st.sampled_from(CLIENTS))
    seed = data.draw(st.integers(0, 99))
    ours, rival = (offered.value(policy, world, load, seed, clients) for policy in (offered.ours, offered.rivals[0]))
    assert ours >= LEAST * rival
    assert ours >= 0.0
