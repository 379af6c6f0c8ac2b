"""Requests are accepted if their targets and those of all that wait are kept by the forecast, and refused at once if not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import FOREVER, Memory
from pliant.packing.scheduling.simulated import simulate
from pliant.packing.scheduling.targets import PROBE_SECONDS, PROBES, Admission, _Accepted, due
from tests.fixtures.packing.samples import prompt

COST = LinearCost(0.01, 1e-4, 1e-4, 1e-7, 0.0)
MEMORY = Memory(200, 16, step_tokens=512, sequences=64)  # some thirty texts of a hundred tokens


def admission(learned: bool = True) -> Admission:
    made = Admission(COST, MEMORY)
    if learned:
        made.learn(1.0, 0.0)
    return made


def text(id: int, **changes):
    return prompt(id, **{"tokens": 60, "limit": 200, "forecast": 50.0, **changes})


def filled(count: int, began: bool = True) -> Admission:
    """Return an engine with so many texts that run, or wait."""
    made = admission()
    for id in range(1000, 1000 + count):
        assert made.offer(text(id), 0.0) is None
        if began:
            made.began(id, 0.1)
    return made


def test_an_idle_engine_accepts_what_it_can_keep_and_refuses_what_it_cannot_even_alone():
    assert admission().offer(text(0, ttft=0.1), 0.0) is None
    assert admission().offer(text(0, ttft=0.001), 0.0) > 0
    assert admission().offer(text(0, tpot=0.02), 0.0) is None
    assert admission().offer(text(0, tpot=0.005), 0.0) >= 1.0
    assert admission().offer(text(0, ttft=0.1, deadline=60.0), 0.0) is None
    assert admission().offer(text(0, ttft=0.1, deadline=0.2), 0.0) > 0


def test_who_has_a_deadline_alone_is_never_refused_by_a_forecast():
    assert filled(500, began=False).offer(text(0, deadline=0.001), 0.0) is None
    assert filled(500, began=False).hopeless(text(0, deadline=0.001), 0.0) is None


def test_an_idle_engine_that_was_not_measured_recently_accepts_anything_to_be_measured():
    made = admission(learned=False)
    assert made.offer(text(0, ttft=0.001), 0.0) is None
    assert made.offer(text(1, ttft=0.001), 0.0) is not None, "it is not idle any more"
    made.ended(0)
    made.learn(1.0, 1.0)
    assert made.offer(text(2, ttft=0.001), 1.0 + 0.9 * PROBES * PROBE_SECONDS) is not None
    assert made.offer(text(2, ttft=0.001), 1.0 + 1.1 * PROBES * PROBE_SECONDS) is None


def test_the_more_wait_the_longer_it_takes_and_the_later_one_should_come_again():
    late = [filled(count, began=False).offer(text(0, ttft=0.05, arrival=40.0), 40.0) for count in (50, 100, 400)]
    assert late == sorted(late) and late[0] < late[-1]
    waits = [filled(count, began=False).wait() for count in (0, 50, 100, 400)]
    assert waits[0] == 0 and waits == sorted(waits) and waits[1] < waits[-1]


def test_a_full_memory_is_waited_for():
    free, full = filled(10), filled(32)
    assert free.offer(text(0, ttft=0.15), 0.0) is None
    assert full.offer(text(0, ttft=0.15), 0.0) > 0
    for id in range(1000, 1025):
        full.ended(id)
    assert full.offer(text(0, ttft=0.15), 0.0) is None


def test_nobody_is_accepted_at_the_expense_of_who_was_promised_more():
    """One that is due earlier would be read first, and the one that waits would be late."""
    made = Admission(COST, replace(MEMORY, pages=4000))
    made.learn(1.0, 0.0)
    assert made.offer(text(0, tokens=3000, ttft=0.6), 0.0) is None
    assert made.offer(text(1, tokens=3000, ttft=2.0), 0.0) is None
    assert made.offer(text(2, tokens=3000, ttft=1.0), 0.0) is None
    assert made.offer(text(3, tokens=3000, ttft=1.4), 0.0) is None
    assert made.offer(text(4, tokens=3000, ttft=1.9), 0.0) > 0, "it could be kept, but not text 1's"
    made.ended(1)
    assert made.offer(text(4, tokens=3000, ttft=2.0), 0.0) is None


def test_missed_targets_make_it_careful():
    made = filled(5)
    for id in range(40):
        made.offer(text(id, ttft=5.0, arrival=float(id)), float(id))
        made.began(id, id + 6.0)
        made.ended(id)
    assert made.margin.value > 0.5
    before = made.margin.value
    made.offer(text(90, ttft=5.0), 0.0)
    made.began(90, 1.0)
    assert made.margin.value < before


def test_whoever_ends_is_forgotten():
    made = filled(30, began=False)
    for id in range(1000, 1030):
        made.ended(id)
        made.ended(id)
    made.began(1000, 9.0)
    assert made.wait() == 0.0


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.2, 1.5, 3.0]))
def test_under_overload_nearly_all_that_are_accepted_keep_their_targets(seed, load):
    """Poisson arrivals at so many times what the memory bears, lengths as forecast on average."""
    rng = np.random.default_rng(seed)
    rate, count = load * 30 / (50 * float(COST.seconds(64, 30, 3000))), 300
    times = np.cumsum(rng.exponential(1 / rate, count))
    quantiles = tuple(50 * np.exp(0.5 * z) for z in (-1.64, -1.28, -0.67, 0.0, 0.67, 1.28, 1.64, 2.33))
    texts = [
        text(id, arrival=float(at), forecast=quantiles, ttft=float(rng.choice([0.5, 2.0])), tpot=0.05)
        for id, at in enumerate(times)
    ]
    lengths = {each.id: int(np.clip(50 * np.exp(0.5 * rng.normal()), 1, 200)) for each in texts}
    rules = Rules("default", 512, cost=COST)
    run = simulate(texts, lengths, rules, MEMORY, COST, admission=Admission(COST, MEMORY))
    accepted = [(each, fate) for each, fate in zip(texts, run.fates, strict=True) if not fate.dropped]
    assert all(fate.dropped in ("", "refused") for fate in run.fates)
    assert all(fate.ended == fate.arrival and not fate.generated for fate in run.fates if fate.dropped)
    kept = [
        fate.first - fate.arrival <= each.ttft and (fate.ended - fate.first) <= each.tpot * max(fate.generated - 1, 1)
        for each, fate in accepted
    ]
    assert sum(kept) >= 0.9 * len(kept), "less than a hundred requests until the margin has settled"
    assert len(accepted) >= min(0.5 / load, 0.9) * count, "it serves all the same"


def test_clients_that_give_up_leave_no_later_than_their_first_token_is_due():
    texts = [text(id, ttft=0.05 if id else 9.0) for id in range(200)]
    lengths = dict.fromkeys(range(200), 50)
    run = simulate(texts, lengths, Rules("paged", 512), MEMORY, COST, give_up=True)
    gone = [fate for fate in run.fates if fate.dropped]
    assert gone and all(fate.dropped == "given up" and fate.ended > 0.05 and not fate.generated for fate in gone)
    patient = [replace(each, ttft=FOREVER) for each in texts]
    stayed = simulate(patient, lengths, Rules("paged", 512), MEMORY, COST, give_up=True)
    assert not any(fate.dropped for fate in stayed.fates)


def test_a_forecast_beyond_the_limit_counts_up_to_it():
    assert admission().offer(text(0, forecast=5000.0, limit=20, ttft=9.0, deadline=3.0), 0.0) is None
    assert admission().offer(text(0, forecast=5000.0, limit=400, ttft=9.0, deadline=3.0), 0.0) > 0


@given(
    count=st.integers(0, 60),
    began=st.booleans(),
    tokens=st.integers(1, 500),
    forecast=st.floats(1.0, 200.0),
    ttft=st.sampled_from((0.05, 0.3, 1.0, 4.0, FOREVER)),
    tpot=st.sampled_from((0.005, 0.02, 0.1, FOREVER)),
    deadline=st.sampled_from((0.5, 3.0, FOREVER)),
)
def test_what_is_hopeless_is_late_with_any_forecast(count, began, tokens, forecast, ttft, tpot, deadline):
    made = filled(count, began)
    request = text(5000, tokens=tokens, forecast=forecast, ttft=ttft, tpot=tpot, deadline=deadline)
    hopeless = made.hopeless(request, 0.2)
    refusal = made._refusal(_Accepted(request, due(request), forecast), 0.2)
    if hopeless is not None:
        assert refusal is not None and refusal >= hopeless > 0
    if min(ttft, tpot, deadline) == FOREVER:
        assert hopeless is None
