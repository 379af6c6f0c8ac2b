"""The packing system's promotion gate, on plans without any model, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.flows.packing.config import GateConfig
from pliant.flows.packing.gate import Candidate, judge
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
