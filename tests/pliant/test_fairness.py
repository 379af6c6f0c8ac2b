"""Tenants' counters against a plain reference, and devices that are kept for who comes back at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.fairness import PATIENCE, Fairness, FairnessConfig, Returns

STRICT = FairnessConfig(burst=0.0, slack=0.0)
NAMES = ("ann", "ben", "cleo")
seeds = st.integers(0, 10_000)


def waiting(fairness: Fairness, counts: dict[str, int], weights: dict[str, float] | None = None) -> dict[int, str]:
    owners: dict[int, str] = {}
    for name, count in counts.items():
        for _ in range(count):
            fairness.join(len(owners), name, (weights or {}).get(name, 1.0))
            owners[len(owners)] = name
    return owners


def launch_first(fairness: Fairness, owners: dict[int, str], number: int, seconds: float) -> str:
    """Run one request of a tenant whose turn it is."""
    turn = fairness.turn()
    name = min(owners.values() if turn is None else turn)
    request = min(request for request, owner in owners.items() if owner == name)
    fairness.launch(number, (request,), seconds)
    del owners[request]
    return name


@given(seeds)
def test_counters_of_backlogged_tenants_differ_by_the_largest_launch_at_most(seed):
    rng, fairness = np.random.default_rng(seed), Fairness(STRICT)
    weights = {name: float(rng.choice([0.5, 1.0, 2.0])) for name in NAMES}
    owners = waiting(fairness, dict.fromkeys(NAMES, 60), weights)
    largest = max(1.0 / weight for weight in weights.values())
    for number in range(100):
        launch_first(fairness, owners, number, float(rng.uniform(0.1, 1.0)))
        fairness.check(list(owners))
        if set(owners.values()) == set(NAMES):
            counters = [fairness.received(name) for name in NAMES]
            assert max(counters) - min(counters) <= largest + 1e-9


@given(seeds, st.floats(0, 1), st.floats(0, 0.5))
def test_whose_turn_it_is_agrees_with_counting_everything_again(seed, burst, slack):
    """The reference keeps every service ever given and looks at all of it whenever somebody comes back."""
    rng, fairness = np.random.default_rng(seed), Fairness(FairnessConfig(burst, slack))
    counters: dict[str, float] = {}
    owners: dict[int, str] = {}
    floor, known, launches = 0.0, 0, {}
    for step in range(150):
        active = set(owners.values())
        if rng.random() < 0.55 or not owners:
            name = str(rng.choice(NAMES))
            if name not in active:
                floor = max([floor, *([min(counters[n] for n in active)] if active else [])])
                counters[name] = max(counters.get(name, floor - burst), floor - burst)
            fairness.join(known, name, 1.0)
            owners[known] = name
            known += 1
        else:
            request, seconds = int(rng.choice(list(owners))), float(rng.uniform(0, 1))
            name = owners[request]
            charged = fairness.contended
            fairness.launch(step, (request,), seconds)
            del owners[request]
            if charged:
                counters[name] += seconds
                launches[step] = name, seconds
            if not owners:
                floor = max(floor, counters[name])
        if launches and rng.random() < 0.3:
            number = min(launches)
            name, seconds = launches.pop(number)
            took = float(rng.uniform(0, 1))
            remembered = name in fairness._tenants
            fairness.ended(number, took)
            if remembered:
                counters[name] += took - seconds
            else:
                counters.pop(name, None)
        active = set(owners.values())
        if active:
            least = min(counters[name] for name in active)
            near = [abs(counters[name] - least - slack) < 1e-9 for name in active]
            if not any(near):
                assert (fairness.turn() or active) == {name for name in active if counters[name] <= least + slack}
        fairness.check(list(owners))


def test_where_the_queue_is_full_the_newest_of_the_fullest_gives_way():
    fairness = Fairness(STRICT)
    waiting(fairness, {"ann": 3, "ben": 8}, {"ben": 2.0})
    assert fairness.surplus("cleo", 1.0) == 10, "ben has 4 for each unit of weight"
    assert fairness.surplus("ben", 2.0) is None, "the new one is the newest of the fullest itself"
    assert fairness.surplus("ann", 1.0) is None, "ann would have as many"
    assert fairness.surplus("cleo", 1.0, 3) == 10 and fairness.surplus("cleo", 1.0, 4) is None
    single = Fairness(STRICT)
    waiting(single, {"ann": 3})
    assert single.surplus("ann", 1.0) is None


@pytest.mark.parametrize("most", NAMES)
def test_of_too_many_idle_tenants_those_are_remembered_that_received_most(most):
    fairness = Fairness(FairnessConfig(burst=0.0, slack=0.0, remembered=1))
    owners = waiting(fairness, dict.fromkeys((*NAMES, "last"), 1))
    for request, name in owners.items():
        fairness.launch(request, (request,), {most: 3.0, "last": 1.0}.get(name, 2.0))
    for request in range(10, 20):  # somebody comes and goes
        fairness.join(request, "last", 1.0)
        fairness.leave(request)
    assert {name: fairness.received(name) for name in NAMES} == {name: 3.0 if name == most else 1.0 for name in NAMES}


def test_counters_that_differ_by_the_slack_and_no_more_count_as_equal():
    fairness = Fairness(FairnessConfig(burst=0.0, slack=0.5))
    waiting(fairness, {"ann": 2, "ben": 3, "cleo": 2})
    fairness.launch(0, (0,), 0.5)
    assert fairness.turn() is None and list(fairness.turns()) == [None]
    fairness.launch(1, (2,), 0.75)
    assert fairness.turn() == {"ann", "cleo"} and list(fairness.turns()) == [{"ann", "cleo"}, None]
    assert fairness.turn({"ann", "ben"}) is None and fairness.turn({"ben"}) is None
    assert fairness.turn({"ben", "cleo"}) == {"cleo"}
    assert fairness.order() == ["cleo", "ann", "ben"]
    assert [fairness.waits(name) for name in (*NAMES, "dora")] == [True, True, True, False]


def test_without_a_configuration_half_a_second_may_be_saved_up_and_a_tenth_counts_as_equal():
    fairness = Fairness()
    waiting(fairness, {"ann": 9, "ben": 1})
    assert [fairness.received(name) for name in ("ann", "ben", "cleo")] == [-0.5, -0.5, -0.5]
    fairness.launch(0, (0,), 0.1)
    assert fairness.turn() is None and fairness.behind() is None
    fairness.launch(1, (1,), 0.1)
    assert fairness.turn() == {"ben"} == fairness.behind()
    fairness.launch(2, (9,), 0.0)
    fairness.launch(3, (2,), 9.9)
    assert fairness.behind() == {"ben"}, "it waited 9.9 s of service ago"
    fairness.launch(4, (3,), 0.2)
    assert fairness.behind() is None, "and now 10.1 s ago"


def test_only_what_was_charged_is_corrected_and_only_once():
    fairness = Fairness(STRICT)
    waiting(fairness, {"ann": 2, "ben": 2})
    fairness.launch(0, (0,), 1.0)
    fairness.launch(1, (2,), 1.0)
    fairness.ended(7, 5.0)
    fairness.ended(0)  # what was predicted stands
    fairness.ended(1, 0.25)
    fairness.ended(1, 9.0)
    assert [fairness.received(name) for name in ("ann", "ben")] == [1.0, 0.25]


def test_a_mean_utility_follows_the_latest_fiftieth_by_fiftieth():
    fairness = Fairness(STRICT)
    waiting(fairness, {"ann": 1, "ben": 1})
    assert [fairness.value("ann", 1.0, utility) for utility in (2.0, 4.0, 6.0)] == pytest.approx([1.0, 4 / 3, 6 / 4])
    for _ in range(100):
        fairness.value("ann", 1.0, 4.0)
    assert fairness.value("ann", 1.0, 54.0) == pytest.approx(54 / 5)
    assert fairness.value("new", 1.0, 3.0) == 1.0
    assert Fairness(STRICT).value("new", 1.0, 3.0) == 3.0


GAP, LAUNCH = 0.01, 0.1


def learnt(gap: float = GAP, launch: float = LAUNCH, received: float = 5.0) -> tuple[Returns, Fairness, float]:
    """A tenant that came back ten times after `gap` seconds and has just got its answer, beside one that waits."""
    fairness = Fairness(FairnessConfig(burst=0.0, slack=0.0))
    returns, now = Returns(fairness), 0.0
    fairness.join(0, "many", 1.0)
    fairness.join(1, "ann", 1.0)
    fairness.leave(1)
    fairness.pay("many", received)
    returns.launched(launch)
    for request in range(2, 12):
        returns.came(request, "ann", now)
        now += 1.0
        returns.ended(request, now)
        now += gap
    return returns, fairness, now - gap


def test_a_device_is_kept_for_as_long_as_the_tenant_usually_takes_and_it_pays_for_that():
    returns, fairness, now = learnt()
    before = fairness.received("ann")
    assert returns.until(now) == pytest.approx(now + PATIENCE * GAP)
    returns.came(99, "ann", now + GAP)
    assert returns.until(now + GAP) is None, "it is there"
    assert fairness.received("ann") - before == pytest.approx(GAP)


def test_nobody_is_waited_for_longer_and_the_tenant_pays_then_too():
    returns, fairness, now = learnt()
    at, before = returns.until(now), fairness.received("ann")
    assert returns.until(at) is None
    assert fairness.received("ann") - before == pytest.approx(PATIENCE * GAP)
    assert returns.until(at + 1e-6) is None


@pytest.mark.parametrize(
    "rest",
    [{"gap": LAUNCH}, {"launch": GAP}, {"received": -1.0}],
    ids=["it takes too long", "a launch is short", "it has received more than who waits"],
)
def test_no_device_is_kept_where_that_is_dearer_than_a_launch_or_not_the_tenant_s_due(rest):
    returns, _, now = learnt(**rest)
    assert returns.until(now) is None
