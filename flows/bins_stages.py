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

import flows.bins_lengths
import flows.bins_measure
import flows.bins_plan
import pliant.bins.cache
import pliant.bins.compile
import pliant.bins.edges
import pliant.bins.model
import pliant.bins.runtime
import pliant.cascade.model
import pliant.cascade.text
import pliant.latency
import profiling.bins_accuracy
import profiling.bins_latency
import profiling.timer
import training.bins_encoder
import training.bins_lengths
import training.cascade_classifier
import training.cascade_rows
import training.cascade_start
import training.precision
import training.texts
from flows import cascade_live, settings
from flows.bins_config import EMBEDDED, BinsFlowConfig, StreamConfig
from flows.bins_lengths import Lengths
from flows.bins_measure import Latencies, finish, measure
from flows.keys import Made, contents, stage_key
from pliant.bins.artifact import Bins, Encoder
from pliant.bins.cache import cache_folder, verify
from pliant.cascade.artifact import Classifier
from pliant.device import device_class, threads
from pliant.errors import ArtifactError, InputError, RegistryError
from pliant.progress import Progress, share
from registry.store import FolderStore
from training.texts import TextData

CASCADE = "cascade:"
_RUNTIME = (pliant.bins.compile, pliant.bins.model, pliant.bins.runtime)


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
    encoder: Made
    lengths: Made
    latencies: Made
    bins: Made


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
    code = (training.cascade_classifier, training.cascade_rows, training.cascade_start, training.precision)
    own = (training.bins_encoder, profiling.bins_accuracy, pliant.cascade.model, pliant.cascade.text)
    return stage_key(f"bins/encoder-{stream.name}", depends, *code, *own)


def make_encoder(config: BinsFlowConfig, stream: Stream, key: str, store: FolderStore, progress: Progress) -> Made:
    """Trained, read or fetched; tested where the data has labels of its classes."""
    began, told = time.monotonic(), stream.told
    notes: dict[str, Any] = {}
    if told.encoder == EMBEDDED:
        encoder, notes["curves"] = _embedded(config, stream, share(progress, 0, 90))
    elif told.encoder.startswith(CASCADE):
        classifier = _of_cascade(told.encoder)
        encoder = training.bins_encoder.of_classifier(classifier, stream.name, told.max_length or classifier.max_length)
    else:
        encoder = training.bins_encoder.load(told.encoder, stream.name, told.max_length)
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
    start = training.cascade_start.scratch(told.scratch, texts)
    classifier, curves = training.cascade_classifier.train(
        told.classifier, stream.name, data, start, config.device, progress
    )
    longest = stream.told.max_length or told.scratch.positions
    return training.bins_encoder.of_classifier(classifier, stream.name, longest), asdict(curves)


def _score(config: BinsFlowConfig, data: TextData | None, encoder: Encoder, progress: Progress) -> dict[str, Any]:
    if data is None or not encoder.classes or data.classes != encoder.classes:
        return {}
    rows = data.split.test
    labels = data.labels[rows].astype(np.int64)
    found = profiling.bins_accuracy.accuracy(encoder, data.texts(rows), labels, config.device, config.threads, progress)
    return {"score": {"accuracy": found, "data": data.fingerprint}}


def _of_cascade(address: str) -> Classifier:
    """The largest model of the cascade's champion of a task. Raises `RegistryError`."""
    registry, task = cascade_live.open_registry(settings.read()), address.removeprefix(CASCADE)
    champions = cascade_live.live(registry)
    if task not in champions:
        raise RegistryError(f"the registry holds no champion of the cascade {task!r}: run `pliant train cascade` first")
    return cascade_live.classifiers(registry, champions[task])[-1]


def _cascade_digest(address: str) -> str | None:
    if not address.startswith(CASCADE):
        return None
    champions = cascade_live.champion(settings.read())
    found = champions.get(address.removeprefix(CASCADE))
    return found.levels[-1].classifier if found else None


