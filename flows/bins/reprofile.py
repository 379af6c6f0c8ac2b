"""`pliant profile bins`: compile and measure the champions on the device at hand, and publish their bins as the champions.

For a machine of another class than the one that compiled, or one whose cache of compiled files is empty: compiled files do
not travel, the service loads none that the registry does not vouch for. Encoders, lengths and SLOs are kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from flows import settings
from flows.bins.config import BinsFlowConfig, EngineConfig
from flows.bins.live import Live, encoder, live, open_registry
from flows.bins.measure import finish, measure
from flows.bins.packages import LENGTHS, bins_package, choice_of, weighed_of
from flows.bins.plan import told
from flows.bins.stages import here
from pliant.bins.artifact import Bins
from pliant.bins.runtimes.cache import cache_folder
from pliant.errors import RegistryError
from pliant.progress import Progress, share
from registry.mlflow_store import MlflowRegistry
from registry.names import BINS_PREFIX
from registry.store import FolderStore


def reprofile(device: str, threads: int, progress: Progress) -> dict[str, int]:
    """Print the shapes and give the version published per stream."""
    told_here = settings.read()
    registry, store = open_registry(told_here), FolderStore(told_here.store)
    champions = live(registry)
    if not champions:
        raise RegistryError("the registry holds no champion of the bins system: run `pliant train bins` first")
    published = {}
    for number, (name, one) in enumerate(champions.items()):
        part = share(progress, 100 * number // len(champions), 100 * (number + 1) // len(champions))
        published[name] = _again(registry, store, one, _config(one, device, threads), part)
    return published


def _config(one: Live, device: str, threads: int) -> BinsFlowConfig:
    record = one.record
    return BinsFlowConfig(
        device=device,
        threads=threads,
        engine=_engine(one, device),
        latency=record.latency,
        edges=record.edges,
        placement=one.bins.placement,
    )


def _engine(one: Live, device: str) -> EngineConfig:
    """As the flow was told, unless that was for the other kind of device."""
    same = one.bins.device_class.startswith("cpu") == (device == "cpu")
    return one.record.engine if same else EngineConfig(lengths=one.record.engine.lengths)


def _again(registry: MlflowRegistry, store: FolderStore, one: Live, config: BinsFlowConfig, progress: Progress) -> int:
    loaded, version = encoder(registry, one)
    folder = cache_folder(settings.read().home, one.bins.encoder, here(config))
    measured = measure(config, loaded, folder, share(progress, 0, 60))
    lengths = one.bins.lengths
    bins, notes = finish(
        config, loaded, one.bins.encoder, one.bins.slo, lengths, measured, folder, share(progress, 60, 100)
    )
    key = f"bins/plan-here-{bins.name}"
    store.save(key, bins)
    notes |= {"source": one.published.tags.get(LENGTHS, "unknown")}
    record = replace(one.record, threads=config.threads)
    with registry.run("bins profile") as run:
        published = registry.publish(run, bins_package(bins, version, store.path(key), notes, record))
    registry.promote(published.name, published.version)
    _show(bins, notes, published.version)
    return published.version


def _show(bins: Bins, notes: dict[str, Any], version: int) -> None:
    weighed = weighed_of(notes)
    columns = ("tokens", "batch", "static ms", "dynamic ms, same requests", "")
    table = Table(*columns, title=f"{bins.name} on {bins.device_class}, {bins.engine}")
    for each in weighed:
        milliseconds = (f"{1000 * seconds:.2f}" for seconds in (each.static, each.dynamic))
        table.add_row(str(each.length), str(each.batch), *milliseconds, "kept" if each.kept else "")
    console = Console()
    console.print(table)
    console.print(f"Bins up to {', '.join(map(str, choice_of(notes).edges)) or 'none'} tokens: {told(weighed)}.")
    console.print(f"Published as version {version} of {BINS_PREFIX}{bins.name}, now champion.")
