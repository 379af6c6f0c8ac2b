"""What the bins service serves: which streams, of which versions, and whether plans and encoders fit each other.

Knows the registry's names and the artifacts; knows nothing of HTTP, processes or schedules. Weights are verified here and
dropped again: the device processes load them themselves, so this one stays small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pliant.bins.artifact import Bins, Encoder, Shape
from pliant.bins.knowledge import knowledge_of
from pliant.errors import ArtifactError, DeviceError, RegistryError
from registry import codec
from registry.names import BINS_ENCODER, BINS_PREFIX
from registry.package import Published
from serving.lifecycle.artifacts import Registry
from serving.lifecycle.catalog import Fetcher, fetching


@dataclass(frozen=True, slots=True)
class ServedEncoder:
    """All of an encoder but its weights, which the device process reads from the folder."""

    folder: Path
    version: int
    digest: str
    head: str  # one of pliant.bins.artifact.HEADS
    classes: tuple[str, ...]
    pooling: str
    normalize: bool
    tokenizer: str  # tokenizer.json
    longest: int  # tokens that it can read
    max_length: int  # tokens that are read: no more than its longest runtime takes


@dataclass(frozen=True, slots=True)
class ServedStream:
    bins: Bins
    version: int
    digest: str
    encoder: ServedEncoder

    @property
    def mark(self) -> tuple[object, ...]:
        return self.version, self.digest, self.encoder.version, self.encoder.digest


@dataclass(frozen=True, slots=True)
class Catalog:
    """Streams by name, in order of names, and the registry's pointers that they were found by."""

    streams: Mapping[str, ServedStream]
    pointers: Mapping[str, int]

    @property
    def plans(self) -> Sequence[Bins]:
        """In the order that numbers shapes, see `shapes`."""
        return [served.bins for served in self.streams.values()]

    @property
    def shapes(self) -> Sequence[tuple[str, Shape]]:
        """Stream and shape by a launch's setting."""
        return [(bins.name, shape) for bins in self.plans for shape in bins.shapes]

    @property
    def folders(self) -> set[Path]:
        """That the device processes read."""
        return {served.encoder.folder for served in self.streams.values()}

    @property
    def device(self) -> str:
        """The device class that all was compiled for. Raises `DeviceError` where streams differ in it."""
        classes = {bins.device_class for bins in self.plans}
        if len(classes) > 1:
            raise DeviceError(
                f"the streams were profiled on {len(classes)} classes of device ({', '.join(sorted(classes))}): "
                "profile them on one (pliant profile bins)"
            )
        return classes.pop()

    @property
    def placement(self) -> str:
        """Raises `ArtifactError` where streams differ in it."""
        found = {bins.placement for bins in self.plans}
        if len(found) > 1:
            raise ArtifactError("some streams were planned with placement shared, others with single: plan all alike")
        return found.pop()

    def serves_as(self, other: Catalog) -> bool:
        """Whether both serve the same artifacts under the same versions."""
        return {n: s.mark for n, s in self.streams.items()} == {n: s.mark for n, s in other.streams.items()}


def load_catalog(registry: Registry, alias: str, running: Catalog | None = None) -> Catalog:
    """What `alias` points to. What `running` holds already is not fetched again.

    Raises `RegistryError` for what is not there, `ArtifactError` for what cannot be used or does not fit together.
    """
    with fetching(registry, alias, BINS_PREFIX) as fetcher:
        pointers = fetcher.pointers
        names = sorted(name.removeprefix(BINS_PREFIX) for name in pointers if not name.startswith(BINS_ENCODER))
        if not names:
            raise RegistryError(
                f"no model {BINS_PREFIX}... has a version under the alias {alias}: train an encoder first"
            )
        loader = _Loader(fetcher, running.streams if running else {})
        return Catalog({name: loader.stream(name) for name in names}, pointers)


@dataclass(frozen=True, slots=True)
class _Loader:
    """Fetches what the running catalog lacks."""

    fetcher: Fetcher
    running: Mapping[str, ServedStream]

    def stream(self, name: str) -> ServedStream:
        running = self.running.get(name)
        if running and (running.version, running.encoder.version) == self._versions(name):
            return running
        bins, published = self.fetcher.load(Bins, BINS_PREFIX + name)
        if bins.name != name:
            raise ArtifactError(f"{published.name} holds a plan that calls itself {bins.name}, but should be {name}")
        return ServedStream(bins, published.version, published.digest, self._encoder(bins))

    def _versions(self, name: str) -> tuple[int | None, int | None]:
        return self.fetcher.pointers.get(BINS_PREFIX + name), self.fetcher.pointers.get(BINS_ENCODER + name)

    def _encoder(self, bins: Bins) -> ServedEncoder:
        name, alias, pointers = BINS_ENCODER + bins.name, self.fetcher.alias, self.fetcher.pointers
        if name not in pointers:
            raise ArtifactError(f"stream {bins.name} needs {name}, which has no version under the alias {alias}")
        running = self.running.get(bins.name)
        if running and (running.encoder.digest, running.encoder.version) == (bins.encoder, pointers[name]):
            return _limited(running.encoder, bins)
        folder, found = self.fetcher.fetch(name)
        if found.digest != bins.encoder:
            raise ArtifactError(
                f"stream {bins.name} was planned with encoder {bins.encoder[:12]}, but {alias} of {name} (version "
                f"{found.version}) is {found.digest[:12]}: promote the plan that was made with it"
            )
        return _limited(_served(codec.load(Encoder, folder, found.digest), folder, found), bins)


def _served(encoder: Encoder, folder: Path, found: Published) -> ServedEncoder:
    return ServedEncoder(
        folder=folder,
        version=found.version,
        digest=found.digest,
        head=encoder.head,
        classes=encoder.classes,
        pooling=encoder.pooling,
        normalize=encoder.normalize,
        tokenizer=encoder.tokenizer,
        longest=encoder.max_length,
        max_length=encoder.max_length,
    )


def _limited(encoder: ServedEncoder, bins: Bins) -> ServedEncoder:
    (stream,) = knowledge_of([bins]).streams
    return replace(encoder, max_length=min(encoder.longest, stream.max_length))
