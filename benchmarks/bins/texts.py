"""Texts of exactly as many tokens as a trace asks for, put together from real ones word by word.

A WordPiece tokenizer splits at spaces first, so a text has as many tokens as its words have together, and the special ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from tokenizers import Tokenizer

from benchmarks.places import ALPACA, existing
from pliant.errors import InputError

MOST_TEXTS = 2000


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

    def by_length(self, lengths: Sequence[int], each: int, seed: int) -> dict[int, list[str]]:
        """Return `each` texts of every length that occurs."""
        rng = np.random.default_rng(seed)
        return {length: [self.text(length, rng) for _ in range(each)] for length in sorted(set(lengths))}
