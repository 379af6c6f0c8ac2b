"""Texts come as tensors of BYTES, alone or in pairs, in JSON or as UTF-8."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.errors import InputError
from pliant.serving.http.oip.models import text_inputs, texts_of
from pliant.serving.http.oip.request import read_request
from tests.fixtures.http.oip import CLASSIFIER, byte_tensor, text_tensor


def read(*entries, binary: bytes = b"", pair: bool | None = None):
    model = replace(CLASSIFIER, inputs=text_inputs(pair))
    return texts_of(read_request(model, {"inputs": list(entries)}, memoryview(binary)))


def test_texts_in_json_and_in_utf8_are_the_same_in_one_column_too():
    entry, data = byte_tensor("text", "é".encode(), b"b")
    for texts in (
        read(text_tensor("text", "é", "b")),
        read(text_tensor("text", "é", "b", shape=[2, 1])),
        read(entry, binary=data),
        read({**entry, "shape": [2, 1]}, binary=data),
    ):
        assert texts == (("é", None), ("b", None))


def test_pairs_are_two_tensors():
    assert read(text_tensor("text_pair", "b"), text_tensor("text", "a\x00")) == (("a ", "b"),)


@pytest.mark.parametrize(
    ("entries", "pair", "sentence"),
    [
        ([text_tensor("text")], None, "text is empty, but must be a list of at least one text"),
        (
            [text_tensor("text", "a"), text_tensor("text_pair", "b", "c")],
            None,
            "text_pair is of 2 texts, but must be of 1",
        ),
        ([text_tensor("text", "a")], True, "inputs is without text_pair"),
        ([text_tensor("text_pair", "a")], None, "inputs is without text"),
        (
            [text_tensor("text", "a"), text_tensor("text_pair", "b")],
            False,
            "name is 'text_pair', but must be one of text",
        ),
        ([text_tensor("text", "a", "b", shape=[1, 2])], None, "but must be BYTES [-1] or BYTES [-1, 1]"),
    ],
)
def test_columns_that_do_not_fit_are_refused(entries, pair, sentence):
    with pytest.raises(InputError) as raised:
        read(*entries, pair=pair)
    assert sentence in str(raised.value)


def test_bytes_that_are_no_utf8_are_refused():
    entry, data = byte_tensor("text", b"a", b"\xff")
    with pytest.raises(InputError, match=r"text\[1\] is b'\\xff', but must be a text in UTF-8"):
        read(entry, binary=data)
