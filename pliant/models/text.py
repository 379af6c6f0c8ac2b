"""Turns texts into tokens and words, and kept words back into a shorter text.

Each classifier of a cascade has its own tokenizer, so a pruned text reaches the next one as text (Tabi, section 4.2).
For that, tokens are grouped into words that know their place in the text. Knows the tokenizers library; no model, no
importance.

Truncation is done here, since the library computes every combination of the parts that it cuts off a pair: that takes a
second for two texts of 30 kB, and all memory for two of 1 MB. The tokens are the same: the longer text is cut first.

Shape suffixes: N tokens (special ones included), W words over both texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from pliant.errors import ArtifactError, InputError

SHORTEST = 8  # least `max_length` in tokens: a pair's special ones and at least two of each text
USUAL, LONGEST = 8, 64
"""Characters for each token of `max_length` that are tokenized of a longer text: at first, and at most."""
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Span = tuple[int, int, int]
"""The text (0 or 1), its first character, and the one behind its last."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text or a pair as tokens and words. Spans ascend, do not overlap, and have no white space at their ends."""

    ids: NDArray[np.int32]  # [N], at least one
    types: NDArray[np.int8]  # [N]
    words: NDArray[np.int32]  # [N] number of the token's word; -1 for special tokens
    spans: tuple[Span, ...]  # [W]
    truncated: bool  # whether a part of a text was not read


