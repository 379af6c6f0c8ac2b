"""The artifacts of the cascade: distilled levels, outputs of levels on held-out texts, and plans of tasks on a device class.

They are plain frozen values over numpy arrays, which registry/codec.py writes to disk. A level is one of three kinds: a
classifier of transformers; an exit, a head on the first layers of such a classifier; or a bag of token n-grams, which the
service's own process runs. The last level of a task is a classifier, the large model.

Shape suffixes: R texts, K outputs (classes, or 1 in a regression), G n-grams, W width of a bag, D of a trunk, H of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.latency import LatencyTable
from pliant.models.artifact import Classifier

CLASSIFIER, EXIT, BAG = "classifier", "exit", "bag"
"""The kinds of levels (`KINDS` has their artifacts)."""


@dataclass(frozen=True, slots=True)
class Bag:
    """A linear model of token n-grams, distilled from a classifier (pliant/cascade/bag.py)."""

    KIND: ClassVar[str] = "cascade-bag"
    SCHEMA: ClassVar[int] = 1

    name: str
    task: str
    classes: tuple[str, ...]  # empty: a regressor
    large: str  # digest of the classifier that it was distilled from
    tokenizer: str  # tokenizer.json of the tokenizers library, that of the classifier
    max_length: int  # tokens that it reads
    data: str  # fingerprint of the texts that it learnt from
    grams: NDArray[np.int32]  # [G] numbers of the n-grams that it knows, ascending
    table: NDArray[np.float32]  # [G, W]
    head: NDArray[np.float32]  # [K, W]
    bias: NDArray[np.float32]  # [K]
    seen: NDArray[np.bool_] | None = None  # [G] whether a text that it learnt from has the n-gram; None: all


@dataclass(frozen=True, slots=True)
class Exit:
    """A head on the first layers of a classifier, distilled from it: reads the mean and the maximum over a text's tokens."""

    KIND: ClassVar[str] = "cascade-exit"
    SCHEMA: ClassVar[int] = 1

    name: str
    task: str
    classes: tuple[str, ...]  # empty: a regressor
    large: str  # digest of the classifier whose layers it reads
    layers: int  # of these, from the first on
    data: str  # fingerprint of the texts that it learnt from
    into: NDArray[np.float32]  # [H, 2 D], before an exact GELU
    into_bias: NDArray[np.float32]  # [H]
    out: NDArray[np.float32]  # [K, H]
    out_bias: NDArray[np.float32]  # [K]


Level = Classifier | Exit | Bag
KINDS: Mapping[str, type[Level]] = {CLASSIFIER: Classifier, EXIT: Exit, BAG: Bag}


def kind_of(level: Level) -> str:
    """Return which of `KINDS` an artifact is."""
    return next(kind for kind, each in KINDS.items() if isinstance(level, each))


@dataclass(frozen=True, slots=True)
class Pruning:
    """Which words the next level reads (Tabi, Eq. 5; pliant/cascade/prune.py).

    "none" keeps all. "mean" keeps a token whose importance exceeds `value` times the mean.
    """

    rule: str = "none"
    value: float = 1.0


@dataclass(frozen=True, slots=True)
class LevelOutputs:
    """The outputs of one level for every text, unpruned."""

    logits: NDArray[np.float32]  # [R, K]
    length: NDArray[np.int32]  # [R] tokens read


