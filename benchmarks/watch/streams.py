"""Streams of recorded data, quiet and changed: what the services of the four systems would see of it.

Values are read from the shared data: pictures' statistics, classes, lengths, loads, and confidences and correctness of a
small classifier that is trained here on one half of the texts and asked about the other. A changed stream is the same data
with a real change of it: blurred or noisy pictures, longer texts, texts of another data set.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from benchmarks import places
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
    *(TEXT / f"{name}_train.parquet" for name in ("sst2", "clinc150", "banking77")),
    *(
        TRACES / f"{name}.parquet"
        for name in (
            "twitter_requests_per_second",
            "twitter_stream_lengths",
            "azure_llm_2023_conversation",
            "sharegpt_lengths",
            "mooncake_conversation",
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Recording:
    """Values [n] of one stream of a system (numbers of classes where bins have labels), and how it is watched.

    `sequence`: the values stand in the order in which they came, so that blocks of them are used as they are; `burst` is
    then a little above the ratio of their means' variance over 60 values to that of independent ones. `course`:
    whether a daily course is laid over them; a recorded load has its own. `changed` [m]: values after a change.
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
    change: str = ""
    changed: Floats | None = None

    def stream(self, alpha: float) -> Stream:
        return Stream(
            self.name,
            self.binning,
            alpha=alpha,
            tolerance=self.tolerance,
            burn_in=self.burn_in,
            direction=self.direction,
            pace=self.pace,
            burst=self.burst,
        )


def missing() -> str:
    """Return why the streams cannot be had here; empty if they can."""
    return places.missing(*FILES)


def recordings() -> list[Recording]:
    """Return the streams of all systems. Raises `InputError` where the data are missing."""
    for path in FILES:
        places.existing(path)
    return [*_tokens(), *_bins(), *_cascade(), *_packing()]


