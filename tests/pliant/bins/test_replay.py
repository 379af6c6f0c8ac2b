"""The compiled simulator agrees with the scheduler in virtual time, request by request."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.planning.plan import Window, published, swaps
from pliant.bins.replay import Pool, Replay, replay, shared
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.report import observations
from pliant.simulator import simulate
from tests.fixtures.bins.scenarios import bins, requests


def ends(journal, count):
    answered_at = {observation.request.id: observation.answered for observation in observations(journal)}
    return np.array([answered_at[i] for i in range(count)])


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), load=st.floats(0.2, 1.5), dispatch=st.sampled_from(DISPATCHES))
def test_one_runtime_a_device(seed, load, dispatch):
    rng = np.random.default_rng(seed)
    known = knowledge_of([bins()])
    held = sorted([3, *rng.integers(0, 4, 5)])
    trace = requests(rng, 300, load * 6 / 0.0018)
    config = Config(
        workers=6, dispatch=dispatch, deployed=tuple(held), drop_late=False, max_waiting=10**6, period=1e6, margin=0.0
    )
    scheduler = BinsScheduler(known, config)
    journal = simulate(scheduler, trace, SimulatedBins(known, trace), lambda _: scheduler.check())
    pool = Pool.of(known, dispatch)
    first = np.array([np.searchsorted([64, 128, 256, 512], request.length) for request in trace])
    done = Replay(pool, held, len(trace)).serve(np.array([request.arrival for request in trace]), first)
    assert np.allclose(done, ends(journal, len(trace)), atol=1e-7)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), dispatch=st.sampled_from(DISPATCHES), at_once=st.sampled_from([0.1, 0.4]))
def test_swaps_between_periods(seed, dispatch, at_once):
    rng = np.random.default_rng(seed)
    known = knowledge_of([bins(load_seconds=0.02)])
    trace = requests(rng, 600, 0.5 * 6 / 0.0018)
    period = trace[350].arrival
    held = [0, 0, 0, 0, 0, 3]
    config = Config(
        workers=6, dispatch=dispatch, deployed=tuple(held), drop_late=False, max_waiting=10**6, period=period,
        margin=0.0, plan="published", swaps=at_once,
    )  # fmt: skip
    scheduler = BinsScheduler(known, config)
    journal = simulate(scheduler, trace, SimulatedBins(known, trace), lambda _: scheduler.check())
    times = np.array([request.arrival for request in trace])
    first = np.array([np.searchsorted([64, 128, 256, 512], request.length) for request in trace])
    cut = int(np.searchsorted(times, period, side="right"))
    books = Replay(Pool.of(known, dispatch), held, len(trace))
    done = [books.serve(times[:cut], first[:cut])]
    window = Window(period, times[:cut].tolist(), first[:cut].tolist())
    changes = swaps(held, published(known, window, 6), books.free_at)
    late = books.serve(times[cut:], first[cut:], None, changes, period, max(1, int(at_once * 6)), 0.02)
    assert np.allclose(np.concatenate([*done, late]), ends(journal, len(trace)), atol=1e-7)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), load=st.floats(0.2, 2.0), patience=st.sampled_from([0.0, 30.0, 1e6]))
def test_every_runtime_on_every_device(seed, load, patience):
    rng = np.random.default_rng(seed)
    known = knowledge_of([bins(placement="shared")], "static")
    trace = requests(rng, 300, load * 3 / 0.0018, slo=0.02)
    config = Config(workers=3, drop_late=False, max_waiting=10**6, patience=patience, margin=0.0)
    scheduler = BinsScheduler(known, config)
    journal = simulate(scheduler, trace, SimulatedBins(known, trace), lambda _: scheduler.check())
    seconds = np.array([known.streams[0].cost(request.length)[1] for request in trace])
    times = np.array([request.arrival for request in trace])
    done = shared(times, seconds, np.full(len(trace), patience), np.array([request.deadline for request in trace]), 3)
    assert np.allclose(done, ends(journal, len(trace)), atol=1e-7)


def test_without_requests_the_mean_latency_is_nothing_and_devices_are_idle_at_the_start():
    pool = Pool.of(knowledge_of([bins()]), "completion")
    assert replay(pool, np.zeros(0), np.zeros(0, np.int64), (1, 0, 0, 1)) == 0.0
    times, firsts = np.array([1.0, 1.0, 1.0]), np.array([0, 3, 3])
    own = pool.seconds
    assert replay(pool, times, firsts, (1, 0, 0, 1)) == pytest.approx((own[0] + 3 * own[3]) / 3)
    assert replay(pool, times, firsts, (1, 0, 0, 0)) == np.inf
