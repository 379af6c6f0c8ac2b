"""The figure of the live comparison, from rows that are made up."""

from __future__ import annotations

import pytest

from pliant.benchmarks.tokens.live import Row, ratio
from pliant.report import summarise
from tests.fixtures.load_samples import LOAD, answered, lost


def row(name: str, fate=answered) -> Row:
    return Row(name, "", 0, summarise(fate(request).observation for request in LOAD.requests), {})


def test_the_ratio_is_the_default_over_the_best_service():
    best = row("ray", lambda request: answered(request, correct=request.id % 2 == 0))
    rows = [row("default"), best, row("bentoml", lambda request: lost(request, 503))]
    assert ratio(rows) == pytest.approx(1 / best.share)
    assert rows[0].share == pytest.approx(1.0)
