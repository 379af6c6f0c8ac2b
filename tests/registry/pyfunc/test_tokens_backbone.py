"""A tokens backbone that is loaded by MLflow gives the features of each image, in pieces of at most a batch."""

from __future__ import annotations

import numpy as np
import pytest

from registry import codec
from tests.fixtures.pyfunc import served
from tests.fixtures.tokens.samples import WIDTH, random_images, tiny_backbone


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backbone")
    codec.save(tiny_backbone(), folder)
    return served("tokens-backbone", folder)


@pytest.mark.parametrize("beyond", [-64, -63, 0, 1])
def test_it_gives_a_row_an_image_in_their_order_however_many_they_are(backbone, beyond):
    module, model = backbone
    images = random_images(module.BATCH + beyond)
    features = model.predict(images)
    assert features.shape == (len(images), WIDTH) and features.dtype == np.float32
    for at in {0, len(images) - 1} if len(images) else ():
        np.testing.assert_allclose(features[at], model.predict(images[at : at + 1])[0], atol=1e-5)
    if len(images) > 1:
        assert np.abs(features[0] - features[-1]).max() > 1e-3


def test_the_device_is_that_of_the_configuration(tmp_path):
    codec.save(tiny_backbone(), tmp_path)
    with pytest.raises(RuntimeError, match="nowhere"):
        served("tokens-backbone", tmp_path, device="nowhere")
