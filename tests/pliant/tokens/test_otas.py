"""The baselines OTAS (Algorithms 2 and 3) and INFaaS decide as published, defects included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protocol import Arrived, Finished, Launch
from pliant.tokens.batched import BatchingConfig, InfaasChooser, InfaasConfig, Queue
from pliant.tokens.otas import DROP, OtasBatch, OtasChooser, OtasConfig, otas_plan
from pliant.tokens.policies import make
from pliant.tokens.published import FIGURE_4B, profile
from pliant.tokens.scheduler import Options, PoolState
from tests.fixtures.tokens.loads import VARIANTS, World, ask, bursty, run

KNOWN = profile(FIGURE_4B)


def pool_state(now: float, slowdown: float = 1.0, workers: int = 1) -> PoolState:
    return PoolState(0, (now,) * workers, slowdown)


def batches(*groups):
    """Return one batch for each group of (count, deadline, utility)."""
    queue, number = Queue(BatchingConfig(window=9.0, deadline_gap=0.0, utility_gap=0.0)), 0
    for count, deadline, utility in groups:
        for _ in range(count):
            queue.add(ask(number, within=deadline, task="cifar10", utility=utility))
            number += 1
    return queue.batches


def chooser(rate: int = 0, now: float = 0.0, workers: int = 1, **config) -> OtasChooser:
    """Return a chooser that saw one request at time 0 and `rate` requests in the second before `now`."""
    created = OtasChooser(KNOWN, workers, OtasConfig(**config))
    created.arrived(ask(0), 0.0)
    for i in range(rate):
        created.arrived(ask(i), max(now - 0.5, 0.0))
    return created


@pytest.mark.parametrize(
    ("rate", "gamma"),
    [(200, 8), (279, 8), (281, 4), (321, 2), (351, 0), (381, -5), (451, -10), (521, -15), (999, -15), (1001, -20)],
)
def test_a_short_queue_takes_the_gamma_of_the_published_table(rate, gamma):
    (batch,) = batches((2, 9.0, 0.5))
    choice = chooser(rate, 5.0).choose([batch], pool_state(5.0), 5.0)
    assert (choice.batch, choice.setting, choice.load) == (batch, gamma, None)


def carried_out(policy: str) -> list[tuple[int, ...]]:
    """Return the requests of each launch, when an urgent request arrives while a plan is being carried out."""
    fresh = make(policy, KNOWN, options=Options(margin=0.0))
    (first,) = fresh.handle(Arrived(ask(0, task="cifar10", within=9.0, utility=0.5)), 0.0)
    fresh.handle(Finished(first.id, KNOWN.latency.at(first.setting, 1)), 0.01)
    (busy,) = fresh.handle(Arrived(ask(1, at=2.5, task="cifar10", within=9.0, utility=0.5)), 2.5)
    for i in range(2, 12):  # ten batches, as deadlines lie further apart than eta
        fresh.handle(Arrived(ask(i, at=2.5, task="cifar10", within=3.0 + 0.6 * i, utility=0.5)), 2.5)
    runs, now, launch = [], 2.5, busy
    for step in range(11):
        now += KNOWN.latency.at(launch.setting, len(launch.requests))
        actions = fresh.handle(Finished(launch.id, now - 2.5 if step < 0 else 0.01), now)
        (launch,) = [action for action in actions if isinstance(action, Launch)]
        runs.append(launch.requests)
        if step == 1:
            fresh.handle(Arrived(ask(99, at=now, task="cifar10", within=0.5, utility=0.5)), now)
        if (99,) in runs:
            break
    return runs


def test_made_anew_a_plan_takes_in_what_arrived():
    assert carried_out("otas") == [(2,), (3,), (99,)]


# Eighths: sums of them are exact, so plans can be compared without tolerance.
eighths = st.integers(1, 40).map(lambda n: n / 8)


@st.composite
def queues(draw, max_batches=5, gammas=4):
    g = draw(st.integers(1, gammas))
    row = st.lists(eighths, min_size=g, max_size=g).map(np.array)
    return draw(st.lists(st.builds(OtasBatch, eighths, row, row), max_size=max_batches))


def earned(batches, choices, clock):
    """Return what the choices earn by the programme's own estimate, or -inf if a batch ends after its deadline."""
    total = 0.0
    for batch, choice in sorted(zip(batches, choices, strict=True), key=lambda pair: pair[0].deadline):
        if choice != DROP:
            clock += batch.seconds_G[choice]
            total += batch.utility_G[choice] if clock <= batch.deadline else -np.inf
    return total


