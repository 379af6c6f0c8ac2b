"""A Ray worker runs its model on a node of a cluster, and survives its actor and that node."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.benchmarks.bins import nodes as bins_nodes
from pliant.benchmarks.bins.cluster import cluster
from pliant.benchmarks.bins.nodes import NEVER, loss
from pliant.errors import WorkerError
from pliant.protocol import replay
from pliant.serving.clock import loop_clock
from pliant.serving.driver import Driver, Limits
from pliant.serving.workers.ray_cluster import Resources
from pliant.serving.workers.ray_pool import RayPool
from tests.fixtures.fakes import EchoModel, FifoScheduler, refuse_to_build, run_virtually

NODES = 3
QUICK = bins_nodes.Load(whole=1.0, short=4.0, again=2.0, period=2.0, patience=300.0)


@pytest.fixture(scope="module")
def installed():
    pytest.importorskip("ray", reason="needs Ray: pip install -e '.[ray]'")


@pytest.fixture(scope="module")
def nodes(installed):
    with cluster(silence=9.0) as made:
        for _ in range(NODES):
            made.add()
        yield made


@pytest.fixture(scope="module")
def pool(nodes):
    before = signal.getsignal(signal.SIGTERM)
    made = RayPool(nodes.address, place_limit=300.0)
    assert signal.getsignal(signal.SIGTERM) is before, "Ray would end the service at once, with requests in flight"
    yield made
    made.close()


def on_worker(pool, check, build=EchoModel):
    """Run `check(worker)` on a started worker."""

    async def main():
        worker = pool.make_worker(build)
        await worker.start()
        try:
            await check(worker)
        finally:
            await worker.stop()

    asyncio.run(main())


@pytest.mark.slow
def test_launches_updates_and_loads_reach_the_actor(pool):
    async def check(worker):
        assert worker.pid != os.getpid()
        assert await worker.run(-5, ["x", "y"]) == ([("x", -5, ()), ("y", -5, ())], 0.001)
        await worker.update("task b", EchoModel)
        assert (await worker.run(0, ["z"]))[0] == [("z", 0, ("task b",))]
        assert 0.01 <= await worker.load(2) < 5
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ("model 2",))]

    on_worker(pool, check)


@pytest.mark.slow
def test_arrays_of_any_size_arrive_whole_and_can_be_written_to(pool):
    async def check(worker):
        for size in (8, 300, 1000):
            array = np.random.default_rng(0).integers(0, 256, (size, size), dtype=np.uint8)
            ((back, *_),), _ = await worker.run(0, [array])
            np.testing.assert_array_equal(back, array)
            back += 1

    on_worker(pool, check)


@pytest.mark.slow
def test_an_exception_in_the_model_is_an_error_and_the_actor_lives_on(pool):
    async def check(worker):
        pid = worker.pid
        with pytest.raises(WorkerError, match=r"^ValueError: no such payload$"):
            await worker.run(0, ["raise"])
        with pytest.raises(WorkerError, match="a bad update"):
            await worker.update("bad", partial(EchoModel, ("bad",)))
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ())]
        assert worker.pid == pid
        await worker.restart()
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ())], "a refused update is forgotten"

    on_worker(pool, check)


@pytest.mark.slow
def test_a_model_that_cannot_be_built_says_why(pool):
    async def main():
        worker = pool.make_worker(refuse_to_build)
        with pytest.raises(WorkerError, match=r"^the weights are missing$"):
            await worker.start()
        await worker.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("silent", "error"),
    [
        ("home", "no node had room for 1 CPU within 2 s, or .* started anew: then nodes and service must be, too"),
        ("head", "no Ray cluster answers at 127.0.0.1:1: .*refused"),
        ("ask", "the device's actor was not ready within 300 s"),
    ],
)
def test_an_actor_that_never_answers_is_an_error_after_its_limit_and_is_killed(installed, monkeypatch, silent, error):
    from pliant.serving.workers import ray_workers

    async def at_home():
        return "node", 7

    async def never(*_):
        await asyncio.sleep(1e6)

    async def inline(work, *arguments):
        return work(*arguments)

    def remote(call):
        return SimpleNamespace(remote=call, options=lambda **_: SimpleNamespace(remote=call))

    actor = SimpleNamespace(home=remote(at_home), ask=remote(never), outlast=remote(never))
    setattr(actor, "home" if silent == "head" else silent, remote(never))
    killed = []
    monkeypatch.setattr(ray_workers, "_ACTOR", remote(lambda: actor))
    monkeypatch.setattr(ray_workers.ray, "kill", killed.append)

    async def main():
        worker = ray_workers.RayWorker(EchoModel, Resources(), 2.0, 300.0)
        with pytest.raises(WorkerError, match=f"^{error}$"):
            await worker.start()
        await worker.stop()
        assert killed == [actor]

    with socket.create_server(("127.0.0.1", 0)) as head:
        port = 1 if silent == "head" else head.getsockname()[1]
        context = SimpleNamespace(gcs_address=f"127.0.0.1:{port}")
        monkeypatch.setattr(ray_workers.ray, "get_runtime_context", lambda: context)
        monkeypatch.setattr(asyncio, "to_thread", inline)
        run_virtually(main())


@pytest.mark.slow
def test_an_actor_killed_during_a_launch_is_an_error_and_a_restart_brings_all_updates_back(pool):
    async def check(worker):
        await worker.update("task b", partial(EchoModel, ("task b",)))
        launch = asyncio.create_task(worker.run(0, ["hang"]))
        await asyncio.sleep(0.2)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="ended during run"):
            await asyncio.wait_for(launch, 300)
        await worker.update("task c", partial(EchoModel, ("task b", "task c")))  # meets a dead actor
        await worker.restart()
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ("task b", "task c"))]

    on_worker(pool, check)


@pytest.mark.slow
def test_a_hanging_launch_ends_when_the_worker_is_killed(pool):
    async def check(worker):
        launch = asyncio.create_task(worker.run(0, ["hang"]))
        await asyncio.sleep(0.2)
        worker.kill()
        with pytest.raises(WorkerError, match="ended during run"):
            await asyncio.wait_for(launch, 60)

    on_worker(pool, check)


@pytest.mark.slow
def test_an_idle_death_is_reported_once_and_a_stop_is_not(pool):
    async def check(worker):
        told = []
        worker.on_end = lambda: told.append("it ended")
        killed = time.monotonic()
        os.kill(worker.pid, signal.SIGKILL)
        while not told and time.monotonic() < killed + 300:
            await asyncio.sleep(0.01)
        await worker.restart()
        await worker.stop()
        await asyncio.sleep(0.5)
        assert len(told) == 1

    on_worker(pool, check)


@pytest.mark.slow
def test_a_driver_outlives_a_killed_actor(pool):
    async def main():
        journal = []
        worker = pool.make_worker(EchoModel)
        driver = Driver(FifoScheduler(), [worker], journal.append, loop_clock(), Limits(launch=10.0))
        await driver.start()
        assert (await driver.submit("a", 5.0, 1.0, "x")).output[0] == "x"
        os.kill(worker.pid, signal.SIGKILL)
        assert (await driver.submit("a", 20.0, 1.0, "y")).output[0] == "y"
        await driver.stop()
        assert replay(FifoScheduler(), journal) == journal

    asyncio.run(main())


@pytest.mark.slow
def test_workers_are_spread_and_one_too_many_is_an_error_until_a_node_joins(pool, nodes):
    from pliant.serving.workers.ray_workers import RayWorker  # Ray itself comes with it

    async def main():
        workers = [pool.make_worker(EchoModel) for _ in range(NODES)]
        await asyncio.gather(*(worker.start() for worker in workers))
        assert len({worker.node for worker in workers}) == NODES
        with pytest.raises(WorkerError, match=r"^no node had room for 1 CPU within 2 s, or "):
            await RayWorker(EchoModel, Resources(), 2.0, 300.0).start()
        more = pool.make_worker(EchoModel)
        came = await asyncio.to_thread(nodes.add)
        await more.start()
        assert more.node == came
        for worker in [*workers, more]:
            await worker.stop()
        await asyncio.to_thread(nodes.kill, came)

    asyncio.run(main())


@pytest.mark.slow
def test_a_node_lost_under_load_costs_no_answer_and_is_made_up_for(pool, nodes):
    """Kill the node with the only device for long texts. The benchmark measures how fast it recovers."""
    placement = "single"
    bins = bins_nodes.profile()
    story = asyncio.run(bins_nodes.lose_a_node(nodes, pool, bins, placement, QUICK))
    got = loss(story, placement, QUICK.period)
    assert (got.unanswered, got.twice, got.wrong) == (0, 0, 0)
    assert got.accepted == got.answered + got.refused
    assert all(rate > 0 for rate in got.rates), "the others go on"
    assert max(got.noticed, got.replanned, got.returned) < NEVER, "and the new node is used"
    assert replay(bins_nodes.scheduler(bins, placement, QUICK.period), story.journal) == story.journal
