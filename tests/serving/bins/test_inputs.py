"""Texts, token ids and options are read from the fields of a request."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from serving.bins.inputs import embedding_inputs, id_lists, positive, prompt_name, texts
from serving.bins.request import TokenIds
from serving.http.api_errors import ApiError


def test_inputs_of_embeddings_are_texts_and_token_ids_alone_or_in_a_list():
    assert embedding_inputs("inputs", "a\x00", 2) == (("a ", None),)
    assert embedding_inputs("inputs", ["a", "b"], 2) == (("a", None), ("b", None))
    assert embedding_inputs("inputs", [7, 8, 9], 2) == (TokenIds("inputs", (7, 8, 9)),)
    assert embedding_inputs("inputs", ["a", [7]], 2) == (("a", None), TokenIds("inputs[1]", (7,)))
    with pytest.raises(ApiError, match="inputs is a list of 3, but must be at most 2"):
        embedding_inputs("inputs", ["a", "b", "c"], 2)
    with pytest.raises(InputError, match="inputs is empty"):
        embedding_inputs("inputs", [], 2)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (["a", None], r"inputs\[1\] is None, but must be a text or a list of token ids"),
        ([7, "a"], r"inputs is \[7, 'a'\], but must be a list of at least one token id"),
        (["a", 7], r"inputs\[1\] is 7, but must be a text or a list of token ids"),
        ([[7, True]], r"inputs\[0\] is \[7, True\], but must be a list of at least one token id"),
        ([[[7]]], r"inputs\[0\] is \[\[7\]\], but must be a list of at least one token id"),
        ([float("nan")], r"inputs\[0\] is nan, but must be a text or a list of token ids"),
        (7, "inputs is 7, but must be a text, a list of token ids, or a list of these"),
        (None, "inputs is None, but must be a text, a list of token ids, or a list of these"),
    ],
)
def test_any_other_input_is_refused_where_it_stands(value, sentence):
    with pytest.raises(InputError, match=sentence):
        embedding_inputs("inputs", value, 2)


def test_lists_of_ids_and_of_texts_are_read():
    assert id_lists("ids", [7, 8], 2) == (TokenIds("ids", (7, 8)),)
    assert id_lists("ids", [[7], [8]], 2) == (TokenIds("ids[0]", (7,)), TokenIds("ids[1]", (8,)))
    assert texts("texts", ["a", "b\x00"], 2) == ("a", "b ")


def test_options_are_none_if_they_are_left_out_or_null():
    for fields in ({}, {"prompt_name": None, "top_n": None}):
        assert (prompt_name(fields), positive(fields, "top_n")) == (None, None)
    assert (prompt_name({"prompt_name": "q"}), positive({"top_n": 1}, "top_n")) == ("q", 1)
    for value in (0, -1, 1.0, "1", True, float("inf")):
        with pytest.raises(InputError, match=r"top_n is .*, but must be a whole number from 1 on"):
            positive({"top_n": value}, "top_n")
    with pytest.raises(InputError, match="prompt_name is 1, but must be the name of a prompt"):
        prompt_name({"prompt_name": 1})
