"""A predictor whose quantiles are not those that schedulers read is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.packing.artifact import BUCKETS, Generator, Packing, Predictor
from pliant.packing.scheduling.forecast import QUANTILES
from tests.fixtures.packing.tiny import some_packing
from tests.fixtures.packing.values import is_frozen


def predictor(levels: tuple[float, ...]) -> Predictor:
    weights = {"w": np.zeros(1, np.float32)}
    return Predictor("things", "digest", "{}", "{}", 32, levels, 10, (1.0,) * 8, {}, "data", weights)


def test_the_quantiles_are_those_of_forecasts():
    assert predictor(QUANTILES).levels == QUANTILES
    for levels in (QUANTILES[:-1], (*QUANTILES, 0.999), tuple(reversed(QUANTILES)), ()):
        with pytest.raises(InputError, match=r"^levels is"):
            predictor(levels)


def test_artifacts_are_known_by_their_kinds_and_cannot_be_changed():
    kinds = [(kind.KIND, kind.SCHEMA) for kind in (Generator, Predictor, Packing)]
    assert kinds == [("packing-generator", 1), ("packing-predictor", 1), ("packing-plan", 1)]
    generator = Generator("g", "{}", "", "", 64, (1,), "", {})
    assert all(map(is_frozen, (generator, predictor(QUANTILES), some_packing())))
    assert some_packing().seconds == 2.0 and BUCKETS == 10
