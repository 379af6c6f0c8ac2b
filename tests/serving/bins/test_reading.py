"""Fast tokenizing gives the tokens of `Reader`, and a text can be truncated at its beginning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pliant.models.text import Reader
from pliant.serving.bins.endpoint import TokenReader
from tests.fixtures.bins.encoders import tiny_encoder

TOKENIZER, MOST = tiny_encoder().tokenizer, 24
WORDS = st.lists(st.sampled_from(("a", "dog", "reads", "unknowable", "ü", "…", "a\u0301", "🜁", " ", "-")), max_size=40)
TEXTS = st.one_of(WORDS.map(" ".join), st.text(max_size=200))


@settings(deadline=None, max_examples=200)
@given(TEXTS, st.none() | TEXTS)
def test_tokens_are_those_of_the_slow_reader(first, second):
    fast, slow = TokenReader(TOKENIZER, MOST).read(first, second), Reader(TOKENIZER, MOST).read(first, second)
    np.testing.assert_array_equal(fast.ids, slow.ids)
    np.testing.assert_array_equal(fast.types, slow.types)
    assert (fast.truncated, fast.ids.dtype, fast.types.dtype) == (slow.truncated, np.int32, np.int8)


@settings(deadline=None, max_examples=100)
@given(WORDS)
def test_cut_at_its_beginning_a_text_keeps_its_last_tokens_between_the_special_ones(words):
    text = " ".join(words)
    whole = Reader(TOKENIZER, 1000).read(text).ids.tolist()
    told = TokenReader(TOKENIZER, MOST).read(text, left=True)
    if len(whole) <= MOST:
        assert (told.ids.tolist(), told.truncated) == (whole, False)
    else:
        assert (told.ids.tolist(), told.truncated) == ([whole[0], *whole[-MOST + 1 :]], True)


@pytest.mark.parametrize("left", [False, True])
def test_a_book_is_cut_without_reading_all_of_it(left):
    told = TokenReader(TOKENIZER, MOST).read("a dog " * 200_000, left=left)
    assert (len(told.ids), told.truncated) == (MOST, True)


def test_what_the_tokenizer_itself_would_cut_or_pad_does_not_count():
    tokenizer = Tokenizer.from_str(TOKENIZER)
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=64)
    text = "a dog reads a dog reads"
    for left in (False, True):
        plain, told = (TokenReader(one, MOST).read(text, left=left) for one in (TOKENIZER, tokenizer.to_str()))
        np.testing.assert_array_equal(told.ids, plain.ids)
        assert 5 < len(told.ids) < 64 and not told.truncated


@settings(deadline=None, max_examples=100)
@given(WORDS, st.booleans())
def test_the_tokens_of_a_text_are_those_that_are_read_with_their_bytes(words, special):
    text = " ".join(words)
    tokens = TokenReader(TOKENIZER, MOST).tokens(text, special)
    encoding = Tokenizer.from_str(TOKENIZER).encode(text, add_special_tokens=special)
    assert [token.id for token in tokens] == encoding.ids
    for token in tokens:
        if token.special:
            assert (token.start, token.stop) == (None, None)
        else:
            assert text.encode()[token.start : token.stop].decode() == token.text


@pytest.mark.parametrize("left", [False, True])
def test_token_ids_are_read_as_they_are_up_to_the_most(left):
    reader, ids = TokenReader(TOKENIZER, MOST), tuple(range(5, 5 + MOST + 3))
    short, long = reader.read_ids(ids[:3], left), reader.read_ids(ids, left)
    assert (short.ids.tolist(), short.types.tolist(), short.truncated) == ([5, 6, 7], [0, 0, 0], False)
    assert (long.ids.tolist(), long.truncated) == (list(ids[3:] if left else ids[:MOST]), True)
    assert (long.ids.dtype, long.types.dtype) == (np.int32, np.int8)