def _tokens() -> list[Recording]:
    pictures = _pictures(PICTURES)
    cifar, eurosat = labels_of(IMAGES / "cifar10_train.parquet"), labels_of(IMAGES / "eurosat_train.parquet")
    more = np.concatenate([cifar, np.full(len(cifar) // 8, 3.0)])  # class 3: from 10% to 20%
    sharpness = _sharpness(pictures)
    blurred = [picture.filter(ImageFilter.GaussianBlur(0.4)) for picture in pictures]
    noisy = [_noisy(picture, seed) for seed, picture in enumerate(pictures)]
    fine = logarithmic(1.0, 100.0)
    return [
        Recording(
            "tokens", "class of cifar10", cifar, class_numbers(10), change="a class twice as often", changed=more
        ),
        Recording("tokens", "class of eurosat", eurosat, class_numbers(10)),
        Recording("tokens", "brightness", brightness_of(pictures), linear(0, 255)),
        Recording("tokens", "sharpness", sharpness, fine, change="blur of 0.4 pixels", changed=_sharpness(blurred)),
        Recording(
            "tokens", "sharpness of noisy", sharpness, fine, change="noise of 8 of 255", changed=_sharpness(noisy)
        ),
    ]


def _bins() -> list[Recording]:
    sst2, banking = texts_of("sst2"), texts_of("banking77")
    half = len(sst2) // 2
    known = vocabulary(sst2[:half])
    words = lengths_of(sst2[half:])
    unknown, foreign = unknown_words(sst2[half:], known), unknown_words(banking, known)
    mixed = np.concatenate([unknown[: 3 * len(foreign)], foreign])  # a quarter of the texts
    tweets = pandas.read_parquet(TRACES / "twitter_stream_lengths.parquet")["words"].to_numpy(float)
    grid, shares = logarithmic(1, 200), linear(0, 1, 32)
    return [
        Recording(
            "bins", "words of a text", words, grid, change="texts a quarter longer", changed=np.round(1.25 * words)
        ),
        Recording("bins", "words of a tweet", tweets, grid, sequence=True, burst=2),
        Recording("bins", "unknown words", unknown, shares, change="a quarter of another vocabulary", changed=mixed),
        load_stream("bins", "load of bins"),
    ]


def _cascade() -> list[Recording]:
    confidence, correct = answers_of(texts_of("sst2"), labels_of(TEXT / "sst2_train.parquet", shuffled=False))
    gap, fine = correct - confidence, linear(-1, 1)
    flipped = np.where(np.random.default_rng(1).random(len(gap)) < 0.1, 1 - correct, correct)  # 10% of the labels
    return [
        Recording("cascade", "class of clinc150", labels_of(TEXT / "clinc150_train.parquet"), class_numbers(150)),
        Recording("cascade", "confidence", confidence, linear(0, 1)),
        Recording("cascade", "correct", correct, classes(("wrong", "right")), direction="down"),
        Recording(
            "cascade", "correct less confidence", gap, fine, change="10% of answers wrong", changed=flipped - confidence
        ),
    ]


def _packing() -> list[Recording]:
    azure = pandas.read_parquet(TRACES / "azure_llm_2023_conversation.parquet")
    share = pandas.read_parquet(TRACES / "sharegpt_lengths.parquet")
    mooncake = pandas.read_parquet(TRACES / "mooncake_conversation.parquet")
    outputs, grid = share["output_tokens"].to_numpy(float), logarithmic(1, 100_000)
    return [
        Recording(
            "packing", "output tokens", outputs, grid, change="outputs half longer", changed=np.round(1.5 * outputs)
        ),
        Recording("packing", "prompt tokens", share["prompt_tokens"].to_numpy(float), grid),
        Recording("packing", "azure output", azure["generated_tokens"].to_numpy(float), grid, sequence=True, burst=8),
        Recording("packing", "azure prompt", azure["context_tokens"].to_numpy(float), grid, sequence=True, burst=4),
        Recording(
            "packing", "mooncake output", mooncake["output_tokens"].to_numpy(float), grid, sequence=True, burst=2
        ),
        load_stream("packing", "load of packing", 2.0, "twice the load"),
    ]


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


def load_stream(system: str, name: str, times: float = 1.0, change: str = "") -> Recording:
    """Return the recorded load, and with a `change` the one that is so many times it."""
    ratios = load_ratios().ravel()
    return Recording(
        system,
        name,
        ratios,
        linear(-3, 3),
        sequence=True,
        course=False,
        tolerance=2.0,  # observations follow each other: with 1.3, 2 of 3 quiet months broke a bound of 1/4
        pace=500.0,
        burn_in=350,  # 5 days
        direction="up",
        change=change,
        changed=ratios + math.log2(times) if change else None,
    )


def class_numbers(number: int) -> Binning:
    """Return bins of so many classes."""
    return classes([str(label) for label in range(number)])


def labels_of(path: Path, shuffled: bool = True) -> Floats:
    """Return the numbers of the classes [n], in random order where rows are kept by class."""
    labels = pandas.read_parquet(path, columns=["label"])["label"].to_numpy(float)
    return np.random.default_rng(0).permutation(labels) if shuffled else labels


def texts_of(name: str) -> list[str]:
    """Return the texts of a data set."""
    texts: list[str] = pandas.read_parquet(TEXT / f"{name}_train.parquet")["text"].tolist()
    return texts


def lengths_of(texts: Sequence[str]) -> Floats:
    """Return the words of each text [n]."""
    return np.array([float(len(text.split())) for text in texts])


def vocabulary(texts: Sequence[str]) -> set[str]:
    """Return the words that come more than three times."""
    counted = Counter(word for text in texts for word in text.split())
    return {word for word, count in counted.items() if count > 3}


def unknown_words(texts: Sequence[str], known: set[str]) -> Floats:
    """Return the share of each text's words [n] that are not known."""
    return np.array([np.mean([word not in known for word in text.lower().split() or ["?"]]) for text in texts])


def _pictures(number: int) -> list[Image.Image]:
    rows = pandas.read_parquet(IMAGES / "cifar10_train.parquet", columns=["image"])["image"][:number]
    return [Image.open(io.BytesIO(row["bytes"])).convert("L") for row in rows]


def _noisy(picture: Image.Image, seed: int) -> Image.Image:
    pixels = np.asarray(picture, float) + np.random.default_rng(seed).normal(0, 8, (picture.height, picture.width))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def brightness_of(pictures: Sequence[Image.Image]) -> Floats:
    """Return the mean of each picture [n]."""
    return np.array([np.asarray(picture, float).mean() for picture in pictures])


def _sharpness(pictures: Sequence[Image.Image]) -> Floats:
    """Return the root mean square of the differences of neighbouring pixels of each picture [n]."""
    return np.array([np.sqrt(np.mean(np.diff(np.asarray(picture, float), axis=1) ** 2)) for picture in pictures])


def answers_of(texts: Sequence[str], labels: Floats, learnt: int | None = None) -> tuple[Floats, Floats]:
    """Return confidence [n] and correctness [n] of a linear classifier on texts that it has not seen.

    `learnt`: how many of the first texts it is trained on; None: half of them.
    """
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import SGDClassifier

    half = len(texts) // 2 if learnt is None else learnt
    features = HashingVectorizer(n_features=2**16, ngram_range=(1, 1)).transform(texts)
    model = SGDClassifier(loss="log_loss", alpha=3e-6, max_iter=8, tol=None, random_state=0)
    probabilities = model.fit(features[:half], labels[:half]).predict_proba(features[half:])
    correct = model.classes_[probabilities.argmax(1)] == labels[half:]
    return probabilities.max(1), correct.astype(float)
