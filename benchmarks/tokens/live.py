"""The same requests over HTTP for every policy of Pliant and for three services that a user would otherwise take.

One after the other on one machine, the same model at gamma 0 in the three. The load is Poisson at a share of what Pliant's
`pets` was measured to serve. Whatever can be set is tried first, and the best setting of each is compared. Knows
addresses and replies; who serves is in `live_contenders.py`, tables and pictures in `live_figures.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.load_generator import Example, capacity, one_by_one, replay
from benchmarks.results import Target
from pliant.errors import InputError
from pliant.progress import Progress
from pliant.protocol import Request
from pliant.report import Report, summarise
from pliant.tokens.reference import ReferenceConfig, kinds
from pliant.workload import poisson, requests

DEFAULT, PETS = "default", "pets"
LIVE, SWEEP = "live", "sweep"
BAR_SHARE, BAR_LIMIT = 2.0, 1.3
SWEEP_SEED = 1000  # no seed of the comparison

Stage = Callable[[str], AbstractContextManager[Progress]]
Pool = Mapping[str, Sequence[Example]]

Opener = Callable[[float], AbstractContextManager[str]]
"""Given the capacity at `pets` in requests/s (0: not known yet), serves while the context lasts; gives the address."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Something that answers predict requests. Of several under one name, the one whose setting earns most is compared."""

    name: str
    service: bool  # one of the three, not a policy of Pliant
    setting: Mapping[str, Any]
    open: Opener

    @property
    def title(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.setting.items())])


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Times in seconds. Shares are of the capacity at `pets`."""

    seconds: float = 6.0
    seeds: int = 1
    shares: tuple[float, ...] = (BAR_SHARE,)
    sweep: float = (
        0.0  # at BAR_SHARE, of each setting before the comparison; 0: each setting takes part in the comparison
    )
    probe: float = 3.0  # of saturation
    lead: float = 1.0  # of saturation before that, which does not count
    clients: int = 256  # that saturate Pliant in the probe
    inside: float = 0.25  # seconds of the capacity: as many clients saturate one of the three without being refused
    warm: int = 60  # requests one after the other before anything is measured: BentoML learns from them
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)


QUICK = LiveConfig()
FULL = LiveConfig(seconds=30.0, seeds=3, shares=(1.0, BAR_SHARE), sweep=10.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One load at one contender. `part`: SWEEP or LIVE."""

    part: str
    name: str
    service: bool
    setting: Mapping[str, Any]
    share: float
    seed: int
    report: Report
    sent_late_p99: float  # of the generator, seconds behind its plan
    unanswered: int  # no HTTP answer at all
    generator_busy: float  # share of one core that the generator took; near 1 it is what limits everybody


@dataclass(frozen=True, slots=True)
class Live:
    """`capacity`: requests/s at `pets`. `capacities`: of the three. `missing`: name -> why it was not measured."""

    capacity: float
    capacities: Mapping[str, float]
    rows: tuple[Row, ...]
    missing: Mapping[str, str]

    def best(self, share: float = BAR_SHARE) -> dict[str, tuple[Row, ...]]:
        """Name -> the rows of its best setting, one a seed."""
        found: dict[str, tuple[Row, ...]] = {}
        for name in dict.fromkeys(row.name for row in self.rows):
            some = [r for r in self.rows if (r.part, r.name, r.share) == (LIVE, name, share)]
            if some:
                found[name] = max(_by_setting(some).values(), key=utility)
        return found

    def ratio(self, share: float = BAR_SHARE) -> float:
        """Utility of the default over that of the best of the three; NaN unless all three were measured."""
        best = self.best(share)
        services = [utility(rows) for rows in best.values() if rows[0].service]
        if self.missing or not services or DEFAULT not in best:
            return float("nan")
        return utility(best[DEFAULT]) / max(*services, 1e-9)

    def bar(self) -> Target:
        name = "live at 2x load, utility against the best of three services"
        return Target(name, self.ratio(), ">=", BAR_LIMIT, "x")

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        shares = sorted({row.share for row in self.rows if row.part == LIVE})
        return {
            "capacity": self.capacity,
            "capacities": dict(self.capacities),
            "missing": dict(self.missing),
            "ratios": {str(share): self.ratio(share) for share in shares},
            "best": {str(s): {n: dict(rows[0].setting) for n, rows in self.best(s).items()} for s in shares},
            "rows": [asdict(row) for row in self.rows],
        }


def utility(rows: Iterable[Row]) -> float:
    """Mean share of the offered utility over seeds."""
    return float(np.mean([row.report.utility / max(row.report.offered, 1e-9) for row in rows]))


