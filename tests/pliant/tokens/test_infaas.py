"""The baseline that switches models by load: loading takes time, and the cheapest variant comes first."""

from __future__ import annotations

import pytest

from pliant.protocol import Arrived, Failed, Finished, Launch
from pliant.tokens.batching import BatchingConfig, Queue
from pliant.tokens.infaas import InfaasChooser, InfaasConfig
from pliant.tokens.policy import PoolState
from tests.fixtures.tokens.loads import VARIANTS, World, ask, bursty, run, scheduler

CAPACITY = [VARIANTS.latency.throughput(variant, 64) for variant in (0, 1, 2)]


def chooser(workers: int = 1, **config) -> InfaasChooser:
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
    infaas = chooser()
    assert loaded(infaas, 0.5 * CAPACITY[2], 10.0) == (2, 0.2)  # quiet: the most accurate
    assert loaded(infaas, 0.0, 11.0 + 1e-9) == (2, None)
    assert loaded(infaas, CAPACITY[2], 20.0) == (1, 0.1)  # at once, since requests would be late
    assert loaded(infaas, CAPACITY[1], 30.0) == (0, 0.05)
    assert loaded(infaas, 9 * CAPACITY[0], 40.0) == (0, None)  # more than any variant can do


def test_a_larger_variant_waits_until_the_last_change_is_some_time_ago():
    infaas = chooser(hold=5.0)
    assert loaded(infaas, 1, 10.0) == (2, 0.2)
    assert loaded(infaas, CAPACITY[2], 12.0) == (1, 0.1)
    assert loaded(infaas, 1, 16.9) == (1, None)
    assert loaded(infaas, 1, 18.0) == (2, 0.2)


def test_the_rate_is_shared_by_the_workers_and_a_slow_device_does_less():
    assert loaded(chooser(2), 1.5 * CAPACITY[2], 10.0, workers=2)[0] == 2
    assert loaded(chooser(), 0.6 * CAPACITY[2], 10.0, slowdown=2.0)[0] == 1


def to_the_first_load(fresh) -> Launch:
    """Two quiet requests, the second after the hold: the cheapest variant answers until then."""
    (first,) = fresh.handle(Arrived(ask(0)), 0.0)
    assert (first.kind, first.setting) == ("run", 0)
    fresh.handle(Finished(first.id, 0.01), 0.01)
    (load,) = fresh.handle(Arrived(ask(1, at=9.0, within=5.0)), 9.0)
    return load


def test_loading_occupies_the_worker_and_then_the_request_runs():
    fresh = scheduler("infaas")
    load = to_the_first_load(fresh)
    assert (load.kind, load.setting, load.requests) == ("load", 2, ())
    assert fresh.handle(Arrived(ask(7, at=9.05, within=5.0)), 9.05) == []
    (launch,) = fresh.handle(Finished(load.id, 0.4), 9.4)
    assert (launch.kind, launch.setting, launch.requests) == ("run", 2, (1, 7))
    assert fresh.slowdown == 1.0  # a load says nothing about how fast runs are


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
