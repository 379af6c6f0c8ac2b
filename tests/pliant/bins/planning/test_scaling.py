"""Arlo's autoscaling: the rule by itself, and devices that come and go under load."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.knowledge import Scaling
from pliant.bins.planning.scaling import Scaler
from tests.fixtures.bins.loads import World, bursty, known, run

RULE = Scaling()
PLACEMENTS = pytest.mark.parametrize("placement", ["shared", "single"])


def decisions(shares, seconds: float, every: float = 0.1, rule: Scaling = RULE) -> list[tuple[float, int]]:
    """Return when the rule wanted another number of devices, for answers after `shares(now)` of their SLO."""
    scaler, changes = Scaler(rule), []
    for step in range(int(seconds / every)):
        now = step * every
        scaler.answered(now, shares(now))
        if scaler.wake_at() <= now and (more := scaler.decide(now)):
            changes.append((now, more))
    return changes


def test_a_tail_at_95_percent_of_the_slo_asks_for_one_device_more_at_every_look():
    changes = decisions(lambda now: 0.95, 12)
    assert [more for _, more in changes] == [1, 1, 1]
    assert [when for when, _ in changes] == pytest.approx([0.0, 5.0, 10.0], abs=0.11)
    assert decisions(lambda now: 0.949, 200) == []


def test_a_tail_below_half_over_a_minute_gives_one_device_back_and_another_one_a_minute_later():
    changes = decisions(lambda now: 0.49, 130)
    assert [more for _, more in changes] == [-1, -1]
    assert [when for when, _ in changes] == pytest.approx([60.0, 120.0], abs=0.11)
    assert decisions(lambda now: 0.5, 200) == []


# Devices that come and go


@PLACEMENTS
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), failing=st.sampled_from([0.0, 0.2]), least=st.integers(1, 3))
def test_devices_go_in_quiet_times_and_come_back_in_loud_ones_and_are_never_fewer_than_the_least(
    placement, seed, failing, least
):
    rule = Scaling(least, 0.6, 0.4, window=0.1, pause=0.02)
    load = bursty(seed, 0.2, (100, 100, 2500, 100))
    world = World(seed, failing=failing, failing_restarts=failing, failing_loads=failing)
    _, books = run(load, known(placement, runtimes="static"), world, workers=5, scaling=rule, drop_late=False)
    assert min(books.active) >= least
    assert books.active[0] == 5
    assert min(books.active) < 5 or failing
    assert any(after > before for before, after in zip(books.active, books.active[1:], strict=False)) or failing


def test_what_was_answered_exactly_a_pause_or_a_window_ago_still_counts():
    for ago, more in ((1.0, 1), (1.001, 0)):
        scaler = Scaler(Scaling(pause=1.0, window=8.0))
        scaler.answered(10.0 - ago, 2.0)
        scaler.answered(10.0, 0.6)
        assert scaler.decide(10.0) == more
    for ago, more in ((8.0, 0), (8.001, -1)):
        scaler = Scaler(Scaling(pause=1.0, window=8.0))
        scaler.answered(0.5, 0.1)
        assert scaler.decide(0.5) == 0, "the rule waits for a whole window first"
        scaler.answered(10.0 - ago, 0.7)
        scaler.answered(10.0, 0.1)
        assert scaler.decide(10.0) == more
