"""What the bins system stores: encoders, and per device class their statically shaped runtimes with measured times.

Plain frozen values over numpy arrays; registry/codec.py writes them to disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.latency import LatencyTable

HEADS = ("classification", "embedding")
ENGINES = ("onnx", "graphs", "eager")
ENGINES_ON = {"cpu": ("onnx", "eager"), "cuda": ("graphs", "eager")}
"""By type of device."""
PLACEMENTS = ("shared", "single")


def check_device(engine: str, device: str) -> None:
    """Raise `InputError` for an engine that does not run on this device, such as "cuda:0"."""
    possible = ENGINES_ON.get(device.partition(":")[0], ("eager",))
    if engine not in possible:
        raise InputError("engine", engine, f"{' or '.join(', '.join(possible).rsplit(', ', 1))} on {device}")


@dataclass(frozen=True, slots=True)
class Encoder:
    """An encoder of transformers with its head and tokenizer: the portable form from which runtimes are compiled."""

    KIND: ClassVar[str] = "bins-encoder"
    SCHEMA: ClassVar[int] = 1

    name: str
    head: str  # one of HEADS
    classes: tuple[str, ...]  # of a classification (none: a regressor with one output); an embedding has none
    pooling: str  # of an embedding: "mean" or "cls"; "" for classification
    normalize: bool  # of an embedding: to length 1
    config: str  # transformers' config.json
    tokenizer: str  # tokenizer.json of the tokenizers library
    max_length: int  # tokens, special ones included; longer texts are cut
    data: str  # fingerprint of the data that it was trained on, or of the model itself
    weights: Mapping[str, NDArray[np.float32]]
    prompts: Mapping[str, str] = field(default_factory=dict)  # name -> text that is put before a text

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise InputError("head", self.head, f"one of {HEADS}")
        if self.head == "embedding" and self.pooling not in ("mean", "cls"):
            raise InputError("pooling", self.pooling, "mean or cls")


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What a runtime takes: exactly `batch` texts of exactly `length` tokens; a dynamic one takes up to these."""

    length: int
    batch: int
    dynamic: bool = False

    def __post_init__(self) -> None:
        if self.length < 1 or self.batch < 1:
            raise InputError("shape", f"{self.length} x {self.batch}", "at least 1 x 1")


@dataclass(frozen=True, slots=True)
class Bins:
    """One encoder on one device class: its compiled runtimes, their seconds, and the lengths they were chosen for."""

    KIND: ClassVar[str] = "bins-plan"
    SCHEMA: ClassVar[int] = 1

    name: str  # of the stream of requests, which name it as their task
    encoder: str  # digest of the Encoder
    device_class: str
    engine: str  # one of ENGINES
    slo: float  # seconds from arrival to answer
    shapes: tuple[Shape, ...]  # static ones by (length, batch), then one dynamic shape for all texts
    seconds: tuple[float, ...]  # of one launch of each static shape, however full
    dynamic: LatencyTable  # seconds of the dynamic runtime: settings are lengths
    lengths: NDArray[np.int64]  # [max_length + 1] requests observed by length
    load_seconds: float  # to swap a device's runtime
    placement: str  # one of PLACEMENTS: a device holds all runtimes, or one length's at a time (as published)
    files: Mapping[str, str]  # compiled file -> SHA-256, relative to the cache folder of (encoder, device class)
    versions: Mapping[str, str]  # of the packages that compiled them
    precision: str = "float32"  # one of pliant.precision.PRECISIONS, that the runtimes compute in
    unpooled: bool = False  # whether compiled files give the embeddings of tokens; those of former versions do not

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise InputError("placement", self.placement, f"one of {PLACEMENTS}")
        if self.engine not in ENGINES:
            raise InputError("engine", self.engine, f"one of {ENGINES}")
        static = [shape for shape in self.shapes if not shape.dynamic]
        if static != sorted(set(static)) or len(self.shapes) - len(static) != 1 or not self.shapes[-1].dynamic:
            raise InputError("shapes", self.shapes, "static ones ascending without repeats, then one dynamic")
        if len(self.seconds) != len(static) or not all(0 < seconds < float("inf") for seconds in self.seconds):
            raise InputError("seconds", self.seconds, "one a static shape, positive and finite")
