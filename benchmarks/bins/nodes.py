"""A node is lost under load: who is answered, who is refused in time, nobody twice, and how soon the rest is planned with.

Three nodes of a real Ray cluster (cluster.py), a device each, under the bins scheduler; as many clients as keep all of
them busy, each asking again as soon as it has its answer. One node's processes are killed, and later a node is added. Once
with every runtime on every device, once with one runtime a device, where the lost one is the only one for long texts. The
device multiplies matrices, so that time is really taken; its profile is measured first.

All is read off the journal and off what the clients got; times are on the driver's clock, in seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from itertools import count

import numpy as np

from pliant.benchmarks.bins.cluster import Nodes, cluster
from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.results import Target
from pliant.bins.artifact import PLACEMENTS, Bins, Shape
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import WorkerError
from pliant.latency import LatencyTable
from pliant.progress import Progress, share, silent
from pliant.protocol import Answer, Arrived, Drop, Failed, Finished, Journal, JournalEntry, Launch
from pliant.serving.driver import Completed, Driver, Limits, Rejected, loop_clock
from pliant.serving.workers.ray_workers import RayPool, RayWorker

NEVER = float("inf")
NOTICED = 2.0  # seconds within which the loss is to be known


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client got for its payload."""

    payload: int
    got: Completed | Rejected


@dataclass(frozen=True, slots=True)
class Story:
    """What happened: when the node of the worker `lost` was killed, another was added, and the measurement `ended`."""

    journal: Journal
    replies: Sequence[Reply]
    lost: int
    killed: float
    added: float
    ended: float


@dataclass(frozen=True, slots=True)
class Loss:
    """Of a node. Requests are counted; times in seconds; rates in answers a second."""

    placement: str
    period: float  # between two plans
    accepted: int
    answered: int
    late: int  # of those answered
    refused: int
    refused_late: int  # after their deadline
    twice: int  # answered or refused more than once, or run to the end by two launches
    unanswered: int
    wrong: int  # got another one's output
    noticed: float  # from the kill until the scheduler heard of it
    replanned: float  # from then until a launch was decided that makes up for the lost device
    returned: float  # from when the new node was up until a launch had ended there
    rates: tuple[float, float, float]  # with all nodes, without one, again with all

    def targets(self) -> list[Target]:
        loss = f"node loss, {self.placement}:"
        return [
            Target(f"{loss} accepted requests neither answered nor refused", self.unanswered, "<=", 0),
            Target(f"{loss} requests answered or run twice", self.twice, "<=", 0),
            Target(f"{loss} requests with another one's answer", self.wrong, "<=", 0),
            Target(f"{loss} requests refused after their deadline", self.refused_late, "<=", 0),
            Target(f"{loss} noticed after", self.noticed, "<=", NOTICED, "s"),
            Target(f"{loss} then capacity planned anew after", self.replanned, "<=", self.period, "s"),
        ]


def loss(story: Story, placement: str, period: float) -> Loss:
    """Read a loss off what happened (see `Loss`)."""
    journal = story.journal
    requests = {entry.event.request.id: entry.event.request for entry in journal if isinstance(entry.event, Arrived)}
    acts = [(entry.now, action) for entry in journal for action in entry.actions]
    ends = Counter(action.request for _, action in acts if isinstance(action, Answer | Drop))
    finished = [entry.event for entry in journal if isinstance(entry.event, Finished)]
    runs = Counter(result.request for event in finished for result in event.results)
    answered = [(at, requests[action.request]) for at, action in acts if isinstance(action, Answer)]
    dropped = [(at, requests[action.request]) for at, action in acts if isinstance(action, Drop)]
    times = [at for at, _ in answered]
    there = {action.id for _, action in acts if isinstance(action, Launch) and action.worker == story.lost}
    # When a launch on the lost node failed.
    failed = lambda entry: isinstance(entry.event, Failed) and entry.event.launch in there  # noqa: E731
    noticed = _first(journal, story.killed, failed)
    spans = ((0.0, story.killed), (story.killed, story.added), (story.added, story.ended))
    whole, short, again = (sum(start <= at < end for at in times) / (end - start) for start, end in spans)
    return Loss(
        placement=placement,
        period=period,
        accepted=len(requests),
        answered=len(answered),
        late=sum(at > request.deadline for at, request in answered),
        refused=len(dropped),
        refused_late=sum(at > request.deadline for at, request in dropped),
        twice=sum(ends[number] > 1 or runs[number] > 1 for number in requests),
        unanswered=sum(ends[number] == 0 for number in requests) + abs(len(requests) - len(story.replies)),
        wrong=sum(isinstance(r.got, Completed) and r.got.output[0] != r.payload for r in story.replies),
        noticed=noticed - story.killed,
        replanned=_replanned(journal, noticed, story.lost, placement) - noticed,
        returned=back_in_use(story) - story.added,
        rates=(whole, short, again),
    )


