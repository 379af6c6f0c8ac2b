"""The service that most tests of its interfaces ask: over a fake device, started and stopped with each test."""

from __future__ import annotations

import pytest

from tests.fixtures.tokens.http import SETTINGS, serving


@pytest.fixture
def settings():
    return SETTINGS


@pytest.fixture
def service(registry, settings):
    return serving(registry, settings)
