"""One world for the tests of the service's routes: real code over a fake engine and a fake predictor, in this process."""

from __future__ import annotations

import pytest

from tests.fixtures.packing.in_process import publish, serving
from tests.fixtures.registry import FolderRegistry


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish(registry)
    return registry


@pytest.fixture(scope="module")
def service(registry):
    with serving(registry) as service:
        yield service
