"""Both engines are measured with each number of sequences, and the targets are the ratios that their names say."""

from __future__ import annotations

from pliant.benchmarks.packing import batches
from pliant.benchmarks.packing.batches import OURS, THEIRS


def test_both_engines_run_and_the_pairs_are_those_that_are_needed() -> None:
    seen: list[tuple[int, int]] = []
    result = batches.measure((1, 3), 2, lambda *done: seen.append(done))
    assert [(row.engine, row.sequences) for row in result.rows] == [(OURS, 1), (THEIRS, 1), (OURS, 3), (THEIRS, 3)]
    assert all(row.seconds > 0 for row in result.rows) and seen[-1] == (2, 2)
    assert result.pairs == result.needed == 3 * (100 + 3 + 2)
