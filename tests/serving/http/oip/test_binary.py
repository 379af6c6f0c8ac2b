"""Binary data that does not add up is an error of the caller, whatever its bytes are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.serving.http.oip.binary import from_binary, to_binary
from pliant.serving.http.oip.tensors import BYTES, DTYPES, numbers, texts

SHAPE = st.lists(st.sampled_from([0, 1, 2, 5, 2**31, 2**62]), max_size=3).map(tuple)


@given(st.sampled_from([BYTES, *DTYPES]), SHAPE, st.binary(max_size=40))
def test_any_bytes_are_a_tensor_of_the_shape_or_an_error_of_the_caller(datatype, shape, data):
    try:
        tensor = from_binary("x", datatype, shape, memoryview(data))
    except InputError:
        return
    assert len(tensor.elements) == math.prod(shape)
    assert to_binary(tensor) == data


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=5), st.data())
def test_elements_that_are_cut_or_go_on_are_refused(elements, data):
    whole = to_binary(texts("x", [element.hex() for element in elements]))
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], whole + b"\0", b"\xff\xff\xff\xff" + whole[4:]):
        with pytest.raises(InputError):
            from_binary("x", BYTES, (len(elements),), memoryview(broken))


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


def test_bytes_are_little_endian_and_in_row_major_order():
    assert to_binary(numbers("x", "INT32", [[1, 2], [3, 4]])) == bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0])
    assert to_binary(texts("x", ["é", ""])) == b"\2\0\0\0\xc3\xa9\0\0\0\0"
    assert to_binary(numbers("x", "BOOL", np.array([True, False]))) == b"\1\0"
    assert to_binary(numbers("x", "FP16", [1.0])) == b"\0\x3c"
