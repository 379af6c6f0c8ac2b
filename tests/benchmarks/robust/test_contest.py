"""The map of worlds: which cells it has, which rival counts in one, and what its targets are."""

from __future__ import annotations

import numpy as np

from pliant.benchmarks.robust import contest
from pliant.benchmarks.robust.contest import Cell


def test_the_rival_that_does_best_counts_and_the_worst_seed_of_all_is_beside_it() -> None:
    values = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    compared = contest._compared(Cell("tokens", "a world", 1.0), ("weak", "strong", "nothing"), values)
    assert (compared.rival, compared.median, compared.worst, compared.ours) == ("strong", 1.0, 0.5, 2.0)
    median, worst = contest.targets([compared])
    assert median.met
    assert not worst.met


def test_what_is_measured_is_a_comparison_on_the_same_arrivals_and_comes_out_the_same_again() -> None:
    place = Cell("tokens", "as the profile says", 2.0)
    once, again = (contest.measure("tokens", 2, places=[place]) for _ in range(2))
    assert once == again
    assert once[0].median > 1.0
    headings, rows = contest.map_of(once)
    assert headings == ["world", "2x"]
    assert rows[0][0] == place.world
