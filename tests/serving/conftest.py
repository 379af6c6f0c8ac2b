"""Fixtures of the HTTP tests."""

from tests.fixtures.tokens.http import registry

__all__ = ["registry"]
