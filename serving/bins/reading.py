"""Tokenizes texts for an encoder, quickly, as it happens in every request.

A text that need not be truncated is tokenized without offsets, which is faster; any other goes through `Reader`
(pliant/models/text.py), which gives the same tokens. A client may send token ids instead, and ask for the tokens of a text
and for the text of tokens. Shape suffix: N tokens (special ones included).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

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


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text."""

    id: int
    text: str  # the part of the text that it stands for, or the name of a special token
    special: bool
    start: int | None  # its first byte in the text's UTF-8; None for a special token
    stop: int | None  # the byte behind its last


class TokenReader:
    """The tokenizer of one encoder; immutable. Raises as `Reader`.

    `vocabulary`: the encoder takes token ids below it; 0: those that the tokenizer knows.
    """

    def __init__(self, tokenizer_json: str, max_length: int, vocabulary: int = 0) -> None:
        self._reader = Reader(tokenizer_json, max_length)
        self._tokenizer = Tokenizer.from_str(tokenizer_json)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._max_length = max_length
        self.vocabulary = vocabulary or max(self._tokenizer.get_vocab(True).values(), default=-1) + 1

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

    def read_ids(self, ids: Sequence[int], left: bool = False) -> Tokens:
        """Return token ids as they are, without further special tokens; at most `max_length`, from either end."""
        kept = ids[-self._max_length :] if left else ids[: self._max_length]
        return Tokens(np.array(kept, np.int32), np.zeros(len(kept), np.int8), len(kept) < len(ids))

    def tokens(self, text: str, special: bool = True) -> list[Token]:
        """Return all tokens of a text, however long. `special`: with the special tokens that the tokenizer adds."""
        encoding = self._tokenizer.encode(text, add_special_tokens=special)
        places = None if text.isascii() else [0, *accumulate(len(character.encode()) for character in text)]
        values = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True)
        tokens = []
        for id, name, (start, stop), is_special in values:
            if is_special:
                tokens.append(Token(id, name, True, None, None))
            else:
                span = (start, stop) if places is None else (places[start], places[stop])
                tokens.append(Token(id, text[start:stop], False, *span))
        return tokens

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of token ids; ids that the tokenizer lacks are left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)

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
