"""The stages of the bins flow: encoder -> lengths -> latencies -> bins, per stream.

Lengths are read from the first of a stream's sources that has enough requests.

Compiled files lie in a cache beside the store, under the digests that the artifacts hold. Knows no Prefect, and the
registry only for the model of a cascade.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import pliant.bins.runtimes.cache
import pliant.profiling.bins.accuracy
import pliant.training.bins.encoder
import pliant.training.classifier
import pliant.training.linear
import pliant.training.loading
import pliant.training.starts
import pliant.training.texts
from pliant.bins.artifact import Bins, Encoder
from pliant.bins.runtimes.cache import cache_folder
from pliant.errors import InputError, RegistryError
from pliant.flows import settings
from pliant.flows.arithmetic import half_of
from pliant.flows.bins.config import DATA, EMBEDDED, SCRATCH, BinsFlowConfig, EdgesConfig, StreamConfig
from pliant.flows.bins.measure import Half, Latencies, finish, measure
from pliant.flows.config import check_distinct, configured_class
from pliant.flows.progress import tell
from pliant.flows.release import open_registry, retried
from pliant.flows.stage import Notes, Stage, StageResult, contents, digest_of
from pliant.models.artifact import Classifier
from pliant.precision import FLOAT32
from pliant.progress import Progress, share
from pliant.registry import codec
from pliant.registry.names import CASCADE_TASK, LEVEL_TAG, cascade_level
from pliant.training.bins import lengths
from pliant.training.linear import LinearComparison
from pliant.training.text_data import TextData

CASCADE = "cascade:"
TESTED = 1000
"""Texts, at most, on which half precision is held against float32."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A stage's result alone."""

    KIND: ClassVar[str] = "bins-lengths"
    SCHEMA: ClassVar[int] = 1

    source: str  # as the settings call it
    requests: NDArray[np.int64]  # [max_length + 1] by length


def digests(stream: StreamConfig) -> list[str]:
    """Return the digests of the files that hold lengths, as they are now: a journal grows."""
    journals = [path for source in stream.lengths if source != DATA for path in _paths(source)]
    return [digest_of(path) for path in journals]


def observe(
    stream: StreamConfig, name: str, encoder: Encoder, data: TextData | None, edges: EdgesConfig, progress: Progress
) -> Lengths:
    """Return the lengths of the first source of `edges.least` requests. Raises `InputError` where there is none."""
    shortages = []
    for source in stream.lengths:
        requests_N = _read(source, name, encoder, data, progress)
        if requests_N is not None and requests_N.sum() >= edges.least:
            return Lengths(source, requests_N)
        count = "no such file" if requests_N is None else f"{requests_N.sum()} requests"
        shortages.append(f"{source} has {count}")
    raise InputError(f"lengths of {name}", "; ".join(shortages), f"at least {edges.least} requests (edges.least)")


def _read(
    source: str, name: str, encoder: Encoder, data: TextData | None, progress: Progress
) -> NDArray[np.int64] | None:
    """Return requests by length; None where the file is not there."""
    if source == DATA:
        if data is None:
            return None
        return lengths.of_texts(data.texts(np.arange(len(data.first))), encoder, progress)
    paths = _paths(source)
    if not paths:
        return None
    if source.startswith("journal:"):
        none_N = np.zeros(encoder.max_length + 1, dtype=np.int64)
        return sum((lengths.of_journal(path, name, encoder.max_length) for path in paths), start=none_N)
    column = source.partition(":")[2].partition(":")[2]
    return lengths.of_parquet(paths[0], column or None, encoder.max_length)


def _paths(source: str) -> list[Path]:
    """Return the files that are there. A service numbers its later journals: journal.jsonl, journal-2.jsonl, and so on.

    Each is followed by the files of former runs, and of former parts of its run: journal.jsonl.1 and so on.
    """
    scheme, _, rest = source.partition(":")
    path = Path(rest if scheme == "journal" else rest.partition(":")[0])
    if scheme != "journal":
        return [path] if path.is_file() else []
    later = f"{path.stem}-[0-9]*{path.suffix}"
    patterns = (path.name, f"{path.name}.[0-9]*", later, f"{later}.[0-9]*")
    return sorted(file for pattern in patterns for file in path.parent.glob(pattern) if file.is_file())


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
    encoder: StageResult[Encoder]
    lengths: StageResult[Lengths]
    latencies: StageResult[Latencies]
    bins: StageResult[Bins]
    data: TextData | None = None

    def noted(self, name: str) -> dict[str, Any] | None:
        """Return what was noted of the encoder's test, in the precision that is served; None where it was not tested."""
        noted: dict[str, Any] | None = self.latencies.notes.get(name, self.encoder.notes.get(name))
        return noted

    @property
    def linear(self) -> LinearComparison | None:
        """How the encoder does beside a linear model."""
        noted = self.noted("linear")
        return LinearComparison(**noted) if noted else None


