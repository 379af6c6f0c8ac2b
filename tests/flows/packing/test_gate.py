"""The packing system's promotion gate, on plans without any model, in virtual time; champions of another generator too."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.flows.packing import champions
from pliant.flows.packing import gate as contest
from pliant.flows.packing.config import GateConfig
from pliant.flows.packing.gate import Candidate, Challenger, champion_against, judge
from pliant.packing.scheduling.reference import ReferenceConfig
from tests.fixtures.packing.tiny import CONTEXT, some_packing

SHORT = ReferenceConfig(quiet=(0.8,), loud=(1.5,), requests=60)
LONG = ReferenceConfig(quiet=(0.8,), loud=(2.5,), requests=200)
ONCE = GateConfig(seeds=1)


def candidate(pinball: float = 0.1, **changes) -> Candidate:
    return Candidate(some_packing(**changes), CONTEXT, pinball)


def test_a_predictor_that_is_worse_on_the_held_out_prompts_is_refused_and_a_better_one_passes():
    good, bad = candidate(0.10), candidate(0.12)
    verdict = judge(good, bad, ONCE, SHORT)
    assert not verdict.passed
    assert "its predictor's pinball loss is 0.1200, worse than the champion's 0.1000" in verdict.reason
    assert judge(bad, good, ONCE, SHORT).passed
    assert judge(good, bad, GateConfig(seeds=1, tolerance=0.3), SHORT).passed


def test_forecasts_that_say_nothing_make_requests_wait_and_are_refused():
    """The same loss is claimed for both: the simulator tells them apart."""
    vague = some_packing()
    vague = replace(vague, forecasts=np.broadcast_to(vague.forecasts.mean(axis=0), vague.forecasts.shape))
    verdict = judge(candidate(), Candidate(vague, CONTEXT, 0.1), ONCE, LONG)
    assert not verdict.passed
    assert "a request takes" in verdict.reason
    assert "worse than the champion's" in verdict.reason
    assert judge(Candidate(vague, CONTEXT, 0.1), candidate(), ONCE, LONG).passed


def test_a_retrained_generator_of_the_same_sizes_is_not_refused_for_a_slower_hour():
    champion, steps = candidate(), some_packing().steps
    slow = replace(steps, **{name: 1.3 * getattr(steps, name) for name in ("base", "query", "sequence", "token")})
    challenger = candidate(steps=slow, generator="retrained")
    assert not judge(champion, challenger, ONCE, SHORT).passed
    alike = [replace(each, sizes="{}") for each in (champion, challenger)]
    assert judge(*alike, ONCE, SHORT).passed


def test_both_are_asked_the_requests_that_were_observed_last():
    """A champion of short outputs does not live on them once long ones are asked."""
    old = candidate(output_tokens=np.full(200, 2, np.int32))
    alone = judge(None, old, ONCE, SHORT).challenger.fared
    verdict = judge(old, candidate(), ONCE, SHORT)
    assert verdict.champion.fared.mean > 2 * alone.mean
    assert verdict.champion.fared.tokens_per_second == pytest.approx(
        verdict.challenger.fared.tokens_per_second, rel=0.2
    )


def test_a_tail_that_grows_beyond_the_tolerance_is_refused_although_the_mean_is_better():
    """First come, first served beside shortest first, which makes the longest wait."""
    fair, greedy = candidate(patience=0.0), candidate(patience=5.0)
    verdict = judge(fair, greedy, GateConfig(seeds=2, tail=0.0), LONG)
    old, new = verdict.champion.fared, verdict.challenger.fared
    assert new.mean < old.mean
    assert new.p99 > old.p99
    assert not verdict.passed
    assert f"its p99 is {1000 * new.p99:.0f} ms, worse than the champion's {1000 * old.p99:.0f} ms" in verdict.reason
    assert judge(fair, greedy, GateConfig(seeds=2, tail=new.p99 / old.p99), LONG).passed


IGNORANT = 0.3  # loss of a predictor that knows nothing
REFERENCE = ReferenceConfig(quiet=(0.8,), loud=(1.5,), requests=60)


@pytest.fixture
def champion(monkeypatch):
    """A champion whose predictor would be far off the challenger's lengths."""
    vague = np.full_like(some_packing().forecasts, 100.0)
    packing = some_packing(generator="old", predictor="old", forecasts=vague)
    monkeypatch.setattr(contest, "load_champions", lambda *_: {"things": SimpleNamespace(artifact=packing)})
    monkeypatch.setattr(champions, "fetch_generator", lambda *_: SimpleNamespace(context=CONTEXT, config="{}"))
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
