"""`pliant profile bins`: compile and measure the champions on the device at hand, and publish their bins as the champions.

For a machine of another class than the one that compiled, or one whose cache of compiled files is empty: compiled files do
not travel, the service loads none that the registry does not vouch for. Encoders, lengths and SLOs are kept.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from flows import settings
from flows.bins.champions import Champion, fetch_encoder, fetch_float32_score, fetch_score, load_champions
from flows.bins.config import BinsFlowConfig, EngineConfig
from flows.bins.measure import Half, finish, measure
from flows.bins.packages import LENGTHS, bins_package, choice_of, weighed_of
from flows.bins.plan import describe
from flows.device import configured_class
from flows.progress import shares
from flows.release import open_registry, publish_champion
from pliant.bins.artifact import Bins
from pliant.bins.runtimes.cache import cache_folder
from pliant.errors import RegistryError
from pliant.precision import FLOAT32, is_fast
from pliant.progress import Progress, share
from registry.mlflow_store import MlflowRegistry
from registry.names import BINS_PREFIX
from registry.store import FolderStore


def reprofile(device: str, threads: int, progress: Progress) -> dict[str, int]:
    """Print the shapes and return the version published per stream."""
    project = settings.read()
    registry, store = open_registry(project, "bins"), FolderStore(project.store)
    champions = load_champions(registry)
    if not champions:
        raise RegistryError("the registry holds no champion of the bins system: run `pliant train bins` first")
    return {
        champion.bins.name: _reprofile(registry, store, champion, _config(champion, device, threads), part)
        for champion, part in shares(progress, champions.values())
    }


def _config(champion: Champion, device: str, threads: int) -> BinsFlowConfig:
    record = champion.record
    return BinsFlowConfig(
        device=device,
        threads=threads,
        engine=_engine(champion, device),
        latency=record.latency,
        edges=record.edges,
        placement=champion.bins.placement,
    )


def _engine(champion: Champion, device: str) -> EngineConfig:
    """Return the engine settings of the flow, unless those were for the other kind of device."""
    same = champion.bins.device_class.startswith("cpu") == (device == "cpu")
    return champion.record.engine if same else EngineConfig(lengths=champion.record.engine.lengths)


def _tested_half(champion: Bins, device: str) -> Half | None:
    """Return the champion's half precision, if the device is fast in it. No other was tested: there are no texts here."""
    precision = champion.precision
    return Half(precision, lambda: 0.0) if precision != FLOAT32 and is_fast(precision, device) else None


def _reprofile(
    registry: MlflowRegistry, store: FolderStore, champion: Champion, config: BinsFlowConfig, progress: Progress
) -> int:
    encoder, version = fetch_encoder(registry, champion)
    old = champion.bins
    folder = cache_folder(settings.read().home, old.encoder, configured_class(config))
    measured = measure(config, encoder, folder, share(progress, 0, 60), _tested_half(old, config.device))
    rest = share(progress, 60, 100)
    bins, notes = finish(config, encoder, old.encoder, old.slo, old.lengths, measured, folder, rest)
    key = f"bins/plan-here-{bins.name}"
    store.save(key, bins)
    fetch = fetch_score if bins.precision == old.precision else fetch_float32_score  # there is no other choice
    score = fetch(registry, champion)
    notes |= {"source": champion.published.tags.get(LENGTHS, "unknown"), "score": asdict(score) if score else None}
    record = replace(champion.record, threads=config.threads)
    package = bins_package(bins, version, store.path(key), notes, record)
    number = publish_champion(registry, "bins profile", package)
    _show(bins, notes, number)
    return number


def _show(bins: Bins, notes: dict[str, Any], version: int) -> None:
    weighed = weighed_of(notes)
    columns = ("tokens", "batch", "static ms", "dynamic ms, same requests", "")
    table = Table(*columns, title=f"{bins.name} on {bins.device_class}, {bins.engine}, {bins.precision}")
    for trial in weighed:
        milliseconds = (f"{1000 * seconds:.2f}" for seconds in (trial.static, trial.dynamic))
        table.add_row(str(trial.length), str(trial.batch), *milliseconds, "kept" if trial.kept else "")
    console = Console()
    console.print(table)
    console.print(f"Bins up to {', '.join(map(str, choice_of(notes).edges)) or 'none'} tokens: {describe(weighed)}.")
    for fallback in notes["fallbacks"]:
        console.print(fallback)
    console.print(f"Published as version {version} of {BINS_PREFIX}{bins.name}, now champion.")
