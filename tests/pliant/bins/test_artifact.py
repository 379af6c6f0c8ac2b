"""Encoders and bins that contradict themselves are refused with the field that does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.bins.artifact import Encoder, Shape
from pliant.errors import InputError
from tests.fixtures.bins.tiny import some_bins

ENCODER = Encoder("tiny", "embedding", (), "mean", True, "{}", "{}", 8, "data", {"w": np.zeros(1, np.float32)})
DYNAMIC = Shape(64, 4, True)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"head": "poetry"}, "head"),
        ({"head": "poetry", "pooling": "max"}, "head"),
        ({"pooling": "max"}, "pooling"),
        ({"pooling": ""}, "pooling"),
        ({"head": "classification", "pooling": ""}, None),
        ({"pooling": "cls"}, None),
    ],
)
def test_an_embedding_needs_a_pooling_and_a_classification_none(changes, field):
    if field is None:
        assert replace(ENCODER, **changes)
    else:
        with pytest.raises(InputError, match=f"^{field} is"):
            replace(ENCODER, **changes)


@pytest.mark.parametrize(("length", "batch"), [(0, 1), (1, 0), (-1, 1)])
def test_a_shape_holds_a_text_and_a_token(length, batch):
    with pytest.raises(InputError, match=f"shape is {length} x {batch}, but must be at least 1 x 1"):
        Shape(length, batch)


@pytest.mark.parametrize(
    ("shapes", "count"),
    [
        ((DYNAMIC,), 0),
        ((Shape(8, 1), DYNAMIC), 1),
        ((Shape(8, 1), Shape(8, 2), Shape(16, 1), DYNAMIC), 3),
    ],
)
def test_static_shapes_ascend_and_a_dynamic_one_is_the_last(shapes, count):
    assert some_bins(shapes=shapes, seconds=(0.1,) * count).shapes == shapes


@pytest.mark.parametrize(
    "shapes",
    [
        (Shape(8, 1),),
        (DYNAMIC, Shape(8, 1)),
        (Shape(16, 1), Shape(8, 1), DYNAMIC),
        (Shape(8, 2), Shape(8, 1), DYNAMIC),
        (Shape(8, 1), Shape(8, 1), DYNAMIC),
        (Shape(8, 1), Shape(32, 4, True), DYNAMIC),
    ],
)
def test_shapes_in_another_order_or_without_their_dynamic_one_are_refused(shapes):
    static = sum(not shape.dynamic for shape in shapes)
    with pytest.raises(InputError, match=r"^shapes is"):
        some_bins(shapes=shapes, seconds=(0.1,) * static)


@pytest.mark.parametrize("seconds", [(), (0.1, 0.1), (0.0,), (-0.1,), (float("inf"),), (float("nan"),)])
def test_each_static_shape_has_its_seconds(seconds):
    with pytest.raises(InputError, match=r"^seconds is"):
        some_bins(shapes=(Shape(8, 1), DYNAMIC), seconds=seconds)
