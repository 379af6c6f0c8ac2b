"""A rollout: its steps, its decisions, and what cannot disturb it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import Rollout
from pliant.rollout.events import (
    Broken,
    CanaryOutcome,
    Cancelled,
    Label,
    Promote,
    SetShare,
    ShadowCompared,
    TakeBack,
    Tick,
)
from pliant.rollout.measures import CORRECTNESS, MIXED, Measure

SMALL = RolloutConfig(
    shadow_requests=5, steps=(0.1, 0.5, 1.0), step_requests=4, step_seconds=10.0, max_seconds=1000.0, horizon=50
)
CANARY = replace(SMALL, shadow_requests=0)


def feed(rollout: Rollout, count: int, start: float = 0.0, prefix: str = "r") -> list:
    """Give good requests a second apart, each answered by both, and return all actions."""
    actions = []
    for index in range(count):
        id, now = f"{prefix}{index}", start + index
        actions += rollout.handle(CanaryOutcome(f"c{id}", "champion", 0.01, late=False), now)
        if rollout.stage == "canary":
            actions += rollout.handle(CanaryOutcome(id, "canary", 0.01, late=False), now)
        actions += rollout.handle(ShadowCompared(id, True, 0.9, 0.9), now)
        actions += rollout.handle(Label(id, True, True, 0.9, 0.9), now)
        rollout.check()
    return actions


def test_a_good_challenger_goes_through_shadow_and_every_step_and_is_promoted():
    rollout = Rollout(SMALL)
    assert (rollout.stage, rollout.share) == ("shadow", 0.0)
    actions = feed(rollout, 60)
    assert [action.share for action in actions if isinstance(action, SetShare)] == [0.1, 0.5, 1.0]
    assert isinstance(actions[-1], Promote)
    assert rollout.reason.startswith("promoted at 50% of traffic after ")
    assert rollout.decided
    assert rollout.share == 1.0


def test_a_step_takes_its_requests_and_its_seconds():
    rollout = Rollout(SMALL)
    for index in range(20):
        assert rollout.handle(ShadowCompared(str(index)), 0.0) == []
    assert rollout.handle(Tick(), 9.9) == []
    assert rollout.handle(Tick(), 10.0)[0] == SetShare(0.1)
    assert rollout.handle(Tick(), 500.0) == []


def test_a_worse_challenger_is_taken_back_with_the_figures():
    rollout = Rollout(replace(CANARY, measures=CORRECTNESS, step_requests=1000))
    actions = []
    for index in range(40):
        rollout.handle(CanaryOutcome(str(index), "canary"), float(index))
        actions += rollout.handle(Label(str(index), True, index % 3 > 0), float(index))
    assert actions[0] == SetShare(0.0)
    assert isinstance(actions[1], TakeBack)
    assert len(actions) == 2
    assert actions[1].reason == rollout.reason
    assert rollout.reason.startswith("taken back at 10% of traffic after ")
    assert "paired answers worse, 0 better; evidence " in rollout.reason
    assert rollout.reason.endswith(" over 20")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Broken("its process died"), "broken: its process died"),
        (Cancelled("by Ann"), "by hand: by Ann"),
        (Cancelled(), "hand"),
    ],
)
def test_a_broken_or_cancelled_one_is_taken_back_at_once_and_for_good(event, words):
    rollout = Rollout(SMALL)
    actions = rollout.handle(event, 0.0)
    assert [type(action) for action in actions] == [SetShare, TakeBack]
    assert words in rollout.reason
    before = rollout.to_dict()
    assert feed(rollout, 30) == []
    assert rollout.handle(Broken("again"), 99.0) == []
    assert rollout.to_dict() == before


def test_undecided_it_is_taken_back_or_promoted_as_configured():
    needs = (Measure("accuracy", 0.0025, required=100), *MIXED[1:])
    config = replace(CANARY, measures=needs, max_seconds=50.0)
    for undecided, stage in (("take back", "taken_back"), ("promote", "promoted")):
        rollout = Rollout(replace(config, undecided=undecided))
        feed(rollout, 60)
        assert rollout.stage == stage
        assert "undecided after 50 s: accuracy was compared" in rollout.reason


def test_an_event_that_comes_twice_counts_once():
    rollout = Rollout(CANARY)
    rollout.handle(Label("a", True, False), 0.0)
    rollout.handle(CanaryOutcome("a", "canary"), 0.0)
    before = rollout.to_dict()
    rollout.handle(Label("a", True, False), 0.0)
    rollout.handle(CanaryOutcome("a", "canary"), 0.0)
    assert rollout.to_dict() == before
    assert rollout.requests == 1


def test_a_clock_that_is_set_back_or_leaps_decides_nothing():
    rollout = Rollout(replace(CANARY, max_seconds=1000.0, gap=50.0))
    rollout.handle(Tick(), 1e9)
    rollout.handle(Tick(), 5.0)
    assert rollout.seconds == 0.0
    rollout.handle(Tick(), 6.0)
    assert rollout.seconds == 1.0
    rollout.handle(Tick(), 1e9)
    assert rollout.seconds == 51.0
    assert rollout.stage == "canary"


@pytest.mark.parametrize(
    "event",
    [
        ShadowCompared("a", True, 1.5, 0.1),
        CanaryOutcome("a", "somebody"),
        CanaryOutcome("a", "canary", -1.0),
        CanaryOutcome("a", "canary", math.nan),
        CanaryOutcome("a", "canary", utility=2.0),
        Label("a", True, True, math.nan, 0.0),
    ],
)
def test_a_bad_event_is_refused_and_changes_nothing(event):
    rollout = Rollout(CANARY)
    before = rollout.to_dict()
    with pytest.raises(InputError):
        rollout.handle(event, 0.0)
    with pytest.raises(InputError):
        rollout.handle(Tick(), math.nan)
    assert rollout.to_dict() == before


SHARES = st.none() | st.floats(0, 1)
IDS = st.integers(0, 30).map(str)
EVENTS = st.one_of(
    st.builds(ShadowCompared, IDS, st.none() | st.booleans(), SHARES, SHARES),
    st.builds(
        CanaryOutcome,
        IDS,
        st.sampled_from(("champion", "canary")),
        st.none() | st.floats(0, 10),
        st.booleans(),
        st.none() | st.booleans(),
        SHARES,
    ),
    st.builds(Label, IDS, st.booleans(), st.booleans(), SHARES, SHARES),
    st.just(Tick()),
)
ENDS = st.sampled_from((Tick(), Tick(), Broken("gone"), Cancelled("")))
NAMES = (*MIXED, Measure("agreement", 0.2), Measure("outcome", 0.05, prove=0.5))


@settings(max_examples=60)
@given(st.lists(st.tuples(EVENTS | ENDS, st.floats(-10, 100)), max_size=60), st.booleans(), st.data())
def test_whatever_happens_the_invariants_hold_and_a_restart_changes_nothing(steps, shadow, data):
    rollout = Rollout(replace(SMALL if shadow else CANARY, measures=NAMES))
    restart = data.draw(st.integers(0, max(len(steps), 1)))
    restored, now, decisions = rollout, 0.0, 0
    for index, (event, passed) in enumerate(steps):
        if index == restart:
            restored = Rollout.from_dict(json.loads(json.dumps(rollout.to_dict())))
        now += passed
        decided, share, seconds = rollout.decided, rollout.share, rollout.seconds
        actions = rollout.handle(event, now)
        rollout.check()
        if restored is not rollout:
            assert restored.handle(event, now) == actions
            assert restored.to_dict() == rollout.to_dict()
        decisions += sum(isinstance(action, TakeBack | Promote) for action in actions)
        assert rollout.seconds >= seconds
        assert rollout.share >= share or rollout.stage == "taken_back"
        assert not (decided and actions)
        shares = [action.share for action in actions if isinstance(action, SetShare)]
        assert rollout.share == (shares[-1] if shares else share)
    assert decisions == rollout.decided


def damaged(state: dict) -> list[dict]:
    changes = [{name: value} for name in state for value in (None, "x", -1, [], {"a": 1}) if state[name] != value]
    return [state | change for change in changes] + [{k: v for k, v in state.items() if k != name} for name in state]


def test_a_damaged_state_is_refused_with_an_input_error_or_is_harmless():
    rollout = Rollout(SMALL)
    feed(rollout, 8)
    state = rollout.to_dict()
    refused = 0
    for each in damaged(state):
        try:
            Rollout.from_dict(each).check()
        except InputError:
            refused += 1
    assert refused >= len(damaged(state)) - 8  # "last", "held" and "reason" have values that could be true


@pytest.mark.parametrize(
    "change",
    [
        {"steps": ()},
        {"steps": (0.5, 0.1)},
        {"steps": (0.0, 0.1)},
        {"steps": (1.5,)},
        {"alpha": 0.0},
        {"hold": 21.0},
        {"measures": ()},
        {"measures": (MIXED[0], MIXED[0])},
        {"shadow_share": 0.0},
        {"max_seconds": 0.0},
        {"step_requests": 0},
        {"step_seconds": math.nan},
        {"late_quantile": 1.0},
        {"undecided": "wait"},
        {"horizon": -1},
    ],
)
def test_a_configuration_that_cannot_be_carried_out_is_refused(change):
    with pytest.raises(InputError):
        Rollout(replace(RolloutConfig(), **change))
