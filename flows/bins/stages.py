"""The stages of the bins flow as plain functions over a store: each reads artifacts, makes one, and saves it.

Also what each stage depends on, as a key (see flows/keys.py). Compiled files lie in a cache beside the store, under the
digests that the artifacts hold. Knows no Prefect, and the registry only for the model of a cascade.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import flows.bins.lengths
import pliant.bins.runtimes.cache
import profiling.bins.accuracy
import training.bins.encoder
import training.classifier
import training.linear
import training.loading
import training.starts
import training.texts
from flows import settings
from flows.arithmetic import half_of
from flows.bins.config import EMBEDDED, SCRATCH, BinsFlowConfig, StreamConfig
from flows.bins.lengths import Lengths
from flows.bins.measure import Half, Latencies, finish, measure
from flows.champions import fetch
from flows.config import check_distinct
from flows.device import configured_class
from flows.keys import StageResult, contents, keep, stage_key
from flows.patience import patiently
from flows.release import open_registry
from flows.repeats import tell
from pliant.bins.artifact import Bins, Encoder
from pliant.bins.runtimes.cache import cache_folder, verify
from pliant.errors import ArtifactError, InputError, RegistryError
from pliant.models.artifact import Classifier
from pliant.precision import FLOAT32
from pliant.progress import Progress, share
from registry.names import CASCADE_TASK, LEVEL_TAG, cascade_level
from registry.store import FolderStore
from training.linear import LinearComparison
from training.text_data import TextData

CASCADE = "cascade:"
TESTED = 1000
"""Texts, at most, on which half precision is held against float32."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream with its data (None where none is needed) and its name."""

    config: StreamConfig
    name: str
    data: TextData | None


@dataclass(frozen=True, slots=True)
class StreamResults:
    """All stages' results of one stream."""

    name: str
    encoder: StageResult
    lengths: StageResult
    latencies: StageResult
    bins: StageResult


def load_streams(config: BinsFlowConfig, progress: Progress) -> list[Stream]:
    """Return all streams with their data. Raises `InputError` for two of one name, which would overwrite each other."""
    streams = []
    for number, stream in enumerate(config.streams):
        data = _data(stream, config) if stream.needs_data else None
        streams.append(Stream(stream, stream.stream_name(data.name if data else None), data))
        tell(streams[-1].name, data.repeats if data else None)
        progress(number + 1, len(config.streams))
    check_distinct("streams", [stream.name for stream in streams], "each of its own name")
    training.loading.look(config.embedded.start, training.starts.pretrained)
    for later in streams[1:]:  # the first is read at once
        read = partial(training.bins.encoder.load, name=later.name, max_length=later.config.max_length)
        training.loading.look(later.config.encoder, read)
    return streams


def _data(stream: StreamConfig, config: BinsFlowConfig) -> TextData:
    return training.texts.load(
        stream.data, stream.name, config.seed, stream.limit, config.embedded.shares, stream.columns
    )


def encoder_key(config: BinsFlowConfig, stream: Stream) -> str:
    address = stream.config.encoder
    depends = {
        "encoder": address,
        "embedded": asdict(config.embedded) if address == EMBEDDED else None,
        "files": list(contents(config.embedded.start if address == EMBEDDED else address)),
        "cascade": _cascade_digest(address),
        "data": stream.data.fingerprint if stream.data else None,
        "max_length": stream.config.max_length,
        "transformers": version("transformers"),
    }
    return stage_key(f"bins/encoder-{stream.name}", depends, make_encoder)


def make_encoder(
    config: BinsFlowConfig, stream: Stream, key: str, store: FolderStore, progress: Progress
) -> StageResult:
    """Train, read or download the encoder, and test it where the data has labels of its classes."""
    began, address, longest = time.monotonic(), stream.config.encoder, stream.config.max_length
    notes: dict[str, Any] = {}
    if address == EMBEDDED:
        encoder, notes["curves"] = _embedded(config, stream, share(progress, 0, 90))
    elif address.startswith(CASCADE):
        classifier, _ = _of_cascade(address)
        encoder = training.bins.encoder.of_classifier(classifier, stream.name, longest or classifier.max_length)
    else:
        encoder = training.bins.encoder.load(address, stream.name, longest)
    notes |= {"seconds": time.monotonic() - began, "parameters": sum(array.size for array in encoder.weights.values())}
    notes |= _score(config, stream.data, encoder, share(progress, 90, 100))
    progress(100, 100)
    return keep(store, key, encoder, notes)


