"""Log-probabilities of a token, as an engine reports them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pliant.pickled import pickled_by_fields


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's log-probability by the model, and the likeliest tokens in its place with theirs, the likeliest first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class PackedLogprobs:
    """The log-probabilities of many tokens as bytes, which a process can pass on and keep without making the objects.

    `pieces`: pickled tuples of `TokenLogprobs`, each of some thousand numbers; `count`: of the tokens.
    """

    pieces: tuple[bytes, ...]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[TokenLogprobs]:
        for piece in self.pieces:
            yield from pickle.loads(piece)


PIECE = 2048  # numbers: what takes some milliseconds to make or to write


def piece_tokens(top: int) -> int:
    """Return how many tokens, each with `top` likeliest ones, are a piece."""
    return max(1, PIECE // (max(top, 0) + 1))


def packed(logprobs: Sequence[TokenLogprobs]) -> PackedLogprobs:
    """Return log-probabilities as bytes."""
    size = piece_tokens(len(logprobs[0].top)) if logprobs else 1
    pieces = [pickle.dumps(tuple(logprobs[at : at + size]), 5) for at in range(0, len(logprobs), size)]
    return PackedLogprobs(tuple(pieces), len(logprobs))
