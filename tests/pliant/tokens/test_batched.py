"""Policies over the queue of Algorithm 1: the arrival rate, dropping late requests, one fixed gamma."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.tokens.artifact import RateRule
from pliant.tokens.batched import ArrivalRate, BatchedPolicy, Choice, FixedChooser
from pliant.tokens.batching import BatchingConfig
from pliant.tokens.policy import Decision, Knowledge, PoolState
from tests.fixtures.tokens.loads import ACCURACY, KNOWN, TABLE, ask


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40).map(sorted), st.integers(0, 30), st.sampled_from([4, 8, 16])
)
def test_the_rate_counts_the_arrivals_of_the_window(eighths, later, window):
    rate = ArrivalRate(window / 8)
    for at in eighths:
        rate.add(at / 8)
    now = eighths[-1] + later
    assert rate.at(now / 8) == sum(now - window <= at <= now for at in eighths) / (window / 8)


def policy(gamma: int = 0, table: LatencyTable = TABLE, **batching) -> BatchedPolicy:
    known = Knowledge(table, {t: {g: s.get(g, 0.5) for g in table.settings} for t, s in ACCURACY.items()}, RULE)
    return BatchedPolicy(known, FixedChooser(gamma), BatchingConfig(**batching))


RULE = RateRule((), (0,))
ONE = PoolState(0, (0.0,))


def test_batches_run_by_earliest_deadline_at_the_one_gamma():
    batched = policy(-5)
    for i, within in enumerate((5.0, 1.0, 3.0, 5.1)):
        batched.add(ask(i, within=within), 0.0)
    decisions = [batched.decide(ONE, 0.0) for _ in range(3)]
    assert [tuple(r.id for r in d.run) for d in decisions] == [(1,), (2,), (0, 3)]
    assert {d.setting for d in decisions} == {-5}
    assert [d.seconds for d in decisions] == [TABLE.at(-5, n) for n in (1, 1, 2)]
    assert len(batched) == 0
    batched.check()


def test_a_task_is_not_forgotten_while_a_request_waits_for_it():
    batched = policy()
    batched.add(ask(0, task="hard"), 0.0)
    known = batched._knowledge
    fewer = replace(known, accuracy={"easy": known.accuracy["easy"]})
    with pytest.raises(InputError, match="hard"):
        batched.learn(fewer)
    assert batched.decide(ONE, 0.0).run[0].id == 0
    batched.learn(fewer)


@pytest.mark.parametrize("slowdown", [1.0, 2.0])
def test_a_request_is_dropped_once_not_even_the_fastest_launch_of_it_alone_is_in_time(slowdown):
    uneven = LatencyTable((-5, 0), (1, 2), ((0.010, 0.030), (0.020, 0.050)))
    batched = policy(0, uneven)
    batched.add(ask(0, within=1.0), 0.0)
    latest = 1.0 - 0.010 * slowdown
    assert batched.wake_at(slowdown) == pytest.approx(latest)
    assert batched.expire(latest - 1e-6, slowdown) == []
    assert batched.expire(latest + 1e-6, slowdown) == [0]


class Told:
    """Keeps what it is told, and does what it is asked to next."""

    trims = True

    def __init__(self) -> None:
        self.told, self.next = [], lambda batches: Choice(batches[0], 0)

    def arrived(self, request, now):
        self.told.append(("arrived", request.id, now))

    def lost(self, worker):
        self.told.append(("lost", worker))

    def learn(self, knowledge):
        self.told.append(("learn", knowledge))

    def choose(self, batches, pool, now) -> Choice:
        self.told.append(("choose", [list(batch.requests) for batch in batches], pool, now))
        return self.next(batches)


def test_a_chooser_is_told_of_all_that_happens_but_not_again_of_what_comes_back():
    chooser = Told()
    batched = BatchedPolicy(KNOWN, chooser)
    batched.add(ask(0, within=5.0), 0.5)
    batched.add(ask(1, within=1.0), 0.75, again=True)
    batched.lost(2)
    assert (batched.batches, len(batched), list(batched.ids())) == (2, 2, [0, 1])
    fewer = KNOWN.only((-10, 0))
    batched.learn(fewer)
    assert batched.decide(ONE, 0.875).run[0].id == 1
    assert chooser.told == [
        ("arrived", 0, 0.5),
        ("lost", 2),
        ("learn", fewer),
        ("choose", [[1], [0]], ONE, 0.875),
    ]


def test_a_variant_is_loaded_while_all_wait_but_those_that_are_given_up():
    chooser = Told()
    batched = BatchedPolicy(KNOWN, chooser, BatchingConfig(deadline_gap=0.0))
    for i in (0, 1):
        batched.add(ask(i, within=5.0 + i), 0.0)
    chooser.next = lambda batches: Choice(None, 2, (batches[1],), load=0.25)
    assert batched.decide(ONE, 0.0) == Decision((), 2, 0.25, (1,), load=True)
    chooser.next = lambda batches: Choice(batches[0], -5)
    assert batched.decide(ONE, 0.0) == Decision((ask(0, within=5.0),), -5, TABLE.at(-5, 1))


def test_requests_run_in_the_order_of_arrival_without_those_that_would_be_late():
    batched = policy(0)
    for i, within in enumerate((0.3, 0.05, 0.2, 0.044)):
        batched.add(ask(i, within=within), 0.0)
    decision = batched.decide(ONE, 0.0)
    assert ([request.id for request in decision.run], decision.drop) == ([0, 1, 2, 3], ())
    for i, within in enumerate((0.3, 0.05, 0.2, 0.043)):
        batched.add(ask(i, within=within), 0.0)
    decision = batched.decide(ONE, 0.0)
    assert ([request.id for request in decision.run], decision.drop) == ([0, 1, 2], (3,))


def test_who_has_left_is_not_in_the_batch_and_a_gamma_that_is_no_more_is_refused():
    batched = policy(0)
    for i in (0, 1):
        batched.add(ask(i), 0.0)
    batched.cancel(0)
    with pytest.raises(InputError, match="setting is 0, but must be one of"):
        batched.learn(KNOWN.only((-10, 4)))
    assert [request.id for request in batched.decide(ONE, 0.0).run] == [1]
    assert (batched.wake_at(1.0), batched.batches) == (None, 0)
