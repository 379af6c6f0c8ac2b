"""The same requests over HTTP for Pliant's default and for three services that a user would otherwise take.

One after the other on one machine, the same model at gamma 0 in the three. The load is Poisson at twice what Pliant was
measured to serve at gamma 0 (`pets`). Of each service settings are tried first, and the best is compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from rich.console import Console

from pliant.benchmarks.baselines import launch
from pliant.benchmarks.baselines.settings import RIVALS, TRIED, Rival, Tried
from pliant.benchmarks.contenders import Contender, Opener, Turn, best_settings, send
from pliant.benchmarks.harness import Context, Measured, Stage
from pliant.benchmarks.load_generator import Example, capacity, warm
from pliant.benchmarks.results import Target
from pliant.benchmarks.tokens.demo import champion
from pliant.benchmarks.tokens.replay import address, test_examples
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.registry.mlflow_store import CHAMPION
from pliant.report import Report, summarise
from pliant.tokens.simulated import ReferenceConfig, kinds
from pliant.workload import poisson, requests

OURS, PETS = "default", "pets"
SHARE, LIMIT = 2.0, 1.3  # of the capacity at `pets`
SWEEP_SEED = 1000  # no seed of the comparison

Pool = Mapping[str, Sequence[Example]]


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Times in seconds."""

    seconds: float = 6.0
    seeds: int = 1
    sweep: float = 0.0  # of each setting before the comparison; 0: the first setting of each name takes part in it
    probe: float = 3.0  # of saturation
    lead: float = 1.0  # of saturation before that, which does not count
    clients: int = 256  # that saturate Pliant in the probe
    warm: int = 60  # requests one after the other before anything is measured: BentoML learns from them
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)


QUICK, FULL = LiveConfig(), LiveConfig(seconds=30.0, seeds=3, sweep=10.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One load at one contender."""

    name: str
    setting: str
    seed: int
    report: Report
    figures: Mapping[str, float]

    @property
    def share(self) -> float:
        """Return the share of the offered utility that was earned."""
        return self.report.utility / max(self.report.offered, 1e-9)

    def plain(self) -> dict[str, Any]:
        seen = {name: getattr(self.report, name) for name in ("attainment", "accuracy", "p50", "p99", "batch")}
        gammas = " ".join(f"{gamma}:{count}" for gamma, count in self.report.settings.items())
        where = {"name": self.name, "setting": self.setting, "seed": self.seed, "utility": self.share}
        return {**where, **seen, "gammas": gammas, **self.figures}


def live(context: Context) -> Measured:
    """Compare all on the champion; the services as far as they are installed."""
    bundle, config = champion(context.full), FULL if context.full else QUICK
    missing = {rival.name: rival.missing for rival in RIVALS if rival.missing is not None}
    served, rows = compare(contenders(), test_examples(bundle), config, context.stage)
    for sentence in missing.values():
        Console().print(f"Not measured: {sentence}.")
    measured = float("nan") if missing else ratio(rows)
    target = Target("live at 2x load, utility against the best of three services", measured, ">=", LIMIT, "x")
    details = {"capacity": served, "missing": missing, "device": bundle.profile.device}
    return [target], {**details, "rows": [row.plain() for row in rows]}


def contenders() -> list[Contender]:
    """Return Pliant's default, and the services that are installed with all settings that are tried."""

    def service(rival: Rival, tried: Tried) -> Opener:
        @contextmanager
        def opened(capacity: float) -> Iterator[str]:
            project = settings.prepare()
            registry = open_registry(project, "tokens")  # what it had to download lives as long as it does
            model = launch.model_spec(registry, CHAMPION).text()
            with launch.serving(rival, tried.options(rival, capacity), model, project.home) as url:
                yield url

        return opened

    installed = [rival for rival in RIVALS if rival.missing is None]
    rivals = [Contender(rival.name, asdict(tried), service(rival, tried)) for rival in installed for tried in TRIED]
    return [Contender(OURS, {}, lambda _capacity: address(OURS)), *rivals]


def compare(contenders: Sequence[Contender], pool: Pool, config: LiveConfig, stage: Stage) -> tuple[float, list[Row]]:
    """Measure the requests/s at `pets`, choose settings, then compare."""
    with stage("capacity at gamma 0") as progress, address(PETS, margin=0.05) as url:
        warm(url, pool, config.warm, deadline=5.0)
        served = asyncio.run(capacity(url, pool, config.probe, config.clients, lead=config.lead))
        progress(1, 1)

    def load(url: str, seed: int, seconds: float) -> tuple[Report, Turn]:
        rng = np.random.default_rng(seed)
        arriving = requests(poisson(SHARE * served, seconds, rng), kinds(list(pool), config.reference), rng)
        turn = send(url, arriving, pool, seed)
        return summarise(reply.observation for reply in turn.replies), turn

    def score(url: str) -> float:
        warm(url, pool, config.warm, deadline=5.0)
        return load(url, SWEEP_SEED, config.sweep)[0].utility

    rows = list[Row]()
    for contender in best_settings(contenders, served, stage, score if config.sweep else None):
        with stage(contender.title) as progress, contender.open(served) as url:
            warm(url, pool, config.warm, deadline=5.0)
            for seed in range(config.seeds):
                report, turn = load(url, seed, config.seconds)
                rows.append(Row(contender.name, contender.title, seed, report, turn.figures()))
                progress(seed + 1, config.seeds)
    return served, rows


def ratio(rows: Sequence[Row]) -> float:
    """Return the default's share of the offered utility over that of the best service, both the means over seeds."""
    shares = {name: float(np.mean([row.share for row in rows if row.name == name])) for name in {r.name for r in rows}}
    ours = shares.pop(OURS)
    return ours / max(*shares.values(), 1e-9)
