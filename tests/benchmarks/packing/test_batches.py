"""Both engines are measured with each number of sequences, and the targets are the ratios that their names say."""

from __future__ import annotations

from benchmarks.packing import batches
from benchmarks.packing.batches import FEW, MANY, OURS, THEIRS, Batches, Row


def test_the_targets_are_ratios_of_tokens_a_second() -> None:
    rows = (Row(OURS, FEW, 0.012), Row(OURS, MANY, 0.064), Row(THEIRS, MANY, 0.256))
    wide, faster, pairs = Batches(rows, 90, 100).targets()
    assert (wide.measured, faster.measured, pairs.measured) == (2.0, 4.0, 0.9)
    assert (wide.limit, faster.limit, pairs.limit) == (1.0, 3.0, 1.0)


def test_both_engines_run_and_the_pairs_are_those_that_are_needed() -> None:
    seen: list[tuple[int, int]] = []
    result = batches.measure((1, 3), 2, lambda *done: seen.append(done))
    assert [(row.engine, row.sequences) for row in result.rows] == [(OURS, 1), (THEIRS, 1), (OURS, 3), (THEIRS, 3)]
    assert all(row.seconds > 0 for row in result.rows) and seen[-1] == (2, 2)
    assert result.pairs == result.needed == 3 * (100 + 3 + 2)
    assert result.table()[0][:2] == (OURS, "1")
