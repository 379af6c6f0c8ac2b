"""The default policy: what shares a batch, sizes by buckets, exact decisions on written queues, and what it earns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Answer
from pliant.report import observations, report
from pliant.simulator import simulate
from pliant.tokens.adaptive import ATTAINMENT, AdaptiveConfig, AdaptivePolicy, first_sizes
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import make
from pliant.tokens.published import FIGURE_4B, TABLE_I, SyntheticConfig, profile, synthetic
from pliant.tokens.scheduler import Knowledge, Options, PoolState
from pliant.tokens.simulated import SimulatedDevice
from pliant.workload import RequestKind, poisson, requests
from tests.fixtures.tokens.loads import ACCURACY, KNOWN, RULE, TABLE, ask, run

ONE = PoolState(0, (0.0,))


def policy(known: Knowledge = KNOWN, only=None, **config) -> AdaptivePolicy:
    return AdaptivePolicy(known, AdaptiveConfig(**config), only)


def filled(adaptive: AdaptivePolicy, *groups, now: float = 0.0) -> AdaptivePolicy:
    """Add requests in groups of (count, task, utility, seconds to the deadline)."""
    number = 0
    for count, task, utility, within in groups:
        for _ in range(count):
            adaptive.add(ask(number, now, within, task, utility), now)
            number += 1
    return adaptive


PUBLISHED = {"figure 4b": profile(FIGURE_4B), "table I": profile(TABLE_I)}


def everything(adaptive: AdaptivePolicy, now: float = 0.0, slowdown: float = 1.0):
    """Return the decisions until nothing waits, each as if the worker were free at once."""
    decisions = []
    while len(adaptive):
        decisions.append(adaptive.decide(PoolState(0, (now,), slowdown), now))
        adaptive.check()
        assert not decisions[-1].idle
    return decisions


# What shares a batch


# What is left out, and what is not


def test_under_overload_the_valuable_are_served_and_the_worthless_dropped():
    kinds = (RequestKind("easy", 0.5, 1.0), RequestKind("hard", 0.5, 0.001))
    rng = np.random.default_rng(0)
    load = requests(poisson(400, 4.0, rng), kinds, rng)
    _, books = run(load)
    answered = Counter(
        books.arrived[number].utility for number, fate in books.fates.items() if isinstance(fate, Answer)
    )
    offered = Counter(request.utility for request in load)
    assert answered[1.0] > 0.97 * offered[1.0]
    assert answered[0.001] < 0.5 * offered[0.001]
    assert sum(offered.values()) / 4.0 > 1.2 * TABLE.throughput(-10, 16)


@given(
    st.lists(
        st.tuples(st.sampled_from(["easy", "hard"]), st.sampled_from([0.0, 0.3, 1.0, 7.0]), st.floats(0.011, 1)),
        max_size=40,
    ),
    st.lists(st.floats(0.01, 0.3), min_size=12, max_size=12),
)
def test_whatever_was_measured_and_waits_a_decision_is_in_time_or_none(drawn, seconds):
    """This holds too where noise made larger batches measure faster than smaller ones."""
    rows = tuple(tuple(seconds[i : i + 3]) for i in range(0, 12, 3))
    adaptive = policy(Knowledge(LatencyTable(TABLE.settings, (1, 4, 16), rows), ACCURACY, RULE))
    for i, (task, utility, within) in enumerate(drawn):
        adaptive.add(ask(i, 0.0, within, task, utility), 0.0)
    adaptive.expire(0.0, 1.0)
    while len(adaptive):
        decision = adaptive.decide(ONE, 0.0)
        adaptive.check()
        if decision.idle:
            break
        assert all(request.deadline >= decision.seconds for request in decision.run)


# How long batches are


# One gamma alone


def test_restricted_to_a_gamma_it_stays_so_whatever_it_learns():
    adaptive = filled(policy(only=(0,)), (3, "easy", 1.0, 9.0))
    slower = Knowledge(
        LatencyTable((-5, 0), TABLE.batches, tuple(tuple(2 * s for s in TABLE.row(g)) for g in (-5, 0))),
        {task: {g: shares[g] for g in (-5, 0)} for task, shares in ACCURACY.items()},
        RULE,
    )
    adaptive.learn(slower)
    (decision,) = everything(adaptive)
    assert (decision.setting, decision.seconds) == (0, 2 * TABLE.at(0, 3))
    before = adaptive.wake_at(1.0)
    with pytest.raises(InputError, match="setting is 0, but must be one of"):
        adaptive.learn(KNOWN.only((-10, 4)))
    filled(adaptive, (1, "easy", 1.0, 9.0))
    assert before is None
    assert everything(adaptive)[0].seconds == 2 * TABLE.at(0, 1)


def test_facts_that_are_refused_leave_the_price_as_it_was():
    adaptive = filled(policy(only=(0,)), (200, "hard", 1.0, 0.1), (1, "easy", 1.0, 9.0))
    adaptive.expire(0.1, 1.0)  # no "hard" request waits any longer, but they still count as recent arrivals
    before = adaptive._price(ONE, 0.1)
    easy = Knowledge(TABLE, {"easy": ACCURACY["easy"]}, RULE)
    with pytest.raises(InputError, match="setting is 0, but must be one of"):
        adaptive.learn(easy.only((-10, 4)))
    assert adaptive._price(ONE, 0.1) == before
    adaptive.learn(easy)
    assert adaptive._price(ONE, 0.1) == 0.0 < before


# What it earns


def utility(name: str, known: Knowledge, load, workers: int = 1, gamma: int | None = None) -> float:
    """Return the expected utility: an answer in time counts with its accuracy, whether it happened to be right or not."""
    device = SimulatedDevice(known.latency, known.accuracy, load, np.random.default_rng(0))
    seen = observations(simulate(make(name, known, workers, gamma, Options(margin=0.0)), load, device))
    in_time = [o for o in seen if o.outcome in ("accurate", "wrong")]
    return sum(o.request.utility * known.accuracy[o.request.task][o.setting] for o in in_time)


@pytest.mark.parametrize("ground", PUBLISHED)
@pytest.mark.parametrize(("scale", "seed"), [(1.0, 1), (3.0, 4)])
def test_on_the_papers_ground_it_earns_no_less_than_the_baselines(ground, scale, seed):
    load = synthetic(scale, seed, SyntheticConfig(seconds=8.0, stretch=1.0))
    ours, otas, pets = (utility(name, PUBLISHED[ground], load) for name in ("default", "otas", "pets"))
    assert ours >= 0.998 * max(otas, pets)
    assert ours > 1.08 * otas or scale < 2


def in_time(name: str, known: Knowledge, load, jitter: float) -> float:
    device = SimulatedDevice(known.latency, known.accuracy, load, np.random.default_rng(0), jitter)
    return report(simulate(make(name, known, options=Options(margin=0.0)), load, device)).attainment


@pytest.mark.parametrize("ground", PUBLISHED)
@pytest.mark.parametrize(("scale", "seed", "jitter"), [(2.0, 6, 0.0), (3.0, 7, 0.3)])
def test_for_attainment_more_are_in_time_than_for_utility_and_about_as_many_as_of_any_baseline(
    ground, scale, seed, jitter
):
    load, known = synthetic(scale, seed, SyntheticConfig(seconds=4.0, stretch=1.0)), PUBLISHED[ground]
    ours = in_time("attainment", known, load, jitter)
    assert ours > 1.1 * in_time("default", known, load, jitter)
    assert ours >= 0.98 * max(
        in_time(name, known, load, jitter) for name in ("otas", "otas-at-once", "slackfit", "pets")
    )
    assert utility("attainment", known, load) < utility("default", known, load)


def test_for_attainment_a_worthless_request_counts_and_among_equals_the_more_accurate_setting_is_taken():
    crowd = (16, "hard", 9.0, 0.2), (16, "hard", 0.0, 0.2)
    launches = [worked_off(filled(AdaptivePolicy(KNOWN, config), *crowd)) for config in (ATTAINMENT, AdaptiveConfig())]
    in_time, valuable = (sum(count for _, count, _, _ in each) for each in launches)
    assert in_time == 32 > valuable
    assert worked_off(filled(AdaptivePolicy(KNOWN, ATTAINMENT), (4, "hard", 1.0, 9.0))) == [(4, 4, 0, 3)]


BUCKETS = (1, 2, 4, 8, 16, 32, 64)
STAIRS = Knowledge(
    LatencyTable(
        (-10, 0), BUCKETS, tuple(tuple(0.001 + cost * n for n in BUCKETS) for cost in (0.0004, 0.0008)), BUCKETS
    ),
    {"easy": {-10: 0.8, 0: 0.9}},
    RateRule((), (0,)),
)


def sizes(adaptive) -> list[int]:
    taken = []
    while len(adaptive):
        taken.append(len(adaptive.decide(ONE, 0.0).run))
        adaptive.check()
    return taken


def test_requests_of_another_setting_join_where_the_bucket_has_room():
    adaptive = filled(policy(STAIRS), (3, "easy", 1.0, 0.5), (1, "easy", 0.02, 0.9))
    assert sizes(adaptive) == [4]


@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=5),
    st.sets(st.integers(1, 12), min_size=1, max_size=5).map(sorted),
)
def test_no_other_division_takes_less_time(steps, edges):
    """By trying every division of up to twelve requests into batches, each of which takes as long as its bucket."""
    row = np.cumsum(steps + [0.001] * (len(edges) - len(steps)))
    seconds_N = np.array([0.0, *(row[next(i for i, e in enumerate(edges) if e >= n)] for n in range(1, edges[-1] + 1))])
    first = first_sizes(seconds_N, edges)

    def taken(count: int) -> float:
        return 0.0 if not count else float(seconds_N[first[count]]) + taken(count - first[count])

    least = [0.0]
    for count in range(1, edges[-1] + 1):
        least.append(min(float(seconds_N[size]) + least[count - size] for size in range(1, count + 1)))
        assert taken(count) == pytest.approx(least[count])


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
                *[(-10, 9, 0, 8), (-10, 9, 9, 17), (-10, 9, 18, 26), (-5, 9, 27, 85), (0, 6, 30, 35), (-5, 9, 36, 88)],
                *[(-5, 6, 42, 47), (-5, 9, 89, 97), (-10, 2, 98, 99)],
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


@pytest.mark.parametrize("slowdown", [1.0, 2.0])
def test_the_hopeless_expire_by_deadline_over_all_kinds(slowdown):
    adaptive = policy()
    for i, (within, task, utility) in enumerate([(0.3, "easy", 1.0), (0.1, "hard", 1.0), (0.2, "easy", 0.0)]):
        adaptive.add(ask(i, 0.0, within, task, utility), 0.0)
    latest = 0.2 - TABLE.at(-10, 1) * slowdown
    assert adaptive.wake_at(slowdown) == 0.1 - TABLE.at(-10, 1) * slowdown
    assert adaptive.expire(latest, slowdown) == [1, 2]
    assert adaptive.expire(latest, slowdown) == [] and list(adaptive.ids()) == [0]


def test_a_crowd_too_large_for_its_common_deadline_is_served_in_part():
    """In one launch of all, each would be late; dropping all late ones would leave the worker idle."""
    adaptive = filled(policy(), (16, "easy", 1.0, 0.03))
    decision = adaptive.decide(ONE, 0.0)
    assert 4 <= len(decision.run) < 16
    assert decision.seconds <= 0.03


def test_requests_worth_nothing_do_not_delay_what_is_worth_something():
    adaptive = filled(policy(), (1, "easy", 0.0, 0.1), (4, "easy", 1.0, 0.2))
    first, *_ = everything(adaptive)
    assert sum(r.utility for r in first.run) == 4.0
    busy = filled(policy(), (1, "easy", 0.0, 0.02), (4, "easy", 1.0, 0.07))
    first, *_ = everything(busy)  # with the urgent one, all would have to run faster
    assert ({r.utility for r in first.run}, first.setting) == ({1.0}, 4)
