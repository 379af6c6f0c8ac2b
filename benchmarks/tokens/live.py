"""The same requests over HTTP for every policy of Pliant and for three services that a user would otherwise take.

One after the other on one machine, the same model at gamma 0 in the three. The load is Poisson at a share of what Pliant's
`pets` was measured to serve. Whatever can be set is tried first, and the best setting of each is compared.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from rich.console import Console

from pliant.benchmarks import harness
from pliant.benchmarks.baselines import launch
from pliant.benchmarks.baselines.settings import RIVALS, TRIED, Rival, Tried
from pliant.benchmarks.contenders import Contender, Key, Opener, key, named, send, winners, with_choice
from pliant.benchmarks.harness import Context, Measured, Stage
from pliant.benchmarks.load_generator import Example, capacity, warm
from pliant.benchmarks.results import Target
from pliant.benchmarks.tokens.demo import champion
from pliant.benchmarks.tokens.policies import OUTCOMES
from pliant.benchmarks.tokens.replay import address, test_examples
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.registry.mlflow_store import CHAMPION
from pliant.report import Report, summarise
from pliant.tokens.policies import SERVED
from pliant.tokens.simulated import ReferenceConfig, kinds
from pliant.workload import poisson, requests

DEFAULT, PETS = "default", "pets"
LIVE, SWEEP = "live", "sweep"
JUDGED, LIMIT = 2.0, 1.3  # share of the capacity at which the target is judged, and its limit
SWEEP_SEED = 1000  # no seed of the comparison
MARGINS: Mapping[str, Sequence[float]] = {"pets": (0.05, 0.15)}
"""Margins (share of the time to a deadline that is kept) to choose among; for otas 0.05 was no better than the default."""
DEFAULT_MARGIN = (0.15,)
HEADINGS = (
    "load", "service", "setting", "utility", "in time", "late", "evicted", "p50 ms", "p99 ms", "accuracy", "gammas",
)  # fmt: skip

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

    def plain(self) -> dict[str, Any]:
        """Return what the results' file holds."""
        shares = sorted({row.share for row in self.rows if row.part == LIVE})
        return {
            **{name: getattr(self, name) for name in ("capacity", "capacities", "missing")},
            "ratios": {str(share): self.ratio(share) for share in shares},
            "best": {str(s): {n: dict(rows[0].setting) for n, rows in self.best(s).items()} for s in shares},
            "rows": [asdict(row) for row in self.rows],
        }


def live(context: Context) -> Measured:
    """Compare all on the champion; the services as far as they are installed."""
    bundle, config = champion(context.full), FULL if context.full else QUICK
    missing = {rival.name: rival.missing for rival in RIVALS if rival.missing is not None}
    result = compare(contenders(config.sweep > 0), test_examples(bundle), config, context.stage, missing)
    harness.table("live, over HTTP", HEADINGS, rows(result))
    for name, rate in result.capacities.items():
        Console().print(f"{name} serves {rate:.0f} requests/s when saturated, Pliant at gamma 0 {result.capacity:.0f}.")
    for sentence in result.missing.values():
        Console().print(f"Not measured: {sentence}.")
    target = Target("live at 2x load, utility against the best of three services", result.ratio(), ">=", LIMIT, "x")
    return [target], result.plain() | {"device": bundle.profile.device}


def contenders(sweep: bool) -> list[Contender]:
    """Return every policy that a service can follow, with the margins that are tried, and the three that are installed.

    These with all that is tried, or without `sweep` with what won before.
    """

    def policy(name: str, margin: float) -> Opener:
        return lambda _capacity: address(name, margin=margin)

    def service(rival: Rival, tried: Tried) -> Opener:
        @contextmanager
        def opened(capacity: float) -> Iterator[str]:
            project = settings.prepare()
            registry = open_registry(project, "tokens")  # what it had to download lives as long as it does
            model = launch.model_spec(registry, CHAMPION).text()
            with launch.serving(rival, tried.options(rival, capacity), model, project.home) as url:
                yield url

        return opened

    margins = {name: MARGINS.get(name, DEFAULT_MARGIN) for name in SERVED}
    ours = [Contender(name, {"margin": m}, policy(name, m)) for name, some in margins.items() for m in some]
    installed, all_tried = [rival for rival in RIVALS if rival.missing is None], TRIED if sweep else TRIED[:1]
    return [*ours, *(Contender(r.name, asdict(t), service(r, t), service=True) for r in installed for t in all_tried)]