def in_plain_loops(batches, clock):
    """Return the utility of Algorithm 2 written as plain loops over (batch, choice)."""
    dp, clocks = {DROP: 0.0}, {DROP: clock}
    for batch in sorted(batches, key=lambda b: b.deadline):
        best, when = {}, {}
        for choice in (DROP, *range(len(batch.seconds_G))):
            for before in (DROP, *range(len(batch.seconds_G))):
                if before not in dp:
                    continue
                end = clocks[before] + (batch.seconds_G[choice] if choice != DROP else 0.0)
                gain = batch.utility_G[choice] if choice != DROP else 0.0
                fits = choice == DROP or end <= batch.deadline
                if fits and (choice not in best or dp[before] + gain > best[choice]):
                    best[choice], when[choice] = dp[before] + gain, end
        dp, clocks = best, when
    return max(dp.values())


@given(queues(), st.sampled_from([0.0, 0.5, 2.0]))
def test_it_earns_what_the_published_loops_earn(batches, clock):
    choices = otas_plan(batches, clock)
    assert len(choices) == len(batches)
    assert earned(batches, choices, clock) == in_plain_loops(batches, clock)


def test_a_state_with_less_utility_and_an_earlier_clock_is_forgotten():
    """After two batches (1, 0) earns less than (0, 0), but it alone leaves time for the third."""
    first = OtasBatch(9.0, np.array([5.0, 4.0]), np.array([1.0, 0.75]))
    second = OtasBatch(9.0, np.array([1.0, 9.0]), np.array([2.0, 2.0]))
    third = OtasBatch(9.0, np.array([4.0, 4.0]), np.array([3.0, 3.0]))
    queue = [first, second, third]
    assert earned(queue, (1, 0, 0), 0.0) == 5.75
    assert earned(queue, otas_plan(queue, 0.0), 0.0) == 4.0


CAPACITY = [VARIANTS.latency.throughput(variant, 64) for variant in (0, 1, 2)]


def infaas_chooser(workers: int = 1, **config) -> InfaasChooser:
    """Return a chooser whose first request came long ago."""
    infaas = InfaasChooser(VARIANTS, workers, InfaasConfig(**config))
    infaas.arrived(ask(0), 0.0)
    return infaas


def choose(infaas: InfaasChooser, now: float, worker: int = 0, slowdown: float = 1.0, workers: int = 1):
    queue = Queue(BatchingConfig())
    queue.add(ask(0, within=9.0))
    return infaas.choose(queue.batches, PoolState(worker, (now,) * workers, slowdown), now)


def loaded(infaas: InfaasChooser, rate: float, now: float, **more) -> tuple[int, float | None]:
    for i in range(round(rate)):
        infaas.arrived(ask(i), now)
    choice = choose(infaas, now, **more)
    return choice.setting, choice.load


def test_a_worker_runs_its_variant_and_loads_one_that_keeps_up_when_load_rises():
    infaas = infaas_chooser()
    assert loaded(infaas, 0.5 * CAPACITY[2], 10.0) == (2, 0.2)  # quiet: the most accurate
    assert loaded(infaas, 0.0, 11.0 + 1e-9) == (2, None)
    assert loaded(infaas, CAPACITY[2], 20.0) == (1, 0.1)  # at once, since requests would be late
    assert loaded(infaas, CAPACITY[1], 30.0) == (0, 0.05)
    assert loaded(infaas, 9 * CAPACITY[0], 40.0) == (0, None)  # more than any variant can do


@pytest.mark.parametrize("workers", [1, 2])
def test_over_a_load_it_goes_down_when_the_rate_rises_and_up_again_when_it_falls(workers):
    load = bursty(4, 8.0, rates=[rate * workers for rate in (15, 200, 15)])
    _, books = run(load, World(0), workers, policy="infaas")
    loads = [launch.setting for launch in books.launches.values() if launch.kind == "load" and launch.worker == 0]
    assert loads[0] == 2
    assert 0 in loads
    assert loads[-1] == 2
    assert len(loads) < 12
