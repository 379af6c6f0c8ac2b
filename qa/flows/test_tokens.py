"""What the tokens flow alone does: how its training went; and what a command shows whose flow fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pliant.flows import settings
from pliant.flows.release import TRAINING, open_registry
from tests.fixtures.runs import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("world", ["tokens"], indirect=True)]


def test_how_long_training_took_is_logged_and_stays_with_the_version(run):
    released, _ = run(task={"epochs": 0.05, "head_steps": 5})
    registry = open_registry(settings.read(), "tokens")
    client = registry.connect()
    assert {"training.json"} <= {file.path for file in client.list_artifacts(released["run"])}
    metrics = client.get_run(released["run"]).data.metrics
    noted = json.loads(registry.version("pliant-tokens-task-digit", "challenger").tags[TRAINING])
    assert metrics["training_seconds.task-digit"] == noted["seconds"]


def test_the_command_with_a_server_of_its_own_ends_with_one_sentence_and_status_2(place, tmp_path):
    """Prefect's client used to add a line about events that were still on their way."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    process = subprocess.run(
        [sys.executable, "-m", "pliant", "train", "tokens", "--data", "digits:chess"],
        cwd=place,
        env={**kept, "PLIANT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.returncode == 2
    *progress, sentence = process.stderr.splitlines()
    assert sentence == "pliant: task is chess, but must be one of digit, loops, stroke"
    assert all(
        line.startswith(("The flow takes its own sizes", "Sizes: ", "Device: ", "Prefect's server: ", "pictures: "))
        for line in progress
    )
