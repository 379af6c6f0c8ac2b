"""Encoders and bins that contradict themselves are refused with the field that does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.bins.artifact import ENGINES, PLACEMENTS, Encoder, Shape
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


def test_shapes_are_in_order_of_length_then_batch():
    shapes = [Shape(64, 1), Shape(16, 4), Shape(16, 2)]
    assert sorted(shapes) == [Shape(16, 2), Shape(16, 4), Shape(64, 1)]
    assert Shape(1, 1) and not Shape(1, 1).dynamic


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


def test_engines_and_placements_are_those_that_there_are():
    for engine in ENGINES:
        assert some_bins(engine=engine).engine == engine
    for placement in PLACEMENTS:
        assert some_bins(placement=placement).placement == placement
    with pytest.raises(InputError, match=r"^engine is steam, but must be one of .*onnx"):
        some_bins(engine="steam")
    with pytest.raises(InputError, match=r"^placement is nowhere, but must be one of .*shared"):
        some_bins(placement="nowhere")


def test_values_that_contradict_each_other_are_refused_with_what_they_must_be():
    for call, words in (
        (lambda: replace(ENCODER, head="x"), "head is x, but must be one of ('classification', 'embedding')"),
        (lambda: replace(ENCODER, pooling="max"), "pooling is max, but must be mean or cls"),
        (lambda: some_bins(engine="x"), "engine is x, but must be one of ('onnx', 'aot', 'graphs', 'eager')"),
        (lambda: some_bins(placement="x"), "placement is x, but must be one of ('shared', 'single')"),
        (
            lambda: some_bins(shapes=(DYNAMIC,), seconds=(0.1,)),
            "seconds is (0.1,), but must be one a static shape, positive and finite",
        ),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value) == words
