"""Embedding requests with the lengths of a trace: their texts, how they are sent, what is read of an answer.

Texts have exactly as many tokens as a trace asks for, put together from real ones word by word. A WordPiece tokenizer splits
at spaces first, so a text has as many tokens as its words have together, and the special ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pliant.benchmarks.bins.traces import Trace
from pliant.benchmarks.load_generator import Form, Parsed, Reply
from pliant.benchmarks.places import ALPACA, existing
from pliant.errors import InputError
from pliant.protocol import Request

TASK = "tweets"
TIMEOUT = 30.0  # seconds, of the generator
MOST_TEXTS = 2000


def embeddings(deadline: float = TIMEOUT) -> Form:
    """Ask for the embedding of a text of the request's length; only overload misses the deadline."""

    def body(_request: Request, text: str) -> bytes:
        return json.dumps({"inputs": [text], "deadline": deadline}).encode()

    def read(answer: Any, _text: str) -> Parsed:
        is_embedding = len(answer) == 1 and abs(float(np.linalg.norm(answer[0])) - 1.0) < 1e-3
        return Parsed(is_embedding, 0, None, math.nan)

    def choose(request: Request, by_length: Sequence[Sequence[str]], rng: np.random.Generator) -> str:
        texts = by_length[request.length]
        return texts[int(rng.integers(len(texts)))]

    return Form(body, read, "/embed", choose)


def real_words() -> list[str]:
    """Return words of real texts, in their order. Raises `InputError` where the texts are missing."""
    import pandas

    table = pandas.read_parquet(existing(ALPACA))[:MOST_TEXTS]
    return " ".join(table["instruction"] + " " + table["output"]).split()


class TextMaker:
    """Makes texts of a given number of tokens, special ones included."""

    def __init__(self, tokenizer_json: str, words: Iterable[str]) -> None:
        tokenizer = Tokenizer.from_str(tokenizer_json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.special = len(tokenizer.encode("").ids)
        self._words = list(words)
        different = sorted(set(self._words))
        encoded = tokenizer.encode_batch(different, add_special_tokens=False)
        tokens = {word: len(encoding.ids) for word, encoding in zip(different, encoded, strict=True)}
        self._tokens = [tokens[word] for word in self._words]
        if 1 not in self._tokens:
            raise InputError("words", f"{len(self._words)} words", "some that are one token")

    @property
    def least(self) -> int:
        """Return the tokens of the shortest text: one word."""
        return self.special + 1

    def text(self, length: int, rng: np.random.Generator) -> str:
        """Return a text from a random place on; words that would exceed the length are passed over."""
        if length < self.least:
            raise InputError("length", length, f"at least {self.least} tokens")
        left, chosen = length - self.special, []
        place = int(rng.integers(len(self._words)))
        while left:
            if 0 < self._tokens[place] <= left:
                chosen.append(self._words[place])
                left -= self._tokens[place]
            place = (place + 1) % len(self._words)
        return " ".join(chosen)


@dataclass(frozen=True, slots=True)
class Texts:
    """`by_length[n]`: texts of n tokens, empty where none was asked for. `mixed`: one a quantile of the lengths."""

    by_length: tuple[tuple[str, ...], ...]
    mixed: tuple[str, ...]


def texts_for(lengths: NDArray[np.integer[Any]], maker: TextMaker, most: int, each: int, seed: int) -> Texts:
    """Return `each` texts of every length that occurs, as the encoder reads them: longer ones are cut to `most`."""
    read, rng = read_lengths(lengths, maker.least, most), np.random.default_rng(seed)
    texts = {n: [maker.text(n, rng) for _ in range(each)] for n in sorted({int(n) for n in read})}
    spread = np.quantile(read, (np.arange(32) + 0.5) / 32, method="nearest").astype(int)
    mixed = tuple(texts[int(n)][0] for n in np.random.default_rng(seed).permutation(spread))
    return Texts(tuple(tuple(texts.get(n, ())) for n in range(most + 1)), mixed)


def read_lengths(lengths: NDArray[np.integer[Any]], least: int, most: int) -> NDArray[np.int32]:
    read: NDArray[np.int32] = np.clip(lengths, least, most).astype(np.int32)
    return read


def load_of(trace: Trace, least: int, most: int) -> list[Request]:
    """Return the requests of a trace, whose lengths are those that the encoder reads."""
    arrivals = zip(trace.times.tolist(), read_lengths(trace.lengths, least, most).tolist(), strict=True)
    return [Request(i, at, at + TIMEOUT, TASK, length=length) for i, (at, length) in enumerate(arrivals)]


def latency(reply: Reply) -> float:
    observed = reply.observation
    return TIMEOUT if observed.answered is None else observed.answered - observed.request.arrival