@dataclass(frozen=True, slots=True)
class PrunedOutputs:
    """The outputs of level `reader` for every text after `pruning` by the importances of level `pruner`."""

    pruner: int
    reader: int
    pruning: Pruning
    logits: NDArray[np.float32]  # [R, K]
    length: NDArray[np.int32]  # [R] tokens read
    kept: NDArray[np.float32]  # [R] share of the words that were kept


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of every level on held-out texts, which calibration and planning need. Levels ascend in size."""

    KIND: ClassVar[str] = "cascade-outputs"
    SCHEMA: ClassVar[int] = 1

    task: str
    classes: tuple[str, ...]  # empty: a regression
    names: tuple[str, ...]  # of the levels
    classifiers: tuple[str, ...]  # digests of the levels' artifacts
    labels: NDArray[np.float64]  # [R] number of the class, or the value; NaN: not known
    levels: tuple[LevelOutputs, ...]
    pruned: tuple[PrunedOutputs, ...]
    data: str  # fingerprint of the data set
    precision: str = "float32"  # one of pliant.precision.PRECISIONS, in which the levels ran


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides after a level whether the next one runs, what that one reads, and how much its answer counts.

    `kind` "overturn" (ours) goes on if the large model is expected to overturn the answer with a probability above
    `threshold`; `weights` are those of a logistic model of the features of pliant/cascade/route.py, and `rates` how often
    answers of each class are overturned. "tabi" (Eq. 4) goes on up to a confidence of `threshold`, and beyond it with a
    probability that falls by `slope`. "always" and "never" do so whatever the answer.
    """

    kind: str
    threshold: float = 0.0
    slope: float = 0.0
    weights: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    pruning: Pruning = Pruning()
    weight: float = 1.0  # of the next level's probabilities in the answer; the answer so far has the rest (Eq. 6)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve a task: its levels and the gates between them. Figures are of held-out texts."""

    name: str  # such as "default", "tabi", "single"
    levels: tuple[int, ...]  # ascending; one more than gates
    gates: tuple[Gate, ...]
    accuracy: float  # share answered correctly (a regression: within the tolerance)
    promised: float  # lower bound of the accuracy, at the plan's confidence; 0 where labels are not known
    seconds: float  # mean of a request alone on the device
    shares: tuple[float, ...]  # of requests that run each of `levels`
    kept: float = 1.0  # mean share of words that the levels beyond the first read
    agreement: float = 0.0  # lower bound of the share of answers that are the large model's; 0: nothing is promised
    labels: int = 0  # that had to be looked at for the promise


@dataclass(frozen=True, slots=True)
class Resumed:
    """The latency of a level whose first `layers` layers an exit before it has run for the same texts."""

    layers: int
    latency: LatencyTable


@dataclass(frozen=True, slots=True)
class LevelProfile:
    """One level, calibrated and measured on one class of device."""

    name: str
    classifier: str  # digest of its artifact
    temperature: float  # logits are divided by it; 1 in a regression
    spread: tuple[float, ...]  # regression: `calibrate.fit_spread`, the model of the error's deviation; else empty
    accuracy: float  # of this level alone, on the profiling split
    error_before: float  # expected calibration error, 15 bins, uncalibrated
    error: float  # the same, calibrated
    latency: LatencyTable  # median seconds of a batch; its settings are tokens, to which the batch is padded
    importance: LatencyTable | None = None  # the same while importance is measured; None: not profiled
    kind: str = CLASSIFIER
    trunk: str = ""  # digest of the classifier whose layers it runs: its own, or that of an exit
    layers: int = 0  # of an exit: how many of the trunk's
    resumed: tuple[Resumed, ...] = ()  # where an exit on the same trunk ran before

    def after(self, layers: int) -> LatencyTable:
        """Return the latency where the first `layers` layers have run; 0: none. Raises `KeyError` for others."""
        return {0: self.latency, **{each.layers: each.latency for each in self.resumed}}[layers]


@dataclass(frozen=True, slots=True)
class Cascade:
    """The plan of one task on one class of device: its levels, and candidates to choose from by accuracy or latency."""

    KIND: ClassVar[str] = "cascade-task"
    SCHEMA: ClassVar[int] = 2

    task: str
    classes: tuple[str, ...]  # empty: a regression
    pair: bool  # whether an input is two texts
    tolerance: float  # regression: an answer this near to the label is correct; else 0
    device: str  # device class
    levels: tuple[LevelProfile, ...]
    candidates: tuple[Candidate, ...]  # the first serves by default; the others ascend in seconds
    target: float  # accuracy that the first candidate is planned for
    confidence: float  # with which `promised` holds
    test_accuracy: Mapping[str, float]  # candidate's name -> accuracy on the test split, which reports quote
    data: str  # fingerprint of the data set
    precision: str = "float32"  # one of pliant.precision.PRECISIONS, that all figures are of and that is served
    promise: str = "drop"  # what holds for the first candidate: agree, drop or right (pliant/cascade/search.py)
    amount: float = 0.0  # of the promise
