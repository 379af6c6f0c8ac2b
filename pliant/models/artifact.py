"""What several systems store and read: a text classifier as plain frozen values. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Classifier:
    """A sequence classifier (or, without classes, a regressor with one output) of transformers with its tokenizer."""

    KIND: ClassVar[str] = "cascade-classifier"
    SCHEMA: ClassVar[int] = 1

    name: str  # of the model within its task, such as "small"
    task: str
    classes: tuple[str, ...]  # empty: a regressor
    config: str  # transformers' config.json
    tokenizer: str  # tokenizer.json of the tokenizers library
    max_length: int  # tokens, special ones included; more are cut off
    data: str  # fingerprint of the data set it was trained on
    weights: Mapping[str, NDArray[np.float32]]
