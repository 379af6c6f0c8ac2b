"""The presets in the repository are settings that the flows take."""

from __future__ import annotations

import pytest

from pliant import systems
from tests.fixtures.places import PRESETS

PATHS = sorted(path for path in PRESETS.glob("*.toml") if path.stem.partition("_")[0] in systems.names())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_preset_is_read(path):
    part = systems.system(path.stem.partition("_")[0]).part("flows", "config")
    assert part.sizes(part.read(path))
