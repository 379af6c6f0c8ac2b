"""The bins system's part of the demo, with stand-ins for the endpoints: who is asked what, in which order, what is told."""

from __future__ import annotations

import pytest

from pliant.benchmarks.bins.demo import OTHER, OURS, Compared, Example, table
from pliant.protocol import Request
from pliant.report import Observation

POOL = [Example("word " * (1 + n % 40), "a" if n % 2 else "b") for n in range(100)]


def seen(in_time: int, late: int, dropped: int) -> tuple[Observation, ...]:
    fates = [{"answered": 0.1}] * in_time + [{"answered": 0.3}] * late + [{"dropped": "504"}] * dropped
    return tuple(Observation(Request(i, 0.0, 0.2, "mail"), **fate) for i, fate in enumerate(fates))


def test_a_request_without_an_answer_counts_as_all_its_time_and_the_lead_is_the_median_of_the_turns():
    ours, other = [seen(9, 1, 0), seen(8, 0, 2), seen(10, 0, 0)], [seen(5, 1, 4), seen(8, 0, 2), seen(8, 2, 0)]
    compared = Compared(50.0, {OURS: tuple(ours), OTHER: tuple(other)})
    assert compared.in_time(OURS) == pytest.approx(0.9)
    assert [compared.mean(OTHER, turn) for turn in range(3)] == pytest.approx([0.16, 0.12, 0.14])
    assert compared.mean(OURS) == pytest.approx((0.12 + 0.12 + 0.1) / 3)
    assert compared.lead == pytest.approx(0.16 / 0.12)
    cells = [list(column.cells) for column in table(compared).columns]
    assert cells[:4] == [[OURS, OTHER], ["30", "30"], ["90.0%", "70.0%"], ["113.3", "140.0"]]
