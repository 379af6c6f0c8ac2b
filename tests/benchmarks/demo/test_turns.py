"""Requests in turns: who is asked what, in which order, and what the demos read of the replies."""

from __future__ import annotations

import asyncio

import pytest

from pliant.benchmarks.bins import demo as bins
from pliant.benchmarks.cascade import demo as cascade
from pliant.benchmarks.demo import turns
from pliant.benchmarks.demo.turns import Compared, compare
from pliant.benchmarks.load_generator import IMAGES, Reply
from pliant.benchmarks.packing import demo as packing
from pliant.protocol import Request
from pliant.report import Observation


def replies(in_time: int, late: int = 0, dropped: int = 0, **seen) -> list[Reply]:
    fates = [{"answered": 0.1, **seen}] * in_time + [{"answered": 0.3, **seen}] * late + [{"dropped": "504"}] * dropped
    requests = (Request(i, 0.0, 0.2, "mail") for i in range(len(fates)))
    return [Reply(Observation(of, **fate), 200, 0.0, 0.0) for of, fate in zip(requests, fates, strict=True)]


def test_each_turn_has_its_own_load_by_what_the_machine_bears_then_and_every_other_goes_backwards(monkeypatch):
    asked, borne = [], iter([10.0, 20.0])

    async def sent(address, requests, _pool, number, _part, form):
        asked.append((address, [request.deadline for request in requests], number))
        assert form is IMAGES
        return [Reply(Observation(request, 0.1, True), 200, 0.0, 0.0) for request in requests]

    monkeypatch.setattr(turns, "replay", sent)
    addresses, forms = {"ours": "a", "other": "b"}, dict.fromkeys(("ours", "other"), IMAGES)
    load = lambda number, rate: [Request(number, 0.0, rate, "mail")]  # noqa: E731
    compared = compare(addresses, forms, {}, 2, lambda: next(borne), load)
    assert asked == [("a", [10.0], 0), ("b", [10.0], 0), ("b", [20.0], 1), ("a", [20.0], 1)]
    assert compared.bears == 15.0 and [len(each) for each in compared.turns["other"]] == [1, 1]
    assert asyncio.iscoroutinefunction(sent)


def test_a_request_without_an_answer_counts_as_all_its_time_and_the_lead_is_the_median_of_the_turns():
    ours, other = [replies(9, 1), replies(8, 0, 2), replies(10)], [replies(5, 1, 4), replies(8, 0, 2), replies(8, 2)]
    compared = Compared((50.0,) * 3, {bins.OURS: ours, bins.OTHER: other})
    assert compared.report(bins.OURS).attainment == pytest.approx(0.9)
    assert [compared.mean(bins.OTHER, turn) for turn in range(3)] == pytest.approx([0.16, 0.12, 0.14])
    assert compared.mean(bins.OURS) == pytest.approx((0.12 + 0.12 + 0.1) / 3)
    assert bins.lead(compared) == pytest.approx(0.16 / 0.12)
    columns = compared.table(("requests", "in time", "mean ms"), bins.OURS).columns
    assert [list(column.cells) for column in columns] == [
        [bins.OURS, bins.OTHER], ["30", "30"], ["90.0%", "70.0%"], ["113.3", "140.0"]
    ]  # fmt: skip


def test_packing_wins_a_turn_by_answers_in_time():
    compared = Compared(
        (9.0, 9.0), {packing.OURS: [replies(3, 1), replies(1)], packing.RIVAL: [replies(1, 3), replies(2)]}
    )
    assert packing.won(compared) == 1


def test_cascade_tells_answers_that_a_deadline_cut_short_from_those_that_the_promise_is_about():
    given = replies(3, correct=True, setting=2) + replies(1, correct=False, setting=1) + replies(0, 0, 1)
    compared = Compared((9.0,), {cascade.DEFAULT: [given], "only large": [replies(5, correct=True, setting=2)]})
    rows = cascade.table(compared, ("small", "large"), 0.9).columns
    assert list(rows[0].cells) == [cascade.DEFAULT, cascade.DEFAULT + cascade.KEPT, "only large"]
    assert list(rows[1].cells) == ["80.0%", "60.0%", "100.0%"] and list(rows[3].cells) == ["", "90.0%", ""]
    assert "cut 25.0% of the answers short" in cascade.words(compared, 0.9, 0.95)
