"""Eight further changes on which nothing was tuned: other data, other sizes of change, other seeds, two a system.

Written down before the settings of pliant/watch were last tuned, which was on the eight of streams.py, and run after that.
The load alone is of the same recording, since no other one lasts days, with another change.
"""

from __future__ import annotations

import io

import numpy as np
import pandas
from PIL import Image

from benchmarks import places
from benchmarks.watch import streams
from benchmarks.watch.streams import IMAGES, TEXT, TRACES, Floats, Recording
from pliant.watch.binning import linear, logarithmic

PICTURES = 6000
SEED = 1000  # of the first run and the first quiet month, far from those of the tuned changes
LOAD = 1.6  # times the load
FILES = (
    IMAGES / "tinyimagenet100_train.parquet",
    *(TEXT / f"{name}_train.parquet" for name in ("massive_scenario", "cola")),
    TRACES / "vicuna_alpaca_output_lengths.parquet",
)


def missing() -> str:
    """Return why the changes cannot be had here; empty if they can."""
    return streams.missing() or places.missing(*FILES)


def recordings() -> list[Recording]:
    """Return the streams with their changes. Raises `InputError` where the data are missing."""
    for path in FILES:
        places.existing(path)
    return [*_tokens(), *_bins(), *_cascade(), *_packing()]


def _tokens() -> list[Recording]:
    eurosat = streams.labels_of(IMAGES / "eurosat_train.parquet")
    more = np.concatenate([eurosat, np.full(235, 5.0)])  # class 5: from 10% to 15%
    brightness = _brightness()
    return [
        Recording(
            "tokens",
            "class of land",
            eurosat,
            streams.class_numbers(10),
            change="a class half more often",
            changed=more,
        ),
        Recording(
            "tokens",
            "brightness of 100",
            brightness,
            linear(0, 255),
            change="pictures a tenth darker",
            changed=0.9 * brightness,
        ),
    ]


def _bins() -> list[Recording]:
    words = streams.lengths_of(streams.texts_of("banking77"))
    clinc, cola = _shuffled("clinc150"), streams.texts_of("cola")
    half = len(clinc) // 2
    known = streams.vocabulary(clinc[:half])
    usual, foreign = streams.unknown_words(clinc[half:], known), streams.unknown_words(cola[: half // 7], known)
    return [
        Recording(
            "bins",
            "words of a question",
            words,
            logarithmic(1, 200),
            change="texts a fifth shorter",
            changed=np.round(0.8 * words),
        ),
        Recording(
            "bins",
            "unknown words of a command",
            usual,
            linear(0, 1, 32),
            change="an eighth of another vocabulary",
            changed=np.concatenate([usual, foreign]),
        ),
    ]


def _cascade() -> list[Recording]:
    massive, cola = streams.texts_of("massive_scenario"), streams.texts_of("cola")
    classes = streams.labels_of(TEXT / "massive_scenario_train.parquet", shuffled=False)
    half = len(massive) // 2
    confidence, correct = streams.answers_of(massive, classes)
    worse = np.where(np.random.default_rng(2).random(len(correct)) < 0.06, 0.0, correct)  # 6% of the answers
    mixed = [*massive, *cola[: half // 4]]  # a fifth of what is answered
    foreign, _ = streams.answers_of(mixed, np.concatenate([classes, np.zeros(half // 4)]), half)
    return [
        Recording(
            "cascade",
            "correct less confidence of massive",
            correct - confidence,
            linear(-1, 1),
            change="6% of answers wrong",
            changed=worse - confidence,
        ),
        Recording(
            "cascade",
            "confidence of massive",
            confidence,
            linear(0, 1),
            change="a fifth of the texts from elsewhere",
            changed=foreign,
        ),
    ]


def _packing() -> list[Recording]:
    lengths = pandas.read_parquet(TRACES / "vicuna_alpaca_output_lengths.parquet")["L_t0.7"].to_numpy(float)
    return [
        Recording(
            "packing",
            "output tokens of vicuna",
            lengths,
            logarithmic(1, 100_000),
            change="outputs a fifth longer",
            changed=np.round(1.2 * lengths),
        ),
        streams.load_stream("packing", "load of packing again", LOAD, "1.6 times the load"),
    ]


def _shuffled(name: str) -> list[str]:
    """Return texts in random order: some files are kept by class."""
    texts = streams.texts_of(name)
    return [texts[place] for place in np.random.default_rng(0).permutation(len(texts))]


def _brightness() -> Floats:
    rows = pandas.read_parquet(IMAGES / "tinyimagenet100_train.parquet", columns=["image"])["image"][:PICTURES]
    return streams.brightness_of([Image.open(io.BytesIO(row["bytes"])).convert("L") for row in rows])
