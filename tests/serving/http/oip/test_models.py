"""What a system says of its models, and what all systems read from parameters alike."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pliant.errors import InputError
from pliant.serving.http.oip.models import Parameters, best_classes, text_inputs, texts_of
from pliant.serving.http.oip.request import read_request
from pliant.serving.http.oip.tensors import numbers
from tests.fixtures.http.oip import CLASSIFIER, byte_tensor, text_tensor

CLASSES = ("red", "green", "blue")


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, None),
        ({"deadline": None, "timeout": None}, None),
        ({"deadline": 1.5, "timeout": 7}, 1.5),
        ({"timeout": 2_500_000}, 2.5),
        ({"timeout": 60_000_000}, 60.0),
    ],
)
def test_a_deadline_is_in_seconds_and_a_timeout_in_microseconds(fields, seconds):
    assert Parameters.read(fields).seconds(60.0) == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("deadline", value) for value in (0, -1, 61, math.nan, math.inf, "1", True, [1], 10**400)),
        *(("timeout", value) for value in (0, -1, 60_000_001, 1.5, math.nan, "1", True, 10**400)),
    ],
)
def test_a_deadline_or_timeout_outside_its_limits_is_refused(name, value):
    with pytest.raises(InputError) as raised:
        Parameters.read({name: value}, "parameters").seconds(60.0)
    assert raised.value.field == f"parameters.{name}"


def test_the_best_classes_come_with_score_and_number_best_first():
    scores = numbers("scores", "FP32", [[0.25, 0.5, 0.25], [1.0, 0.0, 2.0]])
    expected = ["0.500000:1:green", "0.250000:0:red", "2.000000:2:blue", "1.000000:0:red"]
    assert best_classes(scores, CLASSES, 2) == (expected, (2, 2))
    assert best_classes(scores, CLASSES, 99)[1] == (2, 3)
    assert best_classes(scores, (), 1) == (["0.500000:1", "2.000000:2"], (2, 1))


def read(*entries, binary: bytes = b"", pair: bool | None = None):
    model = replace(CLASSIFIER, inputs=text_inputs(pair))
    return texts_of(read_request(model, {"inputs": list(entries)}, memoryview(binary)))


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
