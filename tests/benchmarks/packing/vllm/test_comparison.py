"""Figures of a load from replies, and ratios, targets and the table from rows, all made up."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pliant.benchmarks.packing.vllm import comparison
from pliant.benchmarks.packing.vllm.comparison import (
    HEADINGS,
    OURS,
    Figures,
    Load,
    Memory,
    Ratio,
    Row,
    Unloaded,
    at_once,
    differing,
    figures,
    fit,
    ratio,
    sustained,
)
from pliant.benchmarks.packing.vllm.load import Reply
from pliant.benchmarks.packing.vllm.server import FCFS, Contender, Setting

SMALL, LARGE = Setting(16, 256), Setting(64, 512)
LOADS = (at_once(9), Load(0.5, 9), Load(1.2, 9), Load(1.2, 9, "bursty"), Load(1.5, 9))
BINDING, AMPLE = Memory("binds", 10, LOADS, binds=True), Memory("ample", 100, LOADS, binds=False)
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


def test_of_more_the_rivals_largest_counts():
    rows = [row(tokens=100.0), row(setting=LARGE, tokens=200.0), row(OURS, tokens=300.0)]
    assert ratio(rows, "binds", "1.2x, Poisson", lambda figures: figures.tokens, more=True).median == 1.5


def test_without_runs_there_is_no_ratio():
    assert math.isnan(ratio([row()], "binds", "1.2x, Poisson", mean).median)
    assert math.isnan(ratio([row(), row(OURS)], "ample", "1.2x, Poisson", mean).median)


def test_something_over_nothing_is_infinite_and_nothing_over_nothing_no_number():
    assert comparison.over(1.0, 0.0) == math.inf
    assert math.isnan(comparison.over(0.0, 0.0))


def test_where_memory_is_ample_throughput_of_all_at_once_is_no_target():
    names = [target.name for target in comparison.targets([], AMPLE)]
    assert not [name for name in names if "all at once" in name]
    assert [name for name in names if name.startswith("ample, 1.2x, Poisson")]


def test_each_target_is_measured_by_its_figure():
    rows = [row(load=load.name) for load in LOADS]
    ours = {"mean": 5.0, "p99": 22.0, "first": 1.0, "tokens": 110.0, "good": (0.4, 0.6)}
    rows += [row(OURS, load=load.name, **ours) for load in LOADS]
    measured = {target.name.split(": ")[-1]: target.measured for target in comparison.targets(rows, BINDING)}
    assert measured["mean completion over vLLM's"] == 0.5
    assert measured["p99 completion over vLLM's"] == 1.1
    assert measured["mean time to first token over vLLM's"] == 0.25
    assert measured["tokens/s over vLLM's"] == 1.1
    assert measured["answers/s within 2x of the unloaded time over vLLM's"] == 2.0
    assert measured["answers/s within 4x of the unloaded time over vLLM's"] == 1.2


def test_texts_differ_only_beyond_what_vllms_own_do():
    assert comparison.beyond([row(differing=2), row(OURS, differing=2)]) == 0
    assert comparison.beyond([row(differing=0), row(differing=1), row(OURS, differing=3)]) == 2
    assert math.isnan(comparison.beyond([row()]))


def test_the_table_has_medians_and_the_most_differing():
    rows = [row(repeat=n, mean=mean, differing=n) for n, mean in enumerate((1.0, 9.0, 2.0))]
    (cells,) = comparison.table(rows)
    assert len(cells) == len(HEADINGS)
    assert (cells[3], cells[-2], cells[-1]) == ("2.00", "1.00x", "2")


def test_ratios_of_all_others_are_listed():
    listed = comparison.ratios([row(), row(OURS, mean=5.0)])
    assert {each["contender"] for each in listed} == {OURS}
    assert [each["median"] for each in listed if each["figure"] == "mean"] == [0.5]


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
