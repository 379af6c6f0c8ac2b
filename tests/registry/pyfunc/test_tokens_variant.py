"""A tokens variant that is loaded by MLflow answers for one of its tasks, a row an image and a column a class."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.errors import InputError
from registry import codec
from tests.fixtures.pyfunc import served
from tests.fixtures.tokens.samples import random_images, tiny_variant


@pytest.fixture(scope="module")
def variant(tmp_path_factory):
    folder = tmp_path_factory.mktemp("variant")
    codec.save(tiny_variant("small", {"shapes": ("round", "square"), "letters": ("a", "b", "c")}, "cpu"), folder)
    return served("tokens-variant", folder)


@pytest.mark.parametrize(
    ("params", "classes"),
    [(None, ["a", "b", "c"]), ({"task": ""}, ["a", "b", "c"]), ({"task": "shapes"}, ["round", "square"])],
)
def test_the_task_is_a_parameter_and_the_first_by_name_without_one(variant, params, classes):
    frame = variant[1].predict(random_images(2), params)
    assert list(frame.columns) == classes
    np.testing.assert_allclose(frame.to_numpy(float).sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("beyond", [-64, -63, 0, 1])
def test_it_answers_a_row_an_image_in_their_order_however_many_they_are(variant, beyond):
    module, model = variant
    images = random_images(module.BATCH + beyond)
    frame = model.predict(images)
    assert frame.shape == (len(images), 3)
    if len(images):
        np.testing.assert_allclose(frame.iloc[-1], model.predict(images[-1:]).iloc[0], atol=1e-5)


def test_an_unknown_task_is_refused_with_those_that_there_are(variant):
    with pytest.raises(InputError, match="task is digits, but must be one of letters, shapes"):
        variant[1].predict(random_images(1), {"task": "digits"})
