"""What the tokens system stores: backbones, an adapter per task, a profile per device class.

Plain frozen values over numpy arrays; registry/codec.py writes them to disk. Shapes in comments: L layers, G prompts, D
width, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.tokens.points import Point

FLOAT32 = "float32"
GAMMAS = (-20, -15, -10, -5, 0, 2, 4, 8)
"""The published gammas: tokens merged away per layer (negative), none (0), or prompts added per layer (positive)."""

SHALLOW, LORA = 20, 60
"""Added to the number of shallow prompts, and to the rank of LoRA, to give their setting: 28 and 68 for 8 of each."""

Option = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Backbone:
    """A frozen vision transformer: its timm architecture, the normalisation of its input, and its weights."""

    KIND: ClassVar[str] = "tokens-backbone"
    SCHEMA: ClassVar[int] = 1

    architecture: str
    options: Mapping[str, Option]
    image_size: int  # pixels, square
    mean: tuple[float, float, float]  # of pixel values in 0..1
    std: tuple[float, float, float]
    source: str  # where the weights come from, in words
    weights: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Head:
    """A linear classifier on the class token, or on what its operating point has it read."""

    weight: NDArray[np.float32]  # [K, D], or [K, 2 D] where class token and mean of the patches are read
    bias: NDArray[np.float32]  # [K]


@dataclass(frozen=True, slots=True)
class Accuracies:
    """A task's accuracies in one precision: gamma -> share answered correctly."""

    profiling: Mapping[int, float]
    test: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Task:
    """One classification task on a backbone: heads, deep prompts per gamma > 0, and measured accuracies by setting.

    `heads[0]` serves gamma 0 and every merged gamma without a head of its own, as older tasks have none; `heads[gamma]` was
    fitted on what the gamma, or the operating point of this number, leads to. Accuracies are those of float32, and in
    `half` those of other precisions that were measured.
    """

    KIND: ClassVar[str] = "tokens-task"
    SCHEMA: ClassVar[int] = 1

    name: str
    classes: tuple[str, ...]
    backbone: str  # digest of the backbone artifact
    heads: Mapping[int, Head]
    prompts: Mapping[int, NDArray[np.float32]]  # gamma -> [L, G, D]; shallow ones [1, G, D]; LoRA [L, rank, 4 D]
    accuracy: Mapping[int, float]  # gamma -> share of the profiling split answered correctly: what planners use
    test_accuracy: Mapping[int, float]  # gamma -> the same on the test split: what reports quote
    data: str  # fingerprint of the data set it was trained on
    half: Mapping[str, Accuracies] = field(default_factory=dict)  # precision -> accuracies
    points: Mapping[int, Point] = field(default_factory=dict)  # setting -> operating point; older tasks have none
    judged: Mapping[int, float] = field(default_factory=dict)  # of 0 and points: right of what heads did not fit on

    def head(self, gamma: int) -> Head:
        """Return the head that serves this setting."""
        return self.heads[gamma if gamma in self.heads or gamma > 0 else 0]

    def serves(self, gamma: int) -> bool:
        """Whether it has what this setting needs."""
        return max(gamma, 0) in self.heads

    def served_in(self, precision: str | None) -> Task:
        """Return the task with the accuracies of this precision; None, of older profiles, leaves them as they are.

        Raises `InputError` for a precision that they were not measured in.
        """
        if precision in (None, FLOAT32):
            return self
        if precision not in self.half:
            raise InputError(
                f"precision of task {self.name}",
                precision,
                f"one of those measured: {', '.join((FLOAT32, *self.half))}",
            )
        measured = self.half[precision]
        return replace(self, accuracy=measured.profiling, test_accuracy=measured.test)

    def cost(self, precision: str, settings: Iterable[int]) -> float:
        """Return the largest share of answers, over these settings, that this measured precision gets less right."""
        measured = self.half[precision].profiling
        return max((self.accuracy[setting] - measured[setting] for setting in settings), default=0.0)


@dataclass(frozen=True, slots=True)
class RateRule:
    """From an arrival rate to a gamma (OTAS, Table I): `gammas[i]` below `below[i]` requests a second, else the last."""

    below: tuple[float, ...]  # ascending, one fewer than gammas
    gammas: tuple[int, ...]

    def gamma(self, rate: float) -> int:
        """Return the gamma for `rate` requests a second."""
        return self.gammas[int(np.searchsorted(self.below, rate, side="right"))]


@dataclass(frozen=True, slots=True)
class Profile:
    """What one class of device was measured to need for a backbone, at every (gamma, batch)."""

    KIND: ClassVar[str] = "tokens-profile"
    SCHEMA: ClassVar[int] = 1

    backbone: str  # digest of the backbone artifact
    device: str  # device class, see pliant/device.py
    latency: LatencyTable  # settings are gammas; median seconds
    spread: tuple[tuple[float, ...], ...]  # interquartile range in seconds, arranged as latency.seconds
    memory: tuple[tuple[int, ...], ...]  # peak bytes beyond the weights, arranged so too; 0 where unmeasured
    rule: RateRule
    precision: str | None = None  # that was measured and is served; None in older ones: what the device prefers
    points: Mapping[int, Point] = field(default_factory=dict)  # setting -> operating point, those that are offered
