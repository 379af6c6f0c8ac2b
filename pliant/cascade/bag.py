"""Serves a bag of token n-grams: the numbers of a text's n-grams, and logits from the mean of their rows.

An n-gram is a token or two neighbouring ones, special ones included. Its number needs neither a vocabulary nor other texts:
a token keeps its own, and two are hashed into a range above. Those that say nothing, as a mark that begins every text, are
left out where the bag learns (training/distil.py). Of a pair, an n-gram is of one of three kinds, each with numbers of its
own: in the first text alone, in the second alone, or in both; and for each token its kind counts as an n-gram as well, so
that what two texts share counts though no text before had it. Knows no tokenizer and no torch.

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
FIRST, SECOND = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77)  # odd, so that no two tokens give the same product
MASK = np.uint32(BIGRAMS - 1)

Tokens = tuple[NDArray[np.int32], NDArray[np.int8]]
"""The ids and the types [N] of a text or a pair. A token of type 0 is of the first text."""


def grams(ids_N: NDArray[np.int32], types_N: NDArray[np.int8]) -> NDArray[np.int32]:
    """Return [M] the numbers of a text's n-grams, repeated ones included: N tokens, N - 1 bigrams, for a pair N kinds."""
    count = len(ids_N)
    unsigned_N = ids_N.astype(np.uint32)
    number_M = np.empty(2 * count - 1, np.uint32)
    number_M[:count] = unsigned_N
    hashed = number_M[count:]
    np.multiply(unsigned_N[:-1], FIRST, out=hashed)
    hashed += unsigned_N[1:] * SECOND
    hashed &= MASK
    hashed += BIGRAMS
    if not types_N.any():
        return number_M.view(np.int32)
    second_M = np.concatenate([types_N, types_N[1:]]) != 0  # a bigram is where its latter token is
    shared_M = np.isin(number_M, number_M[second_M]) & np.isin(number_M, number_M[~second_M])
    kind_M = np.where(shared_M, 2, second_M).astype(np.uint32)
    number_M[:count] += kind_M[:count] * np.uint32(TOKENS)
    hashed += kind_M[count:] * np.uint32(BIGRAMS)
    return np.concatenate([number_M, KINDS + kind_M[:count]]).view(np.int32)


class BagModel:
    """A bag that is ready to serve. Immutable, so that threads may share it."""

    def __init__(self, bag: Bag) -> None:
        self._grams_G = np.append(bag.grams, np.int32(2**31 - 1))  # the last one is of no text
        self._table_GW = np.ascontiguousarray(bag.table)
        self._head_KW, self._bias_K = np.ascontiguousarray(bag.head), bag.bias

    def logits(self, ids_N: NDArray[np.int32], types_N: NDArray[np.int8]) -> NDArray[np.float32]:
        """Return [K] the outputs for a text: of the mean row of its known n-grams; without any, the bias alone."""
        number_M = grams(ids_N, types_N)
        place_M = self._grams_G.searchsorted(number_M)
        known = place_M[self._grams_G.take(place_M) == number_M]
        if not len(known):
            return self._bias_K.copy()
        sum_W = np.add.reduce(self._table_GW.take(known, axis=0), axis=0)
        output_K: NDArray[np.float32] = self._head_KW @ sum_W
        output_K /= len(known)
        output_K += self._bias_K
        return output_K

    def logits_of(self, texts: Iterable[Tokens]) -> NDArray[np.float32]:
        """Return [R, K] the outputs for texts."""
        rows = [self.logits(*text) for text in texts]
        return np.stack(rows) if rows else np.empty((0, len(self._bias_K)), np.float32)
