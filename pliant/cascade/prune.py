"""Chooses the words that the next level reads (Tabi, Eq. 5), by the attention that their tokens received.

Pure arithmetic over importances and word numbers (pliant/models/text.py); knows no text and no model.

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
    """Return [W], whether each word is kept. Special tokens (word -1) do not count; every text keeps at least one word.

    "mean" keeps a word if any of its tokens has more than `value` times the mean importance (Eq. 5). Raises `InputError`
    for another rule.
    """
    proper_N = words_N >= 0
    word_T, importance_T = words_N[proper_N], importance_N[proper_N].astype(np.float64)  # T: tokens of words
    if not len(word_T):
        return np.zeros(0, dtype=np.bool_)
    words = int(word_T[-1]) + 1
    kept_W: Kept = np.ones(words, dtype=np.bool_)
    if pruning.rule == "none":
        return kept_W
    if pruning.rule != "mean":
        raise InputError("pruning rule", pruning.rule, "none or mean")
    strength_W: Floats = np.full(words, -np.inf)
    np.maximum.at(strength_W, word_T, importance_T)
    kept_W = strength_W > pruning.value * (importance_T.sum() / len(importance_T))
    for start, end in _texts(words_N):
        if not kept_W[start:end].any():
            kept_W[start + strength_W[start:end].argmax()] = True
    return kept_W


def _texts(words_N: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Return each text's first word and the one behind its last. Without special tokens between, all are one text."""
    ends_N = (words_N[:-1] >= 0) & (words_N[1:] < 0)
    bounds = [0, *(words_N[:-1][ends_N] + 1).tolist()]
    if words_N[-1] >= 0:
        bounds.append(int(words_N[-1]) + 1)
    return list(pairwise(bounds))
