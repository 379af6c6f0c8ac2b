"""What watching costs a service at full load: its throughput with and without, and the counting timed by itself.

Two services of the same champion are up at once, and one at a time is loaded. One has PLIANT_WATCH_SECONDS=0, so that it
counts nothing. The other looks at its counts every second, five times as often as by default, so that each turn pays for
its own looks. The second estimate is far less noisy, and does not see what the watch costs beside its own instructions,
such as caches: the seconds of counting answers, and of looks, as a share of one core. Between the two stands what is done in
a second of the service's processors: what else the machine does changes that little. The long setting compares two equal
services without the watch as well: what they differ by is not the watch's. Knows no system.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import numpy as np
from prometheus_client import CollectorRegistry
from rich.console import Console

from benchmarks.demo.story import own_environment
from benchmarks.endpoint import processes, processor_seconds, serving_each
from benchmarks.harness import Measured
from benchmarks.load_generator import JSON
from benchmarks.results import Target
from benchmarks.watch.paired import WITH, WITHOUT, Comparison, PairsConfig, compare
from flows import settings
from flows.settings import Settings
from pliant.errors import PliantError
from pliant.progress import Progress, share
from serving.state_file import StateFile
from serving.watch.seen import Seen
from serving.watch.watcher import Watcher, WatcherParts, WatchMetrics

LIMIT = 0.02  # of the throughput
LOOK = 5.0  # seconds between two looks by default (serving/settings.py)
BURN_IN = 500  # answers, of what is measured: the rest of the run is watched, not learnt
BLOCK, BLOCKS = 250, 24  # answers between two looks of the counting by itself, and how many, the burn-in included
LEAST = 5  # answers of a turn, or totals, below which it measures nothing
BETWEEN = 0.15  # seconds between two looks at a service's totals


@dataclass(frozen=True, slots=True)
class CostConfig:
    """Times in seconds, of one turn: what comes in the first `lead` of it does not count."""

    pairs: PairsConfig
    equal: bool = False  # whether two equal services are compared, too
    lead: float = 0.5
    warm: float = 4.0  # once a service, before the pairs
    clients: int = 32  # that saturate the endpoint, each with one request in flight


QUICK = CostConfig(PairsConfig(40.0))
FULL = CostConfig(PairsConfig(200.0), equal=True, warm=10.0)
EQUAL = "equal"


@dataclass(frozen=True, slots=True)
class Watched:
    """A system's champion under full load.

    `total`: what the service's status says that it has done in all, in `unit`; without it answers are counted. `counting`:
    gives what counts answer `number` in some counts as the service does, of streams that are learnt from a number of
    answers.
    """

    system: str
    path: str
    bodies: Sequence[bytes]
    unit: str
    counting: Callable[[Seen, int], Callable[[int], None]]
    total: Callable[[Any], float] | None = None
    seconds: float = 1.5  # of a turn, behind its lead
    options: Mapping[str, Any] = field(default_factory=dict)  # of the services


@contextmanager
def own_home(system: str) -> Iterator[Settings]:
    """Give the settings of PLIANT_HOME/bench/watch, which has a registry of its own, without what was watched before."""
    home = settings.read().home / "bench" / "watch"
    with own_environment(home):
        (home / "mlruns").mkdir(parents=True, exist_ok=True)
        project = settings.read()
        settings.prepare(project)
        for state in ("trials", "watch"):
            (home / state / f"{system}.json").unlink(missing_ok=True)
        yield project


@dataclass(frozen=True, slots=True)
class Turn:
    """`rate`: of the unit a second; `answers` a second; `work`: of the unit a second of the service's processors."""

    rate: float
    answers: float
    work: float


