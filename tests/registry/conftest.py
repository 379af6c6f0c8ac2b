"""A registry on a fresh database with one version of each tokens artifact. Made once: MLflow's schema takes seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.package import Package
from pliant.tokens.artifact import Backbone, Task
from tests.fixtures.light_mlflow import lay_database
from tests.fixtures.tokens.samples import IMAGE_SIZE, WIDTH, tiny_backbone, tiny_profile, tiny_task

BACKBONE, TASK, PROFILE = "pliant-tokens-backbone", "pliant-tokens-task-letters", "pliant-tokens-profile"
CLASSES = ("a", "b", "c")


@dataclass(frozen=True)
class Shelf:
    """Artifacts in folders, and how each is packed."""

    folder: Path
    backbone: Backbone
    task: Task
    digest: str

    def package(self, name: str, backbone_uri: str = "") -> Package:
        images = np.zeros((1, IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
        match name:
            case "backbone":
                features = np.zeros((1, WIDTH), np.float32)
                tags = {"pliant.data": "none"}
                return Package(BACKBONE, self.folder / name, images, features, config={"device": "cpu"}, tags=tags)
            case "task":
                columns = {label: np.zeros(1, np.float32) for label in CLASSES}
                config = {"backbone": backbone_uri, "device": "cpu"}
                return Package(TASK, self.folder / name, images, columns, {"gamma": 0}, config, metrics={"share": 0.5})
        rows = {"gamma": np.array([0]), "batch": np.array([1])}
        return Package(PROFILE, self.folder / name, rows, {"seconds": np.zeros(1)})


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    backbone = tiny_backbone()
    digest = codec.save(backbone, folder / "backbone")
    task = tiny_task("letters", CLASSES, digest)
    codec.save(task, folder / "task")
    codec.save(tiny_profile(digest, "cpu"), folder / "profile")
    return Shelf(folder, backbone, task, digest)


@pytest.fixture(scope="session")
def registry(tmp_path_factory, shelf):
    runs = tmp_path_factory.mktemp("runs")
    registry = MlflowRegistry(lay_database(runs / "mlflow.db"), "pliant-tokens", runs / "artifacts")
    publish_all(registry, shelf)
    return registry


def publish_all(registry: MlflowRegistry, shelf: Shelf) -> None:
    with registry.run("release") as run:
        backbone = registry.publish(run, shelf.package("backbone"))
        others = [registry.publish(run, shelf.package(name, backbone.uri)) for name in ("task", "profile")]
    for published in (backbone, *others):
        registry.promote(published.name, published.version)
