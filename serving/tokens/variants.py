"""What the tokens service serves under the policy infaas: models of different size (variants), one of them loaded.

`VariantCatalog` is a `Servable` as the catalog of catalog.py is. A launch's setting is the number of a variant; the
cheapest is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pliant.errors import ArtifactError, InputError, RegistryError
from pliant.latency import LatencyTable
from pliant.tokens.artifact import RateRule, Variant
from pliant.tokens.policy import Knowledge
from registry import codec
from registry.names import TOKENS_VARIANT
from serving.lifecycle.artifacts import Artifacts
from serving.lifecycle.catalog import Fetcher, fetching
from serving.tokens.catalog import Origin, Servable, TaskInfo, promised_of


@dataclass(frozen=True, slots=True)
class ServedVariant:
    """A variant without its weights, which the device process reads from the folder."""

    name: str
    folder: Path
    version: int
    digest: str
    image_size: int
    classes: Mapping[str, tuple[str, ...]]  # by task, as `accuracy`
    accuracy: Mapping[str, float]
    device: str
    latency: LatencyTable
    loading: float  # seconds to load it
    precision: str | None
    promised: Mapping[str, float] = field(default_factory=dict)  # accuracy, by task


@dataclass(frozen=True, slots=True)
class VariantCatalog:
    """Variants, the cheapest first, measured on one class of device with the same batch sizes."""

    PREFIXES: ClassVar[tuple[str, ...]] = (TOKENS_VARIANT,)

    variants: tuple[ServedVariant, ...]
    # Here, as every answer asks for one.
    origins: Mapping[tuple[str, str], Origin] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "origins", self._origins())

    @property
    def image_size(self) -> int:
        return max(variant.image_size for variant in self.variants)

    @property
    def folders(self) -> set[Path]:
        return {variant.folder for variant in self.variants}

    @property
    def pointers(self) -> Mapping[str, int]:
        return {TOKENS_VARIANT + variant.name: variant.version for variant in self.variants}

    @property
    def device(self) -> str:
        return self.variants[0].device

    @property
    def planned_by(self) -> Mapping[str, int]:
        return {}

    @property
    def tasks(self) -> Mapping[str, tuple[str, ...]]:
        """Return the classes of the tasks that every variant has, by task."""
        first, *others = self.variants
        return {
            name: classes for name, classes in first.classes.items() if all(name in other.classes for other in others)
        }

    def knowledge(self) -> Knowledge:
        rows = tuple(variant.latency.row(0) for variant in self.variants)
        numbers = tuple(range(len(self.variants)))
        accuracy = {task: {n: self.variants[n].accuracy[task] for n in numbers} for task in self.tasks}
        loading = {n: self.variants[n].loading for n in numbers}
        table = replace(self.variants[0].latency, settings=numbers, seconds=rows)
        return Knowledge(table, accuracy, RateRule((), (0,)), loading)

    def serves_as(self, other: Servable) -> bool:
        return isinstance(other, VariantCatalog) and self._digests == other._digests

    @property
    def _digests(self) -> Mapping[str, tuple[int, str]]:
        return {variant.name: (variant.version, variant.digest) for variant in self.variants}

    def _origins(self) -> Mapping[tuple[str, str], Origin]:
        return {
            (task, variant.digest): Origin(
                classes,
                {"variant": variant.version},
                variant.name,
                {number: variant.promised[task]} if task in variant.promised else {},
            )
            for number, variant in enumerate(self.variants)
            for task, classes in self.tasks.items()
        }

    def tasks_described(self) -> Mapping[str, TaskInfo]:
        described = {}
        for task, classes in sorted(self.tasks.items()):
            accuracy = {variant.name: variant.accuracy[task] for variant in self.variants}
            unversioned = {"version": None, "digest": None}
            described[task] = {"name": task, "classes": list(classes), **unversioned, "accuracy": accuracy}
        return described

    def described(self) -> Mapping[str, Any]:
        return {
            "variants": [
                {
                    "name": v.name,
                    "version": v.version,
                    "digest": v.digest,
                    "loading": v.loading,
                    "device": v.device,
                    "precision": v.precision,
                }
                for v in self.variants
            ]
        }


def load_variants(registry: Artifacts, alias: str) -> VariantCatalog:
    """Return all variants under `alias`.

    Raises `RegistryError` if there are none, `ArtifactError` for what cannot be used, `InputError` for variants that
    cannot replace each other.
    """
    with fetching(registry, alias, TOKENS_VARIANT) as fetcher:
        if not fetcher.pointers:
            raise RegistryError(
                f"the policy infaas needs variants, but no model {TOKENS_VARIANT}... has a version under the alias "
                f"{alias}: run `pliant train tokens --variants` first"
            )
        loaded = [_load(fetcher, name) for name in sorted(fetcher.pointers)]
        loaded.sort(key=lambda variant: variant.latency.row(0)[-1] / variant.latency.batches[-1])
        catalog = VariantCatalog(tuple(loaded))
        _check(catalog)
        return catalog


def _load(fetcher: Fetcher, name: str) -> ServedVariant:
    folder, published = fetcher.fetch(name)
    variant = codec.load(Variant, folder, published.digest)
    if TOKENS_VARIANT + variant.name != name:
        raise ArtifactError(f"{name} holds a variant that calls itself {variant.name}")
    return ServedVariant(
        name=variant.name,
        folder=folder,
        version=published.version,
        digest=published.digest,
        image_size=variant.backbone.image_size,
        classes={name: task.classes for name, task in variant.tasks.items()},
        accuracy={name: task.accuracy for name, task in variant.tasks.items()},
        promised={name: promised_of(task.accuracy, task.test_accuracy) for name, task in variant.tasks.items()},
        device=variant.device,
        latency=variant.latency,
        loading=variant.loading,
        precision=variant.precision,
    )


def _check(catalog: VariantCatalog) -> None:
    first = catalog.variants[0]
    for variant in catalog.variants:
        what = f"variant {variant.name}"
        if variant.device != first.device:
            raise InputError(f"device of {what}", variant.device, f"the one that {first.name} was measured on")
        for name in ("batches", "buckets"):
            measured = getattr(variant.latency, name)
            if measured != getattr(first.latency, name):
                raise InputError(f"{name} of {what}", measured, f"those of {first.name}")
        for task, classes in catalog.tasks.items():
            if variant.classes[task] != classes:
                raise InputError(f"classes of task {task} in {what}", variant.classes[task], f"those in {first.name}")
    if not catalog.tasks:
        raise InputError("variants", "without a task in common", "trained for the same tasks")
