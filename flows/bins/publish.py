"""From the store to the registry: what a run of the bins flow made, with its parameters, metrics, figures and reports.

A stream is two registered models, its encoder and its bins; the bins' version names the encoder's. Streams are judged and
promoted one by one. What is new and what is live: flows/release.py. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

from flows import gate, release
from flows.bins.config import BinsFlowConfig
from flows.bins.gate import Verdict
from flows.bins.live import Record, encoder_model
from flows.bins.packages import bins_package, encoder_package
from flows.bins.report import log_stream
from flows.bins.stages import StreamMade, load_encoder
from flows.release import Release, commit, flat, promote, register
from flows.settings import Settings
from pliant.bins.artifact import Bins
from pliant.progress import Progress
from registry.mlflow_run import Run
from registry.mlflow_store import MlflowRegistry
from registry.names import BINS_PREFIX, experiment
from registry.store import FolderStore


def publish(
    settings: Settings,
    config: BinsFlowConfig,
    made: Sequence[StreamMade],
    verdicts: Mapping[str, Verdict],
    store: FolderStore,
    progress: Progress,
) -> Release:
    """Log the run, register what is new, and move the aliases of every stream that the gate let pass."""
    registry = release.open_registry(settings, experiment("bins"))
    versions: dict[str, int] = {}
    new: list[str] = []
    with registry.run("bins", {"git_commit": commit()}) as run:
        run.params(flat(asdict(config)))
        run.document("gate", {name: asdict(verdict) for name, verdict in verdicts.items()})
        for done, one in enumerate(made):
            log_stream(run, one, store)
            progress(2 * done + 1, 2 * len(made))
            known, fresh = _register(registry, run, config, one, store)
            if verdicts[one.name].passed:
                promote(registry, known)
            versions |= known
            new += fresh
            progress(2 * done + 2, 2 * len(made))
    passed = all(verdict.passed for verdict in verdicts.values())
    return Release(passed, gate.reason(verdicts), versions, tuple(new), run.id)


def record(config: BinsFlowConfig) -> Record:
    return Record(config.engine, config.latency, config.edges, config.threads)


def _register(
    registry: MlflowRegistry, run: Run, config: BinsFlowConfig, made: StreamMade, store: FolderStore
) -> tuple[dict[str, int], list[str]]:
    """Versions of the stream's encoder and of its bins, in this order, and which of them are new."""
    encoder_name, bins_name = encoder_model(made.name), BINS_PREFIX + made.name
    encoder, bins = load_encoder(store, made.encoder), store.load(Bins, made.bins["key"], made.bins["digest"])
    packed = partial(encoder_package, encoder, store.path(made.encoder["key"]), made.encoder)
    version, is_new = register(registry, run, encoder_name, made.encoder["digest"], packed)
    new = [encoder_name] if is_new else []
    notes = made.bins["notes"] | made.lengths.get("notes", {})
    package = partial(bins_package, bins, version, store.path(made.bins["key"]), notes, record(config))
    number, is_new = register(registry, run, bins_name, made.bins["digest"], package)
    return {encoder_name: version, bins_name: number}, [*new, bins_name] if is_new else new