def _first(journal: Journal, after: float, holds: Callable[[JournalEntry], bool]) -> float:
    return next((entry.now for entry in journal if entry.now >= after and holds(entry)), NEVER)


def _replanned(journal: Journal, noticed: float, lost: int, placement: str) -> float:
    """Return when another device was sent for the lost one's runtime, or ran in it; where each has all, when any ran on."""
    launches = [(entry.now, a) for entry in journal for a in entry.actions if isinstance(a, Launch)]
    kinds = ("load", "run") if placement == "single" else ("run",)
    useful = [(at, launch) for at, launch in launches if launch.kind in kinds]
    held = [launch.setting for at, launch in useful if launch.worker == lost and at <= noticed][-1:]
    later = [(at, launch) for at, launch in useful if launch.worker != lost and at >= noticed]
    return next((at for at, launch in later if placement != "single" or launch.setting in held), NEVER)


def back_in_use(story: Story) -> float:
    """Return when requests were first answered by the worker that had been lost; `NEVER`: not yet."""
    launches = (
        a for entry in story.journal if entry.now >= story.killed for a in entry.actions if isinstance(a, Launch)
    )
    there = {launch.id for launch in launches if launch.worker == story.lost and launch.kind == "run"}
    return _first(story.journal, story.added, lambda e: isinstance(e.event, Finished) and e.event.launch in there)


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
        outputs = []
        for payload in payloads:
            product = self._matrix
            for _ in range(PRODUCTS[setting]):
                product = product @ self._matrix
            outputs.append((payload, float(product[0, 0])))
        return outputs, time.perf_counter() - started

    def update(self, value: object) -> None:
        raise WorkerError(f"nothing can be updated here, {value} neither")

    def load(self, number: int) -> None:
        self._held = number


def nodes(context: Context) -> Measured:
    """Lose a node under each placement; in the smallest setting under the first alone."""
    need("" if find_spec("ray") else "needs Ray: pip install -e '.[ray]'")
    load, losses = Load(), list[Loss]()
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
    return [target for each in losses for target in each.targets()], {"losses": [asdict(each) for each in losses]}


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
        await asyncio.sleep(load.whole)
        progress(1, 4)
        killed = session.driver.now
        await asyncio.to_thread(nodes.order, "kill", str(session.workers[LOST].node))
        await asyncio.sleep(load.short)
        progress(2, 4)
        await asyncio.to_thread(nodes.add)
        added = session.driver.now
        await asyncio.sleep(load.again)
        progress(3, 4)
        story = Story(session.journal, session.replies, LOST, killed, added, session.driver.now)
        while back_in_use(story) == NEVER and session.driver.now < story.ended + load.patience:
            await asyncio.sleep(0.1)
    return story


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

        async def ask(deadline: float) -> None:
            """Ask as one client, until there is enough. So few texts are long that of three devices one is for them."""
            while not enough.is_set():
                payload = next(payloads)
                length = LONG if payload % SHORTS == 0 else SHORT
                session.replies.append(Reply(payload, await driver.submit(TASK, deadline, 1.0, payload, length)))

        deadlines = [load.deadlines[number % len(load.deadlines)] for number in range(load.clients)]
        clients = [asyncio.create_task(ask(deadline)) for deadline in deadlines]
        yield session
        enough.set()
        await asyncio.gather(*clients)
    finally:
        await driver.stop()
