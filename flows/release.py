"""What a flow releases: new versions of registered models, and the aliases that say which is live. Knows no system.

An artifact that is the champion already keeps its version; anything else becomes a new version, `challenger` at first and
`champion` if the gate let it pass. Knows no Prefect.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flows.settings import Settings
from registry.mlflow_run import Run
from registry.mlflow_store import CHAMPION, MlflowRegistry
from registry.package import Package

CHALLENGER = "challenger"
TRAINING = "pliant.training"
"""Tag of a version: its stage's notes as JSON."""


@dataclass(frozen=True, slots=True)
class Release:
    """`versions`: registered model -> version, of everything that belongs to the release, new or kept."""

    promoted: bool
    reason: str
    versions: Mapping[str, int]
    new: tuple[str, ...]
    run: str  # MLflow run

    def plain(self) -> dict[str, Any]:
        """For Prefect, which keeps a flow's result as JSON."""
        return asdict(self)


def open_registry(settings: Settings, experiment: str) -> MlflowRegistry:
    return MlflowRegistry(settings.tracking_uri, experiment, settings.artifact_root)


def register(
    registry: MlflowRegistry, run: Run, name: str, digest: str, package: Callable[[], Package]
) -> tuple[int, bool]:
    """The version of model `name` that holds this artifact, and whether it is new; `package` is asked for only then."""
    for alias in (CHAMPION, CHALLENGER):  # a challenger that was refused is not stored once more with every run
        known = registry.version(name, alias)
        if known is not None and known.digest == digest:
            return known.version, False
    version = registry.publish(run, package()).version
    registry.promote(name, version, CHALLENGER)
    return version, True


def promote(registry: MlflowRegistry, versions: Mapping[str, int]) -> None:
    """In their order: what names the others comes last, so that a service which sees it finds its parts."""
    for name, version in versions.items():
        registry.promote(name, version, CHAMPION)


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, object]:
    """Nested settings as one level of dotted names, tables in lists by their numbers: a run's parameters."""
    made: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, list | tuple) and value and all(isinstance(one, Mapping) for one in value):
            value = {str(number): one for number, one in enumerate(value)}
        if isinstance(value, Mapping):
            made |= flat(value, f"{above}{key}.")
        else:
            made[above + key] = value
    return made


def metric(name: str) -> str:
    """As MLflow takes it for a metric, or within one's name."""
    return re.sub(r"[^\w. /-]", "_", name)


def commit() -> str:
    """The code's git commit, for tags."""
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"
