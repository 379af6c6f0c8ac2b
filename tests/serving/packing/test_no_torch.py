"""The main process of packing's service imports no torch: all models run in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

HEAVY = {"torch", "transformers"}
SERVE = """
import json, sys
from pathlib import Path

import pliant.registry.mlflow_store, pliant.serving.packing.service
from tests.fixtures.packing import in_process
from tests.fixtures.registry import FolderRegistry

published = FolderRegistry(Path(sys.argv[1]))
in_process.publish(published)
with in_process.serving(published) as service:
    answer = service.complete(max_tokens=4).json()
    print(json.dumps([answer["choices"][0]["pliant"]["prediction"], sorted(sys.modules)]))
"""


def test_a_service_that_has_generated_a_text_has_imported_no_torch(tmp_path):
    """All modules are the service's own; the processes of engine and predictor are replaced by fakes on its loop."""
    command = [sys.executable, "-c", SERVE, str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    prediction, modules = json.loads(output.splitlines()[-1])
    assert prediction == "predicted" and "pliant.serving.packing.engine.forecaster" in modules
    assert not HEAVY.intersection(modules)