def measure(watched: Watched, full: bool, progress: Progress) -> Measured:
    """Compare the throughput with and without the watch, time the counting, and print both."""
    config = FULL if full else QUICK
    options = {
        WITHOUT: {**watched.options, "watch_seconds": 0.0, "try_challengers": False},
        WITH: {**watched.options, "watch_seconds": 1.0, "watch_burn_in": BURN_IN, "try_challengers": False},
    }
    if config.equal:
        options[EQUAL] = options[WITHOUT]
    with serving_each(watched.system, options) as addresses:
        for address in addresses.values():
            asyncio.run(throughput(address, watched, config, config.warm))

        def against(other: str, progress: Progress) -> Pairs:
            turns: dict[str, list[Turn]] = {WITHOUT: [], WITH: []}

            def turn(name: str) -> float:
                address = addresses[other if name == WITH else name]
                turns[name].append(asyncio.run(throughput(address, watched, config, watched.seconds)))
                return turns[name][-1].rate

            rates = compare(turn, config.pairs, progress)
            work = Comparison(*(tuple(each.work for each in turns[name]) for name in (WITHOUT, WITH)))
            return Pairs(rates, work, float(np.median([each.answers for each in turns[WITHOUT]])))

        pairs = against(WITH, share(progress, 10, 55 if config.equal else 100))
        equal = against(EQUAL, share(progress, 55, 100)) if config.equal else None
    return _measured(watched, pairs, equal, time_counting(watched.counting), config.pairs.width)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Throughput, and what a second of the processors does, of two services; answers a second of the first."""

    rates: Comparison
    work: Comparison
    answers: float

    def plain(self) -> dict[str, Any]:
        columns = self.rates.without, self.rates.with_it, self.work.without, self.work.with_it
        return {
            "interval": list(self.rates.interval),
            "work_interval": list(self.work.interval),
            "pairs": [
                {WITHOUT: a, WITH: b, "work without": c, "work with": d} for a, b, c, d in zip(*columns, strict=True)
            ],
        }


def _measured(watched: Watched, pairs: Pairs, equal: Pairs | None, timed: Timed, width: float) -> Measured:
    comparison, work, unit = pairs.rates, pairs.work, watched.unit
    of_core = timed.share(pairs.answers)
    Console().print(
        f"{watched.system}, medians of {comparison.pairs} pairs of turns with and without the watch: "
        f"{np.median(comparison.without):.1f} {unit}/s without, {_shown(comparison)} of that with it (about "
        f"{comparison.needed(width)} pairs narrow that to +-{width:g}); {np.median(work.without):.1f} {unit} a second of "
        f"processors without, {_shown(work)} of that with it. The counting itself: {timed.answer * 1e6:.1f} us an answer, "
        f"at {pairs.answers:.0f} answers/s with a look of {timed.look * 1e3:.1f} ms every {LOOK:g} s {of_core:.3%} of a core"
    )
    if equal is not None:
        Console().print(
            f"Two equal services without the watch: {_shown(equal.rates)} of the throughput, {_shown(equal.work)} of the "
            f"{unit} a second of processors, in {equal.rates.pairs} pairs. That much is not the watch's."
        )
    name = f"watching {watched.system} at full load"
    targets = [
        Target(f"{name}: throughput over that without, median", comparison.median, ">=", 1 - LIMIT, "x"),
        Target(f"{name}: {unit} a processor's second over those without, median", work.median, ">=", 1 - LIMIT, "x"),
        Target(f"{name}: counting and looks as a share of a core", of_core, "<=", LIMIT),
    ]
    timing = {"turn": watched.seconds, "unit": unit, "answers_per_second": pairs.answers, "load": list(os.getloadavg())}
    figures = {"pairs_needed": comparison.needed(width), "counting": asdict(timed), "share_of_a_core": of_core}
    return targets, {**timing, **figures, **pairs.plain(), **({} if equal is None else {EQUAL: equal.plain()})}


def _shown(comparison: Comparison) -> str:
    low, high = comparison.interval
    return f"{comparison.median:.4f} ({low:.4f} to {high:.4f})"


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of a processor for counting one answer, and for one look."""

    answer: float
    look: float

    def share(self, rate: float) -> float:
        """Return the share of a core that the watch takes at `rate` answers/s, with looks as often as by default."""
        return rate * self.answer + self.look / LOOK


