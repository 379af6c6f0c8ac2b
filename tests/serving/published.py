"""A registry of tiny artifacts in MLflow, as the flow would leave it."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import numpy as np

from pliant.tokens.artifact import GAMMAS, Backbone, Profile, Task
from registry import codec
from registry.mlflow_store import CHAMPION, MlflowRegistry
from registry.package import Package
from serving.settings import Settings
from serving.tokens_catalog import BACKBONE, PROFILE, TASK_PREFIX
from serving.tokens_variants import VARIANT_PREFIX
from tests.tokens_samples import WIDTH, random_images, tiny_backbone, tiny_profile, tiny_task

CLASSES = ["zero", "one", "two"]


def settings_for(folder: Path, **changes) -> Settings:
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    return Settings(registry_uri=uri, artifact_root=str(folder / "artifacts"), threads=1, **changes)


def publish(folder: Path, *artifacts, promote: bool = True) -> list[str]:
    """Each artifact as the next version of its model, and their digests."""
    settings, digests = settings_for(folder), []
    registry = MlflowRegistry(settings.registry_uri, settings.experiment, Path(settings.artifact_root))
    images, rows = random_images(2), np.zeros((2, 1), np.float32)
    with registry.run("test") as run:
        for artifact in artifacts:
            name, draft = _model(artifact), folder / "drafts" / uuid4().hex
            digests.append(codec.save(artifact, draft))
            published = registry.publish(run, Package(name, draft, images, rows))
            if promote:
                registry.promote(published.name, published.version, CHAMPION)
    return digests


def _model(artifact) -> str:
    match artifact:
        case Backbone():
            return BACKBONE
        case Profile():
            return PROFILE
        case Task():
            return TASK_PREFIX + artifact.name
    return VARIANT_PREFIX + artifact.name


def publish_all(folder: Path, device: str, backbone=None, image_size: int = 16) -> None:
    """A backbone, a profile measured on `device`, the task "digits", and the task "shapes" without an alias."""
    settings = settings_for(folder)
    registry = MlflowRegistry(settings.registry_uri, settings.experiment, Path(settings.artifact_root))
    digest = codec.save(backbone or tiny_backbone(), folder / "backbone")
    codec.save(tiny_profile(digest, device), folder / "profile")
    codec.save(tiny_task("digits", CLASSES, digest), folder / "digits")
    codec.save(tiny_task("shapes", ["round", "square"], digest, seed=1), folder / "shapes")
    columns = {label: np.zeros(2, np.float32) for label in CLASSES}
    table = {"gamma": np.array([0]), "batch": np.array([1])}
    images = random_images(2)
    with registry.run("test") as run:
        for package in (
            Package(BACKBONE, folder / "backbone", images, np.zeros((2, WIDTH), np.float32)),
            Package(PROFILE, folder / "profile", table, {"seconds": np.zeros(1)}),
            Package(TASK_PREFIX + "digits", folder / "digits", images, columns),
            Package(TASK_PREFIX + "shapes", folder / "shapes", images, columns),
        ):
            published = registry.publish(run, package)
            if not package.name.endswith("shapes"):
                registry.promote(published.name, published.version, CHAMPION)


__all__ = ["CLASSES", "GAMMAS", "publish", "publish_all", "settings_for"]
