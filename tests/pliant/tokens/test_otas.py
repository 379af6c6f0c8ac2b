"""The baseline decides as published: Algorithm 3 at first and on short queues, else Algorithm 2, over frozen batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protocol import Arrived, Drop, Failed, Finished, Launch
from pliant.tokens.artifact import GAMMAS
from pliant.tokens.batching import BatchingConfig, Queue
from pliant.tokens.infaas import InfaasChooser, InfaasConfig
from pliant.tokens.otas import DROP, OtasBatch, OtasChooser, OtasConfig, otas_plan
from pliant.tokens.policies import make
from pliant.tokens.policy import PoolState
from pliant.tokens.published import FIGURE_4B, profile
from pliant.tokens.scheduler import Options
from tests.fixtures.tokens.loads import VARIANTS, World, ask, bursty, run, scheduler

KNOWN = profile(FIGURE_4B)
SAMPLE = {gamma: KNOWN.latency.at(gamma, 64) / 64 for gamma in GAMMAS}


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


FIVE = [(40, 2.55 + i / 50, 0.5) for i in range(5)]  # too much for long prompts in all of them


def planned(waiting, now: float):
    accuracy = np.array([KNOWN.accuracy["cifar10"][g] for g in GAMMAS])
    seconds = np.array([SAMPLE[g] for g in GAMMAS])
    otas_batches = [
        OtasBatch(b.earliest, len(b.requests) * seconds, sum(r.utility for r in b.requests.values()) * accuracy)
        for b in waiting
    ]
    return [None if index < 0 else GAMMAS[index] for index in otas_plan(otas_batches, now)]


def test_from_five_batches_on_the_dynamic_programme_decides():
    four, five = batches(*FIVE[:4]), batches(*FIVE)
    now = 2.45
    otas = chooser(200, now)
    assert otas.choose(four, pool_state(now), now).setting == 8  # by the table
    plan = planned(five, now)
    first = next(i for i, gamma in enumerate(plan) if gamma is not None)
    assert plan[first] != 8
    choice = otas.choose(five, pool_state(now), now)
    assert (choice.batch, choice.setting) == (five[first], plan[first])


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


def test_made_anew_a_plan_takes_in_what_arrived_and_kept_it_does_not():
    assert carried_out("otas") == [(2,), (3,), (99,)]
    kept = carried_out("otas-kept")
    assert kept[:10] == [(i,) for i in range(2, 12)]


def test_a_batch_runs_whole_even_where_some_of_it_will_be_late():
    """The published system evicts batches, not requests: late requests within a batch still cost time."""
    fresh = make("otas", KNOWN, options=Options(margin=0.0))
    (first,) = fresh.handle(Arrived(ask(0, task="cifar10", within=9.0)), 0.0)
    for i in range(1, 41):
        fresh.handle(Arrived(ask(i, task="cifar10", within=0.03 if i == 1 else 0.4)), 0.0)
    actions = fresh.handle(Finished(first.id, 0.003), 0.003)
    assert not [action for action in actions if isinstance(action, Drop)]
    assert (len(actions[-1].requests), actions[-1].setting) == (40, -20)
    assert KNOWN.latency.at(-20, 40) > 0.03


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


def to_the_first_load(fresh) -> Launch:
    """Two quiet requests, the second after the hold: the cheapest variant answers until then."""
    (first,) = fresh.handle(Arrived(ask(0)), 0.0)
    assert (first.kind, first.setting) == ("run", 0)
    fresh.handle(Finished(first.id, 0.01), 0.01)
    (load,) = fresh.handle(Arrived(ask(1, at=9.0, within=5.0)), 9.0)
    return load


def test_a_worker_whose_load_failed_is_restarted_with_the_cheapest_variant():
    fresh = scheduler("infaas", restart_pause=0.1)
    load = to_the_first_load(fresh)
    assert fresh.handle(Failed(load.id, "no memory"), 9.1) == []
    (restart,) = fresh.handle(Arrived(ask(8, at=9.3, within=5.0)), 9.3)
    assert restart.kind == "restart"
    (launch,) = fresh.handle(Finished(restart.id, 0.1), 9.4)
    assert (launch.kind, launch.setting) == ("run", 0)
    fresh.check()


@pytest.mark.parametrize("workers", [1, 2])
def test_over_a_load_it_goes_down_when_the_rate_rises_and_up_again_when_it_falls(workers):
    load = bursty(4, 8.0, rates=[rate * workers for rate in (15, 200, 15)])
    _, books = run(load, World(0), workers, policy="infaas")
    loads = [launch.setting for launch in books.launches.values() if launch.kind == "load" and launch.worker == 0]
    assert loads[0] == 2
    assert 0 in loads
    assert loads[-1] == 2
    assert len(loads) < 12
