"""Quiet streams of recorded data: what the services of the four systems would see of it.

Values are read from the shared data: pictures' statistics, classes, lengths, loads, and confidences and correctness of a
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
from pliant.watch.betting import Direction
from pliant.watch.binning import Binning, classes, linear, logarithmic
from pliant.watch.detector import Stream

Floats = NDArray[np.float64]

IMAGES, TEXT, TRACES = (places.SHARED / folder for folder in ("images", "text", "traces"))
PICTURES = 6000
LOAD_MINUTES = 20  # of an observation of the load: its bursts last 10 to 26 minutes, and are over in the next but one
DAY = 84_600  # seconds of a recorded day
FILES = (
    *(IMAGES / f"{name}_train.parquet" for name in ("cifar10", "eurosat")),
    *(TEXT / f"{name}_train.parquet" for name in ("sst2", "clinc150")),
    *(TRACES / f"{name}.parquet" for name in ("twitter_requests_per_second", "twitter_stream_lengths")),
    *(
        TRACES / f"{name}.parquet"
        for name in ("azure_llm_2023_conversation", "sharegpt_lengths", "mooncake_conversation")
    ),
)


@dataclass(frozen=True, slots=True)
class Recording:
    """Values [n] of one stream of a system (numbers of classes where bins have labels), and how it is watched.

    `sequence`: the values stand in the order in which they came, so that blocks of them are used as they are; `burst` is
    then a little above the ratio of their means' variance over 60 values to that of independent ones. `course`:
    whether a daily course is laid over them; a recorded load has its own.
    """

    system: str
    name: str
    values: Floats
    binning: Binning
    sequence: bool = False
    course: bool = True
    tolerance: float = 1.12
    burn_in: int = 5000
    direction: Direction = "both"
    pace: float = 100_000.0
    burst: float = 1.0

    def stream(self, alpha: float) -> Stream:
        own = {name: getattr(self, name) for name in ("tolerance", "burn_in", "direction", "pace", "burst")}
        return Stream(self.name, self.binning, alpha=alpha, **own)


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
        Recording("bins", "words of a tweet", tweets, logarithmic(1, 200), sequence=True, burst=2),
        Recording("bins", "unknown words", unknown, linear(0, 1, 32)),
        load_stream("bins"),
        Recording("cascade", "class of clinc150", labels_of(TEXT / "clinc150_train.parquet"), class_numbers(150)),
        Recording("cascade", "confidence", confidence, linear(0, 1)),
        Recording("cascade", "correct", correct, classes(("wrong", "right")), direction="down"),
        Recording("cascade", "correct less confidence", correct - confidence, linear(-1, 1)),
    ]


def _packing() -> list[Recording]:
    azure, shared, mooncake = (
        pandas.read_parquet(TRACES / f"{name}.parquet")
        for name in ("azure_llm_2023_conversation", "sharegpt_lengths", "mooncake_conversation")
    )
    grid, recorded = logarithmic(1, 100_000), {"sequence": True}
    columns: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("output tokens", shared["output_tokens"], {}),
        ("prompt tokens", shared["prompt_tokens"], {}),
        ("azure output", azure["generated_tokens"], {**recorded, "burst": 8}),
        ("azure prompt", azure["context_tokens"], {**recorded, "burst": 4}),
        ("mooncake output", mooncake["output_tokens"], {**recorded, "burst": 2}),
    )
    streams = [Recording("packing", name, column.to_numpy(float), grid, **more) for name, column, more in columns]
    return [*streams, load_stream("packing")]


def load_minutes() -> Floats:
    """Return the recorded requests of each minute [days, minutes] but for the first day; in gaps there are none."""
    requests = pandas.read_parquet(TRACES / "twitter_requests_per_second.parquet")["requests"].to_numpy(float)
    minutes: Floats = requests.reshape(-1, DAY // 60, 60).sum(2)[1:]
    return minutes


def load_ratios() -> Floats:
    """Return [days, observations]: the logarithm to base 2 of the load over what other days have at this time of day.

    An observation is the median of 20 minutes; minutes of gaps in the recording are left out, and the first day, which
    has another course. The other days' mean is smoothed over half an hour.
    """
    minutes = load_minutes()
    minutes[minutes == 0] = np.nan
    number = minutes.shape[1] // LOAD_MINUTES
    ratios = []
    for day in range(len(minutes)):
        other = np.nanmean(np.delete(minutes, day, 0), 0)
        other = np.where(np.isnan(other), np.nanmean(other), other)
        smooth = np.convolve(np.pad(other, 15, mode="wrap"), np.ones(31) / 31, "valid")
        ratio = np.log2(minutes[day] / smooth)[: number * LOAD_MINUTES].reshape(number, LOAD_MINUTES)
        ratio[np.isnan(ratio).all(1)] = np.nanmedian(ratio)
        ratios.append(np.nanmedian(ratio, 1))
    return np.array(ratios)


def load_stream(system: str) -> Recording:
    """Return the recorded load."""
    return Recording(
        system,
        f"load of {system}",
        load_ratios().ravel(),
        linear(-3, 3),
        sequence=True,
        course=False,
        tolerance=2.0,  # observations follow each other: with 1.3, 2 of 3 quiet months broke a bound of 1/4
        pace=500.0,
        burn_in=350,  # 5 days
        direction="up",
    )


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
