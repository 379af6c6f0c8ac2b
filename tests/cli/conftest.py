"""A place for commands to run in: an empty working directory, and a registry in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.flows import release
from tests.fixtures.registry import FolderRegistry


@pytest.fixture
def here(tmp_path, monkeypatch) -> Iterator[Path]:
    """An empty working directory without a registry, and an environment that is as it was afterwards."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    before = dict(os.environ)
    for name in before:
        if name.startswith(("PLIANT_", "PREFECT_", "MLFLOW_", "BENTOML_")):
            del os.environ[name]
    os.environ["COLUMNS"] = "300"  # so that no cell of a table is cut
    yield folder
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def registry(here, tmp_path, monkeypatch) -> FolderRegistry:
    """An empty registry, which the commands take for that of the project."""
    registry = FolderRegistry(tmp_path / "registry")
    monkeypatch.setattr(release, "MlflowRegistry", lambda *_: registry)
    return registry
