"""What systems' catalogs have in common: pointers of the registry, artifacts fetched by them, folders given back.

Knows the registry; knows no system, and not what makes a catalog whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, TypeVar

from registry import codec
from registry.package import Published
from serving.lifecycle.artifacts import Registry

T = TypeVar("T", bound=codec.Artifact)


class Catalog(Protocol):
    """What a service serves, and the registry's pointers that it was found by."""

    @property
    def pointers(self) -> Mapping[str, int]:
        """Registered model -> version."""

    @property
    def folders(self) -> set[Path]:
        """That the device processes read."""

    @property
    def device(self) -> str:
        """The device class that all was profiled on. Raises `DeviceError` where its parts differ in it."""

    def serves_as(self, other: Self) -> bool:
        """Whether both serve the same artifacts under the same versions."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches what `pointers` name, or else `alias`, and remembers the folders."""

    registry: Registry
    alias: str
    pointers: Mapping[str, int]
    folders: list[Path] = field(default_factory=list)

    def fetch(self, name: str) -> tuple[Path, Published]:
        folder, published = self.registry.fetch(name, self.which(name))
        self.folders.append(folder)
        return folder, published

    def load(self, kind: type[T], name: str) -> tuple[T, Published]:
        return load(self.registry, kind, name, self.which(name))

    def which(self, name: str) -> str | int:
        return self.pointers.get(name, self.alias)


@contextmanager
def fetching(
    registry: Registry, alias: str, prefix: str, pointers: Mapping[str, int] | None = None
) -> Iterator[Fetcher]:
    """By `pointers`, or what `alias` points to now. Where the block raises, nothing that was fetched stays."""
    fetcher = Fetcher(registry, alias, registry.versions(prefix, alias) if pointers is None else pointers)
    try:
        yield fetcher
    except Exception:
        for folder in fetcher.folders:
            registry.discard(folder)
        raise


def load(registry: Registry, kind: type[T], name: str, which: str | int) -> tuple[T, Published]:
    """Verified, and all of it in memory: no folder stays."""
    folder, published = registry.fetch(name, which)
    try:
        return codec.load(kind, folder, published.digest), published
    finally:
        registry.discard(folder)


def discard(registry: Registry, idle: Catalog, kept: Catalog) -> None:
    """Files that only `idle` needs go."""
    for folder in idle.folders - kept.folders:
        registry.discard(folder)
