"""The contest on made-up tasks: what it shows is what evaluate() says, and equal accuracy is where the means are equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.benchmarks.cascade.contest import (
    METHODS,
    Round,
    Showing,
    equal,
    halves,
    one_round,
    plan,
)
from pliant.benchmarks.cascade.material import Material
from pliant.cascade.evaluate import EvaluationData, evaluate, subset
from tests.fixtures.cascade.scenarios import MASS, classification, table, tables

DROP = 0.01
SHOWN = Showing(accuracy=0.9, seconds=0.002, early=0.5, large=0.4)


@pytest.fixture(scope="module")
def material() -> Material:
    """Two levels of which the first knows nearly as much: the published search finds a candidate on some splits."""
    outputs = classification(1, texts=1600, skills=(3.0, 5.0), pruned=((0, 1, MASS),))
    return Material(outputs, tuple(tables(2)), tuple(table(0.0011 * 3**i) for i in range(2)), False, "cpu")


@pytest.fixture(scope="module")
def rounds(material) -> list[Round]:
    return [one_round(material, seed) for seed in range(3)]


def grounds(material: Material, one: Round):
    """The round's plan, and the grounds that it was made and judged on."""
    planning, judging = (subset(material.outputs, rows) for rows in halves(len(material.outputs.labels), one.seed))
    cascade = plan(material, planning, one.seed, DROP, len(judging.labels))
    return cascade, *(EvaluationData(part, cascade.levels, cascade.tolerance) for part in (planning, judging))


def test_a_round_shows_what_evaluate_says_of_the_half_that_nothing_was_planned_on(material, rounds):
    for one in rounds:
        cascade, _, judging = grounds(material, one)
        every = {candidate.name: candidate for candidate in cascade.candidates}
        assert set(one.shown) == set(METHODS) & set(every)
        for name, shown in one.shown.items():
            found = evaluate(every[name], judging)
            assert (shown.accuracy, shown.seconds) == (found.accuracy, found.seconds)
            assert shown.early == np.mean(found.steps_R == 1)


def made(accuracies, wanted: float, seed: int = 0) -> Round:
    """Ours at these accuracies, each costing a millisecond a point, beside a published one."""
    ours = tuple(replace(SHOWN, accuracy=a, seconds=a / 10, large=a / 2) for a in accuracies)
    return Round(seed, 0.95, 0.94, {"tabi": replace(SHOWN, accuracy=wanted, seconds=0.1, large=0.5)}, ours)


def test_equal_accuracy_is_read_off_between_the_matched_ways():
    found = equal([made((0.8, 0.9), 0.83)])
    assert (found.accuracy, found.seconds, found.large) == pytest.approx((0.83, 0.083, 0.415))
