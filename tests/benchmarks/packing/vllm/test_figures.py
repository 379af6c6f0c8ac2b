"""Figures of a load, from replies that are made up."""

from __future__ import annotations

import pytest

from benchmarks.packing.vllm.figures import Unloaded, differing, figures, fit, sustained
from benchmarks.packing.vllm.load import Reply

ALONE = Unloaded(0.1, 0.01, 0.1)


def reply(seconds: float, prompt: int = 10, tokens: int = 8, arrival: float = 0.0, first: float = 0.5) -> Reply:
    return Reply(prompt, tuple(range(tokens)), first, seconds, arrival)


def test_seconds_and_rates():
    result = figures([reply(2.0), reply(4.0, arrival=6.0, first=1.5)], ALONE)
    assert (result.mean, result.first) == (3.0, 1.0)
    assert result.p99 == pytest.approx(3.98)
    assert (result.tokens, result.rate) == (1.6, 0.2)  # from 0 s to 10 s


def test_an_answer_is_good_within_a_multiple_of_its_unloaded_time():
    # Alone each takes 0.1 + 0.1 + 0.8 = 1 s.
    result = figures([reply(1.9), reply(2.1), reply(3.9), reply(10.0)], ALONE)
    assert result.good == (pytest.approx(0.1), pytest.approx(0.3))


def test_a_longer_text_may_take_longer():
    assert figures([reply(3.9, tokens=18)], ALONE).good[0] > 0


def test_the_unloaded_time_is_fitted():
    replies = [reply(0.1 + 0.01 * p + 0.1 * t, p, t) for p, t in ((5, 3), (50, 7), (20, 90), (100, 40))]
    fitted = fit(replies)
    assert (fitted.base, fitted.prompt, fitted.token) == (pytest.approx(0.1), pytest.approx(0.01), pytest.approx(0.1))


def test_texts_are_compared_as_far_as_there_are_any():
    replies = [reply(1.0, tokens=2), reply(1.0, tokens=3)]
    assert differing(replies, [(0, 1), (0, 1, 2)]) == 0
    assert differing(replies, [(0, 1, 2), (0, 1, 2), (9,)]) == 1


def test_what_is_answered_while_many_wait_leaves_out_the_beginning_and_the_emptying():
    steady = [float(at) for at in range(1, 101)]
    assert sustained(steady) == pytest.approx(1.0, rel=0.02)
    slow_end = [*steady, *[100.0 + 10 * at for at in range(1, 11)]]
    assert sustained(slow_end) == pytest.approx(1.0, rel=0.02)
    assert len(slow_end) / max(slow_end) < 0.6
    assert sustained([2.0, 2.0]) == 0.0
