"""The champions of a system in the registry, and what their versions remember of how they were made. Knows no system."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from pliant.errors import FormerSchemaError, InputError, RegistryError
from pliant.flows import config
from pliant.flows.release import open_registry, retried
from pliant.flows.settings import Settings
from pliant.registry import codec
from pliant.registry.codec import Artifact
from pliant.registry.mlflow_store import CHAMPION, MlflowRegistry
from pliant.registry.names import prefix, system_of, task_of
from pliant.registry.package import Published

A = TypeVar("A", bound=Artifact)
T = TypeVar("T")
logger = logging.getLogger("pliant.flows")

RECORD = "pliant.record"
"""Tag of a version: a system's `Record` as JSON, which is all that it takes to plan again."""


@dataclass(frozen=True, slots=True)
class Champion(Generic[A]):
    """A task as it is served now: its artifact, and the version that holds it."""

    artifact: A
    published: Published

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
        system = system_of(self.published.name)
        return RegistryError(f"{self.published.uri} was not published by the {system} flow: it has no tag {tag}")


def load_champions(registry: MlflowRegistry, kind: type[A]) -> dict[str, Champion[A]]:
    """Return the champion of every task of a system by name; nothing before the first release.

    `kind`: the artifact that stands for a task, whose `KIND` begins with the system's name. One that an older version of
    Pliant wrote in a schema that is not read any more is left out: this version cannot serve it, and the next run of the
    flow finds no champion.
    """
    own = prefix(kind.KIND.partition("-")[0])
    versions = retried(lambda: registry.versions(own) if registry.exists() else {})
    tasks = {task: name for name in versions if (task := task_of(name)) is not None}
    champions = {}
    for task, name in tasks.items():
        try:
            champions[task] = Champion(*fetch(registry, kind, name, versions[name]))
        except FormerSchemaError as error:
            logger.warning("the champion of %s counts for nothing: %s", task, error)
    return champions


def champion_artifacts(settings: Settings, kind: type[A]) -> dict[str, A]:
    """Return what is served now of a system, by task; `kind`: as for `load_champions`."""
    champions = load_champions(open_registry(settings, kind.KIND.partition("-")[0]), kind)
    return {name: champion.artifact for name, champion in champions.items()}


def fetch(
    registry: MlflowRegistry, kind: type[A], name: str, which: str | int = CHAMPION, digest: str | None = None
) -> tuple[A, Published]:
    """Return the artifact of model `name` under an alias or version number, and that version.

    It must have `digest` if one is given. Raises `RegistryError`, `ArtifactError`.
    """
    folder, published = retried(lambda: registry.fetch(name, which))
    return codec.load(kind, folder, digest or published.digest), published


def record_to_json(record: Any) -> str:
    """Return a `Record` as its tag holds it."""
    return json.dumps(asdict(record))
