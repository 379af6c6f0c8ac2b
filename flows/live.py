"""What is live of a system in the registry, and what its versions remember of how they were made. Knows no system."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TypeVar

from flows import config
from pliant.errors import InputError, RegistryError
from registry import codec
from registry.codec import Artifact
from registry.mlflow_store import MlflowRegistry
from registry.package import Published

A = TypeVar("A", bound=Artifact)
T = TypeVar("T")

RECORD = "pliant.record"
"""Tag of a version: a system's `Record` as JSON, which is all that it takes to plan again."""


def champions(registry: MlflowRegistry, kind: type[A], prefix: str, *parts: str) -> Iterator[tuple[A, Published]]:
    """Of every model of this prefix, but for those of `parts`, prefixes too. None before the first release."""
    for name in registry.versions(prefix) if registry.exists() else {}:
        if not name.startswith(parts):
            folder, published = registry.fetch(name)
            yield codec.load(kind, folder, published.digest), published


def text_of(record: Any) -> str:
    """A `Record` as the tag holds it."""
    return json.dumps(asdict(record))


def record_of(kind: type[T], published: Published, system: str) -> T:
    """Raises `RegistryError` for a version that the flow did not publish, or one of other settings than today's."""
    text = published.tags.get(RECORD)
    if text is None:
        raise _foreign(published, RECORD, system)
    try:
        return config.read(kind, None, json.loads(text))
    except (InputError, ValueError) as error:
        raise RegistryError(f"the tag {RECORD} of {published.uri} cannot be read: {error}") from error


def version_of(published: Published, tag: str, system: str) -> int:
    """Of the model of which the tag tells. Raises `RegistryError`."""
    number = published.tags.get(tag, "")
    if not number.isdecimal():
        raise _foreign(published, tag, system)
    return int(number)


def _foreign(published: Published, tag: str, system: str) -> RegistryError:
    return RegistryError(f"{published.uri} was not published by the {system} flow: it has no tag {tag}")
