"""The simulated device takes the seconds of its profile and is right as often as the task's accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.protocol import Finished, Launch, Request
from pliant.tokens.simulated import SimulatedDevice
from tests.fixtures.tokens.loads import ACCURACY, TABLE

REQUESTS = [Request(i, 0.0, 1.0, "easy" if i % 2 else "hard") for i in range(4000)]


def device(seed: int = 0, jitter: float = 0.0) -> SimulatedDevice:
    return SimulatedDevice(TABLE, ACCURACY, REQUESTS, np.random.default_rng(seed), jitter)


def test_a_launch_lasts_as_long_as_the_table_says():
    seconds, end = device()(Launch(3, 0, (0, 1, 2), -5))
    assert seconds == TABLE.at(-5, 3) == end.seconds
    assert (end.launch, [result.request for result in end.results]) == (3, [0, 1, 2])


def test_a_load_lasts_as_long_as_its_variant_takes_and_a_restart_a_second():
    device = SimulatedDevice(TABLE, ACCURACY, [], np.random.default_rng(0), loading={2: 0.25})
    assert device(Launch(1, 0, (), 2, "load")) == (0.25, Finished(1, 0.25))
    assert device(Launch(2, 0, (), 3, "load")) == (1.0, Finished(2, 1.0))
    assert device(Launch(3, 0, (), 2, "restart")) == (1.0, Finished(3, 1.0))


def test_answers_are_right_as_often_as_the_accuracy_of_their_task():
    _, end = device()(Launch(0, 0, tuple(range(4000)), -10))
    for task, share in (("hard", 0.2), ("easy", 0.8)):
        assert np.mean([r.correct for r in end.results if REQUESTS[r.request].task == task]) == pytest.approx(
            share, abs=0.04
        )


def test_jitter_scatters_durations_around_the_median():
    noisy = device(jitter=0.2)
    seconds = [noisy(Launch(i, 0, (0,), 0))[0] for i in range(2000)]
    assert np.median(seconds) == pytest.approx(TABLE.at(0, 1), rel=0.03)
    assert np.log(seconds).std() == pytest.approx(0.2, rel=0.1)
