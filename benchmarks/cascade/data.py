"""The data sets that the cascade's targets are measured on, and how each one's classifiers are trained.

Seven public sets lie in the shared data folder (README, "Commands"). Knows their files and nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.places import existing
from training.classifier import ClassifierConfig
from training.data import Split
from training.text_data import Shares, TextData, assemble
from training.texts import load

FOLDER = Path("../shared/data/text")


@dataclass(frozen=True, slots=True)
class Source:
    """`files` of the folder, joined. Held out are profiling and test together."""

    files: tuple[str, ...]
    shares: Shares = field(default_factory=lambda: Shares(test=0.2, profiling=0.25))
    training: ClassifierConfig = field(default_factory=ClassifierConfig)


SOURCES = {
    "clinc150": Source(
        ("clinc150_train", "clinc150_validation"),
        Shares(1 / 6, 0.2),
        ClassifierConfig(epochs=6, rate=2e-4, head_rate=2e-3, patience=0, max_length=64),
    ),
    "massive": Source(
        ("massive_scenario_train",),
        training=ClassifierConfig(epochs=5, rate=2e-4, head_rate=2e-3, patience=0, max_length=64),
    ),
    "banking77": Source(
        ("banking77_train",), training=ClassifierConfig(epochs=8, rate=2e-4, head_rate=2e-3, patience=0, max_length=96)
    ),
    "sst2": Source(
        ("sst2_train", "sst2_validation"), training=ClassifierConfig(epochs=3, rate=1e-4, patience=0, max_length=64)
    ),
    "cola": Source(("cola_train",), training=ClassifierConfig(epochs=4, rate=1e-4, patience=0, max_length=64)),
    "mrpc": Source(("mrpc_train",), training=ClassifierConfig(epochs=4, rate=1e-4, patience=0, max_length=128)),
    "rte": Source(("rte_train",), training=ClassifierConfig(epochs=4, rate=1e-4, patience=0, max_length=160)),
}
SST2_FIT, SST2_HELD_OUT = 16_000, 4_000
GRAM = 4  # words


def files(name: str, folder: Path = FOLDER) -> list[Path]:
    return [folder / f"{file}.parquet" for file in SOURCES[name].files]


def read(name: str, folder: Path = FOLDER) -> TextData:
    """Read one data set. Raises `InputError` where its files are missing."""
    paths = ",".join(str(existing(file)) for file in files(name, folder))
    joined = load(f"parquet:{paths}", name, shares=SOURCES[name].shares)
    return _sst2(joined) if name == "sst2" else joined


def _sst2(data: TextData) -> TextData:
    """Leave out training texts that share four words in a row with a held-out one: they are phrases of whole sentences.

    Held out are the validation sentences, which come last in the file, and phrases besides.
    """
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
