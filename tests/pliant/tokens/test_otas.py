"""The baseline decides as published: Algorithm 3 at first and on short queues, else Algorithm 2, over frozen batches."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.protocol import Arrived, Drop, Finished, Launch
from pliant.tokens.artifact import GAMMAS
from pliant.tokens.batching import BatchingConfig, Queue
from pliant.tokens.otas import OtasChooser, OtasConfig
from pliant.tokens.otas_plan import OtasBatch, otas_plan
from pliant.tokens.policies import make
from pliant.tokens.policy import PoolState
from pliant.tokens.published import FIGURE_4B, TABLE_I, profile
from pliant.tokens.scheduler import Options
from tests.fixtures.tokens.loads import ask

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


def test_where_the_deadline_would_be_missed_the_smallest_gamma_is_taken():
    """The prediction is count x seconds per sample at the gamma of the table: 60 requests take 60 times as long as one."""
    (batch,) = batches((60, 1.0, 1.0))
    now = 1.0 - 60 * SAMPLE[8]
    otas = chooser(100, now)
    assert otas.choose([batch], pool_state(now - 1e-6), now - 1e-6).setting == 8
    assert otas.choose([batch], pool_state(now + 1e-6), now + 1e-6).setting == -20
    assert otas.choose([batch], pool_state(now - 1e-6, slowdown=1.1), now - 1e-6).setting == -20


@pytest.mark.parametrize(("utility", "gamma"), [(0.8, -15), (0.81, 8)])
def test_valuable_batches_take_the_greatest_gamma_whatever_the_rate(utility, gamma):
    (batch,) = batches((2, 9.0, utility))
    assert chooser(600, 5.0).choose([batch], pool_state(5.0), 5.0).setting == gamma


def test_the_rate_counts_for_one_worker_and_on_a_slow_device_for_more():
    (batch,) = batches((2, 9.0, 0.5))
    assert chooser(600, 5.0, workers=2).choose([batch], pool_state(5.0, workers=2), 5.0).setting == 4  # 300 each
    assert chooser(300, 5.0).choose([batch], pool_state(5.0, slowdown=2.0), 5.0).setting == -15


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


@pytest.mark.parametrize(("now", "gamma"), [(1.99, 8), (2.0, None)])
def test_in_the_first_two_seconds_the_table_decides_even_over_a_long_queue(now, gamma):
    groups = [(40, now + 0.1 + i / 50, 0.5) for i in range(5)]
    waiting = batches(*groups)
    choice = chooser(200, now).choose(waiting, pool_state(now), now)
    plan = planned(waiting, now)
    first = next(i for i, setting in enumerate(plan) if setting is not None)
    assert plan[first] != 8  # else the two could not be told apart
    expected = (waiting[0], gamma) if gamma is not None else (waiting[first], plan[first])
    assert (choice.batch, choice.setting) == expected


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


def test_the_baseline_is_the_published_one():
    config, queue = OtasConfig(), BatchingConfig()
    assert (config.short_queue, config.settling, config.valuable, config.max_batch) == (5, 2.0, 0.8, 64)
    assert (queue.window, queue.max_batch, queue.deadline_gap, queue.utility_gap) == (0.5, 64, 0.5, 0.8)


def test_a_gamma_that_was_not_profiled_gives_way_to_the_nearest():
    otas = OtasChooser(profile(TABLE_I, (-10, 0, 4)), 1)
    (batch,) = batches((1, 9.0, 0.1))
    assert otas.choose([batch], pool_state(5.0), 5.0).setting == 4  # the table says 8
