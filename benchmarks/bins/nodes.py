"""A node is lost under load: who is answered, who is refused in time, nobody twice, and how soon the rest is planned with.

Three nodes of a real Ray cluster (cluster.py), a device each, under the bins scheduler; as many clients as keep all of
them busy, each asking again as soon as it has its answer. One node's processes are killed, and later a node is added. Once
with every runtime on every device, once with one runtime a device, where the lost one is the only one for long texts. The
device multiplies matrices, so that time is really taken; its profile is measured first.

At last the control process of the cluster's head is killed, and stays away: who is answered then?
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from pliant.benchmarks.bins.cluster import Nodes, cluster
from pliant.benchmarks.bins.node_loss import NEVER, HeadLoss, Loss, Moments, Reply, Story, back_in_use, head_loss, loss
from pliant.benchmarks.harness import Context, Measured, need
from pliant.bins.artifact import PLACEMENTS, Bins, Shape
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import WorkerError
from pliant.latency import LatencyTable
from pliant.progress import Progress, share, silent
from pliant.protocol import Journal
from pliant.serving.clock import loop_clock
from pliant.serving.driver import Driver, Limits
from pliant.serving.workers.ray_pool import RayPool

if TYPE_CHECKING:
    from pliant.serving.workers.ray_workers import RayWorker  # Ray is loaded when a pool is

WORKERS = 3
TASK, SHORT, LONG = "text", 32, 128  # tokens
SHAPES = (Shape(SHORT, 1), Shape(LONG, 1), Shape(LONG, 1, dynamic=True))
PRODUCTS = (48, 96, 144)  # matrix products that a text takes in each of them
DEPLOYED = (0, 0, 1)  # the runtime of each device where it holds one
LOST = 2  # worker
SHORTS = 9  # one text of so many is long


@dataclass(frozen=True, slots=True)
class Load:
    """Times in seconds."""

    clients: int = 12
    deadlines: tuple[float, ...] = (2.0, 10.0)  # of the clients in turn
    whole: float = 6.0  # with all nodes
    short: float = 9.0  # without the lost one
    again: float = 6.0  # with a node in its place
    period: float = 4.0  # between two plans
    patience: float = 60.0  # at most so much longer, unmeasured, until the new node is used
    away: float = 75.0  # without the head: longer than Ray lets a process wait for it by default


class Multiplier:
    """Runs on a device: each payload, a number, comes back after as many matrix products as its runtime takes.

    `held`: the runtime that it holds; None for all of them.
    """

    def __init__(self, held: int | None = None, size: int = 160) -> None:
        self._matrix = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32) / size**0.5
        self._held = held

    def run(self, setting: int, payloads: Sequence[int]) -> tuple[Sequence[tuple[int, float]], float]:
        if self._held not in (None, setting):
            raise WorkerError(f"runtime {setting} was asked for, but {self._held} is loaded")
        started = time.perf_counter()
        outputs = [(payload, self._product(PRODUCTS[setting])) for payload in payloads]
        return outputs, time.perf_counter() - started

    def _product(self, times: int) -> float:
        product = self._matrix
        for _ in range(times):
            product = product @ self._matrix
        return float(product[0, 0])

    def update(self, value: object) -> None:
        raise WorkerError(f"nothing can be updated here, {value} neither")

    def load(self, number: int) -> None:
        self._held = number


def nodes(context: Context) -> Measured:
    """Lose a node under each placement, then the head: in the full setting for 5 minutes.

    In the smallest setting a node is lost under the first placement alone.
    """
    need("" if find_spec("ray") else "needs Ray: pip install -e '.[ray]'")
    load = Load(away=300.0) if context.full else Load()
    losses: list[Loss] = []
    heads: list[HeadLoss] = []
    placements = context.choose(PLACEMENTS, PLACEMENTS, PLACEMENTS[:1])
    with context.stage("a node lost under load") as progress, cluster() as around:
        measured = profile()
        for _ in range(WORKERS):
            around.add()
        with closing(RayPool(around.address, place_limit=60.0)) as pool:  # a busy machine takes long to start a process
            for number, placement in enumerate(placements):
                part = share(progress, 50 * number, 50 + 50 * number)
                story = asyncio.run(lose_a_node(around, pool, measured, placement, load, part))
                losses.append(loss(story, placement, load.period))
            if not context.smallest:
                heads.append(asyncio.run(lose_the_head(around, pool, measured, load)))
    targets = [target for each in losses for target in each.targets()]
    targets += [target for head in heads for target in head.targets()]
    return targets, {"losses": [asdict(each) for each in losses], "heads": [asdict(head) for head in heads]}


def profile(rounds: int = 30) -> Bins:
    """Return the device's runtimes as an artifact, by the median of some runs here."""
    device = Multiplier()
    runs = [[device.run(setting, [0])[1] for _ in range(rounds)] for setting in range(len(SHAPES))]
    *static, dynamic = (float(np.median(seconds)) for seconds in runs)
    lengths = np.zeros(LONG + 1, np.int64)
    lengths[[SHORT, LONG]] = SHORTS - 1, 1
    table = LatencyTable((SHORT, LONG), (1,), ((dynamic,), (dynamic,)))
    return Bins(TASK, "", "cpu", "eager", 2.0, SHAPES, tuple(static), table, lengths, 0.01, "shared", {}, {})


