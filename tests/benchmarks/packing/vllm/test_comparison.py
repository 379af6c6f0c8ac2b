"""Figures of a load from replies, and ratios, targets and the table from rows, all made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.benchmarks.packing.vllm.comparison import (
    OURS,
    Figures,
    Load,
    Ratio,
    Row,
    Unloaded,
    at_once,
    figures,
    fit,
    ratio,
    sustained,
)
from pliant.benchmarks.packing.vllm.load import Reply
from pliant.benchmarks.packing.vllm.server import FCFS, Contender, Setting

SMALL, LARGE = Setting(16, 256), Setting(64, 512)
LOADS = (at_once(9), Load(0.5, 9), Load(1.2, 9), Load(1.2, 9, "bursty"), Load(1.5, 9))
PLAIN = Figures(mean=10.0, p99=20.0, first=4.0, tokens=100.0, rate=1.0, good=(0.2, 0.5))


def row(name: str = FCFS, setting: Setting = SMALL, repeat: int = 0, load: str = "1.2x, Poisson", **values) -> Row:
    differing = values.pop("differing", 0)
    return Row("binds", load, Contender(name, setting), repeat, replace(PLAIN, **values), differing)


def mean(figures: Figures) -> float:
    return figures.mean


def test_the_rivals_best_setting_counts():
    rows = [row(mean=20.0), row(setting=LARGE, mean=10.0), row(OURS, mean=5.0)]
    assert ratio(rows, "binds", "1.2x, Poisson", mean) == Ratio(0.5, 0.5)


def test_ratios_are_within_a_repeat_and_their_median_and_worst_are_given():
    rows = [row(repeat=n, mean=10.0 * (n + 1)) for n in range(3)]
    rows += [row(OURS, repeat=n, mean=share * 10.0 * (n + 1)) for n, share in enumerate((0.4, 0.9, 0.6))]
    assert ratio(rows, "binds", "1.2x, Poisson", mean) == Ratio(pytest.approx(0.6), pytest.approx(0.9))
    most = ratio(rows, "binds", "1.2x, Poisson", mean, more=True)
    assert most == Ratio(pytest.approx(0.6), pytest.approx(0.4))


ALONE = Unloaded(0.1, 0.01, 0.1)


def reply(seconds: float, prompt: int = 10, tokens: int = 8, arrival: float = 0.0, first: float = 0.5) -> Reply:
    return Reply(prompt, tuple(range(tokens)), first, seconds, arrival)


def test_an_answer_is_good_within_a_multiple_of_its_unloaded_time():
    # Alone each takes 0.1 + 0.1 + 0.8 = 1 s.
    result = figures([reply(1.9), reply(2.1), reply(3.9), reply(10.0)], ALONE)
    assert result.good == (pytest.approx(0.1), pytest.approx(0.3))


def test_the_unloaded_time_is_fitted():
    replies = [reply(0.1 + 0.01 * p + 0.1 * t, p, t) for p, t in ((5, 3), (50, 7), (20, 90), (100, 40))]
    fitted = fit(replies)
    assert (fitted.base, fitted.prompt, fitted.token) == (pytest.approx(0.1), pytest.approx(0.01), pytest.approx(0.1))


def test_what_is_answered_while_many_wait_leaves_out_the_beginning_and_the_emptying():
    steady = [float(at) for at in range(1, 101)]
    assert sustained(steady) == pytest.approx(1.0, rel=0.02)
    slow_end = [*steady, *[100.0 + 10 * at for at in range(1, 11)]]
    assert sustained(slow_end) == pytest.approx(1.0, rel=0.02)
    assert len(slow_end) / max(slow_end) < 0.6
    assert sustained([2.0, 2.0]) == 0.0
