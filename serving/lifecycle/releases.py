"""Loads the last whole release: the one that the alias names or, where that is broken, the one before it, and so on.

A release is broken if a version that it names is missing, an artifact is gone or altered, or the parts do not fit together.
A registry without releases is read by the models' own aliases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pliant.errors import ArtifactError, InputError, RegistryError, UnreachableError
from pliant.registry.names import system_of
from pliant.registry.releases import RegistryRelease, ReleaseView
from pliant.serving.lifecycle.artifacts import Artifacts, Registry

C = TypeVar("C")

Load = Callable[[Artifacts], C]
"""Loads a catalog from a registry, or from the view of it that a release gives."""


@dataclass(frozen=True, slots=True)
class Loaded(Generic[C]):
    """`release`: the number of the release that was loaded; None in a registry without. `fault`: what is wrong with the
    later ones, as a sentence; empty if this is the last.
    """

    catalog: C
    release: int | None
    fault: str = ""


def load_last_whole(registry: Registry, alias: str, prefix: str, load: Load[C], oldest: int = 0) -> Loaded[C]:
    """Return the catalog of the last whole release under the alias. None before number `oldest` is gone back to.

    Raises `UnreachableError` where the registry does not answer, and what is wrong with the last release, a
    `RegistryError`, `ArtifactError` or `InputError`, where none is whole.
    """
    release = released(registry, alias, prefix)
    if release is None:
        return Loaded(load(registry), None)
    first: Exception | None = None
    while release is not None:
        try:
            catalog = load(ReleaseView(registry, release))
        except UnreachableError:
            raise
        except (ArtifactError, InputError, RegistryError) as error:
            first = first or error
            release = _former(registry, release, oldest)
        else:
            fault = f"the last release is broken ({first}): release {release.number} is served" if first else ""
            return Loaded(catalog, release.number, fault)
    assert first is not None, "the loop ends with an error or an answer"
    raise first


def released(registry: Registry, alias: str, prefix: str) -> RegistryRelease | None:
    """Return the release that the alias names; None if there is none. Raises `RegistryError`."""
    system = system_of(prefix)
    return None if system is None else registry.release(system, alias)


def _former(registry: Registry, release: RegistryRelease, oldest: int) -> RegistryRelease | None:
    """Return the release before this one that is still in the registry; None if there is none."""
    number = release.former
    if number is None or number < oldest:
        return None
    return registry.release(release.system, number)
