"""Texts become exactly a shape's arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.padding import check, padded
from pliant.errors import InputError
from tests.fixtures.bins.encoders import random_payload

shapes = st.builds(Shape, st.integers(1, 30), st.integers(1, 6), st.booleans())


def texts(draw, shape: Shape):
    lengths = draw(st.lists(st.integers(1, shape.length), min_size=1, max_size=shape.batch))
    return [random_payload(np.random.default_rng(n), length) for n, length in enumerate(lengths)]


@given(st.data(), shapes)
def test_valid_tokens_are_the_texts_and_rows_without_one_repeat_the_first(data, shape):
    payloads = texts(data.draw, shape)
    check(shape, payloads)
    batch = padded(shape, payloads, pad=99, typed=True)
    rows, length = (
        (len(payloads), max(len(ids) for ids, _ in payloads)) if shape.dynamic else (shape.batch, shape.length)
    )
    assert {array.shape for array in batch.values()} == {(rows, length)}
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int64)}
    for row in range(rows):
        ids, types = payloads[row] if row < len(payloads) else payloads[0]
        valid = batch["attention_mask"][row]
        assert valid.tolist() == [1] * len(ids) + [0] * (length - len(ids))
        assert batch["input_ids"][row].tolist() == ids.tolist() + [99] * (length - len(ids))
        assert batch["token_type_ids"][row].tolist() == types.tolist() + [0] * (length - len(ids))


@pytest.mark.parametrize(
    ("shape", "payloads", "words"),
    [
        (Shape(8, 2), [], "payloads is 0 texts, but must be 1 to 2 for 2 x 8"),
        (Shape(8, 1, True), [(8, 8)] * 2, "payloads is 2 texts, but must be 1 to 1 for at most 1 x 8"),
        (Shape(8, 2), [(8, 8), (9, 9)], "text is 9 tokens long, but must be 1 to 8 for 2 x 8"),
        (Shape(8, 2, True), [(0, 0)], "text is 0 tokens long, but must be 1 to 8 for at most 2 x 8"),
        (Shape(8, 2), [((2, 3), (2, 3))], "text is 6 tokens long, but must be 1 to 8 for 2 x 8"),
        (Shape(8, 2), [(4, 5)], "types is of shape (5,), but must be one a token, (4,)"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_size_and_the_shapes(shape, payloads, words):
    with pytest.raises(InputError) as caught:
        check(shape, [(np.ones(ids, np.int32), np.zeros(types, np.int8)) for ids, types in payloads])
    assert str(caught.value) == words
