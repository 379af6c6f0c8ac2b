"""The benchmark of targets compares medians of the same loads, and counts what kept both targets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.benchmarks.packing import slo, traces
from pliant.benchmarks.packing.slo import LOADS, OURS, RIVALS, TRACES, SloJob, SloResult, SloRow


def rows(goods: dict[str, int], seeds: int = 3) -> list[SloRow]:
    """Return rows of all loads, each seed a little better than the one before; of those that give up twice as good."""
    kinds = [(policy, gives_up) for policy in RIVALS for gives_up in (False, True)] + [(OURS, False)]
    return [
        SloRow(trace, load, policy, gives_up, seed, 100, 50, goods[policy] * (1 + gives_up) + seed, 10.0)
        for trace in TRACES
        for load in LOADS
        for policy, gives_up in kinds
        for seed in range(seeds)
    ]


def test_targets_are_medians_over_the_best_rival_where_the_trace_is_worst():
    goods = {"paged": 10, "past-future": 12, "edf": 19, "s3": 4, OURS: 39}
    result = SloResult(rows(goods), 0.5, 3.0)
    worse = replace(result, rows=[replace(row, good=29) if _is(row, TRACES[1], OURS) else row for row in result.rows])
    assert result.ratio(1.2) == pytest.approx(40 / 20) and worse.ratio(1.2) == pytest.approx(29 / 20)
    assert result.ratio(1.5, gives_up=True) == pytest.approx(40 / 39)
    by_name = {target.name: target for target in worse.targets()}
    assert [target.met for target in by_name.values()] == [True, True, False, False, True, True]
    assert by_name["accepted requests that keep their targets at 1.5x"].measured == pytest.approx(29 / 50)
    assert by_name["share accepted at 1.5x, over what the capacity allows"].measured == pytest.approx(1.5 * 50 / 100)


def _is(row: SloRow, trace: str, policy: str) -> bool:
    return (row.trace, row.policy) == (trace, policy)


@pytest.mark.skipif(bool(traces.missing(*TRACES)), reason=traces.missing(*TRACES) or "the traces are here")
def test_under_overload_only_refusing_keeps_the_targets_of_nearly_all():
    ours, paged = (slo.serve(SloJob("azure", 1.5, policy, False, 0, 40.0)) for policy in (OURS, "paged"))
    assert ours.requests == paged.requests == paged.accepted > ours.accepted
    assert ours.kept > 0.9 > paged.kept and ours.goodput > paged.goodput
