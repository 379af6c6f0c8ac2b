"""The stages of the bins flow as plain functions over a store: each reads artifacts, makes one, and saves it.

Also what each stage depends on, as a key (see flows/keys.py). Compiled files lie in a cache beside the store, under the
digests that the artifacts hold. Knows no Prefect; of the registry only where a cascade's model is asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import flows.bins.lengths
import flows.bins.measure
import flows.bins.plan
import pliant.bins.planning.edges
import pliant.bins.runtimes.cache
import pliant.bins.runtimes.compile
import pliant.bins.runtimes.model
import pliant.bins.runtimes.runtime
import pliant.latency
import pliant.models.classifier
import pliant.models.text
import profiling.bins.accuracy
import profiling.bins.latency
import profiling.timer
import training.bins.encoder
import training.bins.lengths
import training.classifier
import training.precision
import training.rows
import training.starts
import training.texts
from flows import settings
from flows.bins.config import EMBEDDED, BinsFlowConfig, StreamConfig
from flows.bins.lengths import Lengths
from flows.bins.measure import Latencies, finish, measure
from flows.keys import StageResult, contents, stage_key
from flows.release import open_registry
from pliant.bins.artifact import Bins, Encoder
from pliant.bins.runtimes.cache import cache_folder, verify
from pliant.device import device_class, threads
from pliant.errors import ArtifactError, InputError, RegistryError
from pliant.models.artifact import Classifier
from pliant.progress import Progress, share
from registry import codec
from registry.names import CASCADE_TASK, LEVEL_TAG, cascade_level, experiment
from registry.store import FolderStore
from training.text_data import TextData

CASCADE = "cascade:"
_RUNTIME = (pliant.bins.runtimes.compile, pliant.bins.runtimes.model, pliant.bins.runtimes.runtime)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream with its data (None where none is needed) and its name."""

    told: StreamConfig
    name: str
    data: TextData | None


@dataclass(frozen=True, slots=True)
class StreamMade:
    """All stages' results of one stream."""

    name: str
    encoder: StageResult
    lengths: StageResult
    latencies: StageResult
    bins: StageResult


def load_streams(config: BinsFlowConfig, progress: Progress) -> list[Stream]:
    """Two streams of one name would overwrite each other, so that is refused."""
    made = []
    for number, told in enumerate(config.streams):
        data = _data(told, config) if told.needs_data else None
        made.append(Stream(told, told.named(data.name if data else None), data))
        progress(number + 1, len(config.streams))
    names = [one.name for one in made]
    if len(set(names)) != len(names):
        raise InputError("streams", ", ".join(names), "each of its own name")
    return made


def _data(told: StreamConfig, config: BinsFlowConfig) -> TextData:
    return training.texts.load(told.data, told.name, config.seed, told.limit, config.embedded.shares)


def encoder_key(config: BinsFlowConfig, stream: Stream) -> str:
    told = stream.told
    depends = {
        "encoder": told.encoder,
        "embedded": asdict(config.embedded) if told.encoder == EMBEDDED else None,
        "files": list(contents(told.encoder)),
        "cascade": _cascade_digest(told.encoder),
        "data": stream.data.fingerprint if stream.data else None,
        "max_length": told.max_length,
        "transformers": version("transformers"),
    }
    code = (training.classifier, training.rows, training.starts, training.precision)
    own = (training.bins.encoder, profiling.bins.accuracy, pliant.models.classifier, pliant.models.text)
    return stage_key(f"bins/encoder-{stream.name}", depends, *code, *own)


def make_encoder(
    config: BinsFlowConfig, stream: Stream, key: str, store: FolderStore, progress: Progress
) -> StageResult:
    """Trained, read or fetched; tested where the data has labels of its classes."""
    began, told = time.monotonic(), stream.told
    notes: dict[str, Any] = {}
    if told.encoder == EMBEDDED:
        encoder, notes["curves"] = _embedded(config, stream, share(progress, 0, 90))
    elif told.encoder.startswith(CASCADE):
        classifier, _ = _of_cascade(told.encoder)
        encoder = training.bins.encoder.of_classifier(classifier, stream.name, told.max_length or classifier.max_length)
    else:
        encoder = training.bins.encoder.load(told.encoder, stream.name, told.max_length)
    notes |= {"seconds": time.monotonic() - began, "parameters": sum(array.size for array in encoder.weights.values())}
    notes |= _score(config, stream.data, encoder, share(progress, 90, 100))
    progress(100, 100)
    return {"key": key, "digest": store.save(key, encoder), "notes": notes}


def _embedded(config: BinsFlowConfig, stream: Stream, progress: Progress) -> tuple[Encoder, dict[str, Any]]:
    """A new vocabulary is made of the fit split alone."""
    data, told = stream.data, config.embedded
    if data is None:
        raise InputError("data", "none", "texts to train the embedded encoder on")
    texts = [part for pair in data.texts(data.split.fit) for part in pair if part is not None]
    start = training.starts.scratch(told.scratch, texts)
    classifier, curves = training.classifier.train(told.classifier, stream.name, data, start, config.device, progress)
    longest = stream.told.max_length or told.scratch.positions
    return training.bins.encoder.of_classifier(classifier, stream.name, longest), asdict(curves)


def _score(config: BinsFlowConfig, data: TextData | None, encoder: Encoder, progress: Progress) -> dict[str, Any]:
    if data is None or not encoder.classes or data.classes != encoder.classes:
        return {}
    rows = data.split.test
    labels = data.labels[rows].astype(np.int64)
    found = profiling.bins.accuracy.accuracy(encoder, data.texts(rows), labels, config.device, config.threads, progress)
    return {"score": {"accuracy": found, "data": data.fingerprint}}


