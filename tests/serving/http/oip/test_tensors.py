"""Tensors are read from JSON as they were written, and what does not fit is an error of the caller."""

from __future__ import annotations

import json
import math

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pliant.errors import InputError
from pliant.serving.http.oip.tensors import (
    BYTES,
    DTYPES,
    Tensor,
    from_binary,
    from_json,
    numbers,
    texts,
    to_binary,
    to_json,
)

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
def test_sizes_that_do_not_add_up_are_named(datatype, shape, data, sentence):
    with pytest.raises(InputError) as raised:
        from_binary("x", datatype, shape, memoryview(data))
    assert sentence in str(raised.value)