def compare(
    contenders: Sequence[Contender], pool: Pool, config: LiveConfig, stage: Stage, missing: Mapping[str, str]
) -> Live:
    """Measure the capacity at `pets`, then sweep, then compare. `missing` as in `Live`.

    Raises `InputError` where no contender is `pets`.
    """
    served = _capacity(contenders, pool, config, stage)
    rows: list[Row] = []
    if config.sweep:
        for contender in _with_choice(contenders):
            rows += _measure(contender, served, _sweep_loads(pool, served, config), pool, config, stage)[0]
        contenders = _winners(contenders, rows)
    capacities: dict[str, float] = {}
    for contender in contenders:
        found, own = _measure(contender, served, _loads(pool, served, config), pool, config, stage)
        rows += found
        if contender.service:
            capacities[contender.name] = max(own, capacities.get(contender.name, 0.0))
    return Live(served, capacities, tuple(rows), missing)


@dataclass(frozen=True, slots=True)
class _Load:
    part: str
    share: float
    seed: int
    requests: tuple[Request, ...]


def _load(part: str, pool: Pool, served: float, share: float, seed: int, seconds: float, config: LiveConfig) -> _Load:
    rng = np.random.default_rng(seed)
    made = requests(poisson(share * served, seconds, rng), kinds(list(pool), config.reference), rng)
    return _Load(part, share, seed, tuple(made))


def _loads(pool: Pool, served: float, config: LiveConfig) -> list[_Load]:
    return [
        _load(LIVE, pool, served, share, seed, config.seconds, config)
        for share in config.shares
        for seed in range(config.seeds)
    ]


def _sweep_loads(pool: Pool, served: float, config: LiveConfig) -> list[_Load]:
    return [_load(SWEEP, pool, served, BAR_SHARE, SWEEP_SEED, config.sweep, config)]


def _capacity(contenders: Sequence[Contender], pool: Pool, config: LiveConfig, stage: Stage) -> float:
    at = next((contender for contender in contenders if contender.name == PETS), None)
    if at is None:
        raise InputError("contenders", [c.name for c in contenders], f"with {PETS}, whose capacity sets the load")
    with stage("capacity at gamma 0") as progress, at.open(0.0) as address:
        _warm(address, pool, config)
        served = asyncio.run(capacity(address, pool, config.probe, config.clients, lead=config.lead))
        progress(1, 1)
    return served


def _measure(
    contender: Contender, served: float, loads: Sequence[_Load], pool: Pool, config: LiveConfig, stage: Stage
) -> tuple[list[Row], float]:
    """Every load at one contender, which is started once; and the capacity of one of the three (else NaN)."""
    rows, own = [], float("nan")
    with stage(contender.title) as progress, contender.open(served) as address:
        _warm(address, pool, config)
        for done, load in enumerate(loads):
            rows.append(_row(contender, address, load, pool))
            progress(done + 1, len(loads))
        if contender.service and loads[0].part == LIVE:
            clients = max(1, min(config.clients, round(config.inside * served)))
            own = asyncio.run(capacity(address, pool, config.probe, clients, lead=config.lead))
    return rows, own


def _row(contender: Contender, address: str, load: _Load, pool: Pool) -> Row:
    start, cpu = time.perf_counter(), time.process_time()
    replies = asyncio.run(replay(address, load.requests, pool, load.seed))
    busy = (time.process_time() - cpu) / (time.perf_counter() - start)
    return Row(
        part=load.part,
        name=contender.name,
        service=contender.service,
        setting=contender.setting,
        share=load.share,
        seed=load.seed,
        report=summarise(reply.observation for reply in replies),
        sent_late_p99=float(np.quantile([reply.sent_late for reply in replies], 0.99)),
        unanswered=sum(reply.status == 0 for reply in replies),
        generator_busy=busy,
    )


def _warm(address: str, pool: Pool, config: LiveConfig) -> None:
    tasks = list(pool)
    asyncio.run(one_by_one(address, [Request(i, 0.0, 5.0, tasks[i % len(tasks)]) for i in range(config.warm)], pool))


def _with_choice(contenders: Sequence[Contender]) -> list[Contender]:
    names = [contender.name for contender in contenders]
    return [contender for contender in contenders if names.count(contender.name) > 1]


def _winners(contenders: Sequence[Contender], rows: Sequence[Row]) -> list[Contender]:
    """One contender a name, in the order in which they were given."""
    kept: dict[str, Contender] = {}
    earned = {(row.name, _key(row.setting)): row.report.utility for row in rows}
    for contender in contenders:
        former = kept.setdefault(contender.name, contender)
        if earned.get(_of(contender), 0.0) > earned.get(_of(former), 0.0):
            kept[contender.name] = contender
    return list(kept.values())


def _of(contender: Contender) -> tuple[str, str]:
    return contender.name, _key(contender.setting)


def _key(setting: Mapping[str, Any]) -> str:
    return repr(sorted(setting.items()))


def _by_setting(rows: Sequence[Row]) -> dict[str, tuple[Row, ...]]:
    keys = dict.fromkeys(_key(row.setting) for row in rows)
    return {key: tuple(row for row in rows if _key(row.setting) == key) for key in keys}
