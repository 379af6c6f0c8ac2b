"""From the store to the registry: the results of a run of the bins flow, with its parameters, metrics, figures and reports.

A stream is two registered models, its encoder and its bins; the bins' version names the encoder's. Streams are judged one
by one, and released together. What is new and what is live: flows/release.py. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

from flows import gate
from flows.bins.champions import Record
from flows.bins.config import BinsFlowConfig
from flows.bins.gate import Verdict
from flows.bins.packages import bins_package, encoder_package
from flows.bins.report import log_stream
from flows.bins.stages import StreamResults, load_encoder, tested
from flows.release import Publication, Release, open_registry, publication
from flows.settings import Settings
from pliant.bins.artifact import Bins
from pliant.progress import Progress
from registry.names import BINS_ENCODER, BINS_PREFIX
from registry.store import FolderStore


def publish(
    settings: Settings,
    config: BinsFlowConfig,
    streams: Sequence[StreamResults],
    verdicts: Mapping[str, Verdict],
    store: FolderStore,
    progress: Progress,
    kept: Mapping[str, str],
) -> Release:
    """Log the run, register what is new, and release every stream that the gate let pass, all together."""
    report = {name: asdict(verdict) for name, verdict in verdicts.items()}
    with publication(open_registry(settings, "bins"), "bins", asdict(config), report, kept) as published:
        passed: list[str] = []
        for done, stream in enumerate(streams):
            log_stream(published.run, stream, store)
            progress(2 * done + 1, 2 * len(streams))
            names = _register(published, config, stream, store)
            passed += names if verdicts[stream.name].passed else ()
            progress(2 * done + 2, 2 * len(streams))
        published.promote(passed)
    return published.release(all(verdict.passed for verdict in verdicts.values()), gate.reason(verdicts))


def record(config: BinsFlowConfig) -> Record:
    return Record(config.engine, config.latency, config.edges, config.threads)


def _register(
    published: Publication, config: BinsFlowConfig, stream: StreamResults, store: FolderStore
) -> tuple[str, str]:
    """Register the stream's encoder and its bins, and return the names of their models in this order."""
    encoder_name, bins_name = BINS_ENCODER + stream.name, BINS_PREFIX + stream.name
    encoder, folder = load_encoder(store, stream.encoder), store.path(stream.encoder["key"])
    package = partial(encoder_package, encoder, folder, stream.encoder)
    version = published.register(encoder_name, stream.encoder["digest"], package)
    bins, folder = store.load(Bins, stream.bins["key"], stream.bins["digest"]), store.path(stream.bins["key"])
    notes = stream.bins["notes"] | stream.lengths.get("notes", {}) | {"score": tested(stream)}
    package = partial(bins_package, bins, version, folder, notes, record(config))
    published.register(bins_name, stream.bins["digest"], package)
    return encoder_name, bins_name
