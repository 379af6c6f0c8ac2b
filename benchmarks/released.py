"""A system's champion in a registry of the benchmark's own, beside the user's, made by the system's flow.

The flow runs in a process of its own, which learns of the registry by the variables that flows/settings.py reads. Run again
it finds all stages made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from pliant.benchmarks import places
from pliant.errors import PliantError
from pliant.flows import settings

CODE = "import json, sys; from pliant.flows.run import run_flow; run_flow(sys.argv[1], None, json.loads(sys.argv[2]), True)"


def registry(name: str) -> settings.Settings:
    """Return where a benchmark's registry of this name is. Its folder is there afterwards."""
    home = settings.read().home / name
    project = settings.Settings(home, f"sqlite:///{home / 'mlflow.db'}", home / "artifacts")
    project.artifact_root.mkdir(parents=True, exist_ok=True)
    return project


def run_flow(project: settings.Settings, system: str, overrides: Mapping[str, Any]) -> None:
    """Run a system's flow in a registry, with `overrides` laid over its settings. Raises `PliantError` where it fails."""
    where = {"PLIANT_HOME": str(project.home), "MLFLOW_TRACKING_URI": project.tracking_uri}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-c", CODE, system, json.dumps(overrides)]
    ended = subprocess.run(command, env={**kept, **where}, cwd=places.ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or ["nothing"])[-1]
        raise PliantError(f"the flow of {system} in {project.home} ended with status {ended.returncode}: {said}")
