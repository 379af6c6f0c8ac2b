"""The paper's conditions are as the paper gives them: throughputs, the rule, and workloads of the stated size."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pliant.tokens.artifact import GAMMAS
from pliant.tokens.published import (
    ACCURACY,
    FIGURE_4B,
    KINDS,
    RULE,
    TABLE_I,
    compressed,
    profile,
    synthetic,
    variants,
)


@pytest.mark.parametrize(("gamma", "rate"), [(0, 580), (-15, 1000)])
def test_the_profile_has_the_throughput_of_the_figure(gamma, rate):
    table = profile(FIGURE_4B).latency
    assert 64 / table.at(gamma, 64) == pytest.approx(rate)
    assert 1 / table.at(gamma, 1) == pytest.approx(rate)  # a batch takes count x seconds per sample


def test_the_alternative_profile_has_the_capacities_of_the_table():
    table = profile(TABLE_I).latency
    assert {gamma: round(1 / table.at(gamma, 1)) for gamma in GAMMAS} == {
        -20: 1200, -15: 1000, -10: 520, -5: 450, 0: 380, 2: 350, 4: 320, 8: 280
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "gamma"), [(0, 8), (280, 4), (320, 2), (350, 0), (380, -5), (450, -10), (520, -15), (1000, -20)]
)
def test_the_rule_is_the_published_one(rate, gamma):
    assert RULE.gamma(rate) == gamma
    assert RULE.gamma(rate - 0.5) != gamma or rate == 0


def test_the_kinds_are_the_published_ones():
    assert [(kind.task, kind.deadline, kind.utility) for kind in KINDS] == [
        ("cifar10", 0.6, 0.3), ("cifar10", 1.0, 0.01), ("cifar100", 0.6, 1.0),
        ("cifar100", 1.0, 0.2), ("eurosat", 0.6, 0.3), ("eurosat", 1.0, 0.01),
    ]  # fmt: skip


def test_the_synthetic_workload_has_the_published_length_and_size():
    load = synthetic(1.0, 0)
    assert len(load) == pytest.approx(630_000, rel=0.005)
    assert 1790 < load[-1].arrival < 1800
    counts = np.array(list(Counter((r.task, round(r.deadline - r.arrival, 6), r.utility) for r in load).values()))
    assert len(counts) == 6
    assert (abs(counts / len(load) - 1 / 6) < 0.005).all()


def test_a_trace_is_compressed_two_minutes_to_a_second_and_scaled_to_the_mean():
    trace = [30.0, 70.0, 0.0, 0.0, 150.0, 50.0, 99.0]  # pairs 100, 0, 200; the odd minute is left out
    load = compressed(trace, 2.0, 0)
    per_second = np.bincount([int(r.arrival) for r in load], minlength=3)
    assert list(per_second) == [700, 0, 1400]
    assert len(load) / 3 == 2.0 * 350


def test_variants_are_numbered_from_the_cheapest_and_take_time_to_load():
    known = variants(FIGURE_4B)
    assert known.latency.settings == (0, 1, 2)
    rates = [known.latency.throughput(variant, 64) for variant in (0, 1, 2)]
    assert rates == sorted(rates, reverse=True)
    assert rates[1] == pytest.approx(580)  # the middle one is the unchanged backbone
    assert all(known.accuracy[task][1] == ACCURACY[task][0] for task in ACCURACY)
    assert all(list(shares.values()) == sorted(shares.values()) for shares in known.accuracy.values())
    assert list(known.loading) == [0, 1, 2] and min(known.loading.values()) > 0


def test_variants_differ_as_small_base_and_large_do():
    known = variants(FIGURE_4B)
    rates = [known.latency.throughput(variant, 64) / 580 for variant in (0, 1, 2)]
    assert rates == pytest.approx([2.6, 1.0, 0.31])
    assert known.loading == {0: 0.4, 1: 0.8, 2: 2.0}
    assert known.accuracy["cifar10"] == pytest.approx({0: 0.92, 1: 0.95, 2: 0.965})
    assert known.accuracy["cifar100"] == pytest.approx({0: 0.755, 1: 0.785, 2: 0.8})
