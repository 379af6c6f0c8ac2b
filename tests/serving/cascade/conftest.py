"""A registry of the tiny cascade, which a test may change."""

from __future__ import annotations

import pytest

from tests.fixtures.cascade.published import publish_tiny
from tests.fixtures.registry import FolderRegistry


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path / "registry")
    publish_tiny(registry)
    return registry
