"""What the live comparison of two policies asks of both, and how it counts; the picture of it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.load_generator import Reply
from benchmarks.packing import live
from benchmarks.packing.chats import Question
from benchmarks.packing.demo import load_figure
from benchmarks.packing.live import HEADINGS, OURS, RIVAL, Contest, ContestConfig, Fared, contest, stretch
from pliant.protocol import Request
from pliant.report import Observation

CONFIG = ContestConfig(stretches=3, seconds=20.0, overload=1.5, tries=0, places=40)
BORNE = 10.0  # chats a second


def _reply(arrival: float, took: float | None, tokens: int = 10, deadline: float = 2.0) -> Reply:
    answered = None if took is None else arrival + took
    seen = Observation(Request(0, arrival, arrival + deadline, "tiny"), answered, setting=tokens)
    return Reply(seen, 200 if took else 503, 0.0, float("nan"))


def _fared(policy: str, *took: float | None) -> Fared:
    return Fared(policy, tuple(_reply(float(at), one) for at, one in enumerate(took)), 10.0, 3)


def test_a_stretch_is_an_overload_of_what_the_rival_answers():
    asked = stretch("tiny", BORNE, 0, CONFIG)
    assert len(asked) == pytest.approx(1.5 * BORNE * 20, rel=0.2)
    assert {round(one.deadline - one.arrival, 6) for one in asked} == {4.0}  # 40 places at 10 a second
    assert [one.arrival for one in asked] == sorted(one.arrival for one in asked)


def test_a_stretch_is_the_same_for_every_policy_and_no_question_comes_in_two():
    one, again, other = (stretch("tiny", BORNE, number, CONFIG) for number in (1, 1, 2))
    assert one == again
    assert not {r.id for r in one} & {r.id for r in other}
    assert [r.arrival for r in one] != [r.arrival for r in other]


def test_who_is_answered_after_the_deadline_or_never_does_not_count():
    found = _fared(OURS, 0.5, 1.5, 2.5, None)
    assert found.in_time == 0.5
    assert (found.goodput, found.tokens) == (pytest.approx(0.2), pytest.approx(2.0))
    assert found.took.tolist() == pytest.approx([0.5, 1.5])
    assert dict(zip(HEADINGS, found.row(), strict=True))["in time"] == "50.0%"


def test_where_nobody_is_answered_in_time_the_row_says_so():
    assert _fared(OURS, None, 3.0).row()[2:] == ("0.0%", "0.0", "0", "nan", "nan", "3")


def test_ahead_is_our_answers_in_time_over_the_rivals():
    found = Contest(10.0, 15.0, 2.0, {OURS: _fared(OURS, 1.0, 1.0, 1.0, None), RIVAL: _fared(RIVAL, 1.0, 1.0, None)})
    assert found.ahead == pytest.approx(1.5)


def test_the_picture_ends_at_the_share_that_was_answered_in_time():
    found = Contest(10.0, 15.0, 2.0, {OURS: _fared(OURS, 0.5, 1.5), RIVAL: _fared(RIVAL, 1.0, None)})
    (axes,) = load_figure(found).axes
    ends = {line.get_label().split()[0]: float(line.get_ydata()[-1]) for line in axes.lines}
    assert ends == {"Pliant:": 100.0, "first": 50.0}


def test_both_policies_get_the_same_requests_in_turns_and_each_goes_first(monkeypatch):
    """Services, probe and load are fakes that note what they are asked."""
    sent: list[tuple[str, tuple[Request, ...]]] = []

    async def replay(url, requests, *_rest):
        sent.append((url, tuple(requests)))
        return [replace(_reply(r.arrival, 0.5), observation=Observation(r, r.arrival + 0.5)) for r in requests]

    async def capacity(url, *_rest):
        sent.append((f"{url} probed", ()))
        return BORNE

    @contextmanager
    def serving_each(_system, options):
        yield {policy: policy for policy in options}
        sent.extend((f"{policy} stopped", ()) for policy in options)

    monkeypatch.setattr(live, "serving_each", serving_each)
    monkeypatch.setattr(live, "replay", replay)
    monkeypatch.setattr(live, "capacity", capacity)
    monkeypatch.setattr(live, "warm", lambda *_: None)
    status = {"models": [{"name": "tiny", "engine": {"preemptions": 7}}]}
    monkeypatch.setattr(live, "status_of", lambda _url: status)
    told: list[tuple[int, int]] = []
    found = contest("tiny", [Question("why?", 0)], replace(CONFIG, stretches=2), lambda *at: told.append(at))
    loads = [one for one in sent if one[1]]
    assert sent[0][0] == f"{RIVAL} probed"
    assert [url for url, _ in loads] == [OURS, RIVAL, RIVAL, OURS]
    assert loads[0][1] == loads[1][1] != loads[2][1] == loads[3][1]
    assert {name for name, asked in sent[-2:] if not asked} == {f"{OURS} stopped", f"{RIVAL} stopped"}
    assert {one.preemptions for one in found.fared.values()} == {0}
    assert found.ahead == pytest.approx(1.0)
    assert np.isclose(found.rate, 15.0)
    assert told[-1] == (10, 10)


@pytest.mark.parametrize(
    ("shares", "overload", "asked"),
    [([0.4], 1.5, 1), ([0.9, 0.7, 0.4], 2.94, 3), ([0.1, 0.3], 1.2, 2), ([0.0] * 9, 0.768, 3), ([0.9, 0.1], 1.68, 3)],
)
def test_the_overload_goes_to_where_the_rival_answers_some_in_time_and_fails_many(monkeypatch, shares, overload, asked):
    """The rival is a fake that answers these shares of the loads in time; when it knows no more, two fifths."""
    loads = []

    async def replay(url, requests, *_rest):
        assert url == RIVAL
        share = shares[len(loads)] if len(loads) < len(shares) else 0.4
        loads.append(len(requests))
        late = [at >= share * len(requests) for at in range(len(requests))]
        return [
            replace(
                _reply(r.arrival, 0.5), observation=Observation(r, r.deadline + 1.0 if is_late else r.arrival + 0.5)
            )
            for r, is_late in zip(requests, late, strict=True)
        ]

    monkeypatch.setattr(live, "replay", replay)
    found = live._overload(RIVAL, "tiny", [Question("why?", 0)], BORNE, replace(CONFIG, tries=3, trial=20.0))
    assert found == pytest.approx(overload)
    assert len(loads) == asked
