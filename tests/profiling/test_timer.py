"""The timer: how often it calls, and that what it says is of the calls it timed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pliant.profiling.timer import TimerConfig, Timing, measure, monotonic


class Calls:
    """Counts, and is its own clock: call i takes `seconds[i]`, the last one again and again."""

    def __init__(self, *seconds: float) -> None:
        self.count, self.now, self._seconds = 0, 100.0, seconds or (0.0,)

    def __call__(self) -> None:
        self.now += self._seconds[min(self.count, len(self._seconds) - 1)]
        self.count += 1

    def measured(self, config: TimerConfig) -> Timing:
        return measure(self, config, clock=lambda: self.now)


@pytest.mark.parametrize(
    ("config", "calls"),
    [
        (TimerConfig(warmup=3, least=4, most=4, budget=9.0), 7),
        (TimerConfig(warmup=0, least=4, most=9, budget=0.0), 4),
        (TimerConfig(warmup=2, least=1, most=6, budget=9.0), 8),
        (TimerConfig(warmup=1, least=5, most=2, budget=9.0), 6),
    ],
)
def test_it_warms_up_then_repeats_until_the_budget_or_the_most_is_reached(config, calls):
    counted = Calls()
    counted.measured(config)
    assert counted.count == calls


def test_what_prepares_runs_before_each_call_and_is_not_timed():
    prepared, timed = Calls(5.0), Calls(1.0)
    order = []

    def prepare() -> None:
        order.append("prepare")
        prepared()

    def call() -> None:
        order.append("call")
        timed()

    config = TimerConfig(warmup=1, least=2, most=2)
    timing = measure(call, config, clock=lambda: prepared.now + timed.now, prepare=prepare)
    assert order == ["prepare", "call"] * 3
    assert timing.median == 1.0


@given(arrays(np.float64, (4, 3), elements=st.floats(0.1, 10)))
def test_monotonic_seconds_are_the_least_of_all_that_are_at_least_as_long_and_as_many(seconds):
    expected = [[seconds[row:, column:].min() for column in range(3)] for row in range(4)]
    assert monotonic(seconds).tolist() == expected
