"""Pruning keeps the words of Eq. 5, as does a slow reference word by word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.artifact import Pruning
from pliant.cascade.prune import kept_words
from pliant.errors import InputError
from tests.fixtures.processor import cost


def kept_by_reference(importance, words, pruning):
    tokens = [(number, float(value)) for number, value in zip(words, importance, strict=True) if number >= 0]
    mean = sum(value for _, value in tokens) / len(tokens)
    strength = [max(value for number, value in tokens if number == word) for word in sorted({n for n, _ in tokens})]
    kept = {number for number, value in tokens if value > pruning.value * mean}
    for text in "".join(chr(33 + n) if n >= 0 else " " for n in words).split():
        own = sorted({ord(letter) - 33 for letter in text})
        if not kept & set(own):
            kept.add(max(own, key=lambda word: (strength[word], -word)))
    return [word in kept for word in range(len(strength))]


@st.composite
def readings(draw):
    """Draw tokens of one or two texts between special ones. Importances are eighths, so that sums are exact."""
    words, number = [-1], 0
    for _ in range(draw(st.integers(1, 2))):
        for pieces in draw(st.lists(st.integers(1, 3), min_size=1, max_size=6)):
            words += [number] * pieces
            number += 1
        words.append(-1)
    importance = draw(st.lists(st.integers(0, 16).map(lambda n: n / 8), min_size=len(words), max_size=len(words)))
    return np.array(importance, np.float32), np.array(words, np.int32)


prunings = st.builds(Pruning, st.just("mean"), st.sampled_from([0.0, 0.5, 0.75, 1.0, 1.5, 3.0]))


@given(reading=readings(), pruning=prunings)
def test_the_kept_words_are_those_of_the_reference(reading, pruning):
    assert kept_words(*reading, pruning).tolist() == kept_by_reference(*reading, pruning)


def test_another_rule_is_refused():
    with pytest.raises(InputError, match="pruning rule is mass, but must be none or mean"):
        kept_words(np.ones(1, np.float32), np.zeros(1, np.int32), Pruning("mass", 0.9))


def test_pruning_thirty_two_tokens_takes_no_more_than_a_few_thousand_additions():
    words = np.array([-1, *range(15), -1, *range(15, 29), -1], np.int32)
    importance = np.linspace(0, 1, len(words)).astype(np.float32)

    def a_hundred():
        for _ in range(100):
            kept_words(importance, words, Pruning("mean", 0.8))

    assert cost(a_hundred) < 100 * 0.04
