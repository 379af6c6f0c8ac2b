"""Who takes part in the live comparison: Pliant's policies over the champion, and the three services.

Knows how each is started and what is tried of it; measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from benchmarks.baselines import launch
from benchmarks.baselines.settings import RIVALS, TRIED, Rival, Tried
from benchmarks.contenders import Contender, Opener
from benchmarks.harness import Stage
from benchmarks.tokens.endpoint import address
from benchmarks.tokens.live import Live, LiveConfig, Pool, compare
from flows import settings
from flows.release import open_registry
from pliant.tokens.policies import SERVED
from registry.mlflow_store import CHAMPION

MARGINS: Mapping[str, Sequence[float]] = {"pets": (0.05, 0.15)}
"""Margins (share of the time to a deadline that is kept) to choose among; for otas 0.05 was no better than the default."""

DEFAULT_MARGIN = (0.15,)


def measure(pool: Pool, config: LiveConfig, stage: Stage) -> Live:
    """Compare all, on the champion. `pool`: held-out images by task."""
    missing = {rival.name: rival.missing for rival in RIVALS if rival.missing is not None}
    return compare([*policies(), *services(config.sweep > 0)], pool, config, stage, missing)


def policies() -> list[Contender]:
    """Return every policy of Pliant that a service can follow."""
    return [
        Contender(name, {"margin": margin}, _policy(name, margin))
        for name in SERVED
        for margin in MARGINS.get(name, DEFAULT_MARGIN)
    ]


def services(sweep: bool) -> list[Contender]:
    """Return the three as far as they are installed: with all that is tried, or without `sweep` with what won before."""
    return [
        Contender(rival.name, asdict(tried), _service(rival, tried), service=True)
        for rival in RIVALS
        if rival.missing is None
        for tried in (TRIED if sweep else TRIED[:1])
    ]


def _policy(name: str, margin: float) -> Opener:
    return lambda _capacity: address(name, margin=margin)


def _service(rival: Rival, tried: Tried) -> Opener:
    @contextmanager
    def opened(capacity: float) -> Iterator[str]:
        project = settings.read()
        settings.prepare(project)
        registry = open_registry(project, "tokens")  # what it had to download lives as long as it does
        model = launch.model_spec(registry, CHAMPION).text()
        with launch.serving(rival, tried.options(rival, capacity), model, project.home) as url:
            yield url

    return opened
