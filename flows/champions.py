"""The champions of a system in the registry, and what their versions remember of how they were made. Knows no system."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from pliant import systems
from pliant.errors import InputError, RegistryError
from pliant.flows import config
from pliant.flows.release import open_registry, retried
from pliant.flows.settings import Settings
from pliant.registry import codec
from pliant.registry.codec import Artifact
from pliant.registry.mlflow_store import CHAMPION, MlflowRegistry
from pliant.registry.package import Published

A = TypeVar("A", bound=Artifact)
T = TypeVar("T")

RECORD = "pliant.record"
"""Tag of a version: a system's `Record` as JSON, which is all that it takes to plan again."""


@dataclass(frozen=True, slots=True)
class Champion(Generic[A]):
    """A task as it is served now: its artifact, and the version that holds it. `system`: whose flow published it."""

    artifact: A
    published: Published
    system: str

    def record(self, kind: type[T]) -> T:
        """Return the `Record` of its version, which says how it was made.

        Raises `RegistryError` for a version that the flow did not publish, or one of other settings than today's.
        """
        text = self.published.tags.get(RECORD)
        if text is None:
            raise self._foreign(RECORD)
        try:
            return config.read(kind, None, json.loads(text))
        except (InputError, ValueError) as error:
            raise RegistryError(f"the tag {RECORD} of {self.published.uri} cannot be read: {error}") from error

    def version(self, tag: str) -> int:
        """Return the number of the version of another model that a tag names. Raises `RegistryError` where it names none."""
        number = self.published.tags.get(tag, "")
        if not number.isdecimal():
            raise self._foreign(tag)
        return int(number)

    def _foreign(self, tag: str) -> RegistryError:
        return RegistryError(f"{self.published.uri} was not published by the {self.system} flow: it has no tag {tag}")


def load_champions(
    registry: MlflowRegistry, system: str, kind: type[A], prefix: str, *excluded: str
) -> dict[str, Champion[A]]:
    """Return every task with a champion, by name; arguments as for `fetch_champions`."""
    champions = fetch_champions(registry, kind, prefix, *excluded)
    return {
        published.name.removeprefix(prefix): Champion(artifact, published, system) for artifact, published in champions
    }


def champion_artifacts(settings: Settings, system: str) -> dict[str, Any]:
    """Return what is served now of a system, by task."""
    champions = systems.system(system).part("flows", "champions").load_champions(open_registry(settings, system))
    return {name: champion.artifact for name, champion in champions.items()}


def fetch(
    registry: MlflowRegistry, kind: type[A], name: str, which: str | int = CHAMPION, digest: str | None = None
) -> tuple[A, Published]:
    """Return the artifact of model `name` under an alias or version number, and that version.

    It must have `digest` if one is given. Raises `RegistryError`, `ArtifactError`.
    """
    folder, published = retried(lambda: registry.fetch(name, which))
    return codec.load(kind, folder, digest or published.digest), published


def fetch_champions(
    registry: MlflowRegistry, kind: type[A], prefix: str, *excluded: str
) -> Iterator[tuple[A, Published]]:
    """Yield the champion of every model whose name begins with `prefix` and with none of `excluded`, by name.

    Yields nothing before the first release.
    """
    for name, version in retried(lambda: registry.versions(prefix) if registry.exists() else {}).items():
        if not name.startswith(excluded):
            yield fetch(registry, kind, name, version)


def record_to_json(record: Any) -> str:
    """Return a `Record` as its tag holds it."""
    return json.dumps(asdict(record))
