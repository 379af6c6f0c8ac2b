"""A tokens profile that is loaded by MLflow gives the measured seconds of a launch, and what lies between them."""

from __future__ import annotations

import pandas as pd
import pytest

from pliant.errors import InputError
from registry import codec
from tests.fixtures.pyfunc import served
from tests.fixtures.tokens.samples import tiny_profile


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """Measured at 1, 2, 4, 8 and 16 images: 1 ms a launch and (21 + gamma) * 0.1 ms an image."""
    folder = tmp_path_factory.mktemp("profile")
    codec.save(tiny_profile("digest", "cpu"), folder)
    return served("tokens-profile", folder)[1]


def test_seconds_are_those_of_the_gamma_and_the_batch_of_each_row(profile):
    frame = profile.predict(pd.DataFrame({"gamma": [0, -20, 8, 0], "batch": [2, 16, 1, 3]}))
    assert frame.to_dict("list") == {"seconds": pytest.approx([0.0052, 0.0026, 0.0039, 0.0073])}


@pytest.mark.parametrize(
    ("gamma", "batch", "sentence"),
    [(3, 1, r"gamma is 3, but must be one of \(-20,"), (0, 0, "batch is 0, but must be at least 1")],
)
def test_what_was_not_measured_is_refused(profile, gamma, batch, sentence):
    with pytest.raises(InputError, match=sentence):
        profile.predict(pd.DataFrame({"gamma": [gamma], "batch": [batch]}))
