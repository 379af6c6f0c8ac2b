"""A predictor whose quantiles are not those that schedulers read is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.packing.artifact import Predictor
from pliant.packing.scheduling.forecast import QUANTILES


def predictor(levels: tuple[float, ...]) -> Predictor:
    weights = {"w": np.zeros(1, np.float32)}
    return Predictor("things", "digest", "{}", "{}", 32, levels, 10, (1.0,) * 8, {}, "data", weights)


def test_the_quantiles_are_those_of_forecasts():
    assert predictor(QUANTILES).levels == QUANTILES
    for levels in (QUANTILES[:-1], (*QUANTILES, 0.999), tuple(reversed(QUANTILES)), ()):
        with pytest.raises(InputError, match=r"^levels is"):
            predictor(levels)