def time_counting(counting: Callable[[Seen, int], Callable[[int], None]]) -> Timed:
    """Return medians over blocks, of those after what is usual was learnt."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_time_counting(counting, StateFile(Path(folder) / "watch.json")))


async def _time_counting(counting: Callable[[Seen, int], Callable[[int], None]], file: StateFile) -> Timed:
    seen, answers, looks = Seen(), list[float](), list[float]()
    count = counting(seen, BURN_IN)
    watcher = Watcher(WatcherParts("benchmark", seen, file, lambda: 1, WatchMetrics(CollectorRegistry())))
    for block in range(BLOCKS):
        begun = time.process_time()
        for number in range(block * BLOCK, (block + 1) * BLOCK):
            count(number)
        counted = time.process_time()
        await watcher.look()
        answers.append((counted - begun) / BLOCK)
        looks.append(time.process_time() - counted)
    return Timed(float(np.median(answers[BLOCKS // 2 :])), float(np.median(looks[BLOCKS // 2 :])))


async def throughput(address: str, watched: Watched, config: CostConfig, seconds: float) -> Turn:
    """Return what the service does for `clients` with one request each in flight.

    A client that has its answer sends the next body; every turn begins with the same ones. At the end all leave. Raises
    `PliantError` for a request that fails, and where too little comes.
    """
    load, service = _Load(address, watched), processes(address)
    async with load.session:
        tasks = [asyncio.create_task(load.client()) for _ in range(config.clients)]
        tasks += [asyncio.create_task(load.read_status())] if watched.total else []
        await asyncio.wait(tasks, timeout=config.lead, return_when=asyncio.FIRST_EXCEPTION)
        begun, before = time.perf_counter(), processor_seconds(service)
        _, running = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        lasted, used = time.perf_counter() - begun, processor_seconds(service) - before
        for task in running:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    faults = [fault for fault in ended if isinstance(fault, Exception)]
    if faults:
        raise PliantError(f"{len(faults)} clients failed at full load: {faults[0]}") from faults[0]
    answers, totals = load.since(begun)
    if len(totals) < LEAST or totals[-1][1] <= totals[0][1]:
        raise PliantError(f"only {len(answers)} answers came in {seconds:g} s, so that no throughput was measured")
    rate = slope(totals)
    return Turn(rate, len(answers) / lasted, rate * lasted / used if used else math.nan)


class _Load:
    """Clients of one turn, and what they have got. Times are of `time.perf_counter`."""

    def __init__(self, address: str, watched: Watched) -> None:
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._address, self._watched, self._bodies = address, watched, cycle(watched.bodies)
        self._answers: list[float] = []
        self._totals: list[tuple[float, float]] = []

    async def client(self) -> None:
        """Send and wait for the answer, again and again. Raises `PliantError` for an error."""
        url = f"{self._address}{self._watched.path}"
        while True:
            async with self.session.post(url, data=next(self._bodies), headers=JSON) as response:
                content = await response.read()
            if response.status != 200:
                raise PliantError(f"status {response.status}, {content[:200]!r}")
            self._answers.append(time.perf_counter())

    async def read_status(self) -> None:
        """Note again and again what the service says that it has done."""
        assert self._watched.total is not None, "the service counts what is measured"
        while True:
            async with self.session.get(f"{self._address}/v1/status") as response:
                total = self._watched.total(await response.json())
            self._totals.append((time.perf_counter(), total))
            await asyncio.sleep(BETWEEN)

    def since(self, begun: float) -> tuple[list[float], list[tuple[float, float]]]:
        """Return the times of the answers, and totals by time, of which answers are one."""
        answers = [at for at in self._answers if at >= begun]
        if self._watched.total is None:
            return answers, [(at, float(number)) for number, at in enumerate(answers)]
        return answers, [(at, total) for at, total in self._totals if at >= begun]


def slope(totals: Sequence[tuple[float, float]]) -> float:
    """Return the growth a second of a total by times, by the line of least squares.

    Answers come by batches: how many lie within a window of a second or two hangs on where its ends cut the batches.
    """
    times, values = np.array(totals).T
    return float(np.polyfit(times - times[0], values, 1)[0])
