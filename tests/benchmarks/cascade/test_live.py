"""The figures of the live comparison, of loads and data sets that are made up."""

from __future__ import annotations

import pytest

from pliant.benchmarks.cascade.demo import DEFAULT
from pliant.benchmarks.cascade.live import BAG, LARGE, Figures, figures, targets
from pliant.benchmarks.load_generator import Reply
from pliant.protocol import Request
from pliant.report import Observation


def reply(taken: float | None, correct: bool = True, cut: bool = False) -> Reply:
    seen = Observation(Request(0, 1.0, 26.0, "intents"), None if taken is None else 1.0 + taken, correct, int(cut))
    return Reply(Observation(seen.request, dropped="429") if taken is None else seen, 200, 0.001, 0.0)


def data_set(rate: float, core: float, accuracy: float) -> Figures:
    """Return a data set on which the large model bears 10 requests/s, with 4 core-seconds and an accuracy of 0.9."""
    rows = [
        {"candidate": name, "answers": answers, "core s/1000": cores, "accuracy": right}
        for answers in (100, 300)
        for name, cores, right in ((DEFAULT, core, accuracy), (LARGE, 4.0, 0.9))
    ]
    return Figures({LARGE: 0.01}, {LARGE: 4.0}, {LARGE: 20.0, BAG: 100.0}, {DEFAULT: rate, LARGE: 10.0}, rows)


def test_the_targets_are_of_the_worst_and_the_median_data_set():
    judged = targets([data_set(50.0, 1.0, 0.91), data_set(15.0, 3.0, 0.88), data_set(40.0, 0.5, 0.9)])
    assert [target.measured for target in judged] == pytest.approx([1.5, 4.0, 0.75, 0.25, -0.02])
    assert [target.met for target in judged] == [False, True, False, True, False]


def test_an_answer_cut_short_counts_for_the_latency_and_not_for_the_accuracy():
    taken = [reply(0.1), reply(0.1), reply(0.1, correct=False), reply(0.3, correct=False, cut=True), reply(None)]
    load = figures(taken, cores=0.02)
    assert (load["requests"], load["answers"], load["cut short"]) == (5, 4, 1)
    assert load["accuracy"] == pytest.approx(2 / 3)
    assert load["p50"] == pytest.approx(0.1)
    assert load["p99"] > 20.0, "a request without an answer counts its whole deadline"
    assert load["core s/1000"] == pytest.approx(5.0)
