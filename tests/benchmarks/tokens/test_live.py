"""The figures of the live comparison, from rows that are made up."""

from __future__ import annotations

import math

import pytest

from pliant.benchmarks.tokens.live import LIVE, Live, Row, utility
from pliant.report import summarise
from tests.fixtures.load_samples import LOAD, answered, lost


def row(name: str, fate=answered, service: bool = False) -> Row:
    report = summarise(fate(request).observation for request in LOAD.requests)
    return Row(LIVE, name, service, {}, 2.0, 0, report, 0.001, 0, 0.3)


def half(request):
    return answered(request, correct=request.id % 2 == 0)


def test_the_ratio_is_the_default_over_the_best_service_and_no_policy_counts_as_one():
    some = [row("default"), row("pets"), row("ray", half, True), row("bentoml", lambda r: lost(r, 503), True)]
    live = Live(100.0, {}, tuple(some), {})
    assert live.ratio() == pytest.approx(1 / utility([some[2]]))


def test_with_a_service_missing_nothing_is_claimed():
    live = Live(100.0, {}, (row("default"), row("bentoml", half, True)), {"ray": "Ray Serve is not installed"})
    assert math.isnan(live.ratio())