def lengths_key(config: BinsFlowConfig, stream: Stream, encoder: Made) -> str:
    depends = {
        "encoder": encoder["digest"],
        "sources": stream.told.lengths,
        "files": flows.bins_lengths.digests(stream.told),
        "data": stream.data.fingerprint if stream.data else None,
        "least": config.edges.least,
    }
    return stage_key(f"bins/lengths-{stream.name}", depends, training.bins_lengths, flows.bins_lengths)


def make_lengths(
    config: BinsFlowConfig, stream: Stream, encoder: Made, key: str, store: FolderStore, progress: Progress
) -> Made:
    loaded = load_encoder(store, encoder)
    lengths = flows.bins_lengths.observe(stream.told, stream.name, loaded, stream.data, config.edges, progress)
    progress(1, 1)
    return {"key": key, "digest": store.save(key, lengths), "notes": {"source": lengths.source}}


def latencies_key(config: BinsFlowConfig, stream: Stream, encoder: Made) -> str:
    depends = {
        "config": asdict(config.latency),
        "engine": asdict(config.engine),
        "step": config.edges.step,
        "encoder": encoder["digest"],
        "device": here(config),
        "versions": _versions(),
        "cores": os.cpu_count(),
    }
    code = (profiling.bins_latency, profiling.timer, pliant.latency, flows.bins_measure, *_RUNTIME)
    return stage_key(f"bins/latencies-{stream.name}", depends, *code)


def make_latencies(
    config: BinsFlowConfig, encoder: Made, key: str, store: FolderStore, cache: Path, progress: Progress
) -> Made:
    folder = cache_folder(cache, encoder["digest"], here(config))
    measured = measure(config, load_encoder(store, encoder), folder, progress)
    return {"key": key, "digest": store.save(key, measured)}


def bins_key(config: BinsFlowConfig, stream: Stream, lengths: Made, latencies: Made) -> str:
    depends = {
        "edges": asdict(config.edges),
        "latency": asdict(config.latency),
        "slo": stream.told.slo,
        "placement": config.placement,
        "lengths": lengths["digest"],
        "latencies": latencies["digest"],
    }
    return stage_key(
        f"bins/plan-{stream.name}", depends, flows.bins_plan, flows.bins_measure, pliant.bins.edges, *_RUNTIME
    )


def make_bins(
    config: BinsFlowConfig,
    stream: Stream,
    made: Mapping[str, Made],
    key: str,
    store: FolderStore,
    cache: Path,
    progress: Progress,
) -> Made:
    """`made`: the encoder, the lengths and the latencies, by these names."""
    encoder = load_encoder(store, made["encoder"])
    observed = store.load(Lengths, made["lengths"]["key"], made["lengths"]["digest"])
    measured = store.load(Latencies, made["latencies"]["key"], made["latencies"]["digest"])
    folder = cache_folder(cache, made["encoder"]["digest"], measured.device)
    bins, notes = finish(
        config, encoder, made["encoder"]["digest"], stream.told.slo, observed.requests, measured, folder, progress
    )
    return {"key": key, "digest": store.save(key, bins), "notes": notes}


def compiled(store: FolderStore, cache: Path, made: Made) -> bool:
    """Whether the compiled files that these bins vouch for are there, unaltered."""
    bins = store.load(Bins, made["key"], made["digest"])
    try:
        verify(cache_folder(cache, bins.encoder, bins.device_class), bins.files)
    except ArtifactError:
        return False
    return True


def load_encoder(store: FolderStore, made: Made) -> Encoder:
    return store.load(Encoder, made["key"], made["digest"])


def here(config: BinsFlowConfig) -> str:
    """The class of the configured device, with the configured threads."""
    with threads(config.threads):
        return device_class(config.device)


def _versions() -> dict[str, dict[str, str]]:
    return {engine: pliant.bins.cache.versions(engine) for engine in ("onnx", "aot")}