def _embedded(config: BinsFlowConfig, stream: Stream, progress: Progress) -> tuple[Encoder, dict[str, Any]]:
    """Return an encoder that is trained here and its curves. A new vocabulary is made of the fit split alone."""
    data, embedded = stream.data, config.embedded
    if data is None:
        raise InputError("data", "none", "texts to train the embedded encoder on")
    if embedded.start == SCRATCH:
        texts = [part for pair in data.texts(data.split.fit) for part in pair if part is not None]
        start = training.starts.scratch(embedded.scratch, texts)
    else:
        start = training.starts.pretrained(embedded.start)
    classifier, curves = training.classifier.train(
        embedded.classifier, stream.name, data, start, config.device, progress
    )
    longest = stream.config.max_length or embedded.scratch.positions
    return training.bins.encoder.of_classifier(classifier, stream.name, longest), asdict(curves)


def _score(
    config: BinsFlowConfig, data: TextData | None, encoder: Encoder, progress: Progress, precision: str = FLOAT32
) -> dict[str, Any]:
    if data is None or not encoder.classes or data.classes != encoder.classes:
        return {}
    rows = data.split.test
    texts, device = data.texts(rows), config.device
    output_RK = profiling.bins.accuracy.outputs(encoder, texts, device, config.threads, progress, precision)
    compared = training.linear.compare_texts(data, output_RK)
    return {"score": {"accuracy": compared.model_score, "data": data.fingerprint}, "linear": asdict(compared)}


def _of_cascade(address: str) -> tuple[Classifier, str]:
    """Return the largest model of the cascade's champion of a task, and its digest. Raises `RegistryError`."""
    registry, task = open_registry(settings.read(), "cascade"), address.removeprefix(CASCADE)
    champion = patiently(lambda: registry.version(CASCADE_TASK + task)) if registry.exists() else None
    if champion is None:
        raise RegistryError(f"the registry holds no champion of the cascade {task!r}: run `pliant train cascade` first")
    levels = {tag.removeprefix(LEVEL_TAG): int(n) for tag, n in champion.tags.items() if tag.startswith(LEVEL_TAG)}
    if not levels:
        raise RegistryError(
            f"{champion.uri} does not say which models it was made of: run `pliant train cascade` again"
        )
    models = [fetch(registry, Classifier, cascade_level(task, level), version) for level, version in levels.items()]
    largest, published = max(models, key=lambda model: sum(array.size for array in model[0].weights.values()))
    return largest, published.digest


def _cascade_digest(address: str) -> str | None:
    """Return the digest of a cascade's model; None for other encoders, or without a champion: making it says so."""
    if not address.startswith(CASCADE):
        return None
    try:
        return _of_cascade(address)[1]
    except RegistryError:
        return None


def lengths_key(config: BinsFlowConfig, stream: Stream, encoder: StageResult) -> str:
    depends = {
        "encoder": encoder["digest"],
        "sources": stream.config.lengths,
        "files": flows.bins.lengths.digests(stream.config),
        "data": stream.data.fingerprint if stream.data else None,
        "least": config.edges.least,
    }
    return stage_key(f"bins/lengths-{stream.name}", depends, make_lengths, TextData)


def make_lengths(
    config: BinsFlowConfig, stream: Stream, encoder: StageResult, key: str, store: FolderStore, progress: Progress
) -> StageResult:
    loaded = load_encoder(store, encoder)
    lengths = flows.bins.lengths.observe(stream.config, stream.name, loaded, stream.data, config.edges, progress)
    progress(1, 1)
    return keep(store, key, lengths, {"source": lengths.source})


def latencies_key(config: BinsFlowConfig, stream: Stream, encoder: StageResult) -> str:
    depends = {
        "config": asdict(config.latency),
        "engine": asdict(config.engine),
        "step": config.edges.step,
        "arithmetic": asdict(config.arithmetic),
        "data": stream.data.fingerprint if stream.data else None,
        "encoder": encoder["digest"],
        "device": configured_class(config),
        "versions": {engine: pliant.bins.runtimes.cache.versions(engine) for engine in ("onnx", "aot")},
        "cores": os.cpu_count(),
    }
    return stage_key(f"bins/latencies-{stream.name}", depends, make_latencies, TextData, measured=True)


