"""A flow that publishes a tiny stream of bins as flows do, and waits at the moments at which a fault is planted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from pliant.bins.artifact import Bins
from pliant.flows import settings
from pliant.flows.champions import load_champions
from pliant.flows.pipeline import limited_task, publish_task, show_release, system_flow
from pliant.flows.release import open_registry, publication
from pliant.registry import codec
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.registry.package import Package
from tests.fixtures.bins.published import TEXT, encoder, plan

NAME = "colours"


def passing(folder: Path, moment: str) -> None:
    """Write the file `<moment>`, and wait while there is a file `hold-<moment>`."""
    (folder / moment).touch()
    while (folder / f"hold-{moment}").exists():
        time.sleep(0.1)


@limited_task("work")
def work(folder: Path) -> None:
    passing(folder, "work")


@publish_task()
def publish(folder: Path, seed: int) -> dict[str, Any]:
    registry = open_registry(settings.read(), "bins")
    with publication(registry, "bins", {"seed": seed}, {"reason": "a test"}) as published:

        def register(name: str, artifact: Any) -> str:
            draft = folder / "drafts" / codec.encode(artifact)[codec.DIGESTS].hex()[-16:]
            digest = codec.save(artifact, draft)
            package = Package(name, draft, {"text": np.array([TEXT])}, {"label": np.array(["red"])})
            published.register(name, digest, lambda: package)
            return digest

        register(BINS_PREFIX + NAME, plan(NAME, register(BINS_ENCODER + NAME, encoder(NAME, seed))))
        passing(folder, "commit")
        published.promote([BINS_ENCODER + NAME, BINS_PREFIX + NAME])
    released = published.release(True, "a test")
    show_release("bins", "a test", released)
    return released.to_dict()


@system_flow("publishing", "bins")
def publishing(folder: str, seed: int, reason: str | None = None) -> dict[str, Any]:
    del reason
    work(Path(folder))
    champions = load_champions(open_registry(settings.read(), "bins"), Bins)
    assert champions.keys() <= {NAME}
    released: dict[str, Any] = publish(Path(folder), seed)
    return released
