"""A Ray worker runs its model on a node of a cluster, and survives its actor and that node."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial

import pytest

from pliant.benchmarks.bins import nodes as bins_nodes
from pliant.benchmarks.bins.cluster import cluster
from pliant.benchmarks.bins.nodes import NEVER, loss
from pliant.errors import WorkerError
from pliant.protocol import replay
from pliant.serving.workers.ray_workers import RayPool
from tests.fixtures.fakes import EchoModel

NODES = 3
PATIENCE = 120.0  # seconds until a dead cluster fails a test
QUICK = bins_nodes.Load(whole=1.0, short=4.0, again=2.0, period=2.0, patience=PATIENCE)


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
    made = RayPool(nodes.address, place_limit=PATIENCE)
    assert signal.getsignal(signal.SIGTERM) is before, "Ray would end the service at once, with requests in flight"
    yield made
    made.close()


@pytest.mark.slow
async def test_a_killed_actor_fails_its_launch_is_reported_once_and_comes_back_with_all_updates(pool):
    worker = pool.make_worker(EchoModel)
    await worker.start()
    told = []
    worker.on_end = lambda: told.append("it ended")
    await worker.update("task b", partial(EchoModel, ("task b",)))
    launch = asyncio.create_task(worker.run(0, ["hang"]))
    await asyncio.sleep(0.2)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="ended during run"):
        await asyncio.wait_for(launch, PATIENCE)
    await worker.update("task c", partial(EchoModel, ("task b", "task c")))  # meets a dead actor
    async with asyncio.timeout(PATIENCE):
        while not told:
            await asyncio.sleep(0.01)
    await worker.restart()
    assert (await worker.run(0, ["x"]))[0] == [("x", 0, ("task b", "task c"))]
    await worker.stop()
    assert told == ["it ended"], "a stop is no end"


@pytest.mark.slow
def test_a_node_lost_under_load_costs_no_answer_and_is_made_up_for(pool, nodes):
    """Kill the node with the only device for long texts. The benchmark measures how fast it recovers."""

    async def lose_one():
        async with asyncio.timeout(2 * PATIENCE):  # the cluster may have died
            return await bins_nodes.lose_a_node(nodes, pool, bins, placement, QUICK)

    placement, bins = "single", bins_nodes.profile()
    story = asyncio.run(lose_one())
    got = loss(story, placement, QUICK.period)
    assert (got.unanswered, got.twice, got.wrong) == (0, 0, 0)
    assert got.accepted == got.answered + got.refused
    assert all(rate > 0 for rate in got.rates), "the others go on"
    assert max(got.noticed, got.replanned, got.returned) < NEVER, "and the new node is used"
    assert replay(bins_nodes.scheduler(bins, placement, QUICK.period), story.journal) == story.journal
