"""The header that names the fields of a request that nobody knows, in interfaces that accept these."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from serving.http.json_body import SHOWN

IGNORED = "x-pliant-ignored"
MAX_NAMES = 20


def header_of(ignored: Iterable[str]) -> dict[str, str]:
    """Return the header with the names of the first `MAX_NAMES` unknown fields, at most `SHOWN` characters of each."""
    names = ", ".join(_ascii(name[:SHOWN]) for name in islice(ignored, MAX_NAMES))
    return {IGNORED: names} if names else {}


def _ascii(name: str) -> str:
    """Return a field's name as a header can hold it."""
    return "".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in name)
