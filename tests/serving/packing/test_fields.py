"""Numbers of a request are taken within their limits, which belong to them, and named with these otherwise."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from serving.packing.fields import whole


@pytest.mark.parametrize(("value", "minimum", "maximum"), [(1, 1, 4), (4, 1, 4), (0, 0, 0), (10**9, 1, None)])
def test_a_whole_number_within_its_limits_is_taken(value, minimum, maximum):
    assert whole("n", value, minimum, maximum) == value


@pytest.mark.parametrize("value", [0, 5, -1, 2.0, True, "2", None])
def test_anything_else_is_named_with_the_limits(value):
    with pytest.raises(InputError, match=r"n is .*, but must be a whole number from 1 to 4"):
        whole("n", value, 1, 4)
    with pytest.raises(InputError, match="a whole number from 6 on"):
        whole("n", value, 6)