def scheduler(bins: Bins, placement: str, period: float) -> BinsScheduler:
    """Return a fresh scheduler, so that a journal can be replayed."""
    deployed = DEPLOYED if placement == "single" else ()
    config = Config(workers=WORKERS, period=period, deployed=deployed)
    return BinsScheduler(knowledge_of([bins], placement=placement), config)


async def lose_a_node(
    nodes: Nodes, pool: RayPool, bins: Bins, placement: str, load: Load, progress: Progress = silent
) -> Story:
    """Run the experiment on a cluster that has room for `WORKERS` devices, each on another node."""
    async with _asking(pool, bins, placement, load) as session:
        moments = await _events(nodes, session.workers, session.driver, load, progress)
        while back_in_use(session.journal, moments) == NEVER and session.driver.now < moments.ended + load.patience:
            await asyncio.sleep(0.1)
    return Story(session.journal, session.replies, moments)


async def lose_the_head(nodes: Nodes, pool: RayPool, bins: Bins, load: Load) -> HeadLoss:
    """Kill the head's control process under load, for good, and go on asking for `load.away` seconds."""
    async with _asking(pool, bins, PLACEMENTS[0], load) as session:
        await asyncio.sleep(load.whole)
        await asyncio.to_thread(nodes.kill_head)
        await asyncio.sleep(load.away)
    return head_loss(session.journal, session.replies, load.away)


@dataclass(frozen=True)
class _Session:
    """A service that clients ask, and what they got so far."""

    driver: Driver
    workers: Sequence[RayWorker]
    journal: Journal
    replies: list[Reply]


@asynccontextmanager
async def _asking(pool: RayPool, bins: Bins, placement: str, load: Load) -> AsyncIterator[_Session]:
    """Let clients ask until the end, each again as soon as it has its answer; then wait for the last answers."""
    journal: Journal = []
    held = DEPLOYED if placement == "single" else (None,) * WORKERS
    workers = [pool.make_worker(partial(Multiplier, runtime)) for runtime in held]
    driver = Driver(scheduler(bins, placement, load.period), workers, journal.append, loop_clock(), Limits(launch=20.0))
    session = _Session(driver, workers, journal, [])
    await driver.start()
    try:
        enough, payloads = asyncio.Event(), count()
        deadlines = [load.deadlines[number % len(load.deadlines)] for number in range(load.clients)]
        asks = [_ask(driver, deadline, enough, payloads, session.replies) for deadline in deadlines]
        clients = [asyncio.create_task(ask) for ask in asks]
        yield session
        enough.set()
        await asyncio.gather(*clients)
    finally:
        await driver.stop()


async def _events(
    nodes: Nodes, workers: Sequence[RayWorker], driver: Driver, load: Load, progress: Progress
) -> Moments:
    await asyncio.sleep(load.whole)
    progress(1, 4)
    killed = driver.now
    await asyncio.to_thread(nodes.kill, str(workers[LOST].node))
    await asyncio.sleep(load.short)
    progress(2, 4)
    await asyncio.to_thread(nodes.add)
    added = driver.now
    await asyncio.sleep(load.again)
    progress(3, 4)
    return Moments(LOST, killed, added, driver.now)


async def _ask(
    driver: Driver, deadline: float, enough: asyncio.Event, payloads: Iterator[int], replies: list[Reply]
) -> None:
    """Ask as one client, until there is enough. So few texts are long that of three devices one is for them."""
    while not enough.is_set():
        payload = next(payloads)
        length = LONG if payload % SHORTS == 0 else SHORT
        replies.append(Reply(payload, await driver.submit(TASK, deadline, 1.0, payload, length)))
