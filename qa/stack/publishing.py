"""A flow that publishes a tiny stream of bins as flows do, and waits at the moments at which a fault is planted."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pliant.bins.artifact import Bins
from pliant.flows import settings
from pliant.flows.champions import load_champions
from pliant.flows.pipeline import limited_task, publish_task, show_release, system_flow
from pliant.flows.release import open_registry
from pliant.registry.mlflow_store import MlflowRegistry
from tests.fixtures.half_publishes import Publisher

NAME = "colours"


def passing(folder: Path, moment: str) -> None:
    """Write the file `<moment>`, and wait while there is a file `hold-<moment>`."""
    (folder / moment).touch()
    while (folder / f"hold-{moment}").exists():
        time.sleep(0.1)


@limited_task("work")
def work(folder: Path) -> None:
    passing(folder, "work")


class ProjectsPublisher(Publisher):
    """Publishes into the project's registry."""

    @property
    def registry(self) -> MlflowRegistry:
        return open_registry(settings.read(), "bins")


@publish_task()
def publish(folder: Path, seed: int) -> dict[str, Any]:
    published = ProjectsPublisher(folder).publish(seed, lambda: passing(folder, "commit"))
    released = published.release(True, "a test")
    show_release("bins", "a test", released)
    return asdict(released)


@system_flow("publishing", "bins")
def publishing(folder: str, seed: int, reason: str | None = None) -> dict[str, Any]:
    del reason
    work(Path(folder))
    champions = load_champions(open_registry(settings.read(), "bins"), Bins)
    assert champions.keys() <= {NAME}
    released: dict[str, Any] = publish(Path(folder), seed)
    return released
