"""From texts to tokens and words, and back from words to a shorter text.

Every level has a tokenizer of its own, so what a level drops has to reach the next one as text (Tabi, section 4.2): tokens
are grouped into words that know where in the text they stand. Knows the tokenizers library; no model, no importance.

Truncation is done here and not by the library: of a pair it makes every combination of the parts that it cuts off, which
takes a second for two texts of 30 kB and all memory for two of 1 MB. The tokens are those of training: longest first.

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

SHORTEST = 8  # tokens: a pair's special ones and at least two of each text
USUAL, LONGEST = 8, 64
"""Characters a token: of a longer text first so many are tokenized, and never more than so many."""
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Span = tuple[int, int, int]
"""Which text (0 or 1), and from which character of it to before which."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Spans ascend, do not overlap, and neither begin nor end with white space."""

    ids: NDArray[np.int32]  # [N], at least one
    types: NDArray[np.int8]  # [N]
    words: NDArray[np.int32]  # [N] number of the token's word; -1: of none, as special tokens are
    spans: tuple[Span, ...]  # [W]
    truncated: bool  # a part of a text was not read


class Reader:
    """Reads texts as one level does. Immutable, so threads may share it.

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

    def read(self, first: str, second: str | None = None) -> Reading:
        """Any text can be read: what the tokenizer does not know or leaves nothing of is no error."""
        texts = (first,) if second is None else (first, second)
        heads, encoding = self._encode(texts)
        sequences = encoding.sequence_ids
        kept = self._kept(sequences)
        numbers, spans = _words(heads, sequences, encoding.word_ids, encoding.offsets, kept)
        ids, types = encoding.ids, encoding.type_ids
        if len(kept) < len(ids):
            ids, types = [ids[i] for i in kept], [types[i] for i in kept]
        truncated = len(kept) < len(sequences) or any(map(_shorter, heads, texts))
        if not ids:  # a tokenizer without special tokens: a model needs something to read
            ids, types, numbers = [0], [0], [-1]
        return Reading(np.array(ids, np.int32), np.array(types, np.int8), np.array(numbers, np.int32), spans, truncated)

    def _encode(self, texts: Sequence[str]) -> tuple[list[str], Encoding]:
        """The texts, cut where they are far too long, and their tokens."""
        for most in (USUAL * self._max_length, LONGEST * self._max_length):
            heads = [_head(text, most) for text in texts]
            encoding = self._tokenizer.encode(heads[0], heads[1] if len(heads) > 1 else None)
            if not any(map(_shorter, heads, texts)) or self._enough(heads, texts, encoding.sequence_ids):
                break
        return heads, encoding

    def _enough(self, heads: Sequence[str], texts: Sequence[str], sequences: Sequence[int | None]) -> bool:
        """Whether every text that was cut gives more tokens than can be read anyway."""
        cut = [number for number, pair in enumerate(zip(heads, texts, strict=True)) if _shorter(*pair)]
        return all(sequences.count(number) > self._max_length for number in cut)

    def _kept(self, sequences: Sequence[int | None]) -> Sequence[int]:
        """Places of the tokens that are read."""
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
    """The texts with their kept words only, in the original order; a gap becomes one space.

    A text that loses no word stays as it is, whatever of it has not been read.
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


def _head(text: str, most: int) -> str:
    """At most so many characters, cut before a word where there is one; what no tokenizer takes is replaced."""
    if len(text) > most:
        space = text.rfind(" ", most // 2, most)
        text = text[: space if space > 0 else most]
    try:
        text.encode()
    except UnicodeEncodeError:
        text = LONE_SURROGATE.sub("\ufffd", text)
    return text


def _shorter(head: str, text: str) -> bool:
    return len(head) < len(text)


def _rooms(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each text are read: the longer is cut down to the shorter, then both alike."""
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
    """Word numbers of the kept tokens, and the words' spans.

    A word begins where the tokenizer says so and where a token begins with white space (some tokenizers take a whole
    text for one word), unless the characters belong to the word before ("…" becomes three).
    """
    numbers: list[int] = []
    found: list[Span] = []
    before: tuple[int, int | None] | None = None
    for place in kept:
        sequence = sequences[place]
        if sequence is None:
            numbers.append(-1)
            before = None
            continue
        start, end = offsets[place]
        told = (sequence, word_ids[place])
        fresh = told != before or texts[sequence][start : start + 1].isspace()
        if before is None or before[0] != sequence or (fresh and start >= found[-1][2]):
            found.append((sequence, start, end))
        elif end > found[-1][2]:
            found[-1] = (sequence, found[-1][1], end)
        before = told
        numbers.append(len(found) - 1)
    return _stripped(texts, numbers, found)


def _stripped(texts: Sequence[str], numbers: list[int], found: list[Span]) -> tuple[list[int], tuple[Span, ...]]:
    """Without the white space around words. Words of nothing else belong to the next word, or else the one before."""
    spans = [_strip(texts[which], which, start, end) for which, start, end in found]
    if all(start < end for _, start, end in spans):
        return numbers, tuple(spans)
    renumbered = [*_joined(spans), -1]  # the last one for special tokens
    return [renumbered[number] for number in numbers], tuple(span for span in spans if span[1] < span[2])


def _strip(text: str, which: int, start: int, end: int) -> Span:
    piece = text[start:end]
    bare = piece.lstrip()
    start += len(piece) - len(bare)
    return which, start, start + len(bare.rstrip())


def _joined(spans: Sequence[Span]) -> Iterator[int]:
    """Per word, the number of the word with characters in the same text that it belongs to; -1 if there is none."""
    owners = [which for which, start, end in spans if start < end]
    after = 0
    for which, start, end in spans:
        if start < end or (after < len(owners) and owners[after] == which):
            yield after
        else:
            yield after - 1 if after and owners[after - 1] == which else -1
        after += start < end
