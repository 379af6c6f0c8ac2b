"""The streams that most tests of the interfaces ask: served once, over runtimes in this process."""

from __future__ import annotations

import pytest

from tests.fixtures.bins.in_process import MANY, QUIET, serving
from tests.fixtures.bins.published import publish_tiny
from tests.fixtures.registry import FolderRegistry


def served(folder, *names, settings=QUIET):
    registry = FolderRegistry(folder)
    publish_tiny(registry, *names)
    with serving(registry, settings) as service:
        yield service


@pytest.fixture(scope="package")
def both(tmp_path_factory):
    yield from served(tmp_path_factory.mktemp("both"))


@pytest.fixture(scope="package")
def three(tmp_path_factory):
    yield from served(tmp_path_factory.mktemp("three"), "colours", "meanings", "ranks")


@pytest.fixture(scope="package")
def many(tmp_path_factory):
    yield from served(tmp_path_factory.mktemp("many"), settings=MANY)
