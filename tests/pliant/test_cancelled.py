"""A client that leaves before its answer: nothing more is done for it, whatever it was doing, and all others fare on.

The books of each system's loads check that no action names a request whose client has left (tests/fixtures).
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.scheduler import BinsScheduler
from pliant.protocol import replay
from pliant.tokens.policies import POLICIES
from tests.fixtures.bins import loads as bins
from tests.fixtures.cascade import loads as cascade
from tests.fixtures.tokens import loads as tokens

seeds = st.integers(0, 10_000)
failing = st.sampled_from([0.0, 0.3])


def leaving(load, seed: int) -> list[tuple[float, int]]:
    """A third of the clients leave within twice the time that they have, many of them soon, some after their answer."""
    rng = np.random.default_rng(seed)
    chosen = [request for request in load if rng.random() < 1 / 3]
    return [(r.arrival + 2 * rng.random() ** 4 * (r.deadline - r.arrival), r.id) for r in chosen]


@given(seeds, failing, st.sampled_from(sorted(POLICIES)), st.sampled_from([1, 3]))
def test_under_any_policy_of_tokens_clients_may_leave_at_any_time(seed, share, policy, workers):
    load = tokens.bursty(seed, 0.2)
    world = tokens.World(seed, failing=share, failing_restarts=share, jitter=0.3)
    journal, books = tokens.run(load, world, workers, policy, leaving=leaving(load, seed))
    assert replay(tokens.scheduler(policy, workers), journal) == journal
    assert books.gone


@given(seeds, failing, st.sampled_from(["shared", "single"]), st.booleans())
def test_under_any_placement_of_bins_clients_may_leave_at_any_time(seed, share, placement, drop_late):
    load, knowledge = bins.bursty(seed, 0.05, streams=2), bins.known(placement, 2, (1, 4))
    world = bins.World(seed, failing=share, failing_restarts=share, failing_loads=share, jitter=0.3)
    gone = leaving(load, seed)
    journal, books = bins.run(load, knowledge, world, gone, workers=3, drop_late=drop_late)
    assert replay(BinsScheduler(knowledge, books.config), journal) == journal


@given(seeds, failing, st.booleans())
def test_in_a_cascade_clients_may_leave_at_any_level(seed, share, own):
    load = cascade.bursty(seed, 0.2)
    world = cascade.World(seed, failing=share, failing_restarts=share, jitter=0.3)
    journal, books = cascade.run(load, world, 3, own, leaving=leaving(load.requests, seed))
    assert replay(cascade.scheduler(cascade.known(3, own), 3), journal) == journal
    assert books.gone


def test_the_work_of_clients_that_left_is_not_run():
    """All but one of 800 leave at once: of the others' work at most the launch in hand still runs."""
    load = [tokens.ask(i, at=i * 1e-6, within=5.0) for i in range(800)]
    stays = load[-1]
    _, books = tokens.run(load, leaving=[(0.002, request.id) for request in load if request is not stays])
    assert set(books.fates) >= {stays.id}
    ran = [launch for launch in books.launches.values() if launch.kind == "run"]
    assert len(ran) <= 2
