"""The rates of dispatch: what is timed, and which of the figures the targets judge."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.bins.dispatch import (
    BURST,
    HEAD,
    INSTANCES,
    RUNTIMES,
    UTILISATIONS,
    Batch,
    Found,
    Handled,
    _batch,
    _fresh,
    _handled,
    burst,
    load,
)
from pliant.bins.dispatch import DISPATCHES
from pliant.protocol import Arrived

LENGTHS = np.arange(1, 513)


def found(slow_batch: float = 2e6, slow_mean: float = 4e-6) -> Found:
    batch = (Batch("completion", 0.5, 10, 3e6), Batch("packing", math.inf, 10, slow_batch))
    handled = (
        Handled("completion", 0.5, 10, 3e-6, 3e-6, 0.0, 2e5),
        Handled("published", 0.8, 10, 3e-6, slow_mean, 0.1, 1e5),
    )
    return Found(batch, handled, 3.0, 0.4)


def test_the_load_has_the_utilisation_asked_for_and_a_device_for_every_length():
    made = load(0.5, 20_000, LENGTHS, instances=60)
    seconds = np.array([one.alone for one in made.known.runtimes])[made.first]
    assert seconds.sum() / made.times[-1] / 60 == pytest.approx(0.5, rel=0.05)
    assert len(made.held) == 60 and max(made.held) == RUNTIMES - 1 == len(made.known.runtimes) - 1


def test_the_burst_is_as_large_as_the_papers():
    made = burst(LENGTHS)
    assert len(made.times) == len(made.lengths) == BURST and not made.times.any()
    assert len(made.held) == INSTANCES == BURST / 2


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_every_policy_is_timed_in_batch(dispatch):
    timed = _batch(dispatch, 0.5, load(0.5, 500, LENGTHS, instances=60))
    assert (timed.dispatch, timed.decisions) == (dispatch, 500) and timed.per_second > 0


@pytest.mark.parametrize("utilisation", UTILISATIONS)
def test_one_by_one_all_arrivals_but_those_that_fill_the_pool_are_timed(utilisation):
    timed = _handled("completion", utilisation, load(utilisation, 1000, LENGTHS, instances=60))
    assert 850 < timed.decisions < 950  # the first tenth of the events fills the pool
    assert timed.median > 0 and 0 < timed.mean < 1e-3 and 0 <= timed.left_out < 1
    assert timed.with_ends < 1 / timed.mean


def test_a_decision_of_the_scheduler_comes_with_its_launch_where_a_device_is_free():
    made = load(0.1, 10, LENGTHS, instances=60)
    first = made.requests()[0]
    (launch,) = _fresh("completion", made).handle(Arrived(first), first.arrival)
    assert launch.requests == (first.id,)


@pytest.mark.parametrize(("batch", "mean", "met"), [(2e6, 4e-6, [1, 1]), (9e5, 4e-6, [0, 1]), (2e6, 8e-6, [1, 0])])
def test_the_slowest_policy_and_utilisation_are_judged(batch, mean, met):
    targets = found(batch, mean).targets()
    assert [bar.measured for bar in targets] == [batch, pytest.approx(1 / mean)]
    assert [bar.met for bar in targets] == met


def test_the_table_has_a_line_for_each_and_a_cell_for_each_heading():
    table = found().table()
    assert len(table) == 4 and {len(line) for line in table} == {len(HEAD)}
    assert [line[2] for line in table] == ["0.5", "burst", "0.5", "0.8"]
