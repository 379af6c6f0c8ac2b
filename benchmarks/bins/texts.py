"""Texts of exactly as many tokens as a trace asks for, put together from real ones word by word.

A WordPiece tokenizer splits at spaces first, so a text has as many tokens as its words have together, and the special ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from tokenizers import Tokenizer

from benchmarks.places import SHARED
from pliant.errors import InputError

SOURCE = SHARED / "text" / "alpaca_train.parquet"
MOST_TEXTS = 2000


def missing() -> str:
    """Why the texts cannot be made here; empty if they can."""
    return "" if SOURCE.exists() else f"needs {SOURCE.name} in ../shared/data/text, which is not part of the project"


def real_words() -> list[str]:
    """Words of real texts, in their order."""
    import pandas

    if not SOURCE.exists():
        raise InputError("data", SOURCE, "an existing file (the shared data sets are not part of the project)")
    table = pandas.read_parquet(SOURCE)[:MOST_TEXTS]
    return " ".join(f"{one} {two}" for one, two in zip(table["instruction"], table["output"], strict=True)).split()


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
        tokens = {word: len(one.ids) for word, one in zip(different, encoded, strict=True)}
        self._tokens = [tokens[word] for word in self._words]
        if 1 not in self._tokens:
            raise InputError("words", f"{len(self._words)} words", "some that are one token")

    @property
    def least(self) -> int:
        """Tokens of the shortest text: one word."""
        return self.special + 1

    def text(self, length: int, rng: np.random.Generator) -> str:
        """From a random place on; words that would exceed the length are passed over."""
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
        """`each` texts of every length that occurs."""
        rng = np.random.default_rng(seed)
        return {length: [self.text(length, rng) for _ in range(each)] for length in sorted(set(lengths))}
