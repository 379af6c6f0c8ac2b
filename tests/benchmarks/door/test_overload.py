"""What is said of a load beyond what HTTP carries: the best rate, the shares of its answers in time, and false `on_time`."""

from __future__ import annotations

import asyncio
import time

import pytest

from benchmarks.door import overload
from benchmarks.door.overload import Answers, Overload, measure, offer, post
from tests.fixtures.door import answer, behind_the_door


def test_the_search_ends_past_the_best_rate_and_shares_are_medians_over_that_rate_in_the_same_round(monkeypatch):
    offers = []

    def offered(_address, _asked, rate, seconds) -> Answers:
        offers.append(rate)
        useful = min(rate, max(0.0, 400.0 - rate)) if rate < 390.0 else 150.0  # the best below is some 200 a second
        return Answers(sent=int(rate * seconds), useful=int(useful * seconds), answered=int(300 * seconds), false=3)

    monkeypatch.setattr(overload, "offered", offered)
    monkeypatch.setattr(overload, "PAUSE", 0.0)
    result = measure("http://127.0.0.1:3000", post("/", b"{}", 0.1), 2.0, 3)
    assert result.best == pytest.approx(overload.FIRST * overload.STEP**5)
    assert len(result.search) == 6 + overload.PAST
    assert [sorted(row) for row in result.rounds] == [[1, *overload.TIMES]] * 3
    best = max(row.useful for _, row in result.search) / 2.0
    assert result.rate(4) == pytest.approx(4 * best)
    assert result.share(4) == pytest.approx(150.0 / best, rel=0.02)
    kept = [target.met for target in result.targets("a door")]
    assert kept == [False, False, False] and result.false() == pytest.approx(3 / 600)
    assert [len(row) for row in result.table()] == [len(overload.HEADINGS)] * 3


def test_answers_count_by_when_their_clients_have_them():
    async def slow(scope, receive, send) -> None:
        time.sleep(0.05)
        await answer(scope, receive, send)

    message = post("/predict", b"{}", 20.0)
    with behind_the_door(answer) as server:
        address = server.connect().getsockname()[0], server._socket.getsockname()[1]
        answers = asyncio.run(offer(address, message, 50.0, 0.5))
        assert answers.sent == answers.answered == answers.useful > 0
        assert (answers.late, answers.refused, answers.false) == (0, 0, 0)
    with behind_the_door(slow) as server:
        address = "127.0.0.1", server._socket.getsockname()[1]
        answers = asyncio.run(offer(address, post("/predict", b"{}", 0.04), 20.0, 0.5))
        assert answers.useful == 0 and answers.late == answers.answered > 0


def test_a_figure_without_rounds_says_nothing_of_them():
    assert Overload(post("/", b"{}", 0.1), 1.0, [(10.0, Answers(useful=7)), (20.0, Answers(useful=9))]).best == 20.0
