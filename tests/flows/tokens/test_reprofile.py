"""`pliant profile tokens`: the champion measured here, its profile published as the new champion."""

from __future__ import annotations

import pytest

from pliant.device import device_class, threads
from pliant.errors import DeviceError
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.flows.tokens.champions import load_champion
from pliant.flows.tokens.reprofile import reprofile
from pliant.progress import silent
from tests.fixtures.tokens.published import publish_all

pytestmark = pytest.mark.slow


def test_a_profile_of_another_machine_gives_way_to_one_of_this_and_nothing_else_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    publish_all(tmp_path, "a machine far away")
    project = settings.read()
    before = load_champion(project)
    with pytest.raises(DeviceError, match="was measured on a machine far away, and this device is cpu-"):
        reprofile("cpu", 1, silent)
    version = reprofile("cpu", 1, silent, other_device=True)
    after = load_champion(project)
    with threads(1):
        assert after.profile.device == device_class("cpu")
    assert before.profile.device == "a machine far away"
    assert after.profile.backbone == before.profile.backbone
    assert [task.name for task in after.tasks] == [task.name for task in before.tasks]
    registry = open_registry(project, "tokens")
    assert registry.version("pliant-tokens-profile").version == version == 2
    assert registry.version("pliant-tokens-backbone").version == 1
