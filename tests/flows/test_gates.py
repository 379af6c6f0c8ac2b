"""What the gates of all four systems have in common, on candidates without any model, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pliant import systems
from pliant.flows.bins.flow import BinsPipeline
from pliant.flows.cascade.flow import CascadePipeline
from pliant.flows.gate import other_device, overruled
from pliant.flows.packing.flow import PackingPipeline
from pliant.flows.tokens.flow import TokensPipeline
from tests.flows.bins import test_gate as bins
from tests.flows.cascade import test_gate as cascade
from tests.flows.packing import test_gate as packing
from tests.flows.tokens import test_gate as tokens


@dataclass(frozen=True)
class Sides:
    """Candidates: one, the same at half the speed, and that one as if measured elsewhere, or of something else."""

    pipeline: Any
    module: Any
    fast: Callable[[], Any]
    slow: Callable[[], Any]
    far: Callable[[], Any]
    other: Callable[[], Any]

    def judge(self, champion: Any, challenger: Any) -> Any:
        return self.module.judge(champion, challenger, self.module.ONCE, self.module.SHORT)


SIDES = {
    "tokens": Sides(
        TokensPipeline,
        tokens,
        tokens.bundle,
        lambda: tokens.slower(tokens.bundle(), 4.0),
        lambda: tokens.slower(tokens.bundle("far"), 4.0),
        lambda: tokens.slower(tokens.bundle(digest="sha256:c"), 4.0),
    ),
    "bins": Sides(
        BinsPipeline,
        bins,
        bins.candidate,
        lambda: bins.candidate(2.0),
        lambda: bins.candidate(2.0, device_class="far"),
        lambda: bins.candidate(2.0, encoder="other"),
    ),
    "cascade": Sides(
        CascadePipeline,
        cascade,
        cascade.candidate,
        lambda: cascade.candidate(seconds=20.0),
        lambda: cascade.candidate(seconds=20.0, device="far"),
        lambda: cascade.others(cascade.candidate(seconds=20.0)),
    ),
    "packing": Sides(
        PackingPipeline,
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
    assert overruled(verdict, "") is verdict
    refused = overruled(verdict, "a linear model is better")
    assert not refused.passed and (refused.reason, refused.challenger) == (
        "a linear model is better",
        verdict.challenger,
    )


def test_an_older_and_faster_measurement_of_the_same_thing_does_not_protect_the_champion(sides):
    """Measured at a quieter hour, it held its place for ever."""
    assert sides.judge(sides.fast(), sides.slow()).passed


def test_of_something_else_a_slower_challenger_has_to_answer_for_it(sides):
    verdict = sides.judge(sides.fast(), sides.other())
    assert not verdict.passed and "worse than the champion's" in verdict.reason


def test_another_class_of_device_replaces_the_champion_only_where_it_may(sides):
    challenger, champion = (sides.pipeline.device_of(side()) for side in (sides.far, sides.fast))
    assert other_device(challenger, champion, allowed=True) == other_device(champion, champion, allowed=False) == ""
    assert other_device(challenger, champion, allowed=False).startswith("it was measured on far, the champion on cpu: ")
    assert "worse than the champion's" in sides.judge(sides.fast(), sides.far()).reason
