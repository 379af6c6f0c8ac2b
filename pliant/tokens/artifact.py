"""What the tokens system stores: a backbone, one adapter a task, one profile a device class, and variants to compare with.

Plain frozen values over numpy arrays: registry/codec.py writes them to disk, nothing here does. Shapes in comments use
L layers, G prompts, D width, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.latency import LatencyTable

GAMMAS = (-20, -15, -10, -5, 0, 2, 4, 8)
"""The published gamma list: tokens merged away per layer (negative), nothing (0), prompts added per layer (positive)."""

Option = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Backbone:
    """A frozen vision transformer: which timm architecture, how its input is normalised, and its weights."""

    KIND: ClassVar[str] = "tokens-backbone"
    SCHEMA: ClassVar[int] = 1

    architecture: str
    options: Mapping[str, Option]
    image_size: int  # pixels, square
    mean: tuple[float, float, float]  # of pixel values in 0..1
    std: tuple[float, float, float]
    source: str  # where the weights come from, for people
    weights: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Head:
    """A linear classifier on the class token."""

    weight: NDArray[np.float32]  # [K, D]
    bias: NDArray[np.float32]  # [K]


@dataclass(frozen=True, slots=True)
class Task:
    """One classification task on a backbone: a head, deep prompts per gamma > 0, and what they were measured to reach.

    `heads[0]` serves gamma 0 and every merged setting; `heads[gamma]` was trained together with `prompts[gamma]`.
    """

    KIND: ClassVar[str] = "tokens-task"
    SCHEMA: ClassVar[int] = 1

    name: str
    classes: tuple[str, ...]
    backbone: str  # digest of the backbone artifact
    heads: Mapping[int, Head]
    prompts: Mapping[int, NDArray[np.float32]]  # gamma -> [L, G, D]
    accuracy: Mapping[int, float]  # gamma -> share of the profiling split answered correctly: what planners use
    test_accuracy: Mapping[int, float]  # gamma -> the same on the test split: what reports quote
    data: str  # fingerprint of the data set it was trained on

    def head(self, gamma: int) -> Head:
        return self.heads[max(gamma, 0)]


@dataclass(frozen=True, slots=True)
class RateRule:
    """From an arrival rate to a gamma (OTAS, Table I): `gammas[i]` below `below[i]` requests/s, the last beyond all."""

    below: tuple[float, ...]  # ascending, one fewer than gammas
    gammas: tuple[int, ...]

    def gamma(self, rate: float) -> int:
        """The gamma for `rate` requests per second."""
        return self.gammas[int(np.searchsorted(self.below, rate, side="right"))]


@dataclass(frozen=True, slots=True)
class Profile:
    """What one class of device was measured to need for a backbone at every (gamma, batch)."""

    KIND: ClassVar[str] = "tokens-profile"
    SCHEMA: ClassVar[int] = 1

    backbone: str  # digest of the backbone artifact
    device: str  # device class, see pliant/device.py
    latency: LatencyTable  # settings are gammas; median seconds
    spread: tuple[tuple[float, ...], ...]  # interquartile range in seconds, like latency.seconds
    memory: tuple[tuple[int, ...], ...]  # peak bytes beyond the weights, like latency.seconds; 0 where unmeasured
    rule: RateRule


@dataclass(frozen=True, slots=True)
class VariantTask:
    """One classification task of a variant, at gamma 0 alone."""

    classes: tuple[str, ...]
    head: Head
    accuracy: float  # share of the profiling split answered correctly: what planners use
    test_accuracy: float  # the same on the test split: what reports quote
    data: str  # fingerprint of the data set it was trained on


@dataclass(frozen=True, slots=True)
class Variant:
    """One model of another size as a whole: what model switching loads in place of the present one (baseline infaas)."""

    KIND: ClassVar[str] = "tokens-variant"
    SCHEMA: ClassVar[int] = 1

    name: str
    backbone: Backbone
    tasks: Mapping[str, VariantTask]
    device: str  # device class, see pliant/device.py
    latency: LatencyTable  # of the single setting 0; median seconds
    loading: float  # seconds from the file to the first answer after warm-up

    def adapters(self, digest: str) -> list[Task]:
        """Its tasks as such on the backbone that `digest` names, with gamma 0 and the merged settings alone."""
        return [
            Task(name, t.classes, digest, {0: t.head}, {}, {0: t.accuracy}, {0: t.test_accuracy}, t.data)
            for name, t in self.tasks.items()
        ]
