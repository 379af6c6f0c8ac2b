"""Fixtures of the tests of dashboards."""

from tests.fixtures.tokens.http import registry

__all__ = ["registry"]
