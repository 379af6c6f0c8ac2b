"""A refresher over a registry that is none: catalogs are versions, drivers only stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from pliant.registry.releases import RegistryRelease
from pliant.serving.lifecycle.generation import Generation, Generations
from pliant.serving.lifecycle.refresh import Refresher, Source, extend_never

PREFIX = "pliant-bins-"
A, B, C, D = (PREFIX + letter for letter in "abcd")


@dataclass(frozen=True)
class Catalog:
    pointers: dict[str, int]
    folders: frozenset[Path] = frozenset()
    device: str = "cpu"

    def serves_as(self, other: Catalog) -> bool:
        return self.pointers == other.pointers


class Driver:
    stopped, ready = False, True

    async def stop(self) -> None:
        self.stopped = True


@dataclass
class Registry:
    """Aliases, and releases by number, the last of which counts."""

    pointers: dict[str, int] = field(default_factory=lambda: {A: 1})
    released: list[RegistryRelease] = field(default_factory=list)
    name: str = "the registry"
    discarded: list[Path] = field(default_factory=list)

    def bell(self, system):
        return None

    def identity(self) -> str:
        return self.name

    def versions(self, prefix, alias):
        assert (prefix, alias) == (PREFIX, "champion")
        return dict(self.released[-1].versions if self.released else self.pointers)

    def aliases(self, prefix, alias):
        assert (prefix, alias) == (PREFIX, "champion")
        return dict(self.pointers)

    def release(self, system, which):
        assert system == "bins"
        if which == "champion":
            return self.released[-1] if self.released else None
        return next((release for release in self.released if release.number == which), None)

    def commit(self, **versions: int) -> None:
        number = len(self.released) + 1
        named = {PREFIX + name: version for name, version in versions.items()}
        self.pointers = dict(named)
        self.released.append(RegistryRelease("bins", number, number - 1 or None, named, {}))

    def discard(self, folder):
        self.discarded.append(folder)


class Service:
    """A refresher over a registry. `broken` versions cannot be loaded; `refuses` is raised by the devices."""

    def __init__(self, registry: Registry | None = None, extend=extend_never, standby_seconds=0.0) -> None:
        self.registry = registry = registry or Registry()
        self.outcomes = []
        self.broken: dict[int, Exception] = {}
        self.refuses: BaseException | None = None
        self.loads = self.starts = 0
        self.source = Source(registry, "champion", PREFIX, self.load_catalog)
        loaded = self.source.load(None)
        self.first = Generation(1, loaded.catalog, {}, Driver())
        self.generations = Generations(self.first, standby_seconds=standby_seconds)
        counter = SimpleNamespace(refreshed=self.outcomes.append)
        self.refresher = Refresher(
            self.generations, self.source, self.start, 0.0, counter, extend, loaded, registry.identity()
        )
        self.loads = 0

    def load_catalog(self, registry, alias, running):
        self.loads += 1
        pointers = registry.versions(PREFIX, alias)
        for version in pointers.values():
            if version in self.broken:
                raise self.broken[version]
        return Catalog(pointers, frozenset(Path(f"{name}-{version}") for name, version in pointers.items()))

    async def start(self, catalog):
        if self.refuses is not None:
            raise self.refuses
        self.starts += 1
        return Generation(self.starts + 1, catalog, {}, Driver())

    async def poll(self, retry_held=True):
        outcome = await self.refresher.poller.poll(retry_held)
        return outcome.outcome, outcome.message, dict(outcome.changed)

    @property
    def served(self):
        return self.generations.present.catalog.pointers
