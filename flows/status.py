"""What a system's registry says of it now: the release that is served, since when, what is tried, the last runs.

Knows no system and no Prefect. What services notice (alarms) is beside it, in their own files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from pliant.errors import RegistryError, UnreachableError
from pliant.flows.release import open_registry
from pliant.flows.settings import Settings
from pliant.registry import decisions, mlflow_switch
from pliant.registry.mlflow_store import CHAMPION, PREVIOUS
from pliant.registry.mlflow_switch import RunSummary, recent_runs
from pliant.registry.package import METRICS
from pliant.registry.releases import RegistryRelease

RUNS = 5
RELEASES = 8


@dataclass(frozen=True, slots=True)
class SystemStatus:
    """`aliases`: alias -> number of the release; `promises`: registered model -> metrics that it was published with; `gone`:
    registered model -> version that is served and was deleted; `decision`: by which the live release is served."""

    system: str
    live: RegistryRelease | None
    aliases: Mapping[str, int]
    releases: tuple[RegistryRelease, ...]  # the newest first
    promises: Mapping[str, Mapping[str, float]]
    runs: tuple[RunSummary, ...]
    gone: Mapping[str, int] = field(default_factory=dict)
    decision: decisions.Decision | None = None

    @property
    def trials(self) -> dict[str, int]:
        """Return the releases that wait or are tried: alias -> number."""
        return {alias: number for alias, number in self.aliases.items() if alias not in (CHAMPION, PREVIOUS)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "system": self.system,
            "live": _plain(self.live) if self.live else None,
            "aliases": dict(self.aliases),
            "releases": [_plain(release) for release in self.releases],
            "promises": {name: dict(metrics) for name, metrics in self.promises.items()},
            "runs": [asdict(run) for run in self.runs],
            "gone": dict(self.gone),
            "decision": asdict(self.decision) if self.decision else None,
        }


def live(project: Settings, system: str) -> RegistryRelease | None:
    """Return the release that is served; None where nothing was ever published. Raises `RegistryError`."""
    registry = open_registry(project, system)
    return registry.release(system) if registry.exists() else None


def status(project: Settings, system: str) -> SystemStatus:
    """Return the status of a system; an empty one where nothing was ever published. Raises `RegistryError`."""
    registry = open_registry(project, system)
    if not registry.exists():
        return SystemStatus(system, None, {}, (), {}, ())
    live, promises, gone = registry.release(system), {}, {}
    for name, number in live.versions.items() if live else ():
        try:
            published = registry.version(name, number)
        except UnreachableError:
            raise
        except RegistryError:
            published, gone[name] = None, number
        with suppress(ValueError):
            if metrics := json.loads(published.tags.get(METRICS, "{}")) if published else {}:
                promises[name] = metrics
    releases = tuple(mlflow_switch.history(registry, system)[:RELEASES])
    aliases, runs = mlflow_switch.aliases(registry, system), tuple(recent_runs(registry, RUNS))
    decision = decisions.behind(registry, live) if live else None
    return SystemStatus(system, live, aliases, releases, promises, runs, gone, decision)


def _plain(release: RegistryRelease) -> dict[str, Any]:
    values = asdict(release)
    return {name: values[name] for name in ("number", "former", "versions", "state", "since", "reason", "run")}