def utility(rows: Iterable[Row]) -> float:
    """Return the mean share of the offered utility over seeds."""
    return float(np.mean([row.report.utility / max(row.report.offered, 1e-9) for row in rows]))


def compare(
    contenders: Sequence[Contender], pool: Pool, config: LiveConfig, stage: Stage, missing: Mapping[str, str]
) -> Live:
    """Measure the capacity at `pets`, then sweep, then compare. `missing` as in `Live`.

    Raises `InputError` where no contender is `pets`.
    """
    with stage("capacity at gamma 0") as progress, named(contenders, PETS).open(0.0) as url:
        warm(url, pool, config.warm, deadline=5.0)
        served = asyncio.run(capacity(url, pool, config.probe, config.clients, lead=config.lead))
        progress(1, 1)
    rows, capacities = list[Row](), dict[str, float]()

    def measure(contender: Contender, part: str, loads: Sequence[tuple[float, int]], seconds: float) -> None:
        """Send every load (share, seed) to one contender, started once; find the capacity of one of the three."""
        with stage(contender.title) as progress, contender.open(served) as url:
            warm(url, pool, config.warm, deadline=5.0)
            for done, (share, seed) in enumerate(loads):
                rng = np.random.default_rng(seed)
                times = poisson(share * served, seconds, rng)
                turn = send(url, requests(times, kinds(list(pool), config.reference), rng), pool, seed)
                report = summarise(reply.observation for reply in turn.replies)
                unanswered = sum(reply.status == 0 for reply in turn.replies)
                who = part, contender.name, contender.service, contender.setting
                rows.append(Row(*who, share, seed, report, turn.sent_late_p99, unanswered, turn.generator_busy))
                progress(done + 1, len(loads))
            if contender.service and part == LIVE:
                clients = max(1, min(config.clients, round(config.inside * served)))
                own = asyncio.run(capacity(url, pool, config.probe, clients, lead=config.lead))
                capacities[contender.name] = max(own, capacities.get(contender.name, 0.0))

    if config.sweep:
        for contender in with_choice(contenders):
            measure(contender, SWEEP, [(JUDGED, SWEEP_SEED)], config.sweep)
        contenders = winners(contenders, {key(row.name, row.setting): row.report.utility for row in rows})
    for contender in contenders:
        measure(
            contender, LIVE, [(share, seed) for share in config.shares for seed in range(config.seeds)], config.seconds
        )
    return Live(served, capacities, tuple(rows), missing)


def rows(live: Live) -> list[tuple[str, ...]]:
    """Return one line a load and contender, each at its best setting, the most useful first; means over seeds."""
    lines = []
    for share in sorted({row.share for row in live.rows}):
        ranked = sorted(live.best(share).items(), key=lambda pair: utility(pair[1]), reverse=True)
        for name, own in ranked:
            setting = ", ".join(f"{key} {value}" for key, value in own[0].setting.items())
            total = max(sum(row.report.requests for row in own), 1)
            fates = {fate: sum(row.report.outcomes.get(fate, 0) for row in own) / total for fate in OUTCOMES}
            shares = (utility(own), fates["accurate"] + fates["wrong"], fates["late"], fates["evicted"])
            p50, p99, accuracy = (np.mean([getattr(r.report, of) for r in own]) for of in ("p50", "p99", "accuracy"))
            counted = sum((Counter(row.report.settings) for row in own), Counter[int]())
            gammas = " ".join(f"{gamma:+d}:{100 * n / counted.total():.0f}%" for gamma, n in sorted(counted.items()))
            figures = (*(f"{part:.0%}" for part in shares), f"{1e3 * p50:.0f}", f"{1e3 * p99:.0f}", f"{accuracy:.1%}")
            lines.append((f"{share:g}x", name, setting, *figures, gammas))
    return lines
