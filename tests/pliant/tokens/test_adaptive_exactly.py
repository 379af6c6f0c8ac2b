"""What exactly the default policy decides, prices, expires and forgets on queues that are written down here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.tokens.adaptive import AdaptivePolicy
from pliant.tokens.policy import PoolState
from tests.fixtures.tokens.adaptive import ONE, filled, policy
from tests.fixtures.tokens.loads import KNOWN, TABLE, ask


def worked_off(adaptive: AdaptivePolicy, turn=None, **pool) -> list[tuple[int, int, int, int]]:
    """Return (setting, requests, least and greatest id) of every launch until nothing that can be in time waits."""
    launches, now = [], 0.0
    while not (decision := adaptive.decide(PoolState(0, (now,), turn=turn, **pool), now)).idle:
        ids = [request.id for request in decision.run]
        launches.append((decision.setting, len(ids), min(ids), max(ids)))
        now, turn = now + decision.seconds * pool.get("slowdown", 1.0), None
        adaptive.check()
    return launches


CROWD = ((30, "easy", 1.0, 0.3), (30, "hard", 1.0, 0.5), (20, "easy", 0.01, 0.2), (20, "hard", 0.3, 2.0))


@pytest.mark.parametrize(
    ("pool", "launches"),
    [
        (
            {},
            [
                *[(-5, 7, 0, 6), (-5, 7, 7, 13), (-10, 7, 14, 20), (-10, 7, 21, 27), (0, 7, 28, 84), (-5, 6, 30, 35)],
                *[(0, 7, 36, 85), (-5, 6, 42, 47), (0, 7, 48, 86), (-5, 6, 54, 59), (4, 6, 87, 92), (4, 6, 93, 98)],
                (4, 1, 99, 99),
            ],
        ),
        (
            {"slowdown": 1.5},
            [
                *[(-10, 9, 0, 8), (-10, 9, 9, 17), (-10, 9, 18, 26), (-5, 9, 27, 85), (0, 7, 30, 36), (-5, 9, 37, 88)],
                *[(-10, 6, 43, 48), (-5, 9, 89, 97), (-10, 2, 98, 99)],
            ],
        ),
        (
            {"turnaround": 0.02},
            [(-5, 24, 0, 23), (-5, 6, 24, 29), (-5, 19, 30, 48), (-5, 19, 49, 87), (4, 12, 88, 99)],
        ),
    ],
    ids=["as profiled", "half as fast again", "with a way to the device"],
)
def test_a_crowd_of_four_kinds_is_worked_off_in_the_same_launches_by_every_version(pool, launches):
    """The valuable first, longer tokens as the pressure falls; late and worthless ones are left."""
    assert worked_off(filled(AdaptivePolicy(KNOWN), *CROWD), **pool) == launches


def shared() -> AdaptivePolicy:
    """Nine requests of ann, two of them urgent, and three each of ben and cleo."""
    adaptive = AdaptivePolicy(KNOWN)
    for i in range(15):
        name = "ann" if i < 9 else "ben" if i < 12 else "cleo"
        within = {"ann": 0.25 if i < 2 else 0.6, "ben": 0.4, "cleo": 0.5}[name]
        request = ask(i, 0.0, within, "hard", 0.4) if name == "cleo" else ask(i, 0.0, within)
        adaptive.add(replace(request, tenant=name), 0.0)
    return adaptive


@pytest.mark.parametrize(
    ("turn", "order", "first"),
    [
        ({"ben"}, ("ben", "cleo", "ann"), [9, 10, 11, 12, 13, 14]),
        ({"cleo"}, ("cleo", "ann", "ben"), [12, 13, 14, 0, 1, 2]),
        (None, (), [0, 1, 9, 10, 11, 12]),
    ],
)
def test_a_batch_is_begun_by_those_whose_turn_it_is_and_filled_in_the_order_of_the_others(turn, order, first):
    pool = PoolState(0, (0.0,), turn=None if turn is None else frozenset(turn), order=order)
    decision = shared().decide(pool, 0.0)
    assert ([request.id for request in decision.run], decision.setting) == (first, 4)


@pytest.mark.parametrize(("turnaround", "served"), [(0.0004, 1), (0.0005, 1), (0.0006, 0)])
def test_the_way_to_the_device_counts_from_half_a_millisecond_on(turnaround, served):
    adaptive = filled(AdaptivePolicy(KNOWN), (1, "easy", 1.0, 0.0103))
    assert len(adaptive.decide(PoolState(0, (0.0,), turnaround=turnaround), 0.0).run) == served
    longer = filled(AdaptivePolicy(KNOWN), (1, "easy", 1.0, 0.0103), (1, "easy", 1.0, 9.0))
    longer.decide(PoolState(0, (0.0,), turnaround=0.01), 0.0)
    assert len(filled(longer, (1, "hard", 1.0, 0.02)).decide(PoolState(0, (0.0,)), 0.0).run) > 0


def test_arrivals_have_a_price_for_a_second_and_those_that_come_back_none():
    adaptive = filled(AdaptivePolicy(KNOWN), (400, "easy", 1.0, 9.0))
    price = adaptive._price(ONE, 0.0)
    assert price > 0
    again = AdaptivePolicy(KNOWN)
    for i in range(400):
        again.add(ask(i), 0.0, again=True)
    assert again._price(ONE, 0.0) == 0.0
    assert adaptive._price(ONE, 1.0) == price and adaptive._price(ONE, 1.0 + 1e-9) == 0.0
    some = filled(AdaptivePolicy(KNOWN), (120, "easy", 1.0, 9.0))
    workers = [some._price(PoolState(0, (0.0,) * count, slowdown), 0.0) for count, slowdown in ((2, 1), (1, 1), (1, 2))]
    assert workers[0] < workers[1] < workers[2] == some._price(PoolState(0, (0.0, 0.0), 4.0), 0.0)


def test_a_request_whose_client_has_left_neither_waits_nor_wakes():
    adaptive = filled(policy(), (2, "easy", 1.0, 1.0), (1, "hard", 0.0, 0.5))
    adaptive.cancel(2)
    assert list(adaptive.ids()) == [0, 1] and adaptive.wake_at(1.0) == 1.0 - TABLE.at(-10, 1)
    adaptive.cancel(0)
    adaptive.cancel(1)
    assert (len(adaptive), adaptive.wake_at(1.0), adaptive.expire(9.0, 1.0)) == (0, None, [])
    adaptive.check()


@pytest.mark.parametrize("slowdown", [1.0, 2.0])
def test_the_hopeless_expire_by_deadline_over_all_kinds(slowdown):
    adaptive = policy()
    for i, (within, task, utility) in enumerate([(0.3, "easy", 1.0), (0.1, "hard", 1.0), (0.2, "easy", 0.0)]):
        adaptive.add(ask(i, 0.0, within, task, utility), 0.0)
    latest = 0.2 - TABLE.at(-10, 1) * slowdown
    assert adaptive.wake_at(slowdown) == 0.1 - TABLE.at(-10, 1) * slowdown
    assert adaptive.expire(latest, slowdown) == [1, 2]
    assert adaptive.expire(latest, slowdown) == [] and list(adaptive.ids()) == [0]