def load_streams(config: BinsFlowConfig, progress: Progress) -> list[Stream]:
    """Return all streams with their data. Raises `InputError` for two of one name, which would overwrite each other."""
    streams = []
    for number, stream in enumerate(config.streams):
        data = None
        if stream.needs_data:
            data = pliant.training.texts.load(
                stream.data, stream.name, config.seed, stream.limit, config.embedded.shares, stream.columns
            )
        streams.append(Stream(stream, stream.stream_name(data.name if data else None), data))
        tell(streams[-1].name, data.repeats if data else None)
        progress(number + 1, len(config.streams))
    check_distinct("streams", [stream.name for stream in streams], "each of its own name")
    pliant.training.loading.look(config.embedded.start, pliant.training.starts.pretrained)
    for later in streams[1:]:  # the first is read at once
        read = partial(pliant.training.bins.encoder.load, name=later.name, max_length=later.config.max_length)
        pliant.training.loading.look(later.config.encoder, read)
    return streams


def _encoder_of(config: BinsFlowConfig, stream: Stream) -> dict[str, Any]:
    address, digest = stream.config.encoder, None
    if address.startswith(CASCADE):
        with suppress(RegistryError):  # without a champion: making it says so
            digest = _of_cascade(address)[1]
    return {
        "encoder": address,
        "embedded": asdict(config.embedded) if address == EMBEDDED else None,
        "files": list(contents(config.embedded.start if address == EMBEDDED else address)),
        "cascade": digest,
        "data": stream.data.fingerprint if stream.data else None,
        "max_length": stream.config.max_length,
        "transformers": version("transformers"),
    }


def make_encoder(config: BinsFlowConfig, stream: Stream, progress: Progress) -> tuple[Encoder, Notes]:
    """Train, read or download the encoder, and test it where the data has labels of its classes."""
    began, address, longest = time.monotonic(), stream.config.encoder, stream.config.max_length
    notes: dict[str, Any] = {}
    if address == EMBEDDED:
        encoder, notes["curves"] = _embedded(config, stream, share(progress, 0, 90))
    elif address.startswith(CASCADE):
        classifier, _ = _of_cascade(address)
        encoder = pliant.training.bins.encoder.of_classifier(classifier, stream.name, longest or classifier.max_length)
    else:
        encoder = pliant.training.bins.encoder.load(address, stream.name, longest)
    notes |= {"seconds": time.monotonic() - began, "parameters": sum(array.size for array in encoder.weights.values())}
    return encoder, notes | _score(config, stream.data, encoder, share(progress, 90, 100))


def _embedded(config: BinsFlowConfig, stream: Stream, progress: Progress) -> tuple[Encoder, dict[str, Any]]:
    """Return an encoder that is trained here and its curves. A new vocabulary is made of the fit split alone."""
    data, embedded = stream.data, config.embedded
    if data is None:
        raise InputError("data", "none", "texts to train the embedded encoder on")
    if embedded.start == SCRATCH:
        texts = [part for pair in data.texts(data.split.fit) for part in pair if part is not None]
        start = pliant.training.starts.scratch(embedded.scratch, texts)
    else:
        start = pliant.training.starts.pretrained(embedded.start)
    classifier, curves = pliant.training.classifier.train(
        embedded.classifier, stream.name, data, start, config.device, progress
    )
    longest = stream.config.max_length or embedded.scratch.positions
    return pliant.training.bins.encoder.of_classifier(classifier, stream.name, longest), asdict(curves)


def _score(
    config: BinsFlowConfig, data: TextData | None, encoder: Encoder, progress: Progress, precision: str = FLOAT32
) -> dict[str, Any]:
    if data is None or not encoder.classes or data.classes != encoder.classes:
        return {}
    rows = data.split.test
    texts, device = data.texts(rows), config.device
    output_RK = pliant.profiling.bins.accuracy.outputs(encoder, texts, device, config.threads, progress, precision)
    compared = pliant.training.linear.compare_texts(data, output_RK)
    return {"score": {"accuracy": compared.model_score, "data": data.fingerprint}, "linear": asdict(compared)}


