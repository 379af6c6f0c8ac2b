"""The artifacts of packing: generators, predictors of their output lengths, and plans of a generator on a device class.

They are plain frozen values over numpy arrays, which registry/codec.py writes to disk. Those of bfloat16
have the type of pliant/bfloat16.py.

Shape suffixes: R requests, L quantiles of a forecast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.bfloat16 import BFLOAT16
from pliant.errors import InputError
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.request import Memory

TYPES = {"float32": np.dtype(np.float32), "bfloat16": BFLOAT16, "float16": np.dtype(np.float16)}
PRECISIONS = tuple(TYPES)
"""Of a generator's weights, and of what runs it: its activations, keys and values."""
_ALLOWED = f"one of {', '.join(PRECISIONS)}"
BUCKETS = 10  # classes of length, of equal width up to the longest output (S3, section 3.1)


def _name(dtype: np.dtype[Any]) -> str:
    return next((name for name, known in TYPES.items() if known == dtype), dtype.name)


@dataclass(frozen=True, slots=True)
class Generator:
    """A causal language model of transformers with its tokenizer.

    It is stored, loaded and run in one precision: the one that all of its weights have. Raises `InputError` for weights
    of several precisions, or of none of `PRECISIONS`.
    """

    KIND: ClassVar[str] = "packing-generator"
    SCHEMA: ClassVar[int] = 1

    name: str
    config: str  # transformers' config.json
    tokenizer: str  # tokenizer.json of the tokenizers library
    chat_template: str  # Jinja, as in transformers' tokenizers; empty: messages are joined by newlines
    context: int  # most tokens of a prompt and its output together
    ends: tuple[int, ...]  # token ids, each of which ends an output
    data: str  # fingerprint of its training data
    weights: Mapping[str, NDArray[Any]]
    sampling: Mapping[str, float] = field(default_factory=dict)  # a request's field -> its default for this model
    chat_templates: Mapping[str, str] = field(default_factory=dict)  # further ones by name, such as tool_use
    special_tokens: Mapping[str, str] | None = None  # bos_token and so on, of the tokenizer; None: by ids in `config`

    def __post_init__(self) -> None:
        kinds = {array.dtype for array in self.weights.values()}
        if len(kinds) > 1 or not kinds <= set(TYPES.values()):
            raise InputError("weights", f"of {', '.join(sorted(map(_name, kinds)))}", f"all of {_ALLOWED}")

    @property
    def precision(self) -> str:
        """Return the precision of the weights; float32 where there are none."""
        return next((_name(array.dtype) for array in self.weights.values()), "float32")


@dataclass(frozen=True, slots=True)
class Predictor:
    """An encoder with two heads: quantiles of the log of an output's tokens, and the class of its length (S3).

    The linear heads `quantile.*` (L outputs) and `bucket.*` (BUCKETS outputs) read the mean of its last hidden states
    and the largest of its word embeddings. `shift` calibrates the quantiles. The encoder's weights begin with
    `encoder.`. Or a linear model (`model_type` linear) of the TF-IDF of tokens: its weights are `head.*`, `idf` and
    `shift`. Raises `InputError` for levels other than `forecast.QUANTILES`.
    """

    KIND: ClassVar[str] = "packing-predictor"
    SCHEMA: ClassVar[int] = 1

    name: str
    generator: str  # digest of the Generator whose lengths it predicts; empty: those of a data set
    config: str  # transformers' config.json of the encoder; of a linear model its sizes
    tokenizer: str  # tokenizer.json
    max_length: int  # tokens that it reads of a prompt: the last ones
    levels: tuple[float, ...]  # the probabilities of the quantiles
    bucket_tokens: int  # width of a class; outputs of class k have at most (k + 1) * bucket_tokens tokens
    marginal: tuple[float, ...]  # quantiles of the training lengths in tokens, for requests without a prediction
    metrics: Mapping[str, float]  # on held-out prompts
    data: str  # fingerprint of the prompts and lengths
    weights: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        if self.levels != QUANTILES:
            raise InputError("levels", self.levels, f"{QUANTILES}")


@dataclass(frozen=True, slots=True)
class Packing:
    """The plan of one generator on one class of device: memory, the cost of iterations, the policy's parameters."""

    KIND: ClassVar[str] = "packing-plan"
    SCHEMA: ClassVar[int] = 1

    name: str  # of the model, as clients call it
    generator: str  # digest of the Generator
    predictor: str  # digest of the Predictor
    device_class: str
    memory: Memory
    kv_bytes: int  # bytes of one token's keys and values in all layers, in `precision`
    steps: LinearCost
    level: float  # `Rules.safety`: where the safety of admission starts, in standard deviations
    patience: float  # `Rules.reorder_patience`: recent delays by which a typical request is put back
    prompt_tokens: NDArray[np.int32]  # [R] of observed requests, from which the reference load draws
    output_tokens: NDArray[np.int32]  # [R] that the generator generated
    forecasts: NDArray[np.float32]  # [R, L] the predicted quantiles, in tokens
    buckets: NDArray[np.int32]  # [R] upper bound of the predicted class, in tokens
    seconds: float = 2.0  # from arrival to deadline in the reference load
    precision: str = "float32"  # in which the generator was measured and is served, one of PRECISIONS
    engine: str = "pliant"  # whose iterations `steps` are: pliant or vllm

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError("precision", self.precision, _ALLOWED)
