"""What the cascade system stores: classifiers, what they answered, and per device class what was planned with them.

Plain frozen values over numpy arrays: registry/codec.py writes them to disk, nothing here does. Shapes in comments use
R texts, K outputs (classes, or 1 in a regression).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.latency import LatencyTable


@dataclass(frozen=True, slots=True)
class Pruning:
    """Which words go on to the next level (Tabi, Eq. 5; pliant/cascade/prune.py).

    "none": all. "mean": a token is kept whose importance exceeds `value` times the mean (as published). "mass": the most
    important words are kept that hold `value` of the whole importance (ours).
    """

    rule: str = "none"
    value: float = 1.0


@dataclass(frozen=True, slots=True)
class LevelOutputs:
    """What one level makes of every text, unpruned."""

    logits: NDArray[np.float32]  # [R, K]
    length: NDArray[np.int32]  # [R] tokens read


@dataclass(frozen=True, slots=True)
class PrunedOutputs:
    """What level `reader` makes of every text after `pruning` by the importances of level `pruner`."""

    pruner: int
    reader: int
    pruning: Pruning
    logits: NDArray[np.float32]  # [R, K]
    length: NDArray[np.int32]  # [R] tokens read
    kept: NDArray[np.float32]  # [R] share of the words kept


@dataclass(frozen=True, slots=True)
class Outputs:
    """Every level run once over held-out texts: all that calibration and planning need. Levels ascend in size."""

    KIND: ClassVar[str] = "cascade-outputs"
    SCHEMA: ClassVar[int] = 1

    task: str
    classes: tuple[str, ...]  # empty: a regression
    names: tuple[str, ...]  # of the levels
    classifiers: tuple[str, ...]  # digests of the levels' artifacts
    labels: NDArray[np.float64]  # [R] class number, or the value
    levels: tuple[LevelOutputs, ...]
    pruned: tuple[PrunedOutputs, ...]
    data: str  # fingerprint of the data set


@dataclass(frozen=True, slots=True)
class Gate:
    """How it is decided after one level whether the next one runs, what it reads, and how much its answer counts.

    "gain" (ours): go on where the gain expected of the next level is above `threshold`; `weights` are its model's (see
    pliant/cascade/route.py). "tabi" (Eq. 4): go on up to confidence `threshold`, beyond it with a probability that falls
    with `slope`. "always" and "never" say themselves.
    """

    kind: str
    threshold: float = 0.0
    slope: float = 0.0
    weights: tuple[float, ...] = ()
    pruning: Pruning = Pruning()
    weight: float = 1.0  # of the next level's probabilities in the answer; the rest is the answer so far (Eq. 6)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve a task: which levels, with which gates between them. Figures are of held-out texts."""

    name: str  # such as "default", "tabi", "single"
    levels: tuple[int, ...]  # ascending; one more than gates
    gates: tuple[Gate, ...]
    accuracy: float  # share answered correctly (a regression: within the tolerance)
    promised: float  # what it does not fall below, at the plan's confidence
    seconds: float  # mean of one request alone on the device
    shares: tuple[float, ...]  # of requests that run each of `levels`
    kept: float = 1.0  # mean share of words that the levels beyond the first read


@dataclass(frozen=True, slots=True)
class LevelProfile:
    """One level as calibrated and as measured on one class of device."""

    name: str
    classifier: str  # digest of its artifact
    temperature: float  # logits are divided by it; 1 in a regression
    spread: tuple[
        float, ...
    ]  # regression: the model of the error's deviation (pliant/cascade/calibrate.py); else empty
    accuracy: float  # alone, on the profiling split
    error_before: float  # expected calibration error, 15 bins, uncalibrated
    error: float  # the same, calibrated
    latency: LatencyTable  # settings are tokens; median seconds of a batch padded to so many
    importance: LatencyTable | None = None  # the same with attention importance; None where it was not measured


@dataclass(frozen=True, slots=True)
class Cascade:
    """One task as it is served on one class of device: its levels, and candidates to choose from by target."""

    KIND: ClassVar[str] = "cascade-task"
    SCHEMA: ClassVar[int] = 1

    task: str
    classes: tuple[str, ...]  # empty: a regression
    pair: bool  # whether it takes two texts
    tolerance: float  # regression: an answer this near is correct; else 0
    device: str  # device class
    levels: tuple[LevelProfile, ...]
    candidates: tuple[Candidate, ...]  # the first is what serves by default; the others by ascending seconds
    target: float  # accuracy that the first candidate is planned for
    confidence: float  # with which `promised` holds
    test_accuracy: Mapping[str, float]  # candidate's name -> on the test split: what reports quote
    data: str  # fingerprint of the data set
