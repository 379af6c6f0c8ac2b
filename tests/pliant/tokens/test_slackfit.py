"""SlackFit chooses as a plain search does, drops what would make others late, and runs by deadline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.latency import LatencyTable
from pliant.tokens.artifact import RateRule
from pliant.tokens.scheduler import Knowledge, PoolState
from pliant.tokens.slackfit import SlackFitConfig, SlackFitPolicy
from tests.fixtures.tokens.loads import KNOWN, ask


def by_search(known: Knowledge, config: SlackFitConfig, slack: float, waiting: int) -> tuple[int, int]:
    """Return setting and batch size as the docstring says, tuple by tuple and bucket by bucket."""
    table = [(s, n, known.at(s, n)) for s in known.latency.settings for n in range(1, config.max_batch + 1)]
    least, most = min(t[2] for t in table), max(t[2] for t in table)
    edges = np.linspace(least, most, config.buckets + 1)
    for i in reversed(range(config.buckets)):
        above = -1.0 if i == 0 else edges[i]
        below = np.inf if i == config.buckets - 1 else edges[i + 1]
        fits = [t for t in table if above < t[2] <= below and t[2] <= max(slack, least)]
        if fits:
            mean = {s: sum(shares[s] for shares in known.accuracy.values()) for s in known.latency.settings}
            return max(fits, key=lambda t: (min(t[1], waiting), mean[t[0]], -t[2]))[:2]
    raise AssertionError("the least tuple always fits")


@st.composite
def profiles(draw) -> Knowledge:
    settings = tuple(sorted(draw(st.sets(st.integers(-9, 9), min_size=1, max_size=3))))
    rows = [np.cumsum(draw(st.lists(st.integers(1, 64), min_size=3, max_size=3))) / 1024 for _ in settings]
    accuracy = {task: {s: draw(st.integers(0, 8)) / 8 for s in settings} for task in ("easy", "hard")}
    return Knowledge(
        LatencyTable(settings, (1, 4, 16), tuple(map(tuple, rows))), accuracy, RateRule((), (settings[0],))
    )


@given(profiles(), st.integers(1, 9), st.floats(-0.1, 0.3), st.integers(1, 20))
def test_it_chooses_as_a_plain_search_of_all_tuples_does(known, buckets, slack, waiting):
    config = SlackFitConfig(buckets, max_batch=16)
    chosen = SlackFitPolicy(known, config).choose(slack, waiting)
    expected = by_search(known, config, slack, waiting)
    assert (known.at(*chosen), chosen[1]) == (known.at(*expected), expected[1])


def filled(*deadlines: float, **config) -> SlackFitPolicy:
    policy = SlackFitPolicy(KNOWN, SlackFitConfig(**{"max_batch": 16, **config}))
    for i, deadline in enumerate(deadlines):
        policy.add(ask(i, within=deadline), 0.0)
    return policy


POOL = PoolState(0, (0.0,))


@pytest.mark.parametrize(
    ("within", "setting", "size"), [(9.0, 4, 16), (0.17, 0, 16), (0.061, -10, 16), (0.015, -10, 2)]
)
def test_the_less_slack_the_faster_the_setting_and_the_smaller_the_batch(within, setting, size):
    policy = filled(*[within] * 16, efficiency=0.0)
    decision = policy.decide(POOL, 0.0)
    assert (decision.setting, len(decision.run), decision.drop) == (setting, size, ())
    assert decision.seconds == KNOWN.at(setting, size)
    policy.check()


def test_requests_run_by_deadline_at_the_slowdown_that_was_measured():
    policy = filled(0.5, 0.14, 0.3)
    decision = policy.decide(PoolState(0, (0.0,), slowdown=2.0), 0.0)
    assert [request.id for request in decision.run] == [1, 2, 0]
    assert 2 * decision.seconds <= 0.14


@pytest.mark.parametrize(("behind", "dropped"), [(16, (0,)), (15, ())])
def test_the_first_is_dropped_only_where_more_wait_than_an_efficient_launch_takes(behind, dropped):
    """A launch of 16 at gamma -10 takes 60 ms, of 14 as many requests a second less a tenth."""
    policy = filled(0.02, *[0.5] * behind, efficiency=1.0)
    decision = policy.decide(POOL, 0.0)
    assert decision.drop == dropped
    assert len(decision.run) == (16 if dropped else 4)
    assert decision.seconds <= (0.5 if dropped else 0.02)


def test_what_not_even_the_fastest_launch_answers_in_time_expires():
    policy = filled(0.3, 0.1, 0.2)
    assert policy.wake_at(1.0) == pytest.approx(0.09)
    assert policy.expire(0.0899, 1.0) == []
    assert policy.expire(0.09 + 1e-9, 1.0) == [1]
    assert policy.expire(0.2, 2.0) == [2]
    policy.cancel(0)
    assert (len(policy), policy.wake_at(1.0)) == (0, None)
    policy.check()
