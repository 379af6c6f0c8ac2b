"""One world for the tests of the service's routes: real code over a fake engine and a fake predictor, in this process."""

from __future__ import annotations

import pytest

from tests.fixtures.packing.in_process import publish, serving
from tests.fixtures.registry import FolderRegistry


def published(folder) -> FolderRegistry:
    registry = FolderRegistry(folder)
    publish(registry)
    return registry


@pytest.fixture
def registry(tmp_path) -> FolderRegistry:
    """A registry with one model, of the test's own."""
    return published(tmp_path)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service of that model, for all tests of a file."""
    with serving(published(tmp_path_factory.mktemp("registry"))) as service:
        yield service
