"""Who takes part in the live comparison: Pliant's policies over the champion, and the three services.

Knows how each is started and what is tried of it; measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from benchmarks.baselines.launch import model_spec
from benchmarks.baselines.launch import serving as serving_rival
from benchmarks.baselines.settings import RIVALS, TRIED, Rival, Tried
from benchmarks.load_generator import allow_many_connections
from benchmarks.tokens.endpoint import live_bundle, serving
from benchmarks.tokens.live import Contender, Live, LiveConfig, Opener, Pool, Stage, compare
from benchmarks.tokens.policies import fixed
from flows import settings
from flows.tokens.publish import open_registry
from pliant.tokens.policies import POLICIES
from registry.mlflow_store import CHAMPION
from registry.names import TOKENS_VARIANT

MARGINS: Mapping[str, Sequence[float]] = {"pets": (0.05, 0.15)}
"""Margins (share of the time to a deadline that is kept) to choose among; for otas 0.05 was no better than the default."""

DEFAULT_MARGIN = (0.15,)


def measure(pool: Pool, config: LiveConfig, stage: Stage) -> Live:
    """The comparison of all, on the champion. `pool`: held-out images by task."""
    return compare([*policies(), *services(config.sweep > 0)], pool, config, stage, missing())


def policies() -> list[Contender]:
    """Every policy of Pliant that the registry has the artifacts for: infaas needs variants."""
    variants = open_registry(settings.read()).versions(TOKENS_VARIANT)
    names = [name for name in POLICIES if name != "infaas" or variants]
    known = live_bundle().profile.latency.settings
    return [
        Contender(name, False, {"margin": margin}, _policy(name, margin, fixed(name, known)))
        for name in names
        for margin in MARGINS.get(name, DEFAULT_MARGIN)
    ]


def services(sweep: bool) -> list[Contender]:
    """The three as far as they are installed: with all that is tried, or without `sweep` with what won before."""
    return [
        Contender(rival.name, True, asdict(one), _service(rival, one))
        for rival in RIVALS
        if rival.missing is None
        for one in (TRIED if sweep else TRIED[:1])
    ]


def missing() -> dict[str, str]:
    """Name -> a sentence, of those of the three that are not installed."""
    return {rival.name: rival.missing for rival in RIVALS if rival.missing is not None}


def _policy(name: str, margin: float, gamma: int | None) -> Opener:
    @contextmanager
    def opened(_capacity: float) -> Iterator[str]:
        with serving(name, margin=margin, gamma=gamma) as service:
            yield service.url

    return opened


def _service(rival: Rival, tried: Tried) -> Opener:
    @contextmanager
    def opened(capacity: float) -> Iterator[str]:
        allow_many_connections()
        told = settings.read()
        settings.prepare(told)
        registry = open_registry(told)  # what it had to download lives as long as it does
        options, model = tried.options(rival, capacity), model_spec(registry, CHAMPION)
        with serving_rival(rival, options, model, told.home) as address:
            yield address

    return opened
