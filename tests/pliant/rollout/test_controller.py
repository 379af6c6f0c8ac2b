"""A rollout: its steps, its decisions, and what cannot disturb it."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import GAP, Rollout, restored
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
from pliant.rollout.measures import GUARDS, MIXED, Measure

SMALL = RolloutConfig(shadow_requests=5, steps=(0.1, 0.5, 1.0), step_requests=4, step_seconds=10.0, max_seconds=1000.0)
CORRECTNESS = (Measure("accuracy", 0.0025, 0.8), *GUARDS)
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
    actions = feed(rollout, 200)
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
    before = deepcopy(rollout)
    assert feed(rollout, 30) == []
    assert rollout.handle(Broken("again"), 99.0) == []
    assert rollout == before


def test_undecided_it_is_taken_back():
    needs = (Measure("accuracy", 0.0025, required=100), *MIXED[1:])
    rollout = Rollout(replace(CANARY, measures=needs, max_seconds=50.0))
    feed(rollout, 60)
    assert rollout.stage == "taken_back"
    assert "undecided after 50 s: accuracy was compared" in rollout.reason


def test_an_event_that_comes_twice_counts_once():
    rollout = Rollout(CANARY)
    rollout.handle(Label("a", True, False), 0.0)
    rollout.handle(CanaryOutcome("a", "canary"), 0.0)
    before = deepcopy(rollout)
    rollout.handle(Label("a", True, False), 0.0)
    rollout.handle(CanaryOutcome("a", "canary"), 0.0)
    assert rollout == before
    assert rollout.requests == 1


def test_a_clock_that_is_set_back_or_leaps_decides_nothing():
    rollout = Rollout(replace(CANARY, max_seconds=10_000.0))
    rollout.handle(Tick(), 1e9)
    rollout.handle(Tick(), 5.0)
    assert rollout.seconds == 0.0
    rollout.handle(Tick(), 6.0)
    assert rollout.seconds == 1.0
    rollout.handle(Tick(), 1e9)
    assert rollout.seconds == 1.0 + GAP
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
    before = deepcopy(rollout)
    with pytest.raises(InputError):
        rollout.handle(event, 0.0)
    with pytest.raises(InputError):
        rollout.handle(Tick(), math.nan)
    assert rollout == before


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
    again, now, decisions = rollout, 0.0, 0
    for index, (event, passed) in enumerate(steps):
        if index == restart:
            again = restored(json.loads(json.dumps(asdict(rollout))))
        now += passed
        decided, share, seconds = rollout.decided, rollout.share, rollout.seconds
        actions = rollout.handle(event, now)
        rollout.check()
        if again is not rollout:
            assert again.handle(event, now) == actions
            assert again == rollout
        decisions += sum(isinstance(action, TakeBack | Promote) for action in actions)
        assert rollout.seconds >= seconds
        assert rollout.share >= share or rollout.stage == "taken_back"
        assert not (decided and actions)
        shares = [action.share for action in actions if isinstance(action, SetShare)]
        assert rollout.share == (shares[-1] if shares else share)
    assert decisions == rollout.decided


def test_a_damaged_state_is_refused_with_an_input_error_or_is_harmless():
    rollout, taken = Rollout(SMALL), []
    feed(rollout, 8)
    state = asdict(rollout)
    for name in state:
        for value in (None, "x", -1, [], {"a": 1}, {}):
            try:
                restored(state | {name: value}).check()
                taken.append((name, value))
            except InputError:
                continue
    begun_anew = [(name, {}) for name in ("config", "seen", "groups", "references", "comparisons")]
    assert all(each in [("last", None), ("last", -1), *begun_anew] for each in taken), taken


@pytest.mark.parametrize(
    "change",
    [
        {"steps": ()},
        {"steps": (0.5, 0.1)},
        {"steps": (0.0, 0.1)},
        {"steps": (1.5,)},
        {"measures": ()},
        {"measures": (MIXED[0], MIXED[0])},
        {"shadow_share": 0.0},
        {"max_seconds": 0.0},
        {"step_requests": 0},
        {"step_seconds": math.nan},
    ],
)
def test_a_configuration_that_cannot_be_carried_out_is_refused(change):
    with pytest.raises(InputError):
        Rollout(replace(RolloutConfig(), **change))