def _of_cascade(address: str) -> tuple[Classifier, str]:
    """Return the largest model of the cascade's champion of a task, and its digest. Raises `RegistryError`."""
    registry, task = open_registry(settings.read(), "cascade"), address.removeprefix(CASCADE)
    champion = retried(lambda: registry.version(CASCADE_TASK + task)) if registry.exists() else None
    if champion is None:
        raise RegistryError(f"the registry holds no champion of the cascade {task!r}: run `pliant train cascade` first")
    levels = {tag.removeprefix(LEVEL_TAG): int(n) for tag, n in champion.tags.items() if tag.startswith(LEVEL_TAG)}
    if not levels:
        raise RegistryError(
            f"{champion.uri} does not say which models it was made of: run `pliant train cascade` again"
        )
    fetched = [retried(partial(registry.fetch, cascade_level(task, level), number)) for level, number in levels.items()]
    models = [
        (codec.load(Classifier, folder, published.digest), published)
        for folder, published in fetched
        if codec.kind(folder) == Classifier.KIND  # and no level that was distilled
    ]
    largest, published = max(models, key=lambda model: sum(array.size for array in model[0].weights.values()))
    return largest, published.digest


def make_lengths(
    config: BinsFlowConfig, stream: Stream, encoder: StageResult[Encoder], progress: Progress
) -> tuple[Lengths, Notes]:
    lengths = observe(stream.config, stream.name, encoder.load(), stream.data, config.edges, progress)
    return lengths, {"source": lengths.source}


def make_latencies(
    config: BinsFlowConfig, stream: Stream, encoder: StageResult[Encoder], home: Path, progress: Progress
) -> tuple[Latencies, Notes]:
    """Choose engine and precision and measure the staircase; the notes hold the test's result where that is another now.

    `home`: compiled files lie in a cache below it.
    """
    folder, loaded = cache_folder(home, encoder.digest, configured_class(config)), encoder.load()
    half, data = None, stream.data
    precision = half_of(config.arithmetic, config.device)
    if precision is not None and data is not None:
        rows = data.split.profiling[:TESTED]
        labels = data.labels[rows].astype(np.int64) if loaded.classes and data.classes == loaded.classes else None
        tried = loaded, data.texts(rows), labels, precision, config.device, config.threads
        half = Half(precision, lambda: pliant.profiling.bins.accuracy.cost(*tried))
    measured = measure(config, loaded, folder, share(progress, 0, 90), half)
    notes: dict[str, Any] = {"arithmetic": measured.arithmetic}
    if measured.precision != FLOAT32:
        notes |= _score(config, stream.data, loaded, share(progress, 90, 100), measured.precision)
    return measured, notes


def make_bins(
    config: BinsFlowConfig,
    stream: Stream,
    encoder: StageResult[Encoder],
    lengths: StageResult[Lengths],
    latencies: StageResult[Latencies],
    home: Path,
    progress: Progress,
) -> tuple[Bins, Notes]:
    """Choose the bins."""
    measured, requests_N = latencies.load(), lengths.load().requests
    folder = cache_folder(home, encoder.digest, measured.device)
    return finish(config, encoder.load(), encoder.digest, stream.config.slo, requests_N, measured, folder, progress)


ENCODER = Stage(
    "encoder", Encoder, make_encoder, _encoder_of, "bins/encoder-{stream.name}", "{stream.name}: encoder", download=True
)
LENGTHS = Stage(
    "lengths",
    Lengths,
    make_lengths,
    lambda config, stream: {
        "sources": stream.config.lengths,
        "files": digests(stream.config),
        "data": stream.data.fingerprint if stream.data else None,
        "least": config.edges.least,
    },
    "bins/lengths-{stream.name}",
    "{stream.name}: lengths",
    code=(make_lengths, TextData),
)
LATENCIES = Stage(
    "latencies",
    Latencies,
    make_latencies,
    lambda config, stream: {
        "config": asdict(config.latency),
        "engine": asdict(config.engine),
        "step": config.edges.step,
        "arithmetic": asdict(config.arithmetic),
        "data": stream.data.fingerprint if stream.data else None,
        "device": configured_class(config),
        "versions": pliant.bins.runtimes.cache.versions("onnx"),
        "cores": os.cpu_count(),
    },
    "bins/latencies-{stream.name}",
    "{stream.name}: compile, latency profile",
    code=(make_latencies, TextData),
    measured=True,
    timed=True,
)
BINS = Stage(
    "bins",
    Bins,
    make_bins,
    lambda config, stream: {
        "edges": asdict(config.edges),
        "latency": asdict(config.latency),
        "slo": stream.config.slo,
        "placement": config.placement,
    },
    "bins/plan-{stream.name}",
    "{stream.name}: bins",
    measured=True,
)
