"""What the gates of all four systems have in common, on candidates without any model, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pliant import systems
from tests.flows.bins import test_gate as bins
from tests.flows.cascade import test_gate as cascade
from tests.flows.packing import test_gate as packing
from tests.flows.tokens import test_gate as tokens


@dataclass(frozen=True)
class Sides:
    """Candidates: one, the same at half the speed, and that one as if measured elsewhere, or of something else."""

    module: Any
    fast: Callable[[], Any]
    slow: Callable[[], Any]
    far: Callable[[], Any]
    other: Callable[[], Any]

    def judge(self, champion: Any, challenger: Any, **more: Any) -> Any:
        return self.module.judge(champion, challenger, self.module.ONCE, self.module.SHORT, **more)


SIDES = {
    "tokens": Sides(
        tokens,
        tokens.bundle,
        lambda: tokens.slower(tokens.bundle(), 4.0),
        lambda: tokens.slower(tokens.bundle("far"), 4.0),
        lambda: tokens.slower(tokens.bundle(digest="sha256:c"), 4.0),
    ),
    "bins": Sides(
        bins,
        bins.candidate,
        lambda: bins.candidate(2.0),
        lambda: bins.candidate(2.0, device_class="far"),
        lambda: bins.candidate(2.0, encoder="other"),
    ),
    "cascade": Sides(
        cascade,
        cascade.candidate,
        lambda: cascade.candidate(seconds=20.0),
        lambda: cascade.candidate(seconds=20.0, device="far"),
        lambda: cascade.others(cascade.candidate(seconds=20.0)),
    ),
    "packing": Sides(
        packing,
        packing.candidate,
        lambda: packing.candidate(seconds=2.0),
        lambda: packing.candidate(seconds=2.0, device_class="far"),
        lambda: packing.candidate(seconds=2.0, generator="other"),
    ),
}


@pytest.fixture(params=systems.names())
def sides(request) -> Sides:
    return SIDES[request.param]


def test_where_there_is_no_champion_the_challenger_passes_unless_a_linear_model_is_better(sides):
    verdict = sides.judge(None, sides.fast())
    assert verdict.passed and verdict.champion is None and "no champion" in verdict.reason
    for champion in (None, sides.fast()):
        verdict = sides.judge(champion, sides.fast(), below_linear="a linear model is better")
        assert not verdict.passed and verdict.reason == "a linear model is better"


def test_equals_pass(sides):
    assert sides.judge(sides.fast(), sides.fast()).passed


def test_an_older_and_faster_measurement_of_the_same_thing_does_not_protect_the_champion(sides):
    """Measured at a quieter hour, it held its place for ever."""
    assert sides.judge(sides.fast(), sides.slow()).passed


def test_of_something_else_a_slower_challenger_has_to_answer_for_it(sides):
    verdict = sides.judge(sides.fast(), sides.other())
    assert not verdict.passed and "worse than the champion's" in verdict.reason


def test_another_class_of_device_replaces_the_champion_only_where_it_may(sides):
    verdict = sides.judge(sides.fast(), sides.far())
    assert not verdict.passed and verdict.reason.startswith("it was measured on far, the champion on cpu: ")
    assert "worse than the champion's" in sides.judge(sides.fast(), sides.far(), any_device=True).reason
