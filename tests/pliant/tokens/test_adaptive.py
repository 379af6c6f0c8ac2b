"""The default policy: what shares a batch, what is left out, and that it earns no less than the baselines."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Answer
from pliant.report import observations
from pliant.simulator import simulate
from pliant.tokens.adaptive import AdaptivePolicy
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import make
from pliant.tokens.policy import Knowledge, PoolState
from pliant.tokens.published import FIGURE_4B, TABLE_I, SyntheticConfig, profile, synthetic
from pliant.tokens.scheduler import Options
from pliant.tokens.simulated import SimulatedDevice
from pliant.workload import RequestKind, poisson, requests
from tests.fixtures.tokens.adaptive import ONE, filled, policy
from tests.fixtures.tokens.loads import ACCURACY, KNOWN, RULE, TABLE, ask, bursty, run

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

STEEP = Knowledge(  # each prompt doubles what "hard" earns and adds nothing to "easy"
    LatencyTable((-5, 4), (1, 16), ((0.01, 0.16), (0.02, 0.32))),
    {"easy": {-5: 0.9, 4: 0.9}, "hard": {-5: 0.3, 4: 0.9}},
    RateRule((), (-5,)),
)


def test_kinds_whose_best_settings_differ_under_the_price_do_not_share_a_batch():
    adaptive = filled(policy(STEEP), (60, "easy", 1.0, 9.0), (60, "hard", 1.0, 9.0))
    decisions = everything(adaptive)
    assert Counter(r.task for d in decisions for r in d.run) == {"easy": 60, "hard": 60}
    for decision in decisions:
        assert {(r.task, decision.setting) for r in decision.run} in ({("easy", -5)}, {("hard", 4)})


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


def test_in_quiet_every_request_gets_the_greatest_accuracy():
    rng = np.random.default_rng(0)
    load = requests(poisson(5, 20.0, rng), (RequestKind("easy", 2.0, 1.0), RequestKind("hard", 2.0, 0.01)), rng)
    _, books = run(load)
    assert Counter(launch.setting for launch in books.launches.values() for _ in launch.requests) == {4: len(load)}


def test_requests_worth_nothing_do_not_delay_what_is_worth_something():
    adaptive = filled(policy(), (1, "easy", 0.0, 0.1), (4, "easy", 1.0, 0.2))
    first, *_ = everything(adaptive)
    assert sum(r.utility for r in first.run) == 4.0
    busy = filled(policy(), (1, "easy", 0.0, 0.02), (4, "easy", 1.0, 0.07))
    first, *_ = everything(busy)  # with the urgent one, all would have to run faster
    assert ({r.utility for r in first.run}, first.setting) == ({1.0}, 4)


def test_a_crowd_too_large_for_its_common_deadline_is_served_in_part():
    """In one launch of all, each would be late; dropping all late ones would leave the worker idle."""
    adaptive = filled(policy(), (16, "easy", 1.0, 0.03))
    decision = adaptive.decide(ONE, 0.0)
    assert 4 <= len(decision.run) < 16
    assert decision.seconds <= 0.03


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


@pytest.mark.parametrize("most", [4, 64])
def test_batches_are_not_made_longer_than_configured(most):
    linear = PUBLISHED["figure 4b"]
    adaptive = filled(policy(linear, max_batch=most, seconds=0.05), (300, "cifar10", 1.0, 9.0))
    decisions = everything(adaptive)
    assert max(len(decision.run) for decision in decisions) <= most
    assert all(decision.seconds <= 0.05 for decision in decisions)
    if most == 64:
        assert max(decision.seconds for decision in decisions) > 0.045


def test_thrift_makes_them_longer_where_short_ones_waste_the_device():
    fixed_costs = LatencyTable((0,), (1, 16), ((0.100, 0.115),))  # a launch costs 0.099 s, a request 1 ms
    adaptive = policy(Knowledge(fixed_costs, {"easy": {0: 0.9}}, RateRule((), (0,))), seconds=0.06, max_batch=16)
    decision = filled(adaptive, (40, "easy", 1.0, 9.0)).decide(ONE, 0.0)
    assert len(decision.run) >= 15
    assert decision.seconds > 0.06


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
@pytest.mark.parametrize(("scale", "seed"), [(0.5, 0), (1.0, 1), (1.5, 2), (2.0, 3), (3.0, 4)])
def test_on_the_papers_ground_it_earns_no_less_than_the_baselines(ground, scale, seed):
    load = synthetic(scale, seed, SyntheticConfig(seconds=8.0, stretch=1.0))
    ours, otas, pets = (utility(name, PUBLISHED[ground], load) for name in ("default", "otas", "pets"))
    assert ours >= 0.998 * max(otas, pets)
    assert ours > 1.08 * otas or scale < 2


def test_adapting_earns_more_than_gamma_zero_under_overload_and_no_less_in_quiet():
    for rates, least in (((500,) * 2, 1.15), ((20,) * 4, 0.98)):
        load = bursty(8, 1.0, rates=rates)
        adapted, fixed = (utility("default", KNOWN, load, gamma=gamma) for gamma in (None, 0))
        assert adapted >= least * fixed
