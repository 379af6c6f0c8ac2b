"""The artifact of a text classifier, which several systems store and read. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Classifier:
    """A sequence classifier of transformers with its tokenizer; without classes it is a regressor with one output."""

    KIND: ClassVar[str] = "cascade-classifier"
    SCHEMA: ClassVar[int] = 1

    name: str  # of the model within its task, such as "small"
    task: str
    classes: tuple[str, ...]  # empty: a regressor
    config: str  # transformers' config.json
    tokenizer: str  # tokenizer.json of the tokenizers library
    max_length: int  # tokens that it reads, special ones included; further ones are cut off
    data: str  # fingerprint of its training data
    weights: Mapping[str, NDArray[np.float32]]
