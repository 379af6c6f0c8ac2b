"""Simulated devices take the profile's seconds; the reference load's loud half is loud."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.bins.simulated import SimulatedBins
from pliant.protocol import Finished, Launch, Result
from tests.fixtures.bins.loads import LOAD, ask, known
from tests.fixtures.bins.scenarios import cost

KNOWN = known("shared", 2, (1, 4))
TEXTS = [ask(0, length=20), ask(1, length=300), ask(2, length=30, task="chat")]


def device(jitter: float = 0.0, seed: int = 0, beyond: float = 0.0) -> SimulatedBins:
    return SimulatedBins(KNOWN, TEXTS, np.random.default_rng(seed), jitter, beyond)


def test_a_static_launch_takes_what_its_shape_takes_whatever_it_holds():
    seconds, end = device()(Launch(7, 0, (0, 0, 0), 1))  # 64 tokens, 4 texts
    assert seconds == pytest.approx(cost(64, 4))
    assert end == Finished(7, seconds, (Result(0), Result(0), Result(0)))


def test_a_load_takes_the_profiles_time_and_a_restart_a_second():
    assert device()(Launch(5, 0, kind="load")) == (LOAD, Finished(5, LOAD))
    assert device()(Launch(5, 0, kind="restart")) == (1.0, Finished(5, 1.0))


def test_jitter_scatters_durations_around_the_median_and_a_seed_gives_them_again():
    noisy, again = device(0.2, 5), device(0.2, 5)
    seconds = [noisy(Launch(i, 0, (0,), 0))[0] for i in range(1000)]
    assert [again(Launch(i, 0, (0,), 0))[0] for i in range(1000)] == seconds
    assert np.median(seconds) == pytest.approx(cost(64, 1), rel=0.03)
    assert np.log(seconds).std() == pytest.approx(0.2, rel=0.1)


def test_what_a_launch_takes_beyond_the_device_is_not_the_devices_time():
    seconds, end = device(beyond=0.0008)(Launch(7, 0, (0,), 0))
    assert seconds == pytest.approx(cost(64, 1) + 0.0008)
    assert end.seconds == pytest.approx(cost(64, 1))


# The reference load
