"""The figures of the live comparison, from rows that are made up."""

from __future__ import annotations

from pliant.benchmarks.baselines.settings import BENTOML, DYNAMIC, SENTENCE
from pliant.benchmarks.bins.live import LOADED, LOW, LOW_LIMIT, OURS, Row, targets
from pliant.benchmarks.contenders import Turn
from pliant.benchmarks.load_generator import Reply
from pliant.protocol import Request
from pliant.report import Observation


def row(load: str, name: str, taken: float) -> Row:
    seen = Observation(Request(0, 0.0, 30.0, "tweets"), taken, True)
    return Row(load, name, name, Turn([Reply(seen, 200, 0.001, 0.0)]))


def test_the_targets_are_ratios_of_means_over_all_turns():
    rows = [row(LOADED, OURS, 1.0), row(LOADED, OURS, 2.0), row(LOW, OURS, 1.0), row(LOW, DYNAMIC, 0.5)]
    rows += [row(LOADED, name, 4.0) for name in (BENTOML, SENTENCE)]
    judged = targets(rows)
    assert [(target.measured, target.met) for target in judged] == [(0.375, True), (0.375, True), (2.0, False)]
    assert judged[-1].limit == LOW_LIMIT
    assert rows[0].plain()["answered"] == 1
