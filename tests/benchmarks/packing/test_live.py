"""What the live comparison of two policies asks of both, and how it counts; the picture of it."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from pliant.benchmarks.load_generator import Reply
from pliant.benchmarks.packing import live
from pliant.benchmarks.packing.chats import Question
from pliant.benchmarks.packing.live import HEADINGS, OURS, RIVAL, ContestConfig, Fared, contest, stretch
from pliant.protocol import Request
from pliant.report import Observation

CONFIG = ContestConfig(stretches=3, chats=300, overload=1.5, places=40)
BORNE = 10.0  # chats a second


def _reply(arrival: float, took: float | None, tokens: int = 10, deadline: float = 2.0) -> Reply:
    answered = None if took is None else arrival + took
    seen = Observation(Request(0, arrival, arrival + deadline, "tiny"), answered, setting=tokens)
    return Reply(seen, 200 if took else 503, 0.0, float("nan"))


def _fared(policy: str, *took: float | None, refused: int = 0) -> Fared:
    return Fared(policy, (tuple(_reply(float(at), one) for at, one in enumerate(took)),), 10.0, 3, refused)


def test_a_stretch_is_an_overload_of_what_the_rival_answers():
    asked = stretch("tiny", BORNE, 0, CONFIG)
    assert len(asked) == pytest.approx(300, rel=0.2)
    assert len(asked) / asked[-1].arrival == pytest.approx(1.5 * BORNE, rel=0.2)
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
    assert dict(zip(HEADINGS, found.row(), strict=True))["of all in time"] == "50.0%"


def test_both_policies_get_the_same_requests_in_turns_and_each_goes_first(monkeypatch):
    """Services, probe and load are fakes that note what they are asked."""
    sent: list[tuple[str, tuple[Request, ...]]] = []

    async def replay(url, requests, *_rest):
        sent.append((url, tuple(requests)))
        return [replace(_reply(r.arrival, 0.5), observation=Observation(r, r.arrival + 0.5)) for r in requests]

    async def capacity(url, *_rest, most):
        assert most == CONFIG.probed
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
    monkeypatch.setattr(live, "processes", lambda _url: [])
    counts = [{"preempted": 7}, {"preempted": 7, "dropped_refused": 2}, {"preempted": 9}, {"preempted": 9}]
    counted = {OURS: map(Counter, counts)}
    monkeypatch.setattr(live, "counts", lambda url, _name: next(counted[url]) if url in counted else Counter())
    told: list[tuple[int, int]] = []
    found = contest("tiny", [Question("why?", 0)], replace(CONFIG, stretches=2), lambda *at: told.append(at))
    loads = [one for one in sent if one[1]]
    assert sent[0][0] == f"{RIVAL} probed"
    assert [url for url, _ in loads] == [OURS, RIVAL, RIVAL, OURS]
    assert [url for url, _ in sent].count(f"{RIVAL} probed") == 2, "the machine may be faster or slower by then"
    assert loads[0][1] == loads[1][1] != loads[2][1] == loads[3][1]
    assert {name for name, asked in sent[-2:] if not asked} == {f"{OURS} stopped", f"{RIVAL} stopped"}
    assert [(found.fared[policy].preemptions, found.fared[policy].refused) for policy in (OURS, RIVAL)] == [
        (0, 2),
        (0, 0),
    ]
    assert found.generation == 0.0, "no process of an engine was seen"
    assert found.ahead == pytest.approx(1.0)
    assert np.isclose(found.rate, 15.0)
    assert told[-1] == (10, 10)


def test_the_services_own_counts_say_how_outputs_ended():
    text = """# TYPE pliant_outcomes counter
pliant_outcomes_total{outcome="stop",task="tiny"} 5.0
pliant_outcomes_total{outcome="dropped_refused",task="tiny"} 3.0
pliant_outcomes_total{outcome="dropped_refused",task="other"} 4.0
"""
    assert live.ends(text, "tiny") == Counter(stop=5, dropped_refused=3)
