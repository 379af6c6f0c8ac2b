"""Rollbacks, shadow and the watch itself at running services of tokens: real HTTP requests on this machine.

Load, endpoint and models share the machine's cores. What is compared takes turns within one run, every other turn in the
opposite order, so that what else the machine does falls on both alike. Packing is left out of `cost`: training a champion
of it takes over five minutes on two cores, which is more than the quick setting has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp
import numpy as np
from rich.console import Console

from benchmarks.endpoint import serving, serving_each
from benchmarks.harness import Context, Measured
from benchmarks.load_generator import capacity, turns
from benchmarks.results import Target
from benchmarks.tokens.watch_ground import SYSTEM, Ground, Load, fates, first_from, ground, p99
from pliant.errors import PliantError
from pliant.progress import Progress
from registry import mlflow_switch
from serving.tokens.watched import TokensWatch
from serving.watch.seen import Seen

CLIENTS = 32  # that saturate the endpoint, each with one request in flight
PLAIN, OTHER = "without", "with"
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
    cost: float = 12.0  # of one turn: two looks of the watch or more
    cost_rounds: int = 4
    requests: int = 1  # that are sent at least, in whole cycles
    counted: int = 5000  # answers of the micro-benchmark


QUICK = LiveConfig(probe=3.0)
FULL = LiveConfig(probe=10.0, shadow=60.0, shadow_rounds=5, cost=30.0, cost_rounds=8, requests=100_000, counted=50_000)

CYCLE: Mapping[str, Any] = {
    "trial_copied": 0.5,
    "trial_copies": 60,
    "trial_steps": "0.2,0.5,1",
    "trial_requests": 40,
    "trial_seconds": 3.0,
    "refresh_seconds": 1.0,
}
"""A trial that takes seconds, in place of the shipped one of at least 20 minutes."""
BURN_IN = 500  # answers, of the service whose cost is measured: the rest of the run is watched, not learnt
LEAST_COPIES = 20  # without which shadow's effect was not measured
CYCLE_SECONDS = 120.0  # within which a trial has to be decided


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
        options = {PLAIN: {**tried, "try_challengers": False}, OTHER: tried}
        with serving_each(SYSTEM, options) as addresses:
            asyncio.run(_until(addresses[OTHER], lambda trial: trial is not None and trial["stage"] == "shadow"))
            rate = config.busy * asyncio.run(capacity(addresses[PLAIN], own.pool, config.probe, CLIENTS))
            latencies: dict[str, list[float]] = {PLAIN: [], OTHER: []}
            for number, name, part in turns(config.shadow_rounds, list(options), progress):
                load = Load(addresses[name], own.pool, rate, f"shadow-{number}-{name}", number)
                asyncio.run(_for(load, config.shadow))
                latencies[name].append(p99(load.answers))
                part(1, 1)
            copies = (asyncio.run(_trial(addresses[OTHER])) or {}).get("copies", 0)
    rounds = _rounds(latencies)
    Console().print(f"p99 in s by round at {rate:.0f} requests/s, {copies} copies compared: {rounds}")
    if copies < LEAST_COPIES:
        raise PliantError(f"only {copies} copies were compared, so that shadow's effect was not measured")
    ratio = float(np.median([row["ratio"] for row in rounds]))
    target = Target(f"shadow: p99 at {config.busy:g} of capacity over that without, median", ratio, "<=", 1.1, "x")
    return [target], {"rate": rate, "copies": copies, "rounds": rounds}


def cost(context: Context) -> Measured:
    """Compare the throughput of a service that looks at its counts every 5 s with one that never does.

    Both count where the code counts without a look; what the counting itself takes is measured alone, by the answer.
    """
    config = _config(context)
    with ground() as own, context.stage("cost of watching") as progress:
        options = {
            PLAIN: {"watch_seconds": 0.0, "try_challengers": False},
            OTHER: {"watch_seconds": 5.0, "watch_burn_in": BURN_IN, "try_challengers": False},
        }
        served: dict[str, list[float]] = {PLAIN: [], OTHER: []}
        with serving_each(SYSTEM, options) as addresses:
            for address in addresses.values():
                asyncio.run(capacity(address, own.pool, config.probe, CLIENTS))
            for _, name, part in turns(config.cost_rounds, list(options), progress):
                served[name].append(asyncio.run(capacity(addresses[name], own.pool, config.cost, CLIENTS)))
                part(1, 1)
    rounds, microseconds = _rounds(served), counting(config.counted)
    Console().print(f"requests/s by round: {rounds}; the counting itself: {microseconds:.1f} us an answer")
    ratio = float(np.median([row["ratio"] for row in rounds]))
    target = Target(
        "watching tokens: throughput at full load over that without a watch, median", ratio, ">=", 0.98, "x"
    )
    left_out = "packing: its champion takes over five minutes to train on two cores"
    return [target], {"rounds": rounds, "counting_microseconds": microseconds, "left_out": left_out}


def counting(answers: int) -> float:
    """Return the microseconds that counting an answer of tokens takes, with a picture of 224 x 224 as every fourth."""
    watch, rng = TokensWatch(Seen(), 5000), np.random.default_rng(0)
    pixels_HW3 = rng.integers(0, 256, (224, 224, 3), np.uint8)
    classes = [str(i) for i in range(10)]
    begun = time.perf_counter()
    for i in range(answers):
        watch.count("digit", classes, i % 10, 0.9, pixels_HW3)
    return 1e6 * (time.perf_counter() - begun) / answers


def requests(context: Context) -> Measured:
    """Count what is lost or answered twice while a challenger is tried, promoted and rolled back."""
    config, sent, failed, twice = _config(context), 0, 0, 0
    cycles: list[dict[str, Any]] = []
    with (
        ground() as own,
        context.stage("a trial, a promotion, a rollback") as progress,
        serving(SYSTEM, **CYCLE) as address,
    ):
        rate = config.half * asyncio.run(capacity(address, own.pool, config.probe, CLIENTS))
        while sent < config.requests:
            load = Load(address, own.pool, rate, f"cycle-{len(cycles)}", len(cycles))
            cycles.append(asyncio.run(_cycle(own, load, config.pause)))
            fate = fates(load.sent, load.answers)
            sent, failed, twice = sent + fate.sent, failed + fate.failed, twice + fate.twice
            progress(min(sent, config.requests), config.requests)
    Console().print(f"{sent:,} requests at {rate:.0f}/s in {len(cycles)} cycles: {cycles[-1]}")
    targets = [
        Target("requests lost in a trial, promotion and rollback", failed, "<=", 0, f"of {sent:,}"),
        Target("answers meanwhile that name another request", twice, "<=", 0, f"of {sent:,}"),
    ]
    return targets, {"sent": sent, "rate": rate, "cycles": cycles}


async def _cycle(own: Ground, load: Load, pause: float) -> dict[str, Any]:
    """Propose a challenger, wait until it is promoted, go back, and return when each stage was seen, in seconds."""
    begun, seen = time.monotonic(), dict[str, Any]()
    running = asyncio.create_task(load.run())
    try:
        former, versions = own.number(), await asyncio.to_thread(own.versions)
        waiting = await asyncio.to_thread(
            own.registry.propose, versions, None, mlflow_switch.WAITING, "for the benchmark of requests", ""
        )
        while own.number() != waiting.number:
            if trial := await _trial(load.address):
                seen.setdefault(str(trial["stage"]), round(time.monotonic() - begun, 2))
            if time.monotonic() > begun + CYCLE_SECONDS:
                raise PliantError(f"release {waiting.number} was not promoted within {CYCLE_SECONDS:g} s: {trial}")
            await asyncio.sleep(0.25)
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


def _rounds(figures: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Return a row a round: the figure without, with, and their ratio."""
    pairs = zip(figures[PLAIN], figures[OTHER], strict=True)
    return [{PLAIN: plain, OTHER: other, "ratio": other / plain} for plain, other in pairs]
