"""What a scheduler knows, made from artifacts, through JSON, and replaced at work; policies by their names."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.journal import decode
from pliant.latency import LatencyTable
from pliant.protocol import Answer, Arrived, Changed, Drop, Failed, Finished, Launch, Woke, replay
from pliant.tokens.artifact import GAMMAS, Accuracies, RateRule
from pliant.tokens.policies import CHOICES, POLICIES, SERVED, make
from pliant.tokens.published import FIGURE_4B, profile, variants
from pliant.tokens.scheduler import Knowledge, TokensScheduler
from pliant.tokens.scheduler import knowledge as tokens_knowledge
from tests.fixtures.tokens.loads import (
    KNOWN,
    TABLE,
    World,
    ask,
    bursty,
    known,
    run,
    scheduler,
    text,
)
from tests.fixtures.tokens.samples import POINTS, profile_with_points, tiny_profile, tiny_task, with_points

every_policy = pytest.mark.parametrize("policy", POLICIES)
shares = st.floats(0, 1)


@st.composite
def knowledges(draw) -> Knowledge:
    settings = tuple(sorted(draw(st.sets(st.integers(-30, 40), min_size=1, max_size=4))))
    batches = tuple(sorted(draw(st.sets(st.integers(1, 64), min_size=1, max_size=3))))
    seconds = st.floats(1e-9, 1e9)
    rows = tuple(tuple(draw(seconds) for _ in batches) for _ in settings)
    accuracy = {task: {s: draw(shares) for s in settings} for task in draw(st.sets(st.text(max_size=3), max_size=3))}
    below = tuple(sorted(draw(st.sets(st.floats(0, 1e4), max_size=3))))
    rule = RateRule(below, tuple(draw(st.sampled_from(settings)) for _ in range(len(below) + 1)))
    loading = {s: draw(st.floats(0, 9)) for s in settings} if draw(st.booleans()) else {}
    buckets = batches if draw(st.booleans()) else ()
    return Knowledge(LatencyTable(settings, batches, rows, buckets), accuracy, rule, loading)


@given(knowledges())
def test_knowledge_comes_back_equal_from_json_text(some):
    assert Knowledge.of(json.loads(json.dumps(some.plain()))) == some


def without(key: str) -> dict:
    return {name: value for name, value in KNOWN.plain().items() if name != key}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        *(without(key) for key in KNOWN.plain()),
        {**KNOWN.plain(), "latency": None},
        {**KNOWN.plain(), "latency": [1, 2]},
        {**KNOWN.plain(), "accuracy": ["easy"]},
        {**KNOWN.plain(), "accuracy": {"easy": [1, 2]}},
        {**KNOWN.plain(), "rule": {"below": []}},
        {**KNOWN.plain(), "loading": 3},
    ],
)
def test_facts_that_are_no_knowledge_are_refused(facts):
    with pytest.raises(InputError, match=r"facts is .* but must be as Knowledge\.plain gives them"):
        Knowledge.of(facts)


# Replaced while the scheduler works


def changed(some: Knowledge, factor: float = 1.0, drop: str = "", **more) -> Knowledge:
    """Return a profile that is slower by a factor, without task `drop`, and with more tasks."""
    rows = tuple(tuple(factor * s for s in row) for row in some.latency.seconds)
    accuracy = {task: shares for task, shares in {**some.accuracy, **more}.items() if task != drop}
    return replace(some, latency=replace(some.latency, seconds=rows), accuracy=accuracy)


@every_policy
@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_is_lost_and_nothing_launched_twice_when_knowledge_changes_under_load(policy, workers):
    base = known(policy)
    changes = [
        (0.2, changed(base, 1.5)),
        (0.5, changed(base, 0.5)),
        (0.9, changed(base, flowers=base.accuracy["easy"])),
    ]
    world = World(2, failing=0.1, failing_restarts=0.2)
    journal, _ = run(bursty(5, 0.3), world, workers, policy, changes, restart_pause=0.05)
    entries = [entry for entry in journal if isinstance(entry.event, Changed)]
    assert len(entries) == 3
    for entry in entries:  # a slower profile makes some requests hopeless; no others are dropped
        assert {action.reason for action in entry.actions if isinstance(action, Drop)} <= {"late"}
    fresh = scheduler(policy, workers, restart_pause=0.05)
    assert replay(fresh, map(decode, text(journal))) == journal


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "infaas"])
def test_new_latencies_hold_from_the_next_decision_and_old_launches_end_by_the_old_ones(policy):
    """A launch that was decided on the old profile took what that said, so the device is not slow."""
    fresh = scheduler(policy)
    (first,) = fresh.handle(Arrived(ask(0, within=99.0)), 0.0)
    for i in (1, 2):
        fresh.handle(Arrived(ask(i, within=0.5)), 0.0)
    old = TABLE.at(first.setting, 1)
    assert fresh.handle(Changed(changed(KNOWN, 20.0).plain()), old / 2) == []
    assert fresh.wake_at() == pytest.approx(0.5 - 20 * 0.010)
    answer, *_ = fresh.handle(Finished(first.id, old), old)
    assert answer == Answer(0, first.id)
    assert fresh.slowdown == 1.0


@every_policy
@pytest.mark.parametrize("runs", [False, True])
def test_facts_that_lack_a_task_in_use_are_refused_and_change_nothing(policy, runs):
    fresh = scheduler(policy)
    first = fresh.handle(Arrived(ask(0, within=9.0, task="hard")), 0.0)[0]
    if not runs:
        fresh.handle(Arrived(ask(1, within=9.0, task="hard")), 0.0)
    wake, waiting = fresh.wake_at(), fresh.waiting
    with pytest.raises(InputError, match="task is hard, but must be one of easy"):
        fresh.handle(Changed(changed(known(policy), 3.0, drop="hard").plain()), 0.001)
    fresh.check()
    assert (fresh.wake_at(), fresh.waiting) == (wake, waiting)
    restart = fresh.handle(Failed(first.id, "crash"), 0.002)  # the request waits again, and its task is still known
    restart = restart[-1] if restart else fresh.handle(Woke(), 1.002)[-1]  # after a failed load there is a pause
    launches = fresh.handle(Finished(restart.id, 0.01), 1.1)
    assert any(isinstance(action, Launch) for action in launches)


PUBLISHED = profile(FIGURE_4B)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_made_by_its_name_and_described_in_a_sentence(policy):
    created = make(policy, variants(FIGURE_4B) if policy == "infaas" else PUBLISHED)
    assert isinstance(created, TokensScheduler)
    (launch,) = created.handle(Arrived(ask(0, task="cifar10")), 0.0)
    gamma = CHOICES[policy].gamma
    assert gamma is None or launch.setting == gamma
    assert len(POLICIES[policy]) > 10


def test_what_switches_between_models_and_the_fixed_ones_are_baselines_that_no_service_follows():
    assert set(POLICIES) - set(SERVED) == {"infaas", "tome", "vpt"}


WITH_POINTS = tokens_knowledge(profile_with_points("digest", "d"), [with_points(tiny_task("a", "xy", "digest"))])


@pytest.mark.parametrize("policy", [name for name in SERVED if CHOICES[name].gamma is None])
def test_otas_sees_gammas_alone_and_ours_points_gamma_0_and_prompts(policy):
    """Also of a profile that comes later, and unless a setting is named."""
    scheduler = make(policy, WITH_POINTS)
    expected = GAMMAS if policy.startswith("otas") else (0, 2, 4, 8, *POINTS)
    for _ in range(2):
        assert scheduler._policy.knowledge.latency.settings == expected
        scheduler.handle(Changed(WITH_POINTS.plain()), 0.0)
    if CHOICES[policy].allows(-5):
        assert make(policy, WITH_POINTS, gamma=-5)._policy.knowledge.latency.settings == (-5,)
    assert make(policy, PUBLISHED)._policy.knowledge.latency.settings == GAMMAS


def test_merged_settings_share_the_head_of_gamma_0_and_prompts_have_their_own():
    task = tiny_task("digits", ["zero", "one"], "digest", gammas=(2, 8))
    assert task.head(-20) is task.head(-1) is task.head(0) is task.heads[0]
    assert task.head(2) is task.heads[2] and task.head(8) is task.heads[8]
    with pytest.raises(KeyError):
        task.head(4)


MEASURED = replace(
    tiny_task("a", "xy", "digest"),
    accuracy={-5: 0.80, 0: 0.90},
    test_accuracy={-5: 0.79, 0: 0.89},
    half={"bfloat16": Accuracies({-5: 0.77, 0: 0.91}, {-5: 0.76, 0: 0.90})},
)


def test_a_task_has_the_accuracies_of_the_precision_that_it_is_served_in():
    served = MEASURED.served_in("bfloat16")
    assert (served.accuracy, served.test_accuracy) == ({-5: 0.77, 0: 0.91}, {-5: 0.76, 0: 0.90})
    assert served.served_in("bfloat16") == served
    assert MEASURED.served_in("float32") == MEASURED.served_in(None) == MEASURED


def test_a_scheduler_knows_the_gammas_that_were_profiled_and_that_every_task_was_measured_at():
    tasks = [tiny_task("a", "xy", "d"), tiny_task("b", "xy", "d", gammas=(2, 4))]
    known = tokens_knowledge(tiny_profile("d", "cpu"), tasks)
    assert known.latency.settings == (-20, -15, -10, -5, 0, 2, 4)
    assert {task: dict(shares) for task, shares in known.accuracy.items()} == {t.name: dict(t.accuracy) for t in tasks}
    assert known.rule == tiny_profile("d", "cpu").rule
    assert dict(known.loading) == {}
