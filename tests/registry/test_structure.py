"""Values become dataclasses exactly as their types say; the first that does not fit is named with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pliant.errors import ArtifactError
from pliant.registry.codec import structure


@dataclass(frozen=True)
class Inner:
    name: str
    size: int | None = None


@dataclass(frozen=True)
class Outer:
    items: tuple[Inner, ...]
    weights: NDArray[np.float32]
    anything: NDArray[Any]
    value: int | float | str = 0


def values(**changes: Any) -> dict[str, Any]:
    arrays = {"weights": np.ones(2, np.float32), "anything": np.ones(2, np.int8)}
    return {"items": [{"name": "a"}, {"name": "b", "size": 3}], **arrays, **changes}


def test_what_fits_becomes_a_value_with_its_arrays_untouched():
    source = values(value="text")
    result = structure(Outer, source, "file")
    assert result.items == (Inner("a"), Inner("b", 3)) and result.value == "text"
    assert result.weights is source["weights"] and result.anything is source["anything"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"items": [{"name": "a"}, {"size": 1}]}, r"it.items\[1\].name: 'name' is missing"),
        ({"items": [{"name": "a", "size": True}]}, r"it.items\[0\].size: True where"),
        ({"items": [{"name": "a", "size": 1.5}]}, r"it.items\[0\].size: 1.5 where"),
        ({"weights": [1.0, 2.0]}, r"it.weights: \[1.0, 2.0\] where an array is needed"),
        ({"weights": np.ones(2)}, "it.weights: an array of float64 where float32 is needed"),
        ({"value": None}, "it.value: None where"),
        ({"other": 1}, "other"),
    ],
)
def test_the_first_value_that_does_not_fit_is_named_with_its_place(changes, message):
    with pytest.raises(ArtifactError, match=f"file does not fit Outer: .*{message}"):
        structure(Outer, values(**changes), "file")
