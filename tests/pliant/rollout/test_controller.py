"""A rollout: its steps, its decisions, and what cannot disturb it."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import GAP, Rollout, restored
from pliant.rollout.events import (
    Ask,
    Broken,
    CanaryOutcome,
    Cancelled,
    Label,
    Note,
    Promote,
    SetShare,
    ShadowCompared,
    TakeBack,
    Tick,
)
from pliant.rollout.measures import ARMS, FLOOR, MEASURES
from pliant.rollout.turns import Turns

SMALL = RolloutConfig(
    shadow_requests=5,
    steps=(0.1, 0.5, 1.0),
    step_requests=4,
    step_seconds=10.0,
    measures=MEASURES[:-1],
    max_seconds=1000.0,
    guard_seconds=0.0,
)
"""Neither turns nor a guard."""
CANARY = replace(SMALL, shadow_requests=0)
WHOLE = replace(CANARY, step_seconds=40.0, measures=MEASURES, max_seconds=1e5, guard_seconds=5000.0)


def feed(rollout: Rollout, count: int, start: float = 0.0, prefix: str = "r", agree: bool = True) -> list:
    """Give good requests a second apart, each answered by both, and return all actions."""
    actions = []
    for index in range(count):
        id, now = f"{prefix}{index}", start + index
        actions += rollout.handle(CanaryOutcome(f"c{id}", "champion", 0.01, late=False), now)
        if rollout.stage != "shadow":
            actions += rollout.handle(CanaryOutcome(id, "canary", 0.01, late=False), now)
        actions += rollout.handle(ShadowCompared(id, True if agree else None), now)
        rollout.check()
    return actions


def test_a_good_challenger_goes_through_shadow_and_every_step_and_is_promoted():
    rollout = Rollout(SMALL)
    assert (rollout.stage, rollout.share) == ("shadow", 0.0)
    actions = feed(rollout, 500)
    assert [action.share for action in actions if isinstance(action, SetShare)] == [0.1, 0.5, 1.0]
    assert isinstance(actions[-1], Promote)
    assert rollout.reason.startswith("promoted at 50% of traffic after ")
    assert rollout.decided
    assert rollout.share == 1.0


@pytest.mark.parametrize("late", [0.0, 0.4])
def test_before_its_promotion_it_takes_turns_at_all_requests_and_is_taken_back_where_only_they_make_it_late(late):
    rollout, rng, shares = Rollout(WHOLE), np.random.default_rng(0), set()
    for index in range(20_000):
        if rollout.decided or rollout.stage == "guard":
            break
        arm, now = ARMS[rng.random() < rollout.share], index / 10
        slow = rollout.stage == "load" and arm == "canary" and rng.random() < late
        shares |= {rollout.share} if rollout.stage == "load" else set()
        rollout.handle(CanaryOutcome(str(index), arm, 0.3 if slow else 0.01, late=bool(slow)), now)
        rollout.handle(ShadowCompared(str(index), True), now)
        rollout.check()
    assert shares == {0.0, 1.0}
    assert rollout.stage == ("taken_back" if late else "guard"), rollout.reason
    assert "late than the champion with all requests" in rollout.reason or not late


def guarded() -> Rollout:
    """Return a rollout whose challenger has just been promoted."""
    rollout = Rollout(replace(WHOLE, measures=MEASURES[:-1]))
    feed(rollout, 400)
    assert rollout.stage == "guard" and rollout.share == 0.95
    return rollout


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_promoted_one_that_decays_later_is_taken_back_and_another_one_is_promoted_for_good(decay):
    rollout, rng, pairs = guarded(), np.random.default_rng(2), 0
    for index in range(5000):
        right = rng.random() < 0.9
        decayed = index > 2000 and rng.random() < decay
        pairs += index > 2000 and not rollout.decided
        rollout.handle(Label(str(index), right, right and not decayed, ARMS[index % 2]), 400.0 + index)
        rollout.check()
    feed(rollout, 100, 5400.0, "last")
    assert rollout.stage == ("taken_back" if decay else "promoted"), rollout.reason
    assert rollout.share == (0.0 if decay else 1.0) and (not decay or pairs <= 200)
    assert ("h after its promotion" in rollout.reason) == bool(decay)


def test_a_guard_that_is_ended_by_hand_leaves_the_champion():
    rollout = guarded()
    assert [type(action) for action in rollout.handle(Cancelled("another one comes"), 400.0)] == [Note]
    assert rollout.stage == "promoted" and rollout.share == 1.0


def test_in_the_guard_turns_are_taken_only_while_many_answers_are_late():
    rollout = Rollout(WHOLE)
    feed(rollout, 3000)
    assert rollout.stage == "guard"
    for late, turns in ((False, {0.95}), (True, {0.0, 1.0})):
        shares = set()
        for index in range(100):
            now = 3000.0 + 200 * late + index
            rollout.handle(CanaryOutcome(f"{late}{index}", ARMS[rollout.share > 0], 0.01, late=late), now)
            shares |= {rollout.share} if index > 20 else set()
        assert shares == turns


def test_turns_count_the_later_half_of_each_and_compare_one_group_of_tenants_a_pair():
    turns = Turns(first="canary")
    for came, arm, group in [(0.4, "canary", 0), (0.6, "canary", 0), (0.7, "canary", 1), (0.8, "champion", 0)]:
        turns.add(arm, came, True, group)
    for came, group in [(1.2, 0), (1.6, 0), (1.7, 1), (2.1, 0)]:
        turns.add("champion", came, False, group)
    assert turns.blocks == {0: [1, 0, 1, 1], 1: [1, 0, 1, 1]} and turns.late() == 1.0
    assert turns.difference() == (1.0, 0) and not turns.is_over(2.4) and turns.is_over(2.5)
    firsts = []
    for now in range(64):
        turns = turns.next(1.0, True, float(now), "seed")
        firsts.append(turns.first)
    assert 16 < firsts.count("canary") < 48 and turns.difference() is None


def test_a_step_takes_its_requests_and_its_seconds():
    rollout = Rollout(SMALL)
    for index in range(20):
        assert rollout.handle(ShadowCompared(str(index)), 0.0) == []
    assert rollout.handle(Tick(), 9.9) == []
    assert rollout.handle(Tick(), 10.0)[0] == SetShare(0.1)
    assert rollout.handle(Tick(), 500.0) == []


def test_a_worse_challenger_is_taken_back_with_the_figures():
    rollout = Rollout(replace(CANARY, step_requests=1000))
    actions = []
    for index in range(80):
        rollout.handle(CanaryOutcome(str(index), "canary"), float(index))
        actions += rollout.handle(Label(str(index), True, index % 3 > 0, ARMS[index % 2]), float(index))
    assert actions[0] == SetShare(0.0)
    assert isinstance(actions[1], TakeBack)
    assert len(actions) == 2
    assert actions[1].reason == rollout.reason
    assert rollout.reason.startswith("taken back at 10% of traffic after ")
    assert "points worse by the labels of " in rollout.reason
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


def test_without_proof_it_asks_once_stays_at_its_share_and_is_taken_back_undecided():
    rollout = Rollout(replace(CANARY, max_seconds=900.0))
    assert [type(action) for action in feed(rollout, 300, agree=False)] == [Note]
    actions = feed(rollout, 300, 300.0, "further", agree=False)
    assert [type(action) for action in actions] == [Ask] and rollout.share == 0.1
    assert "nothing proves that its answers are less than 3 points worse (there are no labels)" in actions[0].sentence
    feed(rollout, 400, 600.0, "later", agree=False)
    assert rollout.stage == "taken_back"
    assert "undecided after 900 s: nothing proves that its answers" in rollout.reason


def test_labels_of_copies_take_a_worse_one_back_in_shadow_and_prove_nothing_there():
    for wrong, stage in ((3, "taken_back"), (10_000, "shadow")):
        rollout = Rollout(replace(SMALL, shadow_requests=1000))
        for index in range(300):
            rollout.handle(Label(str(index), True, index % wrong > 0), float(index))
        assert rollout.stage == stage and not rollout.comparisons["accuracy"].proven


def test_labels_prove_that_one_is_no_worse_though_it_answers_otherwise():
    rollout, rng = Rollout(CANARY), np.random.default_rng(0)
    for index in range(3000):
        right = rng.random(2) < 0.9
        rollout.handle(ShadowCompared(str(index), False), float(index))
        rollout.handle(CanaryOutcome(str(index), ARMS[index % 2], late=False), float(index))
        rollout.handle(Label(str(index), *map(bool, right), ARMS[index % 2]), float(index))
    assert rollout.stage == "promoted", rollout.reason


def test_where_clients_complain_of_what_is_wrong_alone_an_equal_one_is_not_taken_back_and_a_worse_one_is():
    """Labels of what a client saw the canary get wrong say nothing good of it."""
    ends = []
    for seed, quality in [(seed, quality) for quality in (0.9, 0.6) for seed in range(20)]:
        rollout, rng = Rollout(replace(CANARY, step_requests=100_000, max_seconds=1e8)), np.random.default_rng(seed)
        for index in range(4000):
            right, seen = (bool(rng.random() < 0.9), bool(rng.random() < quality)), int(rng.integers(2))
            if not right[seen]:
                rollout.handle(Label(str(index), *right, ARMS[seen]), float(index))
        ends.append((quality, rollout.stage))
    assert ends.count((0.9, "taken_back")) <= 3 and ends.count((0.6, "taken_back")) == 20


@pytest.mark.parametrize("never_right", [True, False])
def test_a_class_of_which_it_gets_nothing_right_takes_it_back_though_it_is_better_on_the_whole(never_right):
    rollout, rng, labels = Rollout(replace(CANARY, step_requests=100_000, max_seconds=1e8)), np.random.default_rng(1), 0
    while not rollout.decided and labels < 3000:
        name = int(rng.integers(20))  # classes of 5% each
        right = bool(rng.random() < 0.9), bool(rng.random() < (0.0 if never_right and name == 7 else 0.95))
        rollout.handle(Label(str(labels), *right, ARMS[labels % 2], (f"class {name}",)), float(labels))
        labels += 1
    assert rollout.stage == ("taken_back" if never_right else "canary"), rollout.reason
    if never_right:
        assert f"worse by more than {100 * FLOOR:g} points on class 7" in rollout.reason and labels < 1500


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
        CanaryOutcome("a", "somebody"),
        CanaryOutcome("a", "canary", -1.0),
        CanaryOutcome("a", "canary", math.nan),
        Label("a", True, True, "somebody"),
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


IDS = st.integers(0, 30).map(str)
EVENTS = st.one_of(
    st.builds(ShadowCompared, IDS, st.none() | st.booleans()),
    st.builds(
        CanaryOutcome,
        IDS,
        st.sampled_from(("champion", "canary")),
        st.none() | st.floats(0, 10),
        st.booleans(),
        st.none() | st.booleans(),
    ),
    st.builds(
        Label, IDS, st.booleans(), st.booleans(), st.sampled_from(ARMS), st.sampled_from(((), ("a",), ("b", "c")))
    ),
    st.just(Tick()),
)
ENDS = st.sampled_from((Tick(), Tick(), Broken("gone"), Cancelled("")))


@settings(max_examples=60)
@given(st.lists(st.tuples(EVENTS | ENDS, st.floats(-10, 100)), max_size=60), st.booleans(), st.data())
def test_whatever_happens_the_invariants_hold_and_a_restart_changes_nothing(steps, shadow, data):
    short = replace(CANARY, steps=(0.5, 1.0), step_requests=1, measures=MEASURES, guard_seconds=50.0)
    rollout = Rollout(data.draw(st.sampled_from((SMALL if shadow else CANARY, short))))
    if rollout.config is short:
        feed(rollout, data.draw(st.integers(0, 300)), -1000.0)
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
        if rollout.stage in ("load", "guard"):
            continue
        assert rollout.share >= share or rollout.stage == "taken_back"
        assert not (decided and actions)
        shares = [action.share for action in actions if isinstance(action, SetShare)]
        assert rollout.share == (shares[-1] if shares else share)
    assert decisions == rollout.decided or rollout.config is short


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
    begun_anew = [(name, {}) for name in ("config", "seen", "groups", "references", "comparisons", "floors", "turns")]
    assert all(each in [("last", None), ("last", -1), *begun_anew] for each in taken), taken


@pytest.mark.parametrize(
    "change",
    [
        {"steps": ()},
        {"steps": (0.5, 0.1)},
        {"steps": (0.0, 0.1)},
        {"steps": (1.5,)},
        {"measures": ()},
        {"measures": (MEASURES[0], MEASURES[0])},
        {"shadow_share": 0.0},
        {"max_seconds": 0.0},
        {"step_requests": 0},
        {"step_seconds": math.nan},
    ],
)
def test_a_configuration_that_cannot_be_carried_out_is_refused(change):
    with pytest.raises(InputError):
        Rollout(replace(RolloutConfig(), **change))