def make_latencies(
    config: BinsFlowConfig,
    stream: Stream,
    encoder: StageResult,
    key: str,
    store: FolderStore,
    cache: Path,
    progress: Progress,
) -> StageResult:
    """Choose engine and precision and measure the staircase; the notes hold the test's result where that is another now."""
    folder, loaded = cache_folder(cache, encoder["digest"], configured_class(config)), load_encoder(store, encoder)
    half = half_to_try(config, stream.data, loaded)
    measured = measure(config, loaded, folder, share(progress, 0, 90), half)
    notes: dict[str, Any] = {"arithmetic": measured.arithmetic}
    if measured.precision != FLOAT32:
        notes |= _score(config, stream.data, loaded, share(progress, 90, 100), measured.precision)
    progress(100, 100)
    return keep(store, key, measured, notes)


def half_to_try(config: BinsFlowConfig, data: TextData | None, encoder: Encoder) -> Half | None:
    """Return the half precision to be tried; None where the settings or the device allow none, or without texts."""
    precision = half_of(config.arithmetic, config.device)
    if precision is None or data is None:
        return None
    rows = data.split.profiling[:TESTED]
    texts, device, threads = data.texts(rows), config.device, config.threads
    labels = data.labels[rows].astype(np.int64) if encoder.classes and data.classes == encoder.classes else None
    return Half(precision, lambda: profiling.bins.accuracy.cost(encoder, texts, labels, precision, device, threads))


def bins_key(config: BinsFlowConfig, stream: Stream, lengths: StageResult, latencies: StageResult) -> str:
    depends = {
        "edges": asdict(config.edges),
        "latency": asdict(config.latency),
        "slo": stream.config.slo,
        "placement": config.placement,
        "lengths": lengths["digest"],
        "latencies": latencies["digest"],
    }
    return stage_key(f"bins/plan-{stream.name}", depends, make_bins, measured=True)


def make_bins(
    config: BinsFlowConfig,
    stream: Stream,
    results: Mapping[str, StageResult],
    key: str,
    store: FolderStore,
    cache: Path,
    progress: Progress,
) -> StageResult:
    """Choose the bins; `results`: the encoder, the lengths and the latencies, by these names."""
    encoder = load_encoder(store, results["encoder"])
    observed = store.load(Lengths, results["lengths"]["key"], results["lengths"]["digest"])
    measured = store.load(Latencies, results["latencies"]["key"], results["latencies"]["digest"])
    folder = cache_folder(cache, results["encoder"]["digest"], measured.device)
    bins, notes = finish(
        config, encoder, results["encoder"]["digest"], stream.config.slo, observed.requests, measured, folder, progress
    )
    return keep(store, key, bins, notes)


def compiled(store: FolderStore, cache: Path, result: StageResult) -> bool:
    """Whether the compiled files that these bins vouch for are there, unaltered."""
    bins = store.load(Bins, result["key"], result["digest"])
    try:
        verify(cache_folder(cache, bins.encoder, bins.device_class), bins.files)
    except ArtifactError:
        return False
    return True


def load_encoder(store: FolderStore, result: StageResult) -> Encoder:
    return store.load(Encoder, result["key"], result["digest"])


def tested(result: StreamResults) -> dict[str, Any] | None:
    """Return the encoder's test result in the precision that is served; None where it was not tested."""
    return _noted(result, "score")


def compared(result: StreamResults) -> LinearComparison | None:
    """Return how the encoder does beside a linear model in that precision; None where it was not tested."""
    noted = _noted(result, "linear")
    return LinearComparison(**noted) if noted else None


def _noted(result: StreamResults, name: str) -> dict[str, Any] | None:
    """Return what was noted of the test; the latencies have it anew where the precision is not float32."""
    noted: dict[str, Any] | None = None
    for stage in (result.encoder, result.latencies):
        noted = stage.get("notes", {}).get(name, noted)
    return noted
