"""Rollbacks, shadow and the watch itself at running services of tokens: real HTTP requests on this machine.

Load, endpoint and models share the machine's cores. What is compared takes turns within one run, every other turn in the
opposite order, so that what else the machine does falls on both alike.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import aiohttp
import numpy as np
from rich.console import Console

from benchmarks.endpoint import serving, serving_each
from benchmarks.harness import Context, Measured
from benchmarks.load_generator import IMAGES, capacity, turns
from benchmarks.results import Target
from benchmarks.tokens.endpoint import live_bundle
from benchmarks.tokens.watch.ground import (
    SYSTEM,
    Counts,
    Ground,
    Load,
    bodies_of,
    counts_of,
    fates,
    first_from,
    ground,
    no_counts,
    p99,
    scraped,
)
from benchmarks.watch import cost as watch_cost
from benchmarks.watch.cost import Watched
from benchmarks.watch.paired import WITH, WITHOUT, Comparison
from pliant.errors import PliantError
from pliant.progress import Progress
from registry import mlflow_switch
from serving.tokens.watched import TokensWatch
from serving.watch.seen import Seen

CLIENTS = 32  # that saturate the endpoint, each with one request in flight
UNDECIDED = 1_000_000  # copies: a shadow that does not end while it is measured
REASON = "the benchmark switches back and forth"


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Times in seconds. Shares are of the capacity, which is measured for `probe` seconds first."""

    probe: float
    switches: int = 5
    pause: float = 3.0  # before each switch
    half: float = 0.5  # share under which releases are switched
    busy: float = 0.7  # share at which shadow is judged
    shadow: float = 8.0  # of one turn
    shadow_rounds: int = 3
    uncopied: bool = False  # whether a challenger that gets no copies is compared, too
    requests: int = 1  # that are sent at least, in whole cycles


QUICK = LiveConfig(probe=3.0)
FULL = LiveConfig(probe=10.0, shadow=20.0, shadow_rounds=12, uncopied=True, requests=100_000)
UNCOPIED = "without copies"

CYCLE: Mapping[str, Any] = {
    "trial_copied": 0.5,
    "trial_copies": 60,
    "trial_copy_time": 0.2,
    "trial_steps": "0.2,0.5,1",
    "trial_requests": 40,
    "trial_seconds": 3.0,
    "refresh_seconds": 1.0,
}
"""A trial that takes seconds, in place of the shipped one of at least 20 minutes."""
LEAST_COPIES = 20  # without which shadow's effect was not measured
CYCLE_SECONDS = 300.0  # within which a trial has to be decided: copies wait for an idle processor


def _config(context: Context) -> LiveConfig:
    return FULL if context.full else QUICK


def rollback(context: Context) -> Measured:
    """Switch between two releases under load, as `pliant rollback` does."""
    config = _config(context)
    with ground() as own, context.stage("rollback under load") as progress:
        first = own.number()
        with serving(SYSTEM, try_challengers=False) as address:
            rate = config.half * asyncio.run(capacity(address, own.pool, config.probe, CLIENTS))
            load = Load(address, own.pool, rate, "rollback")
            second = own.registry.commit(own.versions()).number  # its models are loaded once, as an upgrade's are
            rows = asyncio.run(_switch(own, load, (first, second), config, progress))
        fate = fates(load.sent, load.answers)
    targets = [
        Target("rollback under load: failed requests", fate.failed, "<=", 0),
        Target("rollback: until the next answer of the former version, worst", _worst(rows), "<=", 2.0, "s"),
    ]
    return targets, {"rate": rate, "sent": load.sent, "switches": rows}


def _worst(rows: Sequence[Mapping[str, float]]) -> float:
    return float(np.max([row["seconds"] for row in rows]))  # NaN where one never came


async def _switch(
    own: Ground, load: Load, numbers: tuple[int, int], config: LiveConfig, progress: Progress
) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    running = asyncio.create_task(load.run())
    try:
        await _first_from(own, load, time.monotonic(), numbers[1], 60.0)
        for turn in range(config.switches):
            await asyncio.sleep(config.pause)
            to, begun = numbers[turn % 2], time.monotonic()
            await asyncio.to_thread(mlflow_switch.switch, own.registry, SYSTEM, to, REASON)
            command = time.monotonic() - begun
            rows.append({"release": to, "command": command, "seconds": await _first_from(own, load, begun, to, 60.0)})
            progress(turn + 1, config.switches)
    finally:
        load.stop.set()
        await running
    return rows


async def _first_from(own: Ground, load: Load, since: float, number: int, limit: float) -> float:
    """Return when the first answer of a release came, in seconds after `since`; NaN if none comes within the limit."""
    versions = await asyncio.to_thread(own.task_versions, number)
    while np.isnan(seconds := first_from(load.answers, since, versions)) and time.monotonic() < since + limit:
        await asyncio.sleep(0.02)
    return seconds


