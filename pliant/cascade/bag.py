"""Serves a bag of token n-grams: the numbers of a text's n-grams, and logits from the mean of their rows.

An n-gram is a token or two neighbouring ones, special ones included. Its number needs neither a vocabulary nor other texts:
a token keeps its own, and two are hashed into a range above. Those that say nothing, as a mark that begins every text, are
left out where the bag learns (training/cascade/distil.py). Of a pair, an n-gram is of one of three kinds, each with numbers
of its own: in the first text alone, in the second alone, or in both; and for each token its kind counts as an n-gram as
well, so that what two texts share counts though no text before had it. Knows no tokenizer and no torch.

Shape suffixes: N tokens (special ones included), M n-grams of a text, G known ones, W width, K outputs, R texts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Bag

TOKENS, BIGRAMS = 2**22, 2**28
"""How many numbers there are for tokens and for bigrams, of each kind. Bigrams of kind k begin at (k + 1) * BIGRAMS."""
KINDS = 3 * TOKENS
"""The number of kind 0 as an n-gram; 1 and 2 follow."""
MARKS = 2  # tokens that say nothing: one begins a text, one ends it
FIRST, SECOND = 0x2E3779B1, 0x45EBCA77
"""Factors of a bigram's tokens; odd, so that no two tokens have the same product."""

Tokens = tuple[NDArray[np.int32], NDArray[np.int8]]
"""The ids and the types [N] of a text or a pair. A token of type 0 is of the first text."""


def grams(ids_N: NDArray[np.int32], types_N: NDArray[np.int8]) -> NDArray[np.int32]:
    """Return [M] the numbers of a text's n-grams, repeated ones included: N tokens, N - 1 bigrams, for a pair N kinds."""
    hashed = ids_N[:-1] * FIRST
    hashed += ids_N[1:] * SECOND
    hashed &= BIGRAMS - 1
    hashed |= BIGRAMS
    number_M = np.concatenate((ids_N, hashed))
    if not np.count_nonzero(types_N):
        return number_M
    second_M = np.concatenate((types_N, types_N[1:])) != 0  # a bigram is where its latter token is
    shared = set(number_M[second_M].tolist()) & set(number_M[~second_M].tolist())
    shared_M = np.array([number in shared for number in number_M.tolist()])
    kind_M = np.where(shared_M, 2, second_M).astype(np.int32)
    count = len(ids_N)
    number_M[:count] += kind_M[:count] * TOKENS
    number_M[count:] += kind_M[count:] * BIGRAMS
    return np.concatenate((number_M, kind_M[:count] + KINDS))


class BagModel:
    """A bag that is ready to serve. Immutable, so that threads may share it."""

    def __init__(self, bag: Bag) -> None:
        self._grams_G = np.append(bag.grams, np.int32(2**31 - 1))  # the last one is of no text
        self._seen_G = np.append(np.ones(len(bag.grams), np.bool_) if bag.seen is None else bag.seen, False)
        self._table_GW = np.ascontiguousarray(bag.table)
        self._head_KW, self._bias_K = np.ascontiguousarray(bag.head), bag.bias
        self._unknown_K = np.zeros_like(bag.bias) if bag.classes else bag.bias

    def logits(self, ids_N: NDArray[np.int32], types_N: NDArray[np.int8]) -> NDArray[np.float32]:
        """Return [K] the outputs for a text, of the mean row of its known n-grams.

        A text of whose tokens it has seen less than half, such as one of another language, gets equal outputs, and so a
        doubt that no other has; in a regression the bias alone.
        """
        number_M = grams(ids_N, types_N)
        place_M = self._grams_G.searchsorted(number_M)
        known_M = self._grams_G.take(place_M) == number_M
        seen_N = known_M[: len(ids_N)] & self._seen_G.take(place_M[: len(ids_N)])
        if 2 * np.count_nonzero(seen_N) < len(ids_N) - MARKS or not known_M.any():
            return self._unknown_K.copy()
        known = place_M.compress(known_M)
        sum_W = np.add.reduce(self._table_GW.take(known, axis=0))
        output_K: NDArray[np.float32] = self._head_KW.dot(sum_W)
        output_K /= len(known)
        output_K += self._bias_K
        return output_K

    def logits_of(self, texts: Iterable[Tokens]) -> NDArray[np.float32]:
        """Return [R, K] the outputs for texts."""
        rows = [self.logits(*text) for text in texts]
        return np.stack(rows) if rows else np.empty((0, len(self._bias_K)), np.float32)
