"""The rates of dispatch: what is timed, and which of the figures the targets judge."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bins.dispatch import (
    BATCH,
    HANDLE,
    HEADINGS,
    RUNTIMES,
    SERVED_HEADINGS,
    UTILISATIONS,
    DispatchRates,
    Rate,
    Served,
    ServedRates,
    _batch,
    _fresh,
    _handled,
    load,
    serve,
)
from pliant.bins.dispatch import DISPATCHES
from pliant.protocol import Arrived

LENGTHS = np.arange(1, 513)


def rates(slow_batch: float = 2e6, slow_handle: float = 2e5) -> DispatchRates:
    batch = (Rate(BATCH, "completion", 0.5, 10, 3e6), Rate(BATCH, "packing", 0.8, 10, slow_batch))
    handled = (Rate(HANDLE, "completion", 0.5, 10, 3e5), Rate(HANDLE, "published", 0.8, 10, slow_handle))
    return DispatchRates(batch + handled)


def test_the_load_has_the_utilisation_asked_for_and_a_device_for_every_length():
    offered = load(0.5, 20_000, LENGTHS, instances=60)
    seconds = np.array([runtime.alone for runtime in offered.known.runtimes])[offered.first]
    assert seconds.sum() / offered.times[-1] / 60 == pytest.approx(0.5, rel=0.05)
    assert len(offered.held) == 60 and max(offered.held) == RUNTIMES - 1 == len(offered.known.runtimes) - 1


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_every_policy_is_timed_in_batch(dispatch):
    timed = _batch(dispatch, 0.5, load(0.5, 500, LENGTHS, instances=60))
    assert (timed.dispatch, timed.decisions) == (dispatch, 500) and timed.per_second > 0


@pytest.mark.parametrize("utilisation", UTILISATIONS)
def test_one_by_one_all_arrivals_but_those_that_fill_the_pool_are_timed(utilisation):
    timed = _handled("completion", utilisation, load(utilisation, 1000, LENGTHS, instances=60))
    assert 850 < timed.decisions < 950  # the first tenth of the events fills the pool
    assert timed.per_second > 1000


def test_a_decision_of_the_scheduler_comes_with_its_launch_where_a_device_is_free():
    offered = load(0.1, 10, LENGTHS, instances=60)
    first = offered.requests()[0]
    (launch,) = _fresh("completion", offered).handle(Arrived(first), first.arrival)
    assert launch.requests == (first.id,)


@pytest.mark.parametrize(("batch", "handle", "met"), [(2e6, 2e5, [1, 1]), (9e5, 2e5, [0, 1]), (2e6, 1e5, [1, 0])])
def test_the_slowest_policy_and_utilisation_are_judged(batch, handle, met):
    targets = rates(batch, handle).targets()
    assert [target.measured for target in targets] == [batch, handle]
    assert [target.met for target in targets] == met


def test_the_table_has_a_line_for_each_and_a_cell_for_each_heading():
    table = rates().table()
    assert len(table) == 4 and {len(line) for line in table} == {len(HEADINGS)}


def test_few_devices_and_many_are_given_the_same_load_each_in_both_placements():
    served = serve(requests=200, devices=(2, 20), lengths=LENGTHS)
    assert [(rate.placement, rate.devices) for rate in served.rates] == [
        ("shared", 2), ("shared", 20), ("single", 2), ("single", 20)
    ]  # fmt: skip
    assert all(rate.requests == 200 and rate.per_second > 100 for rate in served.rates)
    assert {len(line) for line in served.table()} == {len(SERVED_HEADINGS)}


def test_many_devices_are_judged_by_the_share_of_the_rate_that_few_allow():
    rates = (Served("shared", 1000, 9, 5e3), Served("shared", 8, 9, 2e4), Served("single", 8, 9, 1e4))
    shared, single = ServedRates(rates).targets()
    assert (shared.measured, shared.met, single.measured) == (0.25, False, 1.0)
