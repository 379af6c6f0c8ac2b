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
        former = running.streams if running else {}
        return Catalog({name: _load_stream(fetcher, name, former.get(name)) for name in names}, pointers)


def _load_stream(fetcher: Fetcher, name: str, running: ServedStream | None) -> ServedStream:
    encoder_name = BINS_ENCODER + name
    versions = fetcher.versions(BINS_PREFIX + name, encoder_name)
    if running and (running.version, running.encoder.version) == versions:
        return running
    bins, published = fetcher.load(Bins, BINS_PREFIX + name)
    if bins.name != name:
        raise ArtifactError(f"{published.name} holds a plan that calls itself {bins.name}, but should be {name}")
    if running and (running.encoder.digest, running.encoder.version) == (bins.encoder, versions[1]):
        encoder = running.encoder
    else:
        encoder = _load_encoder(*fetcher.part(encoder_name, bins.encoder, f"stream {name}", "encoder"))
    (stream,) = knowledge_of([bins]).streams
    encoder = replace(encoder, max_length=min(encoder.longest, stream.max_length))
    return ServedStream(bins, published.version, published.digest, encoder)


def _load_encoder(folder: Path, published: Published) -> ServedEncoder:
    encoder = codec.load(Encoder, folder, published.digest)
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
