"""Which words the next level still reads (Tabi, Eq. 5), by the attention that their tokens received.

Pure arithmetic over numbers and word numbers (pliant/models/text.py); knows no text and no model.

Shape suffixes: N tokens (special ones included), W words over both texts.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Pruning
from pliant.errors import InputError

Kept = NDArray[np.bool_]
Floats = NDArray[np.float64]


def kept_words(importance_N: NDArray[np.float32], words_N: NDArray[np.int32], pruning: Pruning) -> Kept:
    """kept_W. Special tokens (-1) always stay and do not count; of every text at least the most important word stays.

    "mean": a token stays whose importance is above `value` times the mean, a word with any of its tokens (Eq. 5). "mass":
    the fewest, most important words that hold `value` of the sum; of equal ones the earlier. Raises `InputError` for
    another rule.
    """
    proper_N = words_N >= 0
    word_T, importance_T = words_N[proper_N], importance_N[proper_N].astype(np.float64)  # T: tokens of words
    if not len(word_T):
        return np.zeros(0, dtype=np.bool_)
    words = int(word_T[-1]) + 1
    kept_W: Kept = np.ones(words, dtype=np.bool_)
    match pruning.rule:
        case "none":
            return kept_W
        case "mean":
            strength_W: Floats = np.full(words, -np.inf)
            np.maximum.at(strength_W, word_T, importance_T)
            kept_W = strength_W > pruning.value * (importance_T.sum() / len(importance_T))
        case "mass":
            strength_W = np.bincount(word_T, importance_T).astype(np.float64, copy=False)
            kept_W = _mass(strength_W, pruning.value)
        case _:
            raise InputError("pruning rule", pruning.rule, "none, mean or mass")
    for start, end in _texts(words_N):
        if not kept_W[start:end].any():
            kept_W[start + strength_W[start:end].argmax()] = True
    return kept_W


def _mass(strength_W: Floats, share: float) -> Kept:
    """The first words by descending strength whose sum reaches `share` of all."""
    order_W = np.argsort(-strength_W, kind="stable")
    sum_W = strength_W[order_W].cumsum()
    count = int(np.searchsorted(sum_W, share * sum_W[-1])) + 1
    kept_W = np.zeros(len(strength_W), dtype=np.bool_)
    kept_W[order_W[:count]] = True
    return kept_W


def _texts(words_N: NDArray[np.int32]) -> list[tuple[int, int]]:
    """From which word to before which every text goes. Special tokens stand between texts; without them all are one."""
    ends_N = (words_N[:-1] >= 0) & (words_N[1:] < 0)
    bounds = [0, *(words_N[:-1][ends_N] + 1).tolist()]
    if words_N[-1] >= 0:
        bounds.append(int(words_N[-1]) + 1)
    return list(pairwise(bounds))