def _of_cascade(address: str) -> tuple[Classifier, str]:
    """The largest model of the cascade's champion of a task, and its digest. Raises `RegistryError`."""
    registry, task = open_registry(settings.read(), experiment("cascade")), address.removeprefix(CASCADE)
    champion = registry.version(CASCADE_TASK + task) if registry.exists() else None
    if champion is None:
        raise RegistryError(f"the registry holds no champion of the cascade {task!r}: run `pliant train cascade` first")
    levels = {tag.removeprefix(LEVEL_TAG): int(n) for tag, n in champion.tags.items() if tag.startswith(LEVEL_TAG)}
    if not levels:
        raise RegistryError(
            f"{champion.uri} does not say which models it was made of: run `pliant train cascade` again"
        )
    fetched = [registry.fetch(cascade_level(task, level), version) for level, version in levels.items()]
    models = [(codec.load(Classifier, folder, published.digest), published.digest) for folder, published in fetched]
    return max(models, key=lambda model: sum(array.size for array in model[0].weights.values()))


def _cascade_digest(address: str) -> str | None:
    """None where the encoder is none of a cascade's, or its champion is not there: making it says so."""
    if not address.startswith(CASCADE):
        return None
    try:
        return _of_cascade(address)[1]
    except RegistryError:
        return None


def lengths_key(config: BinsFlowConfig, stream: Stream, encoder: StageResult) -> str:
    depends = {
        "encoder": encoder["digest"],
        "sources": stream.told.lengths,
        "files": flows.bins.lengths.digests(stream.told),
        "data": stream.data.fingerprint if stream.data else None,
        "least": config.edges.least,
    }
    return stage_key(f"bins/lengths-{stream.name}", depends, training.bins.lengths, flows.bins.lengths)


def make_lengths(
    config: BinsFlowConfig, stream: Stream, encoder: StageResult, key: str, store: FolderStore, progress: Progress
) -> StageResult:
    loaded = load_encoder(store, encoder)
    lengths = flows.bins.lengths.observe(stream.told, stream.name, loaded, stream.data, config.edges, progress)
    progress(1, 1)
    return {"key": key, "digest": store.save(key, lengths), "notes": {"source": lengths.source}}


def latencies_key(config: BinsFlowConfig, stream: Stream, encoder: StageResult) -> str:
    depends = {
        "config": asdict(config.latency),
        "engine": asdict(config.engine),
        "step": config.edges.step,
        "encoder": encoder["digest"],
        "device": here(config),
        "versions": _versions(),
        "cores": os.cpu_count(),
    }
    code = (profiling.bins.latency, profiling.timer, pliant.latency, flows.bins.measure, *_RUNTIME)
    return stage_key(f"bins/latencies-{stream.name}", depends, *code)


def make_latencies(
    config: BinsFlowConfig, encoder: StageResult, key: str, store: FolderStore, cache: Path, progress: Progress
) -> StageResult:
    folder = cache_folder(cache, encoder["digest"], here(config))
    measured = measure(config, load_encoder(store, encoder), folder, progress)
    return {"key": key, "digest": store.save(key, measured)}


def bins_key(config: BinsFlowConfig, stream: Stream, lengths: StageResult, latencies: StageResult) -> str:
    depends = {
        "edges": asdict(config.edges),
        "latency": asdict(config.latency),
        "slo": stream.told.slo,
        "placement": config.placement,
        "lengths": lengths["digest"],
        "latencies": latencies["digest"],
    }
    return stage_key(
        f"bins/plan-{stream.name}", depends, flows.bins.plan, flows.bins.measure, pliant.bins.planning.edges, *_RUNTIME
    )


def make_bins(
    config: BinsFlowConfig,
    stream: Stream,
    made: Mapping[str, StageResult],
    key: str,
    store: FolderStore,
    cache: Path,
    progress: Progress,
) -> StageResult:
    """`made`: the encoder, the lengths and the latencies, by these names."""
    encoder = load_encoder(store, made["encoder"])
    observed = store.load(Lengths, made["lengths"]["key"], made["lengths"]["digest"])
    measured = store.load(Latencies, made["latencies"]["key"], made["latencies"]["digest"])
    folder = cache_folder(cache, made["encoder"]["digest"], measured.device)
    bins, notes = finish(
        config, encoder, made["encoder"]["digest"], stream.told.slo, observed.requests, measured, folder, progress
    )
    return {"key": key, "digest": store.save(key, bins), "notes": notes}


def compiled(store: FolderStore, cache: Path, made: StageResult) -> bool:
    """Whether the compiled files that these bins vouch for are there, unaltered."""
    bins = store.load(Bins, made["key"], made["digest"])
    try:
        verify(cache_folder(cache, bins.encoder, bins.device_class), bins.files)
    except ArtifactError:
        return False
    return True


def load_encoder(store: FolderStore, made: StageResult) -> Encoder:
    return store.load(Encoder, made["key"], made["digest"])


def here(config: BinsFlowConfig) -> str:
    """The class of the configured device, with the configured threads."""
    with threads(config.threads):
        return device_class(config.device)


def _versions() -> dict[str, dict[str, str]]:
    return {engine: pliant.bins.runtimes.cache.versions(engine) for engine in ("onnx", "aot")}
