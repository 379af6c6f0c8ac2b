"""Quiet months and traffic that depends on itself: what is made up, and what is counted of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pliant.benchmarks.watch import quiet
from pliant.benchmarks.watch.dependence import CHANGED, SHARES, Traffic, alarm_of, moved
from pliant.benchmarks.watch.streams import Recording
from pliant.watch.binning import classes, linear

VALUES = np.random.default_rng(0).normal(size=6000)
SCORES = Recording("bins", "score", VALUES, linear(-4, 4))
LABELS = Recording("tokens", "class", np.arange(6000.0) % 4, classes("0123"))


def test_quiet_days_raise_no_alarm():
    for result in quiet.measure([SCORES, LABELS], runs=2, days=2):
        assert result.runs == ()
        assert result.observations == 2 * 86_400


def test_traffic_is_what_it_says():
    def counts(world: Traffic, days: float = 2.0) -> np.ndarray:
        return np.array([block for _, block in world.minutes(days, np.random.default_rng(0))])

    usual, repeated = counts(Traffic("x")), counts(Traffic("x", repeats=4))
    assert usual.mean(0) == pytest.approx(60 * SHARES, rel=0.1) and repeated.mean(0) == pytest.approx(
        60 * SHARES, rel=0.2
    )
    assert 4 < repeated[:, 0].var() / usual[:, 0].var() < 9
    course = counts(Traffic("x", daily=2.0))[:, CHANGED].reshape(-1, 60).sum(1)
    assert course.max() / course.min() == pytest.approx(2.0, abs=0.6)
    doubled = counts(Traffic("x", change=1.0))[:, CHANGED].reshape(2, -1).sum(1)
    assert doubled[1] / doubled[0] == pytest.approx(moved(SHARES, 2.0)[CHANGED] / SHARES[CHANGED], rel=0.05)
    topics = [counts(Traffic("x", wander=wander)) @ np.linspace(0, 1, 64) for wander in (0.1, 0.4)]
    assert topics[0].std() < topics[1].std()


def test_gross_traffic_is_an_alarm_and_repeats_are_none():
    assert alarm_of((Traffic("x", repeats=4), 0)) == math.inf
