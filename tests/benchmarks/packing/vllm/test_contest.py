"""Figures of a load from replies, and ratios and targets from rows, all made up."""

from __future__ import annotations

import math

import pytest

from pliant.benchmarks.packing.vllm.contest import OURS, QUICK, Row, best, figures, ratio, sustained, targets
from pliant.benchmarks.packing.vllm.load import Reply, Unloaded, fit
from pliant.benchmarks.packing.vllm.server import FCFS, Contender, Setting

SMALL, LARGE = Setting(16, 256), Setting(64, 512)
LOAD = "1.2x, Poisson"
PLAIN = {"mean": 10.0, "p99": 20.0, "first": 4.0, "tokens": 100.0, "good 4x": 0.5}


def row(name: str = FCFS, setting: Setting = SMALL, repeat: int = 0, **values) -> Row:
    return Row(LOAD, Contender(name, setting), repeat, PLAIN | values, 0)


def test_the_rivals_best_setting_counts_for_each_figure():
    rows = [row(mean=20.0, tokens=9.0), row(setting=LARGE, mean=10.0, tokens=8.0), row(OURS, mean=5.0, tokens=9.0)]
    assert (ratio(rows, LOAD, "mean"), ratio(rows, LOAD, "tokens")) == ((0.5, 0.5), (1.0, 1.0))
    assert [each.setting for each in best(rows[:2])] == [SMALL, LARGE]
    assert math.isnan(ratio(rows, "all at once", "mean")[0])


def test_ratios_are_within_a_repeat_and_their_median_and_worst_are_given():
    shares = (0.4, 0.9, 0.6)
    rows = [row(repeat=n, mean=10.0 * (n + 1), tokens=10.0 * (n + 1)) for n in range(3)]
    rows += [
        row(OURS, repeat=n, mean=share * 10.0 * (n + 1), tokens=share * 10.0 * (n + 1))
        for n, share in enumerate(shares)
    ]
    assert ratio(rows, LOAD, "mean") == pytest.approx((0.6, 0.9))
    assert ratio(rows, LOAD, "tokens") == pytest.approx((0.6, 0.4))
    target = next(
        each for each in targets(rows, QUICK.loads) if each.name == f"memory binds, {LOAD}: mean completion over vLLM's"
    )
    assert target.met and target.measured == pytest.approx(0.6)


def reply(seconds: float, prompt: int = 10, tokens: int = 8) -> Reply:
    return Reply(prompt, tuple(range(tokens)), 0.5, seconds, 0.0)


def test_an_answer_is_good_within_a_multiple_of_its_unloaded_time_which_is_fitted():
    alone = fit([reply(0.1 + 0.01 * p + 0.1 * t, p, t) for p, t in ((5, 3), (50, 7), (20, 90), (100, 40))])
    assert (alone.base, alone.prompt, alone.token) == pytest.approx((0.1, 0.01, 0.1))
    result = figures([reply(1.9), reply(2.1), reply(3.9), reply(10.0)], Unloaded(0.1, 0.01, 0.1))  # alone 1 s each
    assert result["good 4x"] == pytest.approx(0.3)


def test_what_is_answered_while_many_wait_leaves_out_the_beginning_and_the_emptying():
    steady = [float(at) for at in range(1, 101)]
    assert sustained(steady) == pytest.approx(1.0, rel=0.02)
    assert sustained([*steady, *[100.0 + 10 * at for at in range(1, 11)]]) == pytest.approx(1.0, rel=0.02)
    assert sustained([2.0, 2.0]) == 0.0
