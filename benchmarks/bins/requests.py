"""Embedding requests with the lengths of a trace: their texts, how they are sent, what is read of an answer."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bins.texts import TextMaker
from benchmarks.bins.traces import Trace
from benchmarks.load_generator import Form, Parsed, Reply
from pliant.protocol import Request

TASK = "tweets"
TIMEOUT = 30.0  # seconds, of the generator


def embeddings(deadline: float = TIMEOUT) -> Form:
    """Ask for the embedding of a text of the request's length; only overload misses the deadline."""

    def body(_request: Request, text: str) -> bytes:
        return json.dumps({"inputs": [text], "deadline": deadline}).encode()

    def read(answer: Any, _text: str) -> Parsed:
        return Parsed(_is_embedding(answer), 0, None, math.nan)

    def choose(request: Request, by_length: Sequence[Sequence[str]], rng: np.random.Generator) -> str:
        texts = by_length[request.length]
        return texts[int(rng.integers(len(texts)))]

    return Form(body, read, "/embed", choose)


def _is_embedding(answer: Any) -> bool:
    return len(answer) == 1 and abs(float(np.linalg.norm(answer[0])) - 1.0) < 1e-3


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """`by_length[n]`: texts of n tokens, empty where none was asked for. `mixed`: one a quantile of the lengths."""

    by_length: tuple[tuple[str, ...], ...]
    mixed: tuple[str, ...]


def texts_for(lengths: NDArray[np.integer[Any]], maker: TextMaker, most: int, each: int, seed: int) -> Texts:
    """Return `each` texts of every length that occurs, as the encoder reads them: longer ones are cut to `most`."""
    read = read_lengths(lengths, maker.least, most)
    texts = maker.by_length([int(n) for n in read], each, seed)
    spread = np.quantile(read, (np.arange(32) + 0.5) / 32, method="nearest").astype(int)
    mixed = tuple(texts[int(n)][0] for n in np.random.default_rng(seed).permutation(spread))
    return Texts(tuple(tuple(texts.get(n, ())) for n in range(most + 1)), mixed)


def read_lengths(lengths: NDArray[np.integer[Any]], least: int, most: int) -> NDArray[np.int32]:
    read: NDArray[np.int32] = np.clip(lengths, least, most).astype(np.int32)
    return read


def load_of(name: str, trace: Trace, least: int, most: int) -> Load:
    arrivals = zip(trace.times.tolist(), read_lengths(trace.lengths, least, most).tolist(), strict=True)
    requests = (Request(i, at, at + TIMEOUT, TASK, length=length) for i, (at, length) in enumerate(arrivals))
    return Load(name, tuple(requests))


def latency(reply: Reply) -> float:
    observed = reply.observation
    return TIMEOUT if observed.answered is None else observed.answered - observed.request.arrival
