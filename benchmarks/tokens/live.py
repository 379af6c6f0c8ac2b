"""The same requests over HTTP for every policy of Pliant and for three services that a user would otherwise take.

One after the other on one machine, the same model at gamma 0 in the three. The load is Poisson at a share of what Pliant's
`pets` was measured to serve. Whatever can be set is tried first, and the best setting of each is compared. Knows
addresses and replies; who serves is in `live_contenders.py`, tables and pictures in `live_figures.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.contenders import Contender, Key, key, named, send, winners, with_choice
from benchmarks.harness import Stage
from benchmarks.load_generator import Example, capacity, warm
from benchmarks.results import Target
from pliant.protocol import Request
from pliant.report import Report, summarise
from pliant.tokens.reference import ReferenceConfig, kinds
from pliant.workload import poisson, requests

DEFAULT, PETS = "default", "pets"
LIVE, SWEEP = "live", "sweep"
JUDGED, LIMIT = 2.0, 1.3  # share of the capacity at which the target is judged, and its limit
SWEEP_SEED = 1000  # no seed of the comparison

Pool = Mapping[str, Sequence[Example]]


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Times in seconds. Shares are of the capacity at `pets`."""

    seconds: float = 6.0
    seeds: int = 1
    shares: tuple[float, ...] = (JUDGED,)
    sweep: float = 0.0  # at JUDGED, of each setting before the comparison; 0: each setting takes part in it
    probe: float = 3.0  # of saturation
    lead: float = 1.0  # of saturation before that, which does not count
    clients: int = 256  # that saturate Pliant in the probe
    inside: float = 0.25  # seconds of the capacity: as many clients saturate one of the three without being refused
    warm: int = 60  # requests one after the other before anything is measured: BentoML learns from them
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)


QUICK = LiveConfig()
FULL = LiveConfig(seconds=30.0, seeds=3, shares=(1.0, JUDGED), sweep=10.0)


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

    def best(self, share: float = JUDGED) -> dict[str, tuple[Row, ...]]:
        """Return the rows of each name's best setting, one a seed."""
        settings: dict[Key, list[Row]] = {}
        for row in self.rows:
            if (row.part, row.share) == (LIVE, share):
                settings.setdefault(key(row.name, row.setting), []).append(row)
        best: dict[str, tuple[Row, ...]] = {}
        for (name, _), rows in settings.items():
            if name not in best or utility(rows) > utility(best[name]):
                best[name] = tuple(rows)
        return best

    def ratio(self, share: float = JUDGED) -> float:
        """Return the utility of the default over that of the best of the three; NaN unless all three were measured."""
        best = self.best(share)
        services = [utility(rows) for rows in best.values() if rows[0].service]
        if self.missing or not services or DEFAULT not in best:
            return float("nan")
        return utility(best[DEFAULT]) / max(*services, 1e-9)

    def target(self) -> Target:
        name = "live at 2x load, utility against the best of three services"
        return Target(name, self.ratio(), ">=", LIMIT, "x")

    def plain(self) -> dict[str, Any]:
        """Return what the results' file holds."""
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
    """Return the mean share of the offered utility over seeds."""
    return float(np.mean([row.report.utility / max(row.report.offered, 1e-9) for row in rows]))


def compare(
    contenders: Sequence[Contender], pool: Pool, config: LiveConfig, stage: Stage, missing: Mapping[str, str]
) -> Live:
    """Measure the capacity at `pets`, then sweep, then compare. `missing` as in `Live`.

    Raises `InputError` where no contender is `pets`.
    """
    served = _capacity(named(contenders, PETS), pool, config, stage)
    rows: list[Row] = []
    if config.sweep:
        load = _load(SWEEP, pool, served, JUDGED, SWEEP_SEED, config)
        for contender in with_choice(contenders):
            rows += _measure(contender, served, [load], pool, config, stage)[0]
        contenders = winners(contenders, {key(row.name, row.setting): row.report.utility for row in rows})
    loads = [_load(LIVE, pool, served, share, seed, config) for share in config.shares for seed in range(config.seeds)]
    capacities: dict[str, float] = {}
    for contender in contenders:
        own_rows, own = _measure(contender, served, loads, pool, config, stage)
        rows += own_rows
        if contender.service:
            capacities[contender.name] = max(own, capacities.get(contender.name, 0.0))
    return Live(served, capacities, tuple(rows), missing)


@dataclass(frozen=True, slots=True)
class _Load:
    part: str
    share: float
    seed: int
    requests: tuple[Request, ...]


def _load(part: str, pool: Pool, served: float, share: float, seed: int, config: LiveConfig) -> _Load:
    rng = np.random.default_rng(seed)
    times = poisson(share * served, config.sweep if part == SWEEP else config.seconds, rng)
    return _Load(part, share, seed, tuple(requests(times, kinds(list(pool), config.reference), rng)))


def _capacity(pets: Contender, pool: Pool, config: LiveConfig, stage: Stage) -> float:
    with stage("capacity at gamma 0") as progress, pets.open(0.0) as address:
        warm(address, pool, config.warm, deadline=5.0)
        served = asyncio.run(capacity(address, pool, config.probe, config.clients, lead=config.lead))
        progress(1, 1)
    return served


def _measure(
    contender: Contender, served: float, loads: Sequence[_Load], pool: Pool, config: LiveConfig, stage: Stage
) -> tuple[list[Row], float]:
    """Send every load to one contender, started once; return the rows, and the capacity of one of the three (else NaN)."""
    rows, own = [], float("nan")
    with stage(contender.title) as progress, contender.open(served) as address:
        warm(address, pool, config.warm, deadline=5.0)
        for done, load in enumerate(loads):
            rows.append(_row(contender, address, load, pool))
            progress(done + 1, len(loads))
        if contender.service and loads[0].part == LIVE:
            clients = max(1, min(config.clients, round(config.inside * served)))
            own = asyncio.run(capacity(address, pool, config.probe, clients, lead=config.lead))
    return rows, own


def _row(contender: Contender, address: str, load: _Load, pool: Pool) -> Row:
    turn = send(address, load.requests, pool, load.seed)
    return Row(
        part=load.part,
        name=contender.name,
        service=contender.service,
        setting=contender.setting,
        share=load.share,
        seed=load.seed,
        report=summarise(reply.observation for reply in turn.replies),
        sent_late_p99=turn.sent_late_p99,
        unanswered=sum(reply.status == 0 for reply in turn.replies),
        generator_busy=turn.generator_busy,
    )
