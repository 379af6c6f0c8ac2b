"""The artifacts that the bins service serves, their versions, and whether plans and encoders fit each other.

A stream is an encoder and the runtimes that are planned for it. Weights are verified here and not kept: the device
processes load them, and this process stays small.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pliant.bins.artifact import Bins, Encoder, Shape
from pliant.bins.knowledge import knowledge_of
from pliant.errors import ArtifactError, RegistryError
from pliant.registry import codec
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.registry.package import Published
from pliant.serving.lifecycle.catalog import Artifacts, Fetcher, fetching, only_class


@dataclass(frozen=True, slots=True)
class ServedEncoder:
    """An encoder without its weights, which the device process reads from the folder."""

    folder: Path
    version: int
    digest: str
    head: str  # one of pliant.bins.artifact.HEADS
    classes: tuple[str, ...]
    pooling: str
    normalize: bool
    tokenizer: str  # tokenizer.json
    longest: int  # tokens that it can read
    max_length: int  # tokens that are read: at most those of its longest runtime
    prompts: Mapping[str, str]  # name -> text that is put before a text
    vocabulary: int  # token ids are below this number


@dataclass(frozen=True, slots=True)
class ServedStream:
    """A stream with its version in the registry."""

    bins: Bins
    version: int
    digest: str
    encoder: ServedEncoder

    @property
    def identity(self) -> tuple[object, ...]:
        """Return versions and digests: equal if the same artifacts are served."""
        return self.version, self.digest, self.encoder.version, self.encoder.digest


@dataclass(frozen=True, slots=True)
class Catalog:
    """Streams by name, in order of names, and the versions that they were loaded by."""

    streams: Mapping[str, ServedStream]
    pointers: Mapping[str, int]

    @property
    def plans(self) -> Sequence[Bins]:
        """Return the streams' plans, in the order of `shapes`."""
        return [served.bins for served in self.streams.values()]

    @property
    def shapes(self) -> Sequence[tuple[str, Shape]]:
        """Return stream and shape of each setting of a launch."""
        return [(bins.name, shape) for bins in self.plans for shape in bins.shapes]

    @property
    def folders(self) -> set[Path]:
        """The folders that the device processes read."""
        return {served.encoder.folder for served in self.streams.values()}

    @property
    def device(self) -> str:
        """The class of device that everything was compiled for. Raises `DeviceError` if there are several."""
        classes = {bins.device_class for bins in self.plans}
        return only_class(classes, "the streams", "profile them on one (pliant profile bins)")

    @property
    def placement(self) -> str:
        """Return "shared" or "single". Raises `ArtifactError` if streams differ in it."""
        placements = {bins.placement for bins in self.plans}
        if len(placements) > 1:
            raise ArtifactError(
                "some streams were planned with the placement shared, others with single: use one for all"
            )
        return placements.pop()

    def serves_as(self, other: Catalog) -> bool:
        """Whether both serve the same artifacts under the same versions."""
        return {n: s.identity for n, s in self.streams.items()} == {n: s.identity for n, s in other.streams.items()}


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
        loader = _Loader(fetcher, running.streams if running else {})
        return Catalog({name: loader.stream(name) for name in names}, pointers)


@dataclass(frozen=True, slots=True)
class _Loader:
    """Loads streams, and fetches what the running catalog lacks."""

    fetcher: Fetcher
    running: Mapping[str, ServedStream]

    def stream(self, name: str) -> ServedStream:
        running = self.running.get(name)
        versions = self.fetcher.versions(BINS_PREFIX + name, BINS_ENCODER + name)
        if running and (running.version, running.encoder.version) == versions:
            return running
        bins, published = self.fetcher.load(Bins, BINS_PREFIX + name)
        if bins.name != name:
            raise ArtifactError(f"{published.name} holds a plan that calls itself {bins.name}, but should be {name}")
        return ServedStream(bins, published.version, published.digest, self._encoder(bins))

    def _encoder(self, bins: Bins) -> ServedEncoder:
        name, alias, pointers = BINS_ENCODER + bins.name, self.fetcher.alias, self.fetcher.pointers
        if name not in pointers:
            raise ArtifactError(f"stream {bins.name} needs {name}, which has no version under the alias {alias}")
        running = self.running.get(bins.name)
        if running and (running.encoder.digest, running.encoder.version) == (bins.encoder, pointers[name]):
            return _limited(running.encoder, bins)
        folder, published = self.fetcher.fetch(name)
        if published.digest != bins.encoder:
            raise ArtifactError(
                f"stream {bins.name} was planned with encoder {bins.encoder[:12]}, but {alias} of {name} (version "
                f"{published.version}) is {published.digest[:12]}: promote the plan that was made with it"
            )
        return _limited(_served(codec.load(Encoder, folder, published.digest), folder, published), bins)


def _served(encoder: Encoder, folder: Path, published: Published) -> ServedEncoder:
    return ServedEncoder(
        folder=folder,
        version=published.version,
        digest=published.digest,
        head=encoder.head,
        classes=encoder.classes,
        pooling=encoder.pooling,
        normalize=encoder.normalize,
        tokenizer=encoder.tokenizer,
        longest=encoder.max_length,
        max_length=encoder.max_length,
        prompts=encoder.prompts,
        vocabulary=int(json.loads(encoder.config).get("vocab_size", 0)),
    )


def _limited(encoder: ServedEncoder, bins: Bins) -> ServedEncoder:
    (stream,) = knowledge_of([bins]).streams
    return replace(encoder, max_length=min(encoder.longest, stream.max_length))
