"""What a challenger of another generator is compared with: a predictor that knows nothing, and the same forecasts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pliant.flows.packing import champions
from pliant.flows.packing import gate as contest
from pliant.flows.packing.config import GateConfig
from pliant.flows.packing.gate import Candidate, Challenger, champion_against, judge
from pliant.packing.scheduling.reference import ReferenceConfig
from tests.fixtures.packing.tiny import CONTEXT, some_packing

IGNORANT = 0.3  # loss of a predictor that knows nothing
REFERENCE = ReferenceConfig(quiet=(0.8,), loud=(1.5,), requests=60)


@pytest.fixture
def champion(monkeypatch):
    """A champion whose predictor would be far off the challenger's lengths."""
    vague = np.full_like(some_packing().forecasts, 100.0)
    packing = some_packing(generator="old", predictor="old", forecasts=vague)
    monkeypatch.setattr(champions, "load_champions", lambda _registry: {"things": SimpleNamespace(artifact=packing)})
    monkeypatch.setattr(champions, "fetch_generator", lambda *_: SimpleNamespace(context=CONTEXT))
    monkeypatch.setattr(champions, "fetch_predictor", lambda *_: "predictor")
    monkeypatch.setattr(contest, "forecasts_of", lambda *_: (packing.forecasts, packing.buckets))
    monkeypatch.setattr("pliant.training.packing.predictor.judge", lambda *_: {"pinball": 9.0})
    return packing


def judged(loss: float, generator: str):
    packing = some_packing(generator=generator, predictor="new")
    challenger = Challenger(Candidate(packing, CONTEXT, loss), SimpleNamespace(prompts=[]), IGNORANT)
    old = champion_against(None, challenger)
    return judge(old, challenger.candidate, GateConfig(seeds=1), REFERENCE)


def test_the_predictor_of_another_generator_has_to_beat_one_that_knows_nothing(champion):
    worse = judged(0.4, "new")
    assert not worse.passed
    assert worse.reason.startswith("its predictor's pinball loss is 0.4000, worse than the 0.3000 of one that knows no")
    assert "another generator" in worse.reason
    assert judged(0.2, "new").passed
    assert judged(0.4, "old").passed, "of the same generator the champion's own predictor is what counts"


def test_plans_of_two_generators_are_compared_with_the_same_forecasts(champion):
    verdict = judged(0.2, "new")
    assert verdict.champion.fared == verdict.challenger.fared
    same = judged(0.2, "old")
    assert same.champion.fared != same.challenger.fared
