"""Few devices and many are given the same load each, and the many are judged by the rate that the few allow."""

from __future__ import annotations

import numpy as np

from pliant.benchmarks.bins.dispatch import Served, many_over_few, serve


def test_few_devices_and_many_are_given_the_same_load_each_in_both_placements():
    served = serve(requests=200, devices=(2, 20), lengths=np.arange(1, 513))
    assert [(rate.placement, rate.devices) for rate in served] == [
        ("shared", 2), ("shared", 20), ("single", 2), ("single", 20)
    ]  # fmt: skip
    assert all(rate.requests == 200 and rate.per_second > 0 for rate in served)


def test_many_devices_are_judged_by_the_share_of_the_rate_that_few_allow():
    rates = (Served("shared", 1000, 9, 5e3), Served("shared", 8, 9, 2e4), Served("single", 8, 9, 1e4))
    shared, single = many_over_few(rates)
    assert (shared.measured, shared.met, single.measured) == (0.25, False, 1.0)
