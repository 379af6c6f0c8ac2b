"""Tokenizes texts for an encoder, quickly, as it happens in every request.

A text that need not be truncated is tokenized without offsets, which is faster; any other goes through `Reader`
(pliant/models/text.py), which gives the same tokens. Shape suffix: N tokens (special ones included).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from pliant.models.text import LONGEST, USUAL, Reader


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text, or a pair of texts, as token ids."""

    ids: NDArray[np.int32]  # [N], at least one
    types: NDArray[np.int8]  # [N], the text of a pair that each token belongs to
    truncated: bool  # some of the text is missing


class TokenReader:
    """The tokenizer of one encoder; immutable. Raises as `Reader`."""

    def __init__(self, tokenizer_json: str, max_length: int) -> None:
        self._reader = Reader(tokenizer_json, max_length)
        self._tokenizer = Tokenizer.from_str(tokenizer_json)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._max_length = max_length

    def read(self, first: str, second: str | None = None, left: bool = False) -> Tokens:
        """Return at most `max_length` tokens. `left`: truncate at the beginning, which only a single text allows."""
        if len(first) + len(second or "") <= USUAL * self._max_length:
            encoding = self._encode(first, second)
            if 0 < len(encoding) <= self._max_length:
                return Tokens(np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.int8), False)
        if left and second is None:
            return self._end(first)
        reading = self._reader.read(first, second)
        return Tokens(reading.ids, reading.types, reading.truncated)

    def _end(self, text: str) -> Tokens:
        """Return the last tokens of a text, between the special ones."""
        tail = text[-LONGEST * self._max_length :]
        encoding = self._encode(tail, None)
        over, kept = len(encoding) - self._max_length, []
        for index, sequence in enumerate(encoding.sequence_ids):
            if sequence is None or over <= 0:
                kept.append(index)
            else:
                over -= 1
        ids, types = np.array(encoding.ids, np.int32)[kept], np.array(encoding.type_ids, np.int8)[kept]
        return Tokens(ids, types, len(kept) < len(encoding) or len(tail) < len(text))

    def _encode(self, first: str, second: str | None) -> Encoding:
        (encoding,) = self._tokenizer.encode_batch_fast([first if second is None else (first, second)])
        return encoding
