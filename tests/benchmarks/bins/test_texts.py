"""Texts of a given number of tokens, and requests made of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bins.requests import TIMEOUT, embeddings, load_of, read_lengths, texts_for
from benchmarks.bins.texts import TextMaker
from benchmarks.bins.traces import Trace
from pliant.errors import InputError
from training.starts import new_tokenizer

TEXT = "Return the mean of an array along the given axis, unforeseeably ignoring whatever is not there. a x"
WORDS = TEXT.split()
TOKENIZER = new_tokenizer([TEXT], 200)
MAKER = TextMaker(TOKENIZER.to_str(), WORDS)
TRACE = Trace(np.array([0.0, 0.5, 0.75]), np.array([1, 20, 400], dtype=np.int32), "three")


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 300), st.integers(0, 2**32 - 1))
def test_a_text_has_exactly_the_tokens_asked_for(length, seed):
    text = MAKER.text(length, np.random.default_rng(seed))
    assert len(TOKENIZER.encode(text).ids) == length


def test_a_text_shorter_than_a_word_is_refused():
    assert MAKER.least == 3
    with pytest.raises(InputError, match="length"):
        MAKER.text(2, np.random.default_rng(0))


def test_words_without_a_short_one_could_never_end_a_text():
    with pytest.raises(InputError, match="words"):
        TextMaker(TOKENIZER.to_str(), ["mean.axis"])


def test_there_are_texts_for_every_length_of_a_trace_as_the_encoder_reads_it():
    made = texts_for(TRACE.lengths, MAKER, 128, each=2, seed=0)
    assert list(read_lengths(TRACE.lengths, MAKER.least, 128)) == [3, 20, 128]
    assert [n for n, texts in enumerate(made.by_length) if texts] == [3, 20, 128]
    assert all(len(TOKENIZER.encode(text).ids) == n for n in (3, 20, 128) for text in made.by_length[n])
    assert len(made.mixed) == 32
    assert {len(TOKENIZER.encode(text).ids) for text in made.mixed} == {3, 20, 128}


def test_a_request_asks_for_a_text_of_its_length_and_its_answer_must_be_one_vector_of_length_1():
    load, made, form = load_of("x", TRACE, MAKER.least, 128), texts_for(TRACE.lengths, MAKER, 128, 2, 0), embeddings()
    assert [(r.arrival, r.length, r.deadline - r.arrival) for r in load.requests] == [
        (0.0, 3, TIMEOUT),
        (0.5, 20, TIMEOUT),
        (0.75, 128, TIMEOUT),
    ]
    text = form.choose(load.requests[1], made.by_length, np.random.default_rng(0))
    assert json.loads(form.body(load.requests[1], text)) == {"inputs": [text], "deadline": TIMEOUT}
    assert text in made.by_length[20]
    assert form.read([[0.6, 0.8]], text).correct
    assert not form.read([[0.6, 0.9]], text).correct
    assert not form.read([[1.0, 0.0], [1.0, 0.0]], text).correct
