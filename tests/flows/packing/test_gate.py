"""The packing system's promotion gate, on plans without any model, in virtual time; champions of another generator too."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.flows.beside import where_it_runs
from pliant.flows.packing import champions
from pliant.flows.packing import gate as contest
from pliant.flows.packing.beside import beside
from pliant.flows.packing.config import GateConfig, PackingFlowConfig
from pliant.flows.packing.gate import Candidate, Challenger, champion_against, judge
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.scheduling.reference import ReferenceConfig
from pliant.progress import silent
from pliant.training.packing.lengths import LengthData
from pliant.training.packing.predictor import losses
from tests.fixtures.packing.generators import tiny_generator
from tests.fixtures.packing.tiny import CONTEXT, some_packing

SHORT = ReferenceConfig(quiet=(0.8,), loud=(1.5,), requests=60)
LONG = ReferenceConfig(quiet=(0.8,), loud=(2.5,), requests=200)
ONCE, WIDE = GateConfig(seeds=1), GateConfig(seeds=1, tolerance=0.1)


def candidate(pinball: float = 0.1, **changes) -> Candidate:
    return Candidate(some_packing(**changes), CONTEXT, np.full(100, pinball))


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
    verdict = judge(candidate(), Candidate(vague, CONTEXT, np.full(100, 0.1)), ONCE, LONG)
    assert not verdict.passed
    assert "a request takes" in verdict.reason
    assert "worse than the champion's" in verdict.reason
    assert judge(Candidate(vague, CONTEXT, np.full(100, 0.1)), candidate(), ONCE, LONG).passed


@pytest.mark.parametrize(
    ("mean", "spread", "rows", "reason"),
    [
        (1.06, 0.1, 1000, "the champion's 0.1000"),  # beyond chance
        (1.03, 0.5, 1000, ""),  # within chance, and surely less than the floor more
        (1.06, 0.5, 20, "too few to rule out 5%"),  # chance explains it, but who knows
        (1.00, 0.5, 20, ""),
    ],
)
def test_a_loss_that_is_larger_within_chance_passes_where_the_prompts_rule_out_a_large_one(mean, spread, rows, reason):
    drawn = np.random.default_rng(0).normal(size=rows)
    loss_P = 0.1 * (mean + spread * (drawn - drawn.mean()) / drawn.std())
    old, new = candidate(), replace(candidate(), loss_P=loss_P)
    verdict = judge(replace(old, loss_P=np.full(rows, 0.1)), new, ONCE, SHORT)
    assert verdict.passed is (reason == "")
    assert reason in verdict.reason
    assert (", no difference" in verdict.reason) is verdict.passed


def test_a_prompt_that_comes_again_and_again_is_one_observation():
    held_out = LengthData("things", ("a", "b", " A"), np.array([9, 5, 9], np.int32), "data")
    forecast_RL = np.full((3, len(QUANTILES)), 5.0)
    whole_R = losses(forecast_RL, held_out.tokens)
    assert contest._losses(forecast_RL, held_out) == pytest.approx([4 / 3 * whole_R[0], 0])


@pytest.mark.parametrize(("layers", "passes"), [(2, True), (3, False)])
@pytest.mark.parametrize("hour", [0.6, 1.6])
def test_a_generator_profiled_at_another_hour_is_judged_by_what_both_take_now(layers, passes, hour):
    """The challenger has as many layers as the champion, or one more."""
    old, new = (some_packing(seconds=each, generator=f"of {each}") for each in (1.0, hour))
    sides = (tiny_generator(0), old), (tiny_generator(1, layers=layers), new)
    now = beside(PackingFlowConfig(threads=1), sides, silent, budget=0)
    verdict = judge(*(Candidate(plan, CONTEXT, np.full(9, 0.1)) for plan in (old, new)), WIDE, SHORT, beside=now)
    assert verdict.passed is passes
    assert f"times the champion's seconds{', no difference' if passes else ''}" in verdict.reason


@pytest.mark.parametrize("changes", [{"engine": "vllm"}, {"device_class": "another"}])
def test_a_champion_of_another_engine_or_device_is_named(changes):
    sides = (None, some_packing(**changes)), (None, some_packing())
    now = where_it_runs(lambda: beside(PackingFlowConfig(), sides, silent))
    assert next(iter(changes.values())) in now.why
    assert (
        f"({now.why}), so each profile is of its own hour"
        in judge(candidate(), candidate(), ONCE, SHORT, beside=now).reason
    )


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
    monkeypatch.setattr(champions, "fetch_generator", lambda *_: SimpleNamespace(context=CONTEXT))
    monkeypatch.setattr(champions, "fetch_predictor", lambda *_: "predictor")
    monkeypatch.setattr(contest, "forecasts_of", lambda *_: (packing.forecasts, packing.buckets))
    return packing


def judged(loss: float, generator: str):
    packing = some_packing(generator=generator, predictor="new")
    held_out = LengthData("things", tuple(map(str, range(200))), packing.output_tokens, "data")
    challenger = Challenger(Candidate(packing, CONTEXT, np.full(200, loss)), held_out, np.full(200, IGNORANT))
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
