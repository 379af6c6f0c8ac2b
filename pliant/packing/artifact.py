"""What the packing system stores: generators, predictors of their output lengths, and per device class how they are run.

Plain frozen values over numpy arrays: registry/codec.py writes them to disk, nothing here does. Shapes in comments use
R requests and L levels of a forecast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.packing.scheduling.forecast import LEVELS
from pliant.packing.scheduling.iteration_cost import LinearSteps
from pliant.packing.scheduling.request import Memory

BUCKETS = 10  # equal classes of the longest output (S3, section 3.1)


@dataclass(frozen=True, slots=True)
class Generator:
    """A causal language model of transformers with its tokenizer."""

    KIND: ClassVar[str] = "packing-generator"
    SCHEMA: ClassVar[int] = 1

    name: str
    config: str  # transformers' config.json
    tokenizer: str  # tokenizer.json of the tokenizers library
    chat_template: str  # Jinja, as transformers' tokenizers have it; empty: contents joined by newlines
    context: int  # tokens of a prompt and its output together, at most
    ends: tuple[int, ...]  # ids, each of which ends an output
    data: str  # fingerprint of what it was trained on
    weights: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Predictor:
    """An encoder with two heads: quantiles of the log of the output's tokens, and the published classes of length.

    Its last hidden state, mean-pooled, beside the largest of its word embeddings, goes into `quantile.*` (L outputs) and
    `bucket.*` (BUCKETS outputs), linear each; `shift` calibrates the quantiles; its own keys begin with `encoder.`.
    """

    KIND: ClassVar[str] = "packing-predictor"
    SCHEMA: ClassVar[int] = 1

    name: str
    generator: str  # digest of the Generator whose lengths it predicts; empty: of lengths that a data set gives
    config: str  # transformers' config.json of the encoder
    tokenizer: str  # tokenizer.json
    max_length: int  # tokens of a prompt that are read; of a longer one the last are
    levels: tuple[float, ...]  # of the quantiles
    bucket_tokens: int  # width of a class; class k says an output of at most (k + 1) * bucket_tokens
    marginal: tuple[float, ...]  # tokens: the training lengths' own quantiles at `levels`, for who is not predicted
    metrics: Mapping[str, float]  # on held-out prompts
    data: str  # fingerprint of the prompts and lengths
    weights: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        if self.levels != LEVELS:
            raise InputError("levels", self.levels, f"{LEVELS}")


@dataclass(frozen=True, slots=True)
class Packing:
    """One generator on one class of device: its memory, how long an iteration takes, and the policy's parameters."""

    KIND: ClassVar[str] = "packing-plan"
    SCHEMA: ClassVar[int] = 1

    name: str  # of the model as clients call it
    generator: str  # digest of the Generator
    predictor: str  # digest of the Predictor
    device_class: str
    memory: Memory
    kv_bytes: int  # of the keys and values of one token in all layers
    steps: LinearSteps
    level: float  # where the adaptive confidence of admission starts (pliant/packing/scheduling/policy.py)
    patience: float  # times the delay of late by which a request of typical size is put back in the line
    prompt_tokens: NDArray[np.int32]  # [R] of observed requests, which the reference workload draws from
    output_tokens: NDArray[np.int32]  # [R] what the generator made of them
    forecasts: NDArray[np.float32]  # [R, L] what the predictor said, in tokens
    buckets: NDArray[np.int32]  # [R] upper bound of the predicted class, in tokens
    seconds: float = 2.0  # that a request may take from arrival to its end in the reference workload