def shadow(context: Context) -> Measured:
    """Compare the champion's p99 with a challenger in shadow and without one."""
    config = _config(context)
    with ground() as own, context.stage("shadow") as progress:
        own.registry.propose(own.versions(), None, mlflow_switch.WAITING, "for the benchmark of shadow", "")
        tried = {"trial_copies": UNDECIDED, "refresh_seconds": 1.0, "watch_seconds": 0.0}
        options = {WITHOUT: {**tried, "try_challengers": False}, WITH: tried}
        if config.uncopied:
            options[UNCOPIED] = {**tried, "trial_copied": 1e-9}
        with serving_each(SYSTEM, options) as addresses:
            asyncio.run(_until(addresses[WITH], lambda trial: trial is not None and trial["stage"] == "shadow"))
            rate = config.busy * asyncio.run(capacity(addresses[WITHOUT], own.pool, config.probe, CLIENTS))
            latencies: dict[str, list[float]] = {name: [] for name in options}
            for number, name, part in turns(config.shadow_rounds, list(options), progress):
                load = Load(addresses[name], own.pool, rate, f"shadow-{number}-{name}", number)
                asyncio.run(_for(load, config.shadow))
                latencies[name].append(p99(load.answers))
                part(1, 1)
            copies = (asyncio.run(_trial(addresses[WITH])) or {}).get("copies", 0)
    compared = Comparison(tuple(latencies[WITHOUT]), tuple(latencies[WITH]))
    low, high = compared.interval
    shown = ", ".join(
        f"{plain:.3f} and {other:.3f}" for plain, other in zip(compared.without, compared.with_it, strict=True)
    )
    Console().print(
        f"{rate:.0f} requests/s, {copies} copies compared; p99 in s without and with shadow, by round: {shown}. The median "
        f"of the ratios lies between {low:.3f} and {high:.3f}."
    )
    if copies < LEAST_COPIES:
        raise PliantError(f"only {copies} copies were compared, so that shadow's effect was not measured")
    if config.uncopied:
        uncopied = Comparison(compared.without, tuple(latencies[UNCOPIED]))
        lowest, highest = uncopied.interval
        Console().print(
            f"Without copies the challenger makes it {uncopied.median:.3f} ({lowest:.3f} to {highest:.3f})."
        )
    name = f"shadow: p99 at {config.busy:g} of capacity over that without, median"
    figures = {"seconds": config.shadow, "rate": rate, "copies": copies, "interval": [low, high], "p99": latencies}
    return [Target(name, compared.median, "<=", 1.1, "x")], figures


def cost(context: Context) -> Measured:
    """Measure what watching costs at full load (benchmarks/watch/cost.py)."""
    with ground() as own, context.stage("cost of watching tokens") as progress:
        bodies = [body for _, body in bodies_of(own.pool)]
        counting = partial(_counting, live_bundle().backbone.image_size)
        watched = Watched(SYSTEM, IMAGES.path, bodies, "requests", counting)
        return watch_cost.measure(watched, context.full, progress)


def _counting(size: int, seen: Seen, burn_in: int) -> Callable[[int], None]:
    """Return what counts answers about pictures of `size` pixels a side, of which every fourth is looked at."""
    watch, rng = TokensWatch(seen, burn_in), np.random.default_rng(0)
    pixels_HW3 = rng.integers(0, 256, (size, size, 3), np.uint8)
    rest = {str(label): 0.01 for label in range(10)}
    shares = [{**rest, str(number % 10): float(rng.uniform(0.5, 1))} for number in range(1000)]
    return lambda number: watch.count("digit", shares[number % 1000], str(number % 10), pixels_HW3)


