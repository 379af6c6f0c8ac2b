"""The paper's conditions are as the paper gives them, and the simulated device follows its profile."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.protocol import Finished, Launch, Request
from pliant.tokens.published import (
    FIGURE_4B,
    RULE,
    profile,
    variants,
)
from pliant.tokens.simulated import SimulatedDevice
from tests.fixtures.tokens.loads import ACCURACY, TABLE


@pytest.mark.parametrize(("gamma", "rate"), [(0, 580), (-15, 1000)])
def test_the_profile_has_the_throughput_of_the_figure(gamma, rate):
    table = profile(FIGURE_4B).latency
    assert 64 / table.at(gamma, 64) == pytest.approx(rate)
    assert 1 / table.at(gamma, 1) == pytest.approx(rate)  # a batch takes count x seconds per sample


@pytest.mark.parametrize(
    ("rate", "gamma"), [(0, 8), (280, 4), (320, 2), (350, 0), (380, -5), (450, -10), (520, -15), (1000, -20)]
)
def test_the_rule_is_the_published_one(rate, gamma):
    assert RULE.gamma(rate) == gamma
    assert RULE.gamma(rate - 0.5) != gamma or rate == 0


def test_variants_differ_as_small_base_and_large_do():
    known = variants(FIGURE_4B)
    rates = [known.latency.throughput(variant, 64) / 580 for variant in (0, 1, 2)]
    assert rates == pytest.approx([2.6, 1.0, 0.31])
    assert known.loading == {0: 0.4, 1: 0.8, 2: 2.0}
    assert known.accuracy["cifar10"] == pytest.approx({0: 0.92, 1: 0.95, 2: 0.965})
    assert known.accuracy["cifar100"] == pytest.approx({0: 0.755, 1: 0.785, 2: 0.8})


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
