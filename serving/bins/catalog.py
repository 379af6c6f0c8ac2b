"""The artifacts that the bins service serves, their versions, and whether plans and encoders fit each other.

A stream is an encoder and the runtimes that are planned for it. Weights are verified here and not kept: the device
processes load them, and this process stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pliant.bins.artifact import Bins, Encoder, Shape
from pliant.bins.knowledge import knowledge_of
from pliant.errors import ArtifactError, RegistryError
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.serving.lifecycle.catalog import Artifacts, Fetcher, Held, TaskCatalog, fetching


@dataclass(frozen=True, slots=True)
class ServedStream:
    """A stream with its version in the registry."""

    bins: Bins
    version: int
    digest: str
    encoder: Held[Encoder]
    max_length: int  # tokens that are read: at most those of its longest runtime

    @property
    def identity(self) -> tuple[object, ...]:
        return self.version, self.digest, *self.encoder.identity

    @property
    def folders(self) -> set[Path]:
        return self.encoder.folders

    @property
    def device(self) -> str:
        return self.bins.device_class


@dataclass(frozen=True, slots=True)
class Catalog(TaskCatalog[ServedStream]):
    """A catalog of streams."""

    WHAT: ClassVar[tuple[str, str]] = "the streams", "profile them on one (pliant profile bins)"

    @property
    def plans(self) -> Sequence[Bins]:
        """Return the streams' plans, in the order of `shapes`."""
        return [served.bins for served in self.tasks.values()]

    @property
    def shapes(self) -> Sequence[tuple[str, Shape]]:
        """Return stream and shape of each setting of a launch."""
        return [(bins.name, shape) for bins in self.plans for shape in bins.shapes]

    @property
    def placement(self) -> str:
        """Return "shared" or "single". Raises `ArtifactError` if streams differ in it."""
        placements = {bins.placement for bins in self.plans}
        if len(placements) > 1:
            raise ArtifactError(
                "some streams were planned with the placement shared, others with single: use one for all"
            )
        return placements.pop()


def load_catalog(registry: Artifacts, alias: str, running: Catalog | None = None) -> Catalog:
    """Return what `alias` points to. Artifacts that `running` has are not fetched again.

    Raises `RegistryError` for what is missing, `ArtifactError` for what cannot be used or does not fit together.
    """
    with fetching(registry, alias, BINS_PREFIX) as fetcher:
        pointers = fetcher.pointers
        names = sorted(name.removeprefix(BINS_PREFIX) for name in pointers if not name.startswith(BINS_ENCODER))
        if not names:
            raise RegistryError(
                f"no model {BINS_PREFIX}... has a version under the alias {alias}: train an encoder first"
            )
        former = running.tasks if running else {}
        return Catalog({name: _load_stream(fetcher, name, former.get(name)) for name in names}, pointers)


def _load_stream(fetcher: Fetcher, name: str, running: ServedStream | None) -> ServedStream:
    encoder_name = BINS_ENCODER + name
    versions = fetcher.versions(BINS_PREFIX + name, encoder_name)
    if running and (running.version, running.encoder.version) == versions:
        return running
    bins, published = fetcher.load(Bins, BINS_PREFIX + name)
    if bins.name != name:
        raise ArtifactError(f"{published.name} holds a plan that calls itself {bins.name}, but should be {name}")
    former = running.encoder if running else None
    encoder = fetcher.held(Encoder, encoder_name, bins.encoder, f"stream {name}", "encoder", former)
    (stream,) = knowledge_of([bins]).streams
    most = min(encoder.artifact.max_length, stream.max_length)
    return ServedStream(bins, published.version, published.digest, encoder, most)
