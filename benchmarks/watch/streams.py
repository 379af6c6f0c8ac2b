"""Quiet streams of recorded data: what the services of the four systems would see of it.

Values are read from the shared data: pictures' statistics, classes, lengths, and confidences and correctness of a
small classifier that is trained here on one half of the texts and asked about the other.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray
from PIL import Image

from pliant.benchmarks import places
from pliant.watch.binning import Binning, classes, linear, logarithmic

Floats = NDArray[np.float64]

IMAGES, TEXT, TRACES = (places.SHARED / folder for folder in ("images", "text", "traces"))
PICTURES = 6000
FILES = (
    *(IMAGES / f"{name}_train.parquet" for name in ("cifar10", "eurosat")),
    *(TEXT / f"{name}_train.parquet" for name in ("sst2", "clinc150")),
    *(TRACES / f"{name}.parquet" for name in ("twitter_stream_lengths", "sharegpt_lengths", "mooncake_conversation")),
    TRACES / "azure_llm_2023_conversation.parquet",
)


@dataclass(frozen=True, slots=True)
class Recording:
    """Values [n] of one stream of a system: numbers of classes where bins have labels.

    `sequence`: the values stand in the order in which they came, so that blocks of them are used as they are.
    """

    system: str
    name: str
    values: Floats
    binning: Binning
    sequence: bool = False


def missing() -> str:
    """Return why the streams cannot be had here; empty if they can."""
    return places.missing(*FILES)


def recordings() -> list[Recording]:
    """Return the streams of all systems. Raises `InputError` where the data are missing."""
    for path in FILES:
        places.existing(path)
    return [*_tokens(), *_texts(), *_packing()]


def _tokens() -> list[Recording]:
    rows = pandas.read_parquet(IMAGES / "cifar10_train.parquet", columns=["image"])["image"][:PICTURES]
    pictures = [np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("L"), float) for row in rows]  # grey, 0 to 255
    # The root mean square of the differences of neighbouring pixels.
    sharpness = np.array([float(np.sqrt(np.mean(np.diff(picture, axis=1) ** 2))) for picture in pictures])
    return [
        *(
            Recording("tokens", f"class of {name}", labels_of(IMAGES / f"{name}_train.parquet"), class_numbers(10))
            for name in ("cifar10", "eurosat")
        ),
        Recording("tokens", "brightness", np.array([picture.mean() for picture in pictures]), linear(0, 255)),
        Recording("tokens", "sharpness", sharpness, logarithmic(1.0, 100.0)),
    ]


def _texts() -> list[Recording]:
    """Return what bins and the cascade would see."""
    sst2: list[str] = pandas.read_parquet(TEXT / "sst2_train.parquet")["text"].tolist()
    half = len(sst2) // 2
    counted = Counter(word for text in sst2[:half] for word in text.split())
    known = {word for word, count in counted.items() if count > 3}
    words = np.array([float(len(text.split())) for text in sst2[half:]])
    unknown = np.array([np.mean([word not in known for word in text.lower().split() or ["?"]]) for text in sst2[half:]])
    tweets = pandas.read_parquet(TRACES / "twitter_stream_lengths.parquet")["words"].to_numpy(float)
    confidence, correct = answers_of(sst2, labels_of(TEXT / "sst2_train.parquet", shuffled=False))
    return [
        Recording("bins", "words of a text", words, logarithmic(1, 200)),
        Recording("bins", "words of a tweet", tweets, logarithmic(1, 200), sequence=True),
        Recording("bins", "unknown words", unknown, linear(0, 1, 32)),
        Recording("cascade", "class of clinc150", labels_of(TEXT / "clinc150_train.parquet"), class_numbers(150)),
        Recording("cascade", "confidence", confidence, linear(0, 1)),
        Recording("cascade", "correct", correct, classes(("wrong", "right"))),
        Recording("cascade", "correct less confidence", correct - confidence, linear(-1, 1)),
    ]


def _packing() -> list[Recording]:
    azure, shared, mooncake = (
        pandas.read_parquet(TRACES / f"{name}.parquet")
        for name in ("azure_llm_2023_conversation", "sharegpt_lengths", "mooncake_conversation")
    )
    grid = logarithmic(1, 100_000)
    columns: tuple[tuple[str, Any, bool], ...] = (
        ("output tokens", shared["output_tokens"], False),
        ("prompt tokens", shared["prompt_tokens"], False),
        ("azure output", azure["generated_tokens"], True),
        ("azure prompt", azure["context_tokens"], True),
        ("mooncake output", mooncake["output_tokens"], True),
    )
    return [Recording("packing", name, column.to_numpy(float), grid, kept) for name, column, kept in columns]


def class_numbers(number: int) -> Binning:
    """Return bins of so many classes."""
    return classes([str(label) for label in range(number)])


def labels_of(path: Path, shuffled: bool = True) -> Floats:
    """Return the numbers of the classes [n], in random order where rows are kept by class."""
    labels = pandas.read_parquet(path, columns=["label"])["label"].to_numpy(float)
    return np.random.default_rng(0).permutation(labels) if shuffled else labels


def answers_of(texts: Sequence[str], labels: Floats) -> tuple[Floats, Floats]:
    """Return confidence [n] and correctness [n] of a linear classifier of one half of the texts on the other."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import SGDClassifier

    half = len(texts) // 2
    features = HashingVectorizer(n_features=2**16, ngram_range=(1, 1)).transform(texts)
    model = SGDClassifier(loss="log_loss", alpha=3e-6, max_iter=8, tol=None, random_state=0)
    probabilities = model.fit(features[:half], labels[:half]).predict_proba(features[half:])
    correct = model.classes_[probabilities.argmax(1)] == labels[half:]
    return probabilities.max(1), correct.astype(float)