class Reader:
    """Reads texts for one classifier. Immutable, so that threads may share it.

    `tokenizer_json` is the content of a tokenizer.json; `max_length` counts tokens, special ones included. Raises
    `ArtifactError` for a tokenizer that cannot be used, `InputError` for a `max_length` below 8.
    """

    def __init__(self, tokenizer_json: str, max_length: int) -> None:
        if max_length < SHORTEST:
            raise InputError("max_length", max_length, f"at least {SHORTEST} tokens")
        try:
            self._tokenizer = Tokenizer.from_str(tokenizer_json)
        except Exception as error:  # the library raises bare exceptions
            raise ArtifactError(f"the tokenizer cannot be used: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._max_length = max_length

    def read(self, first: str, second: str | None = None, words: bool = True) -> Reading:
        """Return the tokens and words of a text or a pair. Any text can be read, also one without any known token.

        `words`: whether these are needed, which takes half of the time.
        """
        texts = (first,) if second is None else (first, second)
        heads, encoding = self._encode(texts)
        sequences = encoding.sequence_ids
        kept = self._kept(sequences)
        ids, types = encoding.ids, encoding.type_ids
        spans: tuple[Span, ...] = ()
        numbers = [-1] * len(kept)
        if words:
            numbers, spans = _words(heads, sequences, encoding.word_ids, encoding.offsets, kept)
        if len(kept) < len(ids):
            ids, types = [ids[i] for i in kept], [types[i] for i in kept]
        truncated = len(kept) < len(sequences) or any(map(_shorter, heads, texts))
        if not ids:  # without special tokens nothing may be left, and a model needs a token
            ids, types, numbers = [0], [0], [-1]
        return Reading(np.array(ids, np.int32), np.array(types, np.int8), np.array(numbers, np.int32), spans, truncated)

    def _encode(self, texts: Sequence[str]) -> tuple[list[str], Encoding]:
        """Return the texts, cut if they are far too long, and their tokens."""
        for limit in (USUAL * self._max_length, LONGEST * self._max_length):
            heads = [_head(text, limit) for text in texts]
            encoding = self._tokenizer.encode(heads[0], heads[1] if len(heads) > 1 else None)
            cut = [number for number, pair in enumerate(zip(heads, texts, strict=True)) if _shorter(*pair)]
            if all(encoding.sequence_ids.count(number) > self._max_length for number in cut):
                break  # each has more tokens than can be read
        return heads, encoding

    def _kept(self, sequences: Sequence[int | None]) -> Sequence[int]:
        """Return the indices of the tokens that are read."""
        count = len(sequences)
        if count <= self._max_length:
            return range(count)
        lengths = sequences.count(0), sequences.count(1)
        left = list(_rooms(*lengths, self._max_length - (count - sum(lengths))))
        kept = []
        for place, sequence in enumerate(sequences):
            if sequence is not None:
                left[sequence] -= 1
            if sequence is None or left[sequence] >= 0:
                kept.append(place)
        return kept


def shorten(first: str, second: str | None, spans: Sequence[Span], kept_W: NDArray[np.bool_]) -> tuple[str, str | None]:
    """Return the texts with their kept words only, in the original order; a gap becomes one space.

    A text that loses no word stays as it is, the part that was not read included.
    """
    kept = kept_W.tolist()
    return _shorten(first, 0, spans, kept), None if second is None else _shorten(second, 1, spans, kept)


def _shorten(text: str, number: int, spans: Sequence[Span], kept: Sequence[bool]) -> str:
    pieces: list[tuple[int, int]] = []
    gap, lost = True, False
    for (which, start, end), stays in zip(spans, kept, strict=True):
        if which != number:
            continue
        if not stays:
            gap = lost = True
        elif gap:
            pieces.append((start, end))
            gap = False
        else:
            pieces[-1] = (pieces[-1][0], end)
    return " ".join(text[start:end] for start, end in pieces) if lost else text


def _head(text: str, limit: int) -> str:
    """Return at most `limit` characters, cut before a word if possible, with lone surrogates replaced."""
    if len(text) > limit:
        space = text.rfind(" ", limit // 2, limit)
        text = text[: space if space > 0 else limit]
    try:
        text.encode()
    except UnicodeEncodeError:
        text = LONE_SURROGATE.sub("\ufffd", text)
    return text


def _shorter(head: str, text: str) -> bool:
    return len(head) < len(text)


def _rooms(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of each text are read: the longer is cut down to the shorter, then both alike."""
    if first + second <= room:
        return first, second
    if first > second:
        return _rooms(second, first, room)[::-1]
    short = min(first, room // 2)
    return short, room - short


def _words(
    texts: Sequence[str],
    sequences: Sequence[int | None],
    word_ids: Sequence[int | None],
    offsets: Sequence[tuple[int, int]],
    kept: Sequence[int],
) -> tuple[list[int], tuple[Span, ...]]:
    """Return the word numbers of the kept tokens, and the words' spans.

    A word begins where the tokenizer says so and where a token begins with white space (for some tokenizers a whole
    text is one word), unless its characters belong to the word before ("…" becomes three tokens).
    """
    numbers: list[int] = []
    spans: list[Span] = []
    before: tuple[int, int | None] | None = None
    for place in kept:
        sequence = sequences[place]
        if sequence is None:
            numbers.append(-1)
            before = None
            continue
        start, end = offsets[place]
        word = (sequence, word_ids[place])
        fresh = word != before or texts[sequence][start : start + 1].isspace()
        if before is None or before[0] != sequence or (fresh and start >= spans[-1][2]):
            spans.append((sequence, start, end))
        elif end > spans[-1][2]:
            spans[-1] = (sequence, spans[-1][1], end)
        before = word
        numbers.append(len(spans) - 1)
    # White space around words is stripped. A word of white space alone joins the next word, or else the one before.
    for number, (which, start, end) in enumerate(spans):
        piece = texts[which][start:end]
        bare = piece.lstrip()
        start += len(piece) - len(bare)
        spans[number] = which, start, start + len(bare.rstrip())
    if all(start < end for _, start, end in spans):
        return numbers, tuple(spans)
    renumbered = [*_joined(spans), -1]  # the last entry is for special tokens, whose number is -1
    return [renumbered[number] for number in numbers], tuple(span for span in spans if span[1] < span[2])


def _joined(spans: Sequence[Span]) -> Iterator[int]:
    """Yield for each word the number of the word with characters that it joins in the same text; -1: none."""
    owners = [which for which, start, end in spans if start < end]
    after = 0
    for which, start, end in spans:
        if start < end or (after < len(owners) and owners[after] == which):
            yield after
        else:
            yield after - 1 if after and owners[after - 1] == which else -1
        after += start < end
