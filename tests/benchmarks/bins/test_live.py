"""The figures of the live comparison, from rows that are made up."""

from __future__ import annotations

from pliant.benchmarks.baselines.settings import BENTOML, DYNAMIC, PADDED, SENTENCE
from pliant.benchmarks.bins.live import LOADED, LOW, LOW_LIMIT, OURS, Live, Row


def row(load: str, name: str, *latencies: float) -> Row:
    return Row(load, name, {}, latencies, len(latencies), 0, 0.001, 0.2)


def test_the_bars_are_ratios_of_means_over_all_turns():
    rows = [row(LOADED, OURS, 1.0), row(LOADED, OURS, 2.0), row(LOW, OURS, 1.0)]
    rows += [row(LOADED, name, 4.0) for name in (PADDED, BENTOML, SENTENCE)]
    rows += [row(LOW, DYNAMIC, 0.5)]
    targets = Live(10.0, tuple(rows), {}).targets()
    assert [bar.measured for bar in targets] == [0.375, 0.375, 0.375, 2.0]
    assert [bar.met for bar in targets] == [True, True, True, False]
    assert targets[-1].limit == LOW_LIMIT
