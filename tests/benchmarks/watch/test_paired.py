"""Pairs of turns: what the ratio is, how far it is trusted, and when enough was measured."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.watch.paired import WITH, WITHOUT, Comparison, PairsConfig, compare


class Machine:
    """Turns of a second on a machine whose speed changes from pair to pair and, by `noise`, from turn to turn."""

    def __init__(self, ratio: float, noise: float) -> None:
        self.ratio, self.noise, self.now = ratio, noise, 0.0
        self.names: list[str] = []
        self._rng = np.random.default_rng(0)

    def measure(self, name: str) -> float:
        self.now += 1.0
        speed = 100 * (1 + 0.5 * np.sin(len(self.names) // 2)) * (1 + self.noise * self._rng.standard_normal())
        self.names.append(name)
        return float(speed * (self.ratio if name == WITH else 1.0))

    def compare(self, config: PairsConfig) -> Comparison:
        return compare(self.measure, config, clock=lambda: self.now)


def test_the_ratio_is_of_neighbours_however_much_the_machine_changes():
    comparison = Machine(0.9, 0.0).compare(PairsConfig(40.0))
    assert comparison.median == pytest.approx(0.9) and comparison.interval == pytest.approx((0.9, 0.9))
    assert min(comparison.without) < 0.7 * max(comparison.without)


def test_every_other_pair_goes_in_the_opposite_order():
    machine = Machine(1.0, 0.0)
    machine.compare(PairsConfig(8.0, least=4))
    assert machine.names == [WITHOUT, WITH, WITH, WITHOUT] * 2


def test_pairs_end_when_the_interval_is_narrow_or_the_time_is_up_but_not_before_the_least():
    assert Machine(1.0, 0.001).compare(PairsConfig(1000.0)).pairs == 20
    assert Machine(1.0, 0.2).compare(PairsConfig(100.0)).pairs == 50
    assert Machine(1.0, 0.2).compare(PairsConfig(1.0)).pairs == 8
    narrow = Machine(1.0, 0.03).compare(PairsConfig(1e6))
    assert narrow.half_width <= 0.01 and narrow.pairs > 20


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says():
    rng, inside = np.random.default_rng(1), 0
    for _ in range(100):
        ratios = 0.97 + 0.05 * rng.standard_normal(31)
        low, high = Comparison((1.0,) * 31, tuple(ratios)).interval
        inside += low <= 0.97 <= high
    assert inside >= 88  # of 95 expected


def test_four_times_the_pairs_are_needed_for_half_the_width():
    comparison = Machine(1.0, 0.05).compare(PairsConfig(60.0))
    assert comparison.needed(comparison.half_width / 2) == pytest.approx(4 * comparison.pairs, abs=1)
    assert comparison.needed(comparison.half_width) == pytest.approx(comparison.pairs, abs=1)


def test_progress_only_grows_and_ends_whole():
    shown: list[int] = []
    machine = Machine(1.0, 0.1)
    compare(machine.measure, PairsConfig(30.0), lambda done, _total: shown.append(done), lambda: machine.now)
    assert shown[-1] == 100 and all(a <= b for a, b in itertools.pairwise(shown))