def requests(context: Context) -> Measured:
    """Count what is lost or answered twice while challengers are tried, promoted and rolled back, again and again.

    What the service itself counted meanwhile is held against what its clients got. Raises `PliantError` where no
    challenger was promoted.
    """
    config, sent, failed = _config(context), 0, 0
    cycles, service, clients = list[dict[str, Any]](), no_counts(), no_counts()
    with (
        ground() as own,
        context.stage("a trial, a promotion, a rollback") as progress,
        serving(SYSTEM, **CYCLE) as address,
    ):
        rate = config.half * asyncio.run(capacity(address, own.pool, config.probe, CLIENTS))
        before = begin = asyncio.run(_counted(address))
        while sent < config.requests:
            load = Load(address, own.pool, rate, f"cycle-{len(cycles)}", len(cycles))
            cycle = asyncio.run(_cycle(own, load, config.pause))
            after, got = asyncio.run(_counted(address)), counts_of(load.answers)
            errors = Counter(answer.status for answer in load.answers if answer.status != 200)  # 0: no answer at all
            cycles.append(cycle | _compared(after.since(before), got, load.sent) | {"errors": dict(errors)})
            before, clients = after, clients + got
            sent, failed = sent + load.sent, failed + fates(load.sent, load.answers).failed
            progress(min(sent, config.requests), config.requests)
        service = before.since(begin)
    foreign, promoted = sum(cycle["foreign"] for cycle in cycles), sum("champion" in cycle for cycle in cycles)
    Console().print(
        f"{sent:,} requests at {rate:.0f}/s; {promoted} of {len(cycles)} challengers promoted and rolled back. Clients got "
        f"{clients.ended.total():,} answers, the service counted {service.ended.total():,} and {service.arrivals.total():,} "
        f"arrivals. The last cycle: {cycles[-1]}"
    )
    if not promoted:
        raise PliantError(f"none of {len(cycles)} challengers was promoted: {cycles[-1]}")
    twice = service.answered_again(clients) + foreign
    uncounted = service.not_counted(clients)
    targets = [
        Target("requests lost in a trial, promotion and rollback", failed, "<=", 0, f"of {sent:,}"),
        Target("answered twice, by the service's counts, or by another's answer", twice, "<=", 0, f"of {sent:,}"),
        Target("answers that the service did not count, so that its counts show nothing", uncounted, "<=", 0),
    ]
    return targets, {"sent": sent, "rate": rate, "promoted": promoted, "cycles": cycles}


def _compared(service: Counts, clients: Counts, sent: int) -> dict[str, int]:
    """Return what the service counted in a cycle beside its clients. `arrived again`: at a scheduler, as after a failure."""
    return {
        "answers": clients.ended.total(),
        "counted": service.ended.total(),
        "answered again": service.answered_again(clients),
        "not counted": service.not_counted(clients),
        "arrived again": service.arrivals.total() - sent,
    }


async def _counted(address: str) -> Counts:
    """Return what the service has counted. Raises `PliantError` where it does not say it."""
    async with aiohttp.ClientSession() as session, session.get(f"{address}/metrics") as response:
        if response.status != 200:
            raise PliantError(f"/metrics answers with status {response.status}")
        return scraped(await response.text())


async def _cycle(own: Ground, load: Load, pause: float) -> dict[str, Any]:
    """Propose a challenger, wait until it is promoted, go back, and return when each stage was seen, in seconds.

    Of a challenger that is not promoted, as a good one may be taken back, it says why instead.
    """
    begun, seen = time.monotonic(), dict[str, Any]()
    running = asyncio.create_task(load.run())
    try:
        former, versions = await asyncio.to_thread(own.number), await asyncio.to_thread(own.versions)
        waiting = await asyncio.to_thread(
            own.registry.propose, versions, None, mlflow_switch.WAITING, "for the benchmark of requests", ""
        )
        if await _promoted(own, load.address, waiting.number, seen, begun):
            seen["champion"] = await _first_from(own, load, begun, waiting.number, CYCLE_SECONDS)
            await asyncio.sleep(pause)
            back = time.monotonic()
            await asyncio.to_thread(mlflow_switch.switch, own.registry, SYSTEM, former, REASON)
            seen["rolled back after"] = await _first_from(own, load, back, former, 60.0)
        await asyncio.sleep(pause)
    finally:
        load.stop.set()
        await running
    return seen | asdict(fates(load.sent, load.answers))


async def _promoted(own: Ground, address: str, number: int, seen: dict[str, Any], begun: float) -> bool:
    """Return whether a release is promoted within CYCLE_SECONDS; notes in `seen` when its trial's stages began."""
    while await asyncio.to_thread(own.number) != number:
        if trial := await _trial(address):
            seen.setdefault(str(trial["stage"]), round(time.monotonic() - begun, 2))
        tried = await asyncio.to_thread(own.registry.release, SYSTEM, number)
        if tried is not None and tried.state == mlflow_switch.TAKEN_BACK:
            seen["not promoted"] = tried.reason
            return False
        if time.monotonic() > begun + CYCLE_SECONDS:
            seen["not promoted"] = f"not decided within {CYCLE_SECONDS:g} s"
            return False
        await asyncio.sleep(0.25)
    return True


async def _for(load: Load, seconds: float) -> None:
    running = asyncio.create_task(load.run())
    await asyncio.sleep(seconds)
    load.stop.set()
    await running


async def _trial(address: str) -> Mapping[str, Any] | None:
    """Return what the service says of its trial; None where there is none, or it does not say it in time."""
    timeout = aiohttp.ClientTimeout(total=5)
    with suppress(TimeoutError, aiohttp.ClientError):
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{address}/v1/status") as response:
            trial: Mapping[str, Any] | None = (await response.json()).get("trial")
            return trial
    return None


async def _until(address: str, condition: Callable[[Mapping[str, Any] | None], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition(await _trial(address)):
        if time.monotonic() > until:
            raise PliantError(f"the service tried no challenger within {seconds:g} s")
        await asyncio.sleep(0.2)
