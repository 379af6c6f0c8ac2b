"""Fixtures of the HTTP tests."""

from tests.serving.tokens_http import registry

__all__ = ["registry"]
