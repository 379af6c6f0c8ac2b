"""The counters of tenants: the bound of virtual token counters, a plain reference of the order, what idleness earns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.fairness import Fairness, FairnessConfig

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


def test_who_is_behind_counts_also_those_who_waited_of_late():
    fairness = Fairness(FairnessConfig(burst=1.0, slack=0.1, absence=5.0))
    waiting(fairness, {"ann": 1, "flood": 20})
    fairness.launch(0, (0,), 0.5)
    fairness.launch(1, (1,), 0.55)
    assert fairness.behind() is None, "within the slack"
    fairness.launch(2, (2,), 1.0)
    assert not fairness.several and fairness.behind() == {"ann"}
    fairness.launch(3, (3,), 4.0)
    assert fairness.behind() is None, "ann has been away for 5 s of service"


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


class Plain(Fairness):
    """Notes whose each request is from the first one on, also while a single tenant is known."""

    def join(self, request, name, weight):
        tenant = self._active.get(name) or self._return(name, weight)
        tenant.waiting[request] = None
        self._owners[request] = tenant

    def leave(self, request):
        tenant = self._owners.pop(request)
        del tenant.waiting[request]
        if not tenant.waiting and len(self._tenants) > 1:
            self._rest(tenant)

    def launch(self, launch, requests, service, costs=()):
        if len(self._tenants) > 1 and requests:
            self._charge(launch, requests, service, costs or [1.0] * len(requests))
        for request in requests:
            self.leave(request)

    def value(self, name, weight, utility):
        return utility if list(self._tenants) in ([], [name]) else super().value(name, weight, utility)

    def _contend(self):
        self.contended = True

    def _be_single(self, tenant):
        self.contended = False


def decisions(fairness: Fairness) -> tuple:
    surplus = tuple(fairness.surplus(name, 1.0, count) for name in NAMES for count in (0, 1, 20))
    received = tuple((fairness.received(name), fairness.waits(name)) for name in NAMES)
    flags = fairness.several, fairness.contended
    return (*flags, fairness.turn(), fairness.behind(), fairness.order(), received, surplus)


def play(fairness: Fairness, seed: int) -> tuple[list[tuple], int]:
    """Return what was decided after each of many events, and how often a single tenant was left of several.

    Tenants come one by one, stay away for long, and are forgotten.
    """
    rng, waiting, running, decided, singles = np.random.default_rng(seed), [], [], [], 0
    for step in range(300):
        before, present = fairness.contended, NAMES[: 1 + (step // 40) % 3]
        chance = rng.random()
        if chance < 0.45 or not waiting:
            name, weight = str(rng.choice(present)), float(rng.choice([0.5, 1.0]))
            decided.append((fairness.value(name, weight, float(rng.uniform(0, 3))),))
            if rng.random() < 0.9:  # else it is dropped as it comes
                fairness.join(step, name, weight)
                waiting.append(step)
        elif chance < 0.55:
            fairness.leave(waiting.pop(int(rng.integers(len(waiting)))))
        else:
            chosen = [waiting.pop(int(rng.integers(len(waiting)))) for _ in range(min(3, len(waiting)))]
            fairness.launch(step, chosen, 0.5, [float(cost) for cost in rng.uniform(0, 1, len(chosen))])
            running.append(step)
        if running and rng.random() < 0.4:
            fairness.ended(running.pop(0), float(rng.uniform(0, 1)))
        if not isinstance(fairness, Plain):
            fairness.check(waiting)
        singles += before and not fairness.contended
        decided.append(decisions(fairness))
    return decided, singles


@given(seeds, st.floats(0, 0.3))
def test_a_single_tenant_costs_less_and_changes_no_decision(seed, burst):
    config = FairnessConfig(burst, 0.05, absence=0.5)
    assert play(Fairness(config), seed) == play(Plain(config), seed)


def test_tenants_of_these_plays_become_single_and_several_again():
    assert sum(play(Fairness(FairnessConfig(0.1, 0.05, absence=0.5)), seed)[1] for seed in range(20)) >= 5


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


def test_a_tenant_without_any_weight_pays_much_and_breaks_nothing():
    fairness = Fairness(STRICT)
    waiting(fairness, {"ann": 1, "free": 2}, {"free": 0.0})
    fairness.launch(0, (1,), 1.0)
    assert fairness.received("free") == pytest.approx(1e6)
    assert fairness.turn() == {"ann"}
    assert fairness.surplus("other", 0.0) is None and fairness.surplus("other", 1.0) == 2


def test_a_tenant_that_comes_back_has_the_weight_that_it_has_now():
    fairness = Fairness(STRICT)
    waiting(fairness, {"ann": 1, "ben": 1})
    fairness.leave(1)
    fairness.join(2, "ben", 4.0)
    fairness.launch(0, (2,), 1.0)
    assert fairness.received("ben") == 0.25


def test_a_mean_utility_follows_the_latest_fiftieth_by_fiftieth():
    fairness = Fairness(STRICT)
    waiting(fairness, {"ann": 1, "ben": 1})
    assert [fairness.value("ann", 1.0, utility) for utility in (2.0, 4.0, 6.0)] == pytest.approx([1.0, 4 / 3, 6 / 4])
    for _ in range(100):
        fairness.value("ann", 1.0, 4.0)
    assert fairness.value("ann", 1.0, 54.0) == pytest.approx(54 / 5)
    assert fairness.value("new", 1.0, 3.0) == 1.0
    assert Fairness(STRICT).value("new", 1.0, 3.0) == 3.0


def test_who_owes_is_remembered_however_long_it_is_away_and_who_was_there_of_late_although_it_owes_nothing():
    fairness = Fairness(FairnessConfig(burst=0.0, slack=0.0, absence=1.0))
    waiting(fairness, {"owes": 1, "busy": 20, "other": 1}, {"busy": 100.0})

    def others_come_and_go(first: int) -> None:
        for request in range(first, first + 10):
            fairness.join(request, "guest", 1.0)
            fairness.leave(request)

    fairness.launch(0, (0,), 3.0)
    for number in range(1, 6):
        fairness.launch(number, (number,), 1.0)
    fairness.leave(21)
    others_come_and_go(50)
    assert fairness.received("owes") == 3.0, "it has been away for 5 s of service"
    fairness.launch(6, (6,), 0.5)
    assert fairness.behind() == {"guest", "other"}
    fairness.launch(7, (7,), 2.0)
    others_come_and_go(70)
    assert fairness.received("owes") == 3.0
    assert fairness.received("other") == fairness.received("nobody"), "it owed nothing, and so it is forgotten"
