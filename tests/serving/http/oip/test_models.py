"""Tensors are read from JSON and bytes as they were written; parameters and columns of texts within their limits."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pliant.errors import InputError
from pliant.serving.http.oip.models import (
    BYTES,
    DTYPES,
    Parameters,
    Tensor,
    from_binary,
    from_json,
    numbers,
    text_inputs,
    texts,
    texts_of,
    to_binary,
    to_json,
)
from pliant.serving.http.oip.routes import read_request
from tests.fixtures.http.oip import CLASSIFIER, byte_tensor, text_tensor

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


@st.composite
def number_tensors(draw):
    datatype = draw(st.sampled_from(list(DTYPES)))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    elements = arrays.from_dtype(DTYPES[datatype], allow_nan=False, allow_infinity=False)
    return numbers("x", datatype, draw(arrays.arrays(DTYPES[datatype], shape, elements=elements)))


@st.composite
def text_tensors(draw):
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3))
    count = math.prod(shape)
    return texts("x", draw(st.lists(TEXTS, min_size=count, max_size=count)), shape)


def written(tensor: Tensor):
    """As a client reads it, and may send it again."""
    return json.loads(orjson.dumps(to_json(tensor), option=orjson.OPT_SERIALIZE_NUMPY))


def as_array(tensor: Tensor) -> np.ndarray:
    return np.array(tensor.elements, object if tensor.datatype == BYTES else None).reshape(tensor.shape)


def check_equal(tensor: Tensor, other: Tensor) -> None:
    assert (tensor.name, tensor.datatype, tensor.shape) == (other.name, other.datatype, other.shape)
    assert isinstance(other.elements, np.ndarray) is isinstance(tensor.elements, np.ndarray)
    np.testing.assert_array_equal(as_array(other), as_array(tensor))


@given(number_tensors() | text_tensors(), st.booleans())
def test_what_is_written_as_json_is_read_back_flat_or_nested(tensor, nested):
    data = np.array(written(tensor), object).reshape(tensor.shape).tolist() if nested else written(tensor)
    if tensor.shape:  # a scalar has one element, and no other form
        check_equal(tensor, from_json("x", tensor.datatype, tensor.shape, data))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)
SHAPE = st.lists(st.sampled_from([0, 1, 2, 3, 2**40]), max_size=3).map(tuple)


@given(st.sampled_from([BYTES, *DTYPES]), SHAPE, JSON)
def test_whatever_the_data_is_it_fits_or_is_an_error_of_the_caller(datatype, shape, data):
    try:
        tensor = from_json("x", datatype, shape, data)
    except InputError:
        return
    assert len(tensor.elements) == math.prod(shape)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "sentence"),
    [
        ("FP32", [1], [math.nan], "data of x is with a number that is not finite"),
        ("FP32", [1], [math.inf], "not finite"),
        ("FP32", [1], [1e39], "not finite"),
        ("FP64", [1], [10**400], "with too large a number"),
        ("FP32", [1], ["1"], "with the element '1', but must be of datatype FP32"),
        ("FP32", [1], [True], "with the element True"),
        ("FP32", [1], [None], "with the element None"),
        ("UINT8", [2], [1, 256], "with the element 256, but must be within UINT8"),
        ("UINT8", [2], [1, -1], "with the element -1"),
        ("INT64", [1], [2**63], "must be within INT64"),
        ("INT64", [1], [1.0], "of datatype INT64"),
        ("BOOL", [1], [1], "of datatype BOOL"),
        (BYTES, [1], [1], "with the element 1, but must be texts"),
        (BYTES, [1], [None], "with the element None"),
        (BYTES, [2], ["a"], "a list of 1, but must be of 2 elements"),
        (BYTES, [1], ["a", "b"], "a list of 2, but must be of 1"),
        (BYTES, [1], "a", "'a', but must be a list"),
        (BYTES, [2, 2], [["a", "b"], ["c"]], "nested as the shape [2, 2] says, or flat"),
        (BYTES, [2, 1], [["a"], "b"], "nested as the shape"),
        (BYTES, [1, 1], [[["a"]]], "with the element ['a']"),
    ],
)
def test_an_element_that_does_not_fit_is_named(datatype, shape, data, sentence):
    with pytest.raises(InputError) as raised:
        from_json("x", datatype, tuple(shape), data)
    assert sentence in str(raised.value)


BINARY_SHAPE = st.lists(st.sampled_from([0, 1, 2, 5, 2**31, 2**62]), max_size=3).map(tuple)


@given(st.sampled_from([BYTES, *DTYPES]), BINARY_SHAPE, st.binary(max_size=40))
def test_any_bytes_are_a_tensor_of_the_shape_or_an_error_of_the_caller(datatype, shape, data):
    try:
        tensor = from_binary("x", datatype, shape, memoryview(data))
    except InputError:
        return
    assert len(tensor.elements) == math.prod(shape)
    assert to_binary(tensor) == data


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "sentence"),
    [
        ("FP32", (2,), b"\0" * 7, "binary data of x is 7 bytes, but must be 8 bytes"),
        ("FP32", (2,), b"\0" * 9, "is 9 bytes, but must be 8 bytes"),
        ("UINT8", (2**62, 2**62), b"", "0 bytes, but must be"),
        ("BOOL", (2,), b"\1\2", "with another byte than 0 and 1"),
        (BYTES, (2**40,), b"\0" * 8, "8 bytes, but must be at least"),
        (BYTES, (2,), b"\1\0\0\0a\0\0\0", "too short for element 1, but must be whole elements"),
        (BYTES, (1,), b"\2\0\0\0a", "too short for element 0 of 2 bytes"),
        (BYTES, (1,), b"\1\0\0\0ab", "6 bytes, but must be 5 bytes"),
        (BYTES, (0,), b"a", "1 bytes, but must be 0 bytes"),
    ],
)
def test_bytes_that_do_not_add_up_are_refused(datatype, shape, data, sentence):
    with pytest.raises(InputError) as raised:
        from_binary("x", datatype, shape, memoryview(data))
    assert sentence in str(raised.value)


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


def read(*entries, binary: bytes = b"", pair: bool | None = None):
    model = replace(CLASSIFIER, inputs=text_inputs(pair))
    return texts_of(read_request(model, {"inputs": list(entries)}, memoryview(binary)))


@pytest.mark.parametrize(
    ("entries", "pair", "sentence"),
    [
        ([text_tensor("text")], None, "text is empty, but must be a list of at least one text"),
        ([text_tensor("text", "a"), text_tensor("text_pair", "b", "c")], None, "text_pair is of 2 texts, but must"),
        ([text_tensor("text", "a")], True, "inputs is without text_pair"),
        ([text_tensor("text_pair", "a")], None, "inputs is without text"),
        ([text_tensor("text", "a"), text_tensor("text_pair", "b")], False, "name is 'text_pair', but must be one"),
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
