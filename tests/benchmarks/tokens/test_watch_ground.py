"""What became of requests is counted from what their clients saw."""

from __future__ import annotations

import math

from benchmarks.tokens.watch_ground import GIVE_UP, Answer, Fates, fates, first_from, p99, version_of


def answer(id: str, status: int = 200, said: str | None = None, ended: float = 1.0, version: int = 1) -> Answer:
    return Answer(id, id if said is None else said, "digit", 0.0, ended, status, version)


def test_each_request_has_exactly_one_answer_of_its_own():
    assert fates(2, [answer("a"), answer("b")]) == Fates(2, 0, 0)
    assert fates(3, [answer("a"), answer("b", status=503)]) == Fates(3, 2, 0)
    assert fates(2, [answer("a"), answer("a"), answer("b", said="c")]) == Fates(2, 0, 2)


def test_the_first_answer_of_a_release_after_a_moment_counts():
    answers = [answer("a", ended=1.0), answer("b", ended=3.0, version=2), answer("c", ended=2.5, version=2)]
    assert first_from(answers, 2.0, {"digit": 2}) == 0.5
    assert math.isnan(first_from(answers, 2.0, {"digit": 3}))
    assert math.isnan(first_from([answer("a", status=0, version=0)], 0.0, {"digit": 0}))


def test_a_lost_request_counts_as_long_as_its_client_waited():
    assert p99([answer("a", ended=0.25)]) == 0.25
    assert p99([answer(str(n), ended=0.25) for n in range(10)] + [answer("lost", status=0)]) > 0.9 * GIVE_UP
    assert math.isnan(p99([]))


def test_the_version_is_that_of_the_tasks_model():
    assert version_of({"versions": {"task": 3, "backbone": 1}}, "digit") == 3
    assert version_of({}, "digit") == 0
