"""`pliant profile bins`: compile and measure the champions on the device at hand, and choose their bins again.

Also for a machine whose cache of compiled files is empty: compiled files do not travel, the service loads none that the
registry does not vouch for. Encoders, lengths and SLOs are kept.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial

from pliant.bins.artifact import Bins
from pliant.bins.runtimes.cache import cache_folder
from pliant.device import resolve_device
from pliant.flows import settings
from pliant.flows.bins.champions import Record, fetch_encoder, fetch_float32_score, fetch_score
from pliant.flows.bins.config import BinsFlowConfig, EngineConfig
from pliant.flows.bins.measure import Half, finish, measure
from pliant.flows.bins.plan import Weighed, describe, rows
from pliant.flows.bins.publish import LENGTHS, bins_package
from pliant.flows.champions import Champion, load_champions
from pliant.flows.config import configured_class
from pliant.flows.release import open_registry
from pliant.flows.reprofile import Profiled
from pliant.flows.reprofile import reprofile as reprofile_champions
from pliant.flows.stage import noted
from pliant.precision import FLOAT32, is_fast
from pliant.progress import Progress, share
from pliant.registry.mlflow_store import MlflowRegistry


def reprofile(device: str, threads: int, progress: Progress, other_device: bool = False) -> dict[str, int]:
    """Print the shapes and return the version published per stream. Raises as `pliant.flows.reprofile.reprofile`."""
    registry = open_registry(settings.read(), "bins")
    again, device_of = partial(_again, registry, device, threads), lambda bins: bins.device_class
    return reprofile_champions(
        "bins", load_champions(registry, Bins), device, threads, device_of, again, progress, other_device
    )


def _again(
    registry: MlflowRegistry, device: str, threads: int, champion: Champion[Bins], progress: Progress
) -> Profiled:
    old, record = champion.artifact, champion.record(Record)
    config = BinsFlowConfig(
        device=device,
        threads=threads,
        engine=_engine(old, record, resolve_device(device)),
        latency=record.latency,
        edges=record.edges,
        placement=old.placement,
    )
    encoder, version = fetch_encoder(registry, champion)
    folder, half = cache_folder(settings.read().home, old.encoder, configured_class(config)), None
    if old.precision != FLOAT32 and is_fast(old.precision, config.device):
        half = Half(old.precision, lambda: 0.0)  # no other was tested: there are no texts here
    measured = measure(config, encoder, folder, share(progress, 0, 60), half)
    rest = share(progress, 60, 100)
    bins, notes = finish(config, encoder, old.encoder, old.slo, old.lengths, measured, folder, rest)
    fetch = fetch_score if bins.precision == old.precision else fetch_float32_score  # there is no other choice
    score = fetch(registry, champion)
    notes |= {"source": champion.published.tags.get(LENGTHS, "unknown"), "score": asdict(score) if score else None}
    record = replace(record, threads=config.threads)
    edges, weighed = ", ".join(map(str, notes["choice"]["edges"])) or "none", noted(Weighed, notes, "weighed")
    sentences = [f"Bins up to {edges} tokens: {describe(weighed)}.", *notes["fallbacks"]]
    package = partial(bins_package, bins, version, notes=notes, record=record)
    title = f"{bins.name} on {bins.device_class}, {bins.engine}, {bins.precision}"
    return Profiled(bins, lambda folder: package(folder=folder), title, rows(weighed), sentences)


def _engine(old: Bins, record: Record, device: str) -> EngineConfig:
    """Return the engine settings of the flow, unless those were for the other kind of device."""
    same = old.device_class.startswith("cpu") == (device == "cpu")
    return record.engine if same else EngineConfig(lengths=record.engine.lengths)
