"""One tenant of several against a trial: 24 trials each, in which it makes up whatever its own requests can show.

Where at most 5% may be taken back, 6 of 24 or more happen once in 1,000 such tests. `make attacks ONLY=19` is live.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import Rollout
from pliant.rollout.events import CanaryOutcome, Event, Label, ShadowCompared
from pliant.rollout.measures import ARMS

TRIALS, REQUESTS, MOST = 24, 300, 5
CONFIG = RolloutConfig(shadow_requests=0, steps=(0.2, 1.0), step_requests=40, step_seconds=30.0)
TENANTS = ("a", "b", "c")
Draw = np.random.Generator
Attack = Callable[[str, Draw], Event]


def honest(id: str, rollout: Rollout, draw: Draw, late: float) -> list[Event]:
    """A request of an honest tenant: arms are equal, but for the share of the canary's answers that are late."""
    tenant, canary = TENANTS[draw.integers(len(TENANTS))], draw.random() < rollout.share
    is_late = draw.random() < (late if canary else 0.02)
    right = draw.random(2) < 0.9
    return [
        CanaryOutcome(id, "canary" if canary else "champion", late=bool(is_late), tenant=tenant),
        ShadowCompared(id, None, tenant=tenant),
        Label(id, *map(bool, right), ARMS[int(canary)], ("class 1",), tenant=tenant),
    ]


def false_labels(id: str, draw: Draw) -> Event:
    return Label(id, True, False, ARMS[draw.integers(2)], ("class 1", "class 2"), tenant="evil")


def same_answers(id: str, _draw: Draw) -> Event:
    """Many requests that every release answers alike, so that the challenger seems to be the champion."""
    return ShadowCompared(id, True, tenant="evil")


def late_in_both(id: str, draw: Draw) -> Event:
    """What its requests can do where it cannot know the arm: be late in either, as often as it likes."""
    return CanaryOutcome(id, "canary" if draw.random() < 0.2 else "champion", late=True, tenant="evil")


def easy_ones(id: str, draw: Draw) -> Event:
    """Many requests that no release could be late with, so that the challenger seems in time."""
    return CanaryOutcome(id, "canary" if draw.random() < 0.2 else "champion", late=False, tenant="evil")


def stages(attack: Attack, times: int, late: float, trials: int = TRIALS) -> list[str]:
    """Return how trials end in which every honest request comes with `times` of the attacker's."""
    ends = []
    for seed in range(trials):
        rollout, draw = Rollout(CONFIG), np.random.default_rng(seed)
        for number in range(REQUESTS):
            events = [attack(f"evil {number} {turn}", draw) for turn in range(times)]
            for event in (*events, *honest(str(number), rollout, draw, late)):
                rollout.handle(event, 0.5 * number)
            if rollout.decided:
                break
        rollout.check()
        ends.append(rollout.stage)
    return ends


@pytest.mark.parametrize("attack", [false_labels, late_in_both])
def test_one_tenant_takes_back_no_more_equal_challengers_than_chance(attack):
    ends = stages(attack, 1, late=0.02)
    assert ends.count("taken_back") <= MOST


def test_one_tenant_gets_no_late_challenger_promoted():
    ends = stages(easy_ones, 4, late=0.3, trials=30)
    assert ends.count("promoted") == 0


def test_one_tenant_proves_no_agreement():
    assert stages(same_answers, 4, late=0.02).count("promoted") == 0


def test_the_same_made_up_by_tenants_of_two_groups_or_by_one_that_is_not_capped_takes_it_back():
    """So that the bounds above are the cap's, and not a test that never decides."""
    for tenants in (("evil", "ill"), ("",)):
        rollout = Rollout(CONFIG)
        for number in range(240):
            tenant, seen = tenants[number % len(tenants)], ARMS[number // 2 % 2]
            rollout.handle(Label(str(number), True, False, seen, tenant=tenant), number)
        assert rollout.stage == "taken_back"
